"""Tasks that are tried again, and data that changes: no bio counts twice, none is lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlflow
import pandas as pd
import pytest
from mlflow.exceptions import MlflowException

from biasbios_mlflow.spark import engine
from tests.conftest import Registered
from tests.spark.conftest import assert_same, evaluate, evaluate_locally, read

FRAGILE = """
import os
import pathlib

import mlflow

marker = pathlib.Path({marker!r})


class Fragile(mlflow.pyfunc.PythonModel):
    calls = 0

    def predict(self, context, model_input, params=None):
        self.calls += 1
        if self.calls == 4 and not marker.exists():
            marker.touch()
            {accident}
        return ["nurse" if "patient" in text else "teacher" for text in model_input["hard_text"]]


mlflow.models.set_model(Fragile())
"""


@pytest.mark.parametrize("accident", ["raise OSError('no space left')", "os._exit(1)"])
def test_a_task_that_fails_once_counts_once(
    spark: Any,
    bios: pd.DataFrame,
    parquet: str,
    tmp_path: Path,
    accident: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The accident comes after windows of the same task have been counted."""
    marker = tmp_path / "failed"
    script = tmp_path / "fragile.py"
    script.write_text(FRAGILE.format(marker=str(marker), accident=accident), "utf-8")
    with mlflow.start_run():
        info = mlflow.pyfunc.log_model(
            python_model=str(script), name="model", pip_requirements=["mlflow"]
        )
    monkeypatch.setattr(engine, "_MOST_TASKS", 2)
    uri = f"models:/{info.model_id}"
    ours = evaluate(read(spark, parquet), uri, tmp_path / "out", window_size=50)
    assert marker.exists()
    assert_same(ours, evaluate_locally(bios, uri, window_size=50))
    rows = pd.read_parquet(tmp_path / "out" / "predictions")
    assert sorted(rows["row"]) == list(range(len(bios)))


def test_a_frame_that_changes_is_found_out(
    spark: Any, registered: Registered, parquet: str
) -> None:
    random = "java_method('java.lang.Math', 'random') > '0.5'"
    with pytest.raises(MlflowException, match="other rows when Spark read them again"):
        evaluate(read(spark, parquet).where(random), registered.uri)
