"""One local Spark session for all tests of the Spark engine."""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlflow
import pandas as pd
import pytest
from mlflow.models import EvaluationResult

import biasbios_mlflow

# The small BERT of the tests of prediction.
from tests.prediction.conftest import bert_uri, tokenizer, vocabulary

__all__ = ["bert_uri", "tokenizer", "vocabulary"]

# Few replicates: what is compared is the engines.
OPTIONS = {"n_replicates": 100}


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let pass what pyspark says of pandas 3 where the tests hand it pandas frames."""
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas")


def need_java() -> None:
    """Skip where Spark cannot run."""
    pytest.importorskip("pyspark")
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("Spark needs Java")


@pytest.fixture(scope="session")
def spark(mlflow_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Two cores, and up to four attempts at each task."""
    need_java()
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2,4]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")  # tasks fail on purpose
    yield session
    session.stop()


@pytest.fixture
def parquet(bios: pd.DataFrame, tmp_path: Path) -> str:
    """The bios in a file that Spark reads in several partitions."""
    return write_parquet(bios, tmp_path / "bios.parquet")


def write_parquet(frame: pd.DataFrame, path: Path) -> str:
    frame.to_parquet(path, row_group_size=100)
    return str(path)


def read(spark: Any, path: str, partitions: int = 4) -> Any:
    """Read a parquet file in about so many partitions."""
    size = max(1, Path(path).stat().st_size // partitions)
    spark.conf.set("spark.sql.files.maxPartitionBytes", size)
    spark.conf.set("spark.sql.files.openCostInBytes", 0)
    return spark.read.parquet(path)


def evaluate(*arguments: Any, **options: Any) -> EvaluationResult:
    """Evaluate with Spark in a run of its own."""
    import biasbios_mlflow.spark

    with mlflow.start_run():
        return biasbios_mlflow.spark.evaluate(*arguments, **{**OPTIONS, **options})


def evaluate_locally(*arguments: Any, **options: Any) -> EvaluationResult:
    """Evaluate without Spark in a run of its own."""
    with mlflow.start_run():
        return biasbios_mlflow.evaluate(*arguments, **{**OPTIONS, **options})


def content(result: EvaluationResult, name: str) -> Any:
    return result.artifacts[f"biasbios/{name}"].content


def assert_same(ours: EvaluationResult, theirs: EvaluationResult) -> None:
    """Every number, table and hash is the same to the last digit."""
    assert ours.metrics == theirs.metrics
    a, b = content(ours, "summary"), content(theirs, "summary")
    assert a["scores"] == b["scores"]
    assert a["unknown_predictions"] == b["unknown_predictions"]
    assert a["warnings"] == b["warnings"]
    for part in ("bios", "left_out", "sha256", "labels", "findings"):
        assert a["data"][part] == b["data"][part]
    for table in ("occupation_gaps", "flips"):
        pd.testing.assert_frame_equal(content(ours, table), content(theirs, table))
