"""Bios in a file as a dataset that MLflow evaluates without having it in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import islice
from typing import Any, NoReturn

import numpy as np
import pandas as pd
from mlflow.data.dataset import Dataset
from mlflow.data.evaluation_dataset import EvaluationDataset
from mlflow.data.pandas_dataset import PandasDataset
from mlflow.data.pyfunc_dataset_mixin import PyFuncConvertibleDatasetMixin, PyFuncInputsOutputs
from mlflow.exceptions import MlflowException
from mlflow.types import Schema
from pandas.api.types import infer_dtype

from biasbios_mlflow.bios.checked import Columns, Survey, check_not_empty
from biasbios_mlflow.bios.occupations import GenderValues
from biasbios_mlflow.bios.origin import dataset_source
from biasbios_mlflow.bios.sources import Source
from biasbios_mlflow.bios.stream import BiosStream
from biasbios_mlflow.errors import invalid
from biasbios_mlflow.mlflow_private import DIGEST_ROWS, digest_of

__all__ = ["BiosDataset", "StreamedDataset"]

_HEAD_CHUNKS = 4
"""So many chunks show MLflow the types of the columns."""


class BiosDataset(Dataset, PyFuncConvertibleDatasetMixin):
    """Bios in a source that is read in chunks, as MLflow lists it with the run.

    Name, source, digest, schema and profile are those that MLflow gives a DataFrame of the same
    rows.

    Parameters
    ----------
    source : Source
    columns : Columns
        The targets are its occupations.
    gender_values : mapping, optional
        See `encode_genders`.
    predictions : str, optional
        Column that holds predictions, for an evaluation without a model.

    Raises
    ------
    MlflowException
        Where the source cannot be read, is empty, or holds an unknown gender or a text that is
        none: it is read once, here.
    """

    def __init__(
        self,
        source: Source,
        columns: Columns,
        *,
        gender_values: GenderValues | None = None,
        predictions: str | None = None,
    ) -> None:
        from mlflow.data.dataset_source_registry import resolve_dataset_source

        self.rows = source
        self.targets = columns.occupation
        self.predictions = predictions
        self._surveyed = (columns, gender_values)
        self._not_whole: set[str] = set()  # columns with other cells than strings and numbers
        self._survey = self._look(columns, gender_values)
        check_not_empty(self._survey.rows)
        origin = dataset_source(source.where)
        if isinstance(origin, str):
            origin = resolve_dataset_source(origin)
        assert origin is not None  # what came from code is in memory
        super().__init__(source=origin, name=source.name)

    def stream(
        self,
        columns: Columns,
        *,
        label_names: Sequence[str] | None = None,
        gender_values: GenderValues | None = None,
        allow_missing: bool = False,
    ) -> BiosStream:
        """Return the bios, to be read window by window (see `BiosStream`)."""
        survey = self._survey
        if self._surveyed != (columns, gender_values):
            survey = self._look(columns, gender_values)
        return BiosStream(
            self.rows,
            columns,
            survey,
            label_names=label_names,
            gender_values=gender_values,
            allow_missing=allow_missing,
        )

    def _look(self, columns: Columns, gender_values: GenderValues | None) -> Survey:
        total: Survey | None = None
        for chunk in self.rows.chunks():
            rows = chunk.index.to_numpy(dtype=np.int64)
            found = Survey.of(chunk, columns, gender_values=gender_values, rows=rows)
            total = found if total is None else total + found
            self._not_whole.update(name for name in chunk.columns if not _is_whole(chunk[name]))
        assert total is not None
        return total

    @cached_property
    def _head(self) -> pd.DataFrame:
        """The first rows, of the types that the columns have as a whole."""
        return pd.concat(list(islice(self._first_rows(), _HEAD_CHUNKS)), ignore_index=True)

    @property
    def columns_only(self) -> pd.DataFrame:
        """A frame of the same columns, without rows."""
        return self._head.iloc[:0]

    def _first_rows(self) -> Iterator[pd.DataFrame]:
        """Yield the rows that MLflow makes the digest of a DataFrame from."""
        start = 0
        for chunk in self.rows.chunks():
            part = chunk.iloc[: DIGEST_ROWS - start]
            yield part.set_axis(pd.RangeIndex(start, start + len(part)))
            start += len(part)
            if start >= DIGEST_ROWS:
                return

    def _compute_digest(self) -> str:
        # What MLflow does with a frame of all rows, tested against it.
        head = self._head
        numbers = head.select_dtypes(include=[np.number]).columns
        strings = [
            name
            for name in head.columns.difference(numbers)
            if name not in self._not_whole and infer_dtype(head[name], skipna=False) == "string"
        ]
        used = pd.Index(strings).union(numbers)
        hashes = [pd.util.hash_pandas_object(part[used]) for part in self._first_rows()]
        return digest_of(
            [
                pd.concat(hashes).to_numpy(),
                np.int64(self._survey.rows),
                *(str(name).encode() for name in head.columns),
            ]
        )

    @property
    def profile(self) -> dict[str, int]:
        """How many rows and cells there are."""
        rows = self._survey.rows
        return {"num_rows": rows, "num_elements": rows * len(self._head.columns)}

    @cached_property
    def schema(self) -> Schema | None:
        """The types of the columns, as far as MLflow has names for them."""
        try:
            return PandasDataset(self._head, source=self.source).schema
        except MlflowException:
            return None

    def to_dict(self) -> dict[str, str]:
        """Return what MLflow stores of it."""
        schema = self.schema
        return {
            **super().to_dict(),
            "schema": json.dumps({"mlflow_colspec": schema.to_dict()}) if schema else "",
            "profile": json.dumps(self.profile),
        }

    def to_pyfunc(self) -> PyFuncInputsOutputs:
        """Refuse: no caller can have all rows at once."""
        raise _only_streamed("to_pyfunc")

    def to_evaluation_dataset(
        self, path: str | None = None, feature_names: list[str] | None = None
    ) -> StreamedDataset:
        """Return what MLflow hands to the evaluators."""
        return StreamedDataset(self)


class StreamedDataset(EvaluationDataset):
    """A `BiosDataset` in the form in which evaluators get it.

    Parameters
    ----------
    dataset : BiosDataset
    """

    def __init__(self, dataset: BiosDataset) -> None:
        # Of no rows: those of the bios need not fit into memory.
        super().__init__(dataset.columns_only, digest=dataset.digest)  # type: ignore[no-untyped-call]
        self.bios = dataset

    @property
    def name(self) -> str:
        """The dataset's name, also such as MLflow would refuse here: files have these."""
        return str(self.bios.name)

    @property
    def hash(self) -> str:
        """The digest of all rows; MLflow's own is of the few that it was given."""
        return str(self.digest)

    @property
    def features_data(self) -> NoReturn:
        """Refuse: no other evaluator can read these bios."""
        raise _only_streamed("features_data")

    labels_data = predictions_data = features_data


def _only_streamed(asked: str) -> Exception:
    return invalid(
        "data",
        found=f"bios that are read window by window, asked for as a whole ({asked})",
        expected="the evaluator biasbios alone",
        fix="load them into a DataFrame for other evaluators",
    )


def _is_whole(column: pd.Series[Any]) -> bool:
    if column.dtype == object and len(column):
        return infer_dtype(column, skipna=False) == "string"
    return not column.isna().any()
