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

from biasbios_mlflow.bios.checked import Columns, check_bios, find_columns
from biasbios_mlflow.config import EvaluationConfig
from biasbios_mlflow.pipeline import Evaluation, evaluate_bios
from biasbios_mlflow.prediction.predictor import find_predictor

# The small BERT of the tests of prediction.
from tests.prediction.conftest import bert_uri, tokenizer, vocabulary

__all__ = ["bert_uri", "tokenizer", "vocabulary"]

# Few replicates: what is compared is the engines.
OPTIONS = {"n_replicates": 100}

# A session that lives for a minute spends most of it on compiling itself.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


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


def evaluate(frame: Any, uri: str | None, folder: Path | None = None, **options: Any) -> Evaluation:
    """Evaluate with Spark, without a run."""
    from biasbios_mlflow.spark.engine import evaluate_frame
    from biasbios_mlflow.spark.sessions import errors_told
    from biasbios_mlflow.spark.shipping import ship_model

    config, columns = options_and_columns(frame.columns, options)
    model = None if uri is None else ship_model(uri, frame.sparkSession)
    with errors_told("data"):
        place = None if folder is None else str(folder)
        return evaluate_frame(frame, columns, config, model, folder=place)


def evaluate_locally(frame: pd.DataFrame, uri: str | None, **options: Any) -> Evaluation:
    """Evaluate without Spark, without a run."""
    config, columns = options_and_columns(list(frame.columns), options)
    bios = check_bios(
        frame, columns, label_names=config.label_names, allow_missing=config.allow_missing
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # MLflow tells what it thinks of the model
        model = None if uri is None else mlflow.pyfunc.load_model(uri)
    return evaluate_bios(bios, find_predictor(model, config), config)


def options_and_columns(
    names: list[str], options: dict[str, Any]
) -> tuple[EvaluationConfig, Columns]:
    config = EvaluationConfig.parse({**OPTIONS, **options})
    return config, find_columns(names, id=config.id_column)


def assert_same(ours: Evaluation, theirs: Evaluation, *, repeated: bool = False) -> None:
    """Every number, table and hash is the same to the last digit.

    With ``repeated`` bios intervals are left out: Spark does not widen them, and says so.
    """
    warnings = list(ours.warnings)
    if repeated:
        points = [name for name in ours.scores.metrics if "_ci_" not in name]
        for name in points:
            assert ours.scores.metrics[name] == theirs.scores.metrics[name], name
        (told,) = [warning for warning in warnings if "on Spark the intervals" in warning]
        warnings.remove(told)
    else:
        assert ours.scores.metrics == theirs.scores.metrics
        assert ours.scores.to_dict() == theirs.scores.to_dict()
        pd.testing.assert_frame_equal(ours.scores.occupations, theirs.scores.occupations)
        assert warnings == list(theirs.warnings)
    assert ours.result.counts == theirs.result.counts
    assert ours.result.flips == theirs.result.flips
    assert ours.result.unknown == theirs.result.unknown
    assert ours.result.findings.to_dict() == theirs.result.findings.to_dict()
    for name in ("data_sha256", "bios", "missing", "labels"):
        assert getattr(ours, name) == getattr(theirs, name)
    assert ours.path == f"{theirs.path} on Spark"
