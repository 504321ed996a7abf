"""What is in the run, and what leaves the executors."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import mlflow
import pandas as pd
import pyarrow as pa

from biasbios_mlflow.bios.checked import find_columns
from biasbios_mlflow.bios.occupations import OCCUPATIONS, Labels
from biasbios_mlflow.config import EvaluationConfig
from biasbios_mlflow.spark.engine import _as_stream
from biasbios_mlflow.spark.worker import POSITION, ROW, Part, Task
from tests.conftest import Registered
from tests.spark.conftest import content, evaluate, evaluate_locally, read


def test_run_model_and_dataset_are_linked_once(
    spark: Any, registered: Registered, parquet: str
) -> None:
    ours = evaluate(registered.uris()["alias"], parquet)
    client = mlflow.MlflowClient()
    run = client.get_run(ours.run_id)
    assert run.data.metrics == ours.metrics
    assert len(client.get_metric_history(ours.run_id, "biasbios/ctf")) == 1
    assert [model.model_id for model in run.inputs.model_inputs] == [registered.model_id]
    (dataset,) = [given.dataset for given in run.inputs.dataset_inputs]
    summary = content(ours, "summary")
    assert summary["data"]["sha256"].startswith(dataset.digest)
    assert dataset.name == "bios"
    assert parquet in dataset.source
    logged = client.get_logged_model(registered.model_id)
    points = [m for m in logged.metrics if m.run_id == ours.run_id and m.key == "biasbios/ctf"]
    assert [(m.dataset_name, m.dataset_digest) for m in points] == [("bios", dataset.digest)]
    assert summary["model"]["uri"] == registered.uri  # the version that the alias pointed at
    assert {"survey", "swap", "prediction", "counting", "scoring"} <= set(summary["seconds"])


def test_rows_written_by_executors(
    spark: Any, registered: Registered, bios: pd.DataFrame, parquet: str, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    ours = evaluate(registered.uri, read(spark, parquet), window_size=100, output=str(out))
    assert mlflow.get_run(ours.run_id).data.tags["biasbios.output"] == f"{out}/{ours.run_id}"
    assert "biasbios/predictions" not in ours.artifacts
    theirs = content(evaluate_locally(registered.uri, bios, window_size=100), "predictions")
    rows = pd.read_parquet(out / ours.run_id / "predictions").sort_values("row")
    rows = rows.reset_index(drop=True)
    assert rows["id"].isna().all()
    pd.testing.assert_frame_equal(rows[theirs.columns], theirs)
    flips = pd.read_parquet(out / ours.run_id / "flips")
    sample = content(ours, "flips")
    assert len(flips) == len(sample) == content(ours, "summary")["flips"]
    both = flips.merge(sample, on=["row", "prediction", "text", "counterfactual_text"])
    assert len(both) == len(flips)


def test_without_texts_no_text_leaves_the_executors(
    spark: Any, registered: Registered, bios: pd.DataFrame, parquet: str, tmp_path: Path
) -> None:
    options = {"log_texts": False, "window_size": 100}
    ours = evaluate(registered.uri, read(spark, parquet), output=str(tmp_path / "out"), **options)
    theirs = evaluate_locally(registered.uri, bios, **options)
    pd.testing.assert_frame_equal(content(ours, "flips"), content(theirs, "flips"))
    flips = pd.read_parquet(tmp_path / "out" / ours.run_id / "flips")
    assert not {"text", "counterfactual_text"} & set(flips.columns)
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
