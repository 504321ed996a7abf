"""Numbers, tables and hashes are those of the local engine, to the last digit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import Pipeline

from biasbios_mlflow import load_bios
from biasbios_mlflow.spark import engine
from tests.conftest import Registered
from tests.spark.conftest import (
    OPTIONS,
    assert_same,
    content,
    evaluate,
    evaluate_locally,
    need_java,
    read,
    write_parquet,
)


def test_scikit_learn_on_the_test_split(spark: Any, registered: Registered, tmp_path: Path) -> None:
    frame = load_bios("sample", "test").df
    path = write_parquet(frame, tmp_path / "test.parquet")
    bios = read(spark, path)
    assert bios.rdd.getNumPartitions() > 2
    ours = evaluate(registered.uri, bios)
    assert_same(ours, evaluate_locally(registered.uri, frame))
    assert ours.metrics["biasbios/bios"] == len(frame)
    assert content(ours, "summary")["model"]["path"] == "sklearn.predict_proba on Spark"


def test_transformers(spark: Any, bert_uri: str, bios: pd.DataFrame, parquet: str) -> None:
    """Windows are those of the local engine, and so are the batches that the model sees."""
    options = {"window_size": 90, "max_length": 32}
    ours = evaluate(bert_uri, read(spark, parquet), **options)
    assert_same(ours, evaluate_locally(bert_uri, bios, **options))
    assert content(ours, "summary")["flips"] > 0


def test_the_order_of_partitions_is_that_of_the_rows(
    spark: Any, registered: Registered, bios: pd.DataFrame, parquet: str, tmp_path: Path
) -> None:
    """One window of all rows, however Spark has cut them: the same rows at the same places."""
    out = tmp_path / "out"
    ours = evaluate(registered.uri, read(spark, parquet, 5), output=str(out))
    rows = pd.read_parquet(out / ours.run_id / "predictions").sort_values("row")
    assert rows["row"].tolist() == list(range(len(bios)))
    assert rows["occupation"].tolist() == bios["profession"].tolist()


def test_incomplete_bios_are_counted_and_left_out(
    spark: Any, registered: Registered, bios: pd.DataFrame, tmp_path: Path
) -> None:
    frame = bios.head(300).astype(object)
    frame.loc[::30, "hard_text"] = [None, "", " \t\n", "\u3000\x1c\x85", "\u200b is a mark"] * 2
    frame.loc[5::50, "profession"] = None
    frame.loc[7::100, "gender"] = None
    # The same bio again, once with another gender.
    frame.loc[11, ["hard_text", "profession"]] = frame.loc[12, ["hard_text", "profession"]]
    frame.loc[[11, 12], "gender"] = ["M", "Female"]
    frame.loc[21] = frame.loc[22]
    path = write_parquet(frame, tmp_path / "gaps.parquet")
    options = {"allow_missing": True, "window_size": 64}
    ours = evaluate(registered.uri, read(spark, path), **options)
    assert_same(ours, evaluate_locally(registered.uri, frame, **options))
    assert content(ours, "summary")["data"]["left_out"] == {
        "text": 8,
        "occupation": 6,
        "gender": 3,
    }


def test_ids_of_occupations_and_genders(
    spark: Any, registered: Registered, bios: pd.DataFrame, tmp_path: Path
) -> None:
    names = sorted(set(bios["profession"]))
    frame = pd.DataFrame(
        {
            "bio id": [f"b{row}" for row in range(len(bios))],
            "hard_text": bios["hard_text"],
            "p": np.array([names.index(name) for name in bios["profession"]]),
            "g": (bios["gender"] == "female").astype(int),
        }
    )
    path = write_parquet(frame, tmp_path / "ids.parquet")
    options = {"id_column": "bio id", "label_names": names}
    ours = evaluate(registered.uri, read(spark, path), **options)
    assert_same(ours, evaluate_locally(registered.uri, frame, **options))
    assert content(ours, "flips")["id"].str.startswith("b").all()


def test_an_absent_occupation_and_another_label_set(
    spark: Any, registered: Registered, bios: pd.DataFrame, tmp_path: Path
) -> None:
    frame = bios[bios["profession"].isin(["nurse", "surgeon"])].reset_index(drop=True)
    women = (frame["profession"] == "surgeon") & (frame["gender"] == "female")
    frame = frame[~women].reset_index(drop=True)
    path = write_parquet(frame, tmp_path / "two.parquet")
    ours = evaluate(registered.uri, read(spark, path))
    assert_same(ours, evaluate_locally(registered.uri, frame))
    assert ours.metrics["biasbios/occupations_scored"] == 1


def test_predictions_that_stand_in_the_data(
    spark: Any, classifier: Pipeline, bios: pd.DataFrame, tmp_path: Path
) -> None:
    frame = bios.assign(
        y0=classifier.predict(bios), y1=np.roll(classifier.predict(bios), 1), y2="Astronaut"
    )
    frame.loc[:3, "y0"] = ["Pilot", "pilot", "PILOT", "astronaut"]
    path = write_parquet(frame, tmp_path / "static.parquet")
    options = {"predictions": "y0", "counterfactual_predictions": "y1", "window_size": 50}
    ours = evaluate(None, read(spark, path), **options)
    with mlflow.start_run():
        theirs = mlflow.models.evaluate(
            data=frame,
            model_type="biasbios",
            targets="profession",
            predictions="y0",
            evaluators="biasbios",
            evaluator_config={**OPTIONS, "counterfactual_predictions": "y1", "window_size": 50},
        )
    assert ours.metrics == theirs.metrics
    assert content(ours, "summary")["unknown_predictions"] == {"Pilot": 3, "astronaut": 1}


def test_many_parts_are_added_up_by_executors(
    spark: Any,
    registered: Registered,
    bios: pd.DataFrame,
    parquet: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine, "_FAN_IN", 3)
    ours = evaluate(registered.uri, read(spark, parquet), window_size=50, max_flips=7)
    assert_same(ours, evaluate_locally(registered.uri, bios, max_flips=7))
    assert len(content(ours, "flips")) == 7


@pytest.mark.parametrize("remote", [False, True], ids=["classic", "connect"])
def test_command_line(
    remote: bool, registered: Registered, bios: pd.DataFrame, parquet: str, tmp_path: Path
) -> None:
    """A session of its own, in which PYSPARK_PYTHON is not set."""
    need_java()
    environment = {k: v for k, v in os.environ.items() if k != "PYSPARK_PYTHON"}
    if remote:
        pytest.importorskip("grpc")
        environment["SPARK_REMOTE"] = "local[2]"
    out = tmp_path / "out"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "biasbios_mlflow", "evaluate", registered.uris()["alias"]),
            *("--engine", "spark", "--data", parquet, "--output", str(out)),
            *("--n-replicates", "100", "--json"),
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    assert printed["model_uri"] == registered.uri
    assert printed["metrics"] == evaluate_locally(registered.uri, bios).metrics
    written = pd.read_parquet(out / printed["run_id"] / "predictions")
    assert len(written) == len(bios)
