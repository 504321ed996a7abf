"""User errors: told as such, wherever they are found, and no half result in the run."""

from __future__ import annotations

import subprocess
import sys
import unicodedata
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest
from mlflow.exceptions import MlflowException

import biasbios_mlflow.spark
from biasbios_mlflow.spark import frames
from tests.conftest import Registered
from tests.spark.conftest import read, write_parquet


def error_of(*arguments: Any, **options: Any) -> str:
    """Return the message of the user error; the run has no metric."""
    with mlflow.start_run() as run, pytest.raises(MlflowException) as caught:
        biasbios_mlflow.spark.evaluate(*arguments, **options)
    assert caught.value.error_code == "INVALID_PARAMETER_VALUE"
    assert mlflow.get_run(run.info.run_id).data.metrics == {}
    return str(caught.value.message)


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ("drop gender", {}, "gender_column: found none of the usual columns"),
        ("none", {"text_column": "hard_txt"}, "Fix: use text_column='hard_text'"),
        ("unknown gender", {}, "gender (column 'gender'): found the value(s) 'd'"),
        ("no rows", {}, "data: found no rows"),
        ("no texts", {}, "incomplete bios of"),
        ("numbers", {}, "column 'hard_text': found values of type bigint, expected texts"),
        ("none", {"label_names": ["nurse"]}, "expected every occupation of the data"),
        ("none", {"split": "test"}, "split: found 'test', and no column 'split'"),
        ("none", {"min_cel": 2}, "did you mean 'min_cell'?"),
        ("none", {"output": "/proc/nowhere"}, "output: found '/proc/nowhere/"),
    ],
)
def test_bad_data_and_options(
    spark: Any,
    registered: Registered,
    bios: pd.DataFrame,
    tmp_path: Path,
    change: str,
    options: dict[str, Any],
    message: str,
) -> None:
    frame = bios.head(60)
    if change == "drop gender":
        frame = frame.drop(columns="gender")
    elif change == "unknown gender":
        frame = frame.assign(gender=["d", *frame["gender"].iloc[1:]])
    elif change == "no rows":
        frame = frame.head(0)
    elif change == "no texts":
        frame = frame.assign(hard_text=[" ", "", None] * 20)
    elif change == "numbers":
        frame = frame.assign(hard_text=range(60))
    path = write_parquet(frame, tmp_path / "bad.parquet")
    assert message in error_of(registered.uri, read(spark, path), **options)


def test_what_is_no_spark_data(spark: Any, registered: Registered, bios: pd.DataFrame) -> None:
    assert "use biasbios_mlflow.evaluate" in error_of(registered.uri, bios)
    assert "data: found [PATH_NOT_FOUND]" in error_of(registered.uri, "/nowhere/bios.parquet")
    assert "'/nowhere/bios.xls'" in error_of(registered.uri, "/nowhere/bios.xls")


def test_only_models_with_a_uri(spark: Any, parquet: str) -> None:
    assert "the URI of a logged model" in error_of(len, parquet)
    assert "neither a model nor a column" in error_of(None, parquet)


class Broken(mlflow.pyfunc.PythonModel):
    """Returns NaN for one bio, far from the first."""

    def predict(self, context: Any, model_input: pd.DataFrame, params: Any = None) -> Any:
        scores = np.full((len(model_input), 28), 1 / 28)
        if len(model_input) > 100:  # more than the first bios, which are asked about beforehand
            scores[100] = np.nan
        return scores


def test_an_error_on_an_executor_is_the_same_error(
    spark: Any, parquet: str, tmp_path: Path
) -> None:
    with mlflow.start_run():
        info = mlflow.pyfunc.log_model(
            python_model=Broken(), name="model", pip_requirements=["mlflow"]
        )
    frame = read(spark, parquet)
    message = error_of(f"models:/{info.model_id}", frame, output=str(tmp_path / "out"))
    assert message.startswith("model output for the bio of row 100: found probabilities that are")


def test_a_failed_evaluation_fails_its_own_run(spark: Any, parquet: str) -> None:
    before = set(mlflow.search_runs(output_format="pandas").get("run_id", []))
    with pytest.raises(MlflowException):
        biasbios_mlflow.spark.evaluate("models:/m-0123456789", parquet)
    runs = mlflow.search_runs(output_format="pandas").set_index("run_id")
    (new,) = set(runs.index) - before
    assert runs.loc[new, "status"] == "FAILED"


def test_missing_extra() -> None:
    program = (
        "import sys; sys.modules['pyspark'] = None\n"
        "import biasbios_mlflow.spark\n"
        "biasbios_mlflow.spark.evaluate('models:/a/1', 'bios.parquet')"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program], capture_output=True, text=True, check=False
    )
    assert "pip install 'biasbios-mlflow[spark]'" in done.stderr
    assert "the Spark engine: found no package 'pyspark'" in done.stderr


def test_white_space_is_what_python_calls_so() -> None:
    spaces = {c for c in map(chr, range(sys.maxunicode + 1)) if c.isspace()}
    assert {chr(int(code, 16)) for code in frames._SPACES.split("\\u")[1:]} == spaces
    assert all(unicodedata.category(c) in {"Zs", "Zl", "Zp", "Cc"} for c in spaces)


def test_formats(spark: Any, bios: pd.DataFrame, tmp_path: Path) -> None:
    frame = bios.head(5).assign(id=range(5), note=["a, b", None, 'so "called"', "x\ny", "ü"])
    frame.to_csv(tmp_path / "bios.csv", index=False)
    frame.to_csv(tmp_path / "bios.tsv.gz", index=False, sep="\t")
    frame.to_json(tmp_path / "bios.jsonl", orient="records", lines=True)
    frame.to_parquet(tmp_path / "bios.parquet")
    (tmp_path / "folder").mkdir()
    frame.to_parquet(tmp_path / "folder" / "part-0.parquet")
    for name in ("bios.csv", "bios.tsv.gz", "bios.jsonl", "bios.parquet", "folder"):
        got, title = frames.read_frame(str(tmp_path / name), spark)
        assert title in ("bios", "folder")
        read_back = [row.asDict() for row in got.collect()]
        assert read_back == frame.astype(object).where(frame.notna(), None).to_dict("records")


def test_sample_and_split(spark: Any) -> None:
    frame, name = frames.read_frame("sample", spark)
    assert name == "biasbios-sample"
    part = frames.choose_split(frame, "test")
    assert part.count() == len(biasbios_mlflow.load_bios("sample", "test").df)
    with pytest.raises(MlflowException, match=r"expected one of \['test', 'train'\]"):
        frames.choose_split(frame, "validation")
