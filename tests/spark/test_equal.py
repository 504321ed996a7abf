"""Numbers, tables and hashes are those of the local engine, to the last digit."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import Pipeline

from biasbios_mlflow import load_bios
from biasbios_mlflow.spark import engine
from tests.conftest import Registered
from tests.program import run_program
from tests.spark.conftest import (
    assert_same,
    evaluate,
    evaluate_locally,
    need_java,
    read,
    write_parquet,
)


def test_scikit_learn_on_the_test_split(spark: Any, registered: Registered, tmp_path: Path) -> None:
    frame = load_bios("sample", split="test").df
    bios = read(spark, write_parquet(frame, tmp_path / "test.parquet"))
    assert bios.rdd.getNumPartitions() > 2
    ours = evaluate(bios, registered.uri)
    assert_same(ours, evaluate_locally(frame, registered.uri))
    assert ours.bios == len(frame)
    assert ours.path == "sklearn.predict and predict_proba on Spark"


def test_transformers(spark: Any, bert_uri: str, bios: pd.DataFrame, parquet: str) -> None:
    """Windows are those of the local engine, and so are the batches that the model sees."""
    options = {"window_size": 90}
    ours = evaluate(read(spark, parquet), bert_uri, **options)
    assert_same(ours, evaluate_locally(bios, bert_uri, **options))
    assert ours.result.flips.found > 0


def test_incomplete_and_repeated_bios(
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
    ours = evaluate(read(spark, path), registered.uri, **options)
    assert_same(ours, evaluate_locally(frame, registered.uri, **options), repeated=True)
    assert ours.missing == {"text": 8, "occupation": 6, "gender": 3}
    assert ours.result.findings.conflicting == 4  # two bios here, and two marks


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
    ours = evaluate(read(spark, path), registered.uri, **options)
    assert_same(ours, evaluate_locally(frame, registered.uri, **options))
    assert all(flip.id == f"b{flip.row}" for flip in ours.result.flips.sample)


def test_absent_occupations(
    spark: Any, registered: Registered, bios: pd.DataFrame, tmp_path: Path
) -> None:
    """One occupation has no women, most have nobody."""
    frame = bios[bios["profession"].isin(["nurse", "surgeon"])]
    frame = frame[(frame["profession"] == "nurse") | (frame["gender"] == "male")]
    frame = frame.reset_index(drop=True)
    path = write_parquet(frame, tmp_path / "two.parquet")
    ours = evaluate(read(spark, path), registered.uri, min_cell=1)
    assert_same(ours, evaluate_locally(frame, registered.uri, min_cell=1))
    assert ours.scores.metrics["occupations_scored"] == 1


def test_predictions_that_stand_in_the_data(
    spark: Any, classifier: Pipeline, bios: pd.DataFrame, tmp_path: Path
) -> None:
    predicted = classifier.predict(bios)
    frame = bios.assign(y0=predicted, y1=np.roll(predicted, 1))
    frame.loc[:3, "y0"] = ["Pilot", "pilot", "PILOT", "astronaut"]
    path = write_parquet(frame, tmp_path / "static.parquet")
    options = {"predictions": "y0", "counterfactual_predictions": "y1", "window_size": 50}
    ours = evaluate(read(spark, path), None, **options)
    assert_same(ours, evaluate_locally(frame, None, **options))
    assert ours.result.unknown == {"Pilot": 3, "astronaut": 1}


def test_many_parts_are_added_up_by_executors(
    spark: Any,
    registered: Registered,
    bios: pd.DataFrame,
    parquet: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine, "_FAN_IN", 3)
    ours = evaluate(read(spark, parquet), registered.uri, window_size=50, max_flips=7)
    assert_same(ours, evaluate_locally(bios, registered.uri, window_size=50, max_flips=7))
    assert len(ours.result.flips.sample) == 7


@pytest.mark.spark
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
    done = run_program(
        *("evaluate", registered.uris()["alias"], "--engine", "spark", "--data", parquet),
        *("--output", str(out), "--n-replicates", "100", "--json"),
        environment=environment,
    )
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    assert printed["model_uri"] == registered.uri
    expected = evaluate_locally(bios, registered.uri).scores.metrics
    assert printed["metrics"] == {f"biasbios/{name}": value for name, value in expected.items()}
    assert len(pd.read_parquet(out / printed["run_id"] / "predictions")) == len(bios)
