"""What is in the run, and what leaves the executors."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import mlflow
import pandas as pd
import pyarrow as pa

import biasbios_mlflow.spark
from biasbios_mlflow.bios.checked import find_columns
from biasbios_mlflow.bios.occupations import OCCUPATIONS, Labels
from biasbios_mlflow.config import EvaluationConfig
from biasbios_mlflow.spark.engine import _as_stream
from biasbios_mlflow.spark.worker import POSITION, ROW, Part, Task
from tests.conftest import Registered
from tests.spark.conftest import (
    OPTIONS,
    assert_same,
    evaluate,
    evaluate_locally,
    read,
    write_parquet,
)


def test_run_model_and_dataset_are_linked_once(
    spark: Any, registered: Registered, bios: pd.DataFrame, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    # Rows of its own: MLflow keeps the first place that it was told of the same content.
    parquet = write_parquet(bios.iloc[1:], tmp_path / "bios.parquet")
    with mlflow.start_run():
        ours = biasbios_mlflow.spark.evaluate(
            registered.uris()["alias"], parquet, output=str(out), **OPTIONS
        )
    client = mlflow.MlflowClient()
    run = client.get_run(ours.run_id)
    assert run.data.metrics == ours.metrics
    assert run.data.tags["biasbios.output"] == f"{out}/{ours.run_id}"
    assert len(client.get_metric_history(ours.run_id, "biasbios/ctf")) == 1
    assert [model.model_id for model in run.inputs.model_inputs] == [registered.model_id]
    (dataset,) = [given.dataset for given in run.inputs.dataset_inputs]
    summary = ours.artifacts["biasbios/summary"].content
    assert summary["data"]["sha256"].startswith(dataset.digest)
    assert dataset.name == "bios"
    assert parquet in dataset.source
    logged = client.get_logged_model(registered.model_id)
    points = [m for m in logged.metrics if m.run_id == ours.run_id and m.key == "biasbios/ctf"]
    assert [(m.dataset_name, m.dataset_digest) for m in points] == [("bios", dataset.digest)]
    assert summary["model"]["uri"] == registered.uri  # the version that the alias pointed at
    assert {"survey", "swap", "prediction", "counting", "scoring"} <= set(summary["seconds"])
    assert "biasbios/predictions" not in ours.artifacts
    flips = pd.read_parquet(out / ours.run_id / "flips")
    assert len(flips) == len(ours.artifacts["biasbios/flips"].content) == summary["flips"]
    (written,) = (out / ours.run_id / "config").glob("part-*")
    options = json.loads(written.read_text("utf-8"))
    assert options["n_replicates"] == OPTIONS["n_replicates"]


def test_rows_written_by_executors(
    spark: Any, registered: Registered, bios: pd.DataFrame, parquet: str, tmp_path: Path
) -> None:
    ours = evaluate(read(spark, parquet, 5), registered.uri, tmp_path / "out", window_size=100)
    local = evaluate_locally(bios, registered.uri, window_size=100)
    assert_same(ours, local)
    theirs = pd.read_parquet(local.predictions_path)
    rows = pd.read_parquet(tmp_path / "out" / "predictions").sort_values("row")
    assert rows["id"].isna().all()
    pd.testing.assert_frame_equal(rows.reset_index(drop=True)[theirs.columns], theirs)
    flips = pd.read_parquet(tmp_path / "out" / "flips").sort_values("row")
    sample = local.result.flips.table().sort_values("row")
    pd.testing.assert_frame_equal(
        flips[sample.columns].reset_index(drop=True), sample.reset_index(drop=True)
    )


def test_without_texts_no_text_leaves_the_executors(
    spark: Any, registered: Registered, bios: pd.DataFrame, parquet: str, tmp_path: Path
) -> None:
    options = {"log_texts": False, "window_size": 100}
    ours = evaluate(read(spark, parquet), registered.uri, tmp_path / "out", **options)
    shown = evaluate_locally(bios, registered.uri, **options).result.flips.table(
        texts=False, scope="pronouns"
    )
    assert {flip.text for flip in ours.result.flips.sample} == {""}
    pd.testing.assert_frame_equal(ours.result.flips.table(texts=False, scope="pronouns"), shown)
    flips = pd.read_parquet(tmp_path / "out" / "flips")
    assert not {"text", "counterfactual_text"} & set(flips.columns)
    assert sorted(flips["changed_words"]) == sorted(shown["changed_words"])
    assert flips["changed_words"].str.contains(" > ").all()


def test_a_part_is_small_and_has_no_text(bios: pd.DataFrame) -> None:
    """What one task returns, looked at byte by byte."""
    frame = bios.assign(y0="nurse", y1="poet")
    config = EvaluationConfig.parse(
        {
            "predictions": "y0",
            "counterfactual_predictions": "y1",
            "log_texts": False,
            "max_flips": 20,
            "window_size": 100,
        }
    )
    table = pa.Table.from_pandas(frame, preserve_index=False)
    task = Task(
        config=config,
        columns=find_columns(list(frame.columns)),
        labels=Labels(OCCUPATIONS, ids=True),
        occupation_ids=False,
        head=_as_stream(table.slice(0, 5)),
        archive=None,
        model_config=None,
        tracking_uri=mlflow.get_tracking_uri(),
        keep=False,
    )
    numbers = pa.array(range(len(frame)))
    table = table.append_column(ROW, numbers).append_column(POSITION, numbers)
    # Record batches that cut windows in two, and windows that share a batch.
    (batch,) = task(table.to_batches(max_chunksize=70))
    pickled = batch.column("part")[0].as_py()
    part: Part = pickle.loads(pickled)
    assert sum(part.windows.values()) == len(frame)
    assert set(part.windows.values()) == {100, len(frame) % 100}
    assert part.result.flips.found == len(frame)
    assert len(part.result.flips.sample) == 20
    assert len(pickled) < 25_000
    for text in bios["hard_text"]:
        assert text[:20].encode() not in pickled
    assert list(task([])) == []
