"""The rows of the table of bad and odd input that Spark can hold: read as on this machine."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from mlflow.exceptions import MlflowException

import biasbios_mlflow
from biasbios_mlflow.bios.checked import Survey, find_columns
from biasbios_mlflow.config import EvaluationConfig
from biasbios_mlflow.spark import frames
from tests.bad_input.calls import bios, namespace
from tests.bad_input.table import TABLE

GROUPS = ("Texts", "Occupations", "Genders", "Counterfactuals")


class _AskedError(Exception):
    """What an evaluation was asked for."""


def _ask(frame: pd.DataFrame, model: Any = None, **options: Any) -> None:
    raise _AskedError(frame, options)


def questions() -> list[tuple[str, pa.Table, dict[str, Any]]]:
    """Return data and options of the calls whose data fits into columns of one type."""
    names = {**namespace(Path()), "evaluate": _ask}
    found = {}
    for case in TABLE:
        if case.group not in GROUPS or not case.call.startswith("evaluate("):
            continue
        with pytest.raises((_AskedError, UnicodeEncodeError)) as asked:
            eval(case.call, names)
        try:
            frame, options = asked.value.args
            table = pa.Table.from_pandas(frame, preserve_index=False)
            EvaluationConfig.parse(options)
        except (pa.ArrowException, UnicodeEncodeError, MlflowException, ValueError, TypeError):
            continue  # Spark cannot be handed it
        if not any(
            pa.types.is_null(kind) or pa.types.is_binary(kind) for kind in table.schema.types
        ):
            found[f"{table.to_pydict()} {options}"] = (case.call, table, options)
    return list(found.values())


def test_spark_reads_the_same(spark: Any, tmp_path: Path) -> None:
    asked = questions()
    assert len(asked) >= 25
    for number, (call, table, options) in enumerate(asked):
        path = tmp_path / f"{number}.parquet"
        pq.write_table(table, path)
        config = EvaluationConfig.parse(options)
        columns = find_columns(table.column_names, **config.named_columns())
        values = config.gender_values

        def here(path: Path = path, columns: Any = columns, values: Any = values) -> Survey:
            frame = pd.read_parquet(path)
            return Survey.of(frame, columns, gender_values=values)

        def there(path: Path = path, columns: Any = columns, values: Any = values) -> Survey:
            frame = spark.read.parquet(str(path))
            return frames.survey(frame, columns, gender_values=values).survey

        assert told(there, config) == told(here, config), call


def told(look: Callable[[], Survey], config: EvaluationConfig) -> Any:
    """Return what is found, or the thing that an error is about."""
    try:
        survey = look()
        survey.check(allow_missing=config.allow_missing)
        labels = survey.labels(config.label_names).names
    except MlflowException as error:
        return error.error_code, re.sub(r", row \d+$", "", str(error.message).split(": found")[0])
    return survey.rows, survey.complete, survey.missing, survey.occupation_ids, labels


def test_splits_formats_and_class_names(spark: Any, tmp_path: Path) -> None:
    names = namespace(tmp_path)
    marked = names["file"]("marked.JSON", bios(split="Validation"))
    for source, split in (
        (marked, "dev"),
        (names["file"]("bios.CSV"), None),
        (names["files"]("data/test-00000-of-00001-1f0a5b6c.parquet", "README.md"), "test"),
        (names["classes"](bios(1, gender=[0, 1, 0, 1]), gender=["female", "male"]), None),
    ):
        frame, _ = frames.read_frame(source, spark, split)
        rows = frame.select("hard_text", "profession", "gender").collect()
        expected = biasbios_mlflow.load_bios(source, split).df.drop(
            columns="split", errors="ignore"
        )
        assert [row.asDict() for row in rows] == expected.to_dict("records")
