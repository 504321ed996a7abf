"""What runs on the executors: windows in, one small result a task out. Knows nothing of Spark."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import pickle
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from mlflow.exceptions import MlflowException

from biasbios_mlflow.bios.checked import Bios, Columns, encode_bios
from biasbios_mlflow.bios.occupations import Labels, canonical
from biasbios_mlflow.config import EvaluationConfig
from biasbios_mlflow.errors import invalid
from biasbios_mlflow.fingerprint import Identity
from biasbios_mlflow.flips import Flips
from biasbios_mlflow.pipeline import (
    Stopwatch,
    Swapped,
    WindowResult,
    evaluate_window,
    output_reader,
    window_store,
)
from biasbios_mlflow.prediction.base import FastPathError, Predictor
from biasbios_mlflow.prediction.outputs import OutputReader, Returns
from biasbios_mlflow.prediction.predictor import PredictedPair, find_predictor, predict_pair
from biasbios_mlflow.prediction.probe import Probe
from biasbios_mlflow.rows import rows_table
from biasbios_mlflow.scoring.outcomes import CTF_READINGS, Outcomes

__all__ = [
    "FLIP_TYPES",
    "POSITION",
    "PREDICTION_TYPES",
    "ROW",
    "Part",
    "Task",
    "add_up",
    "user_error",
]

ROW = "__biasbios_row"
"""Column with the position of each bio in the source."""

POSITION = "__biasbios_position"
"""Column with its position among the complete bios; windows are slices of these."""

PREDICTION_TYPES: Mapping[str, str] = {
    "row": "bigint",
    "id": "string",
    "gender": "string",
    "occupation": "string",
    "prediction": "string",
    "probability": "float",
    "counterfactual_prediction": "string",
    "counterfactual_probability": "float",
    "changed": "boolean",
    **dict.fromkeys(CTF_READINGS, "double"),
    "probabilities": "array<float>",
    "counterfactual_probabilities": "array<float>",
}
"""Columns of the predictions that executors write, see `biasbios_mlflow.rows.rows_table`."""

FLIP_TYPES: Mapping[str, str] = {
    "row": "bigint",
    "id": "string",
    "gender": "string",
    "occupation": "string",
    "prediction": "string",
    "counterfactual_prediction": "string",
    "probability": "double",
    "counterfactual_probability": "double",
    "change": "double",
    "text": "string",
    "counterfactual_text": "string",
    "changed_words": "string",
}
"""Columns of the flips that executors write, see `biasbios_mlflow.flips.Flips.table`."""

_ARROW_TYPES = {
    "bigint": pa.int64(),
    "string": pa.string(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "array<float>": pa.list_(pa.float32()),
}
_USER_ERROR = re.compile(r"<biasbios ([A-Za-z0-9+/=]+)>")


@dataclass(frozen=True, eq=False)
class Part:
    """What some windows came down to; parts add up in any order.

    Attributes
    ----------
    windows : Counter of int
        How many bios there were in each window.
    learned : mapping
        State of the reader of outputs (see `OutputReader.state`), the same in all parts.
    told : tuple of str
        What was found when the model was loaded, for the summary.
    """

    windows: Counter[int]
    result: WindowResult
    seconds: Counter[str]
    learned: Mapping[str, Any]
    path: str
    identity: Identity | None
    told: tuple[str, ...] = ()

    def __add__(self, other: Part) -> Part:
        if self.learned != other.learned:
            raise MlflowException(
                f"Executors read the model's output in different ways: {self.learned} and "
                f"{other.learned}"
            )
        return replace(
            self,
            told=tuple(dict.fromkeys((*self.told, *other.told))),
            windows=self.windows + other.windows,
            result=self.result + other.result,
            seconds=self.seconds + other.seconds,
        )

    def with_one_spelling(self) -> Part:
        """Return the part with each unknown label under one of its spellings."""
        spellings: dict[str, str] = {}
        unknown: Counter[str] = Counter()
        for name, count in sorted(self.result.unknown.items()):
            unknown[spellings.setdefault(canonical(name), name)] += count
        return replace(self, result=replace(self.result, unknown=unknown))


@dataclass(frozen=True, eq=False)
class Ready:
    """A model as one Python worker has it loaded."""

    predictor: Predictor
    learned: Mapping[str, Any]
    told: tuple[str, ...] = ()


# The last model that this process loaded: Spark gives one process many tasks.
_loaded: dict[str, Ready] = {}


@dataclass(frozen=True)
class Task:
    """Takes bios through swap, prediction and counting, wherever Spark runs it.

    Called with the Arrow record batches of one partition, sorted by `POSITION`; windows are never
    cut between partitions. Yields record batches with the columns ``part`` (a pickled `Part`, one
    row in all), and with ``keep`` one row a bio in ``prediction`` and one row a flip in ``flip``,
    the other columns empty.

    Parameters
    ----------
    config : EvaluationConfig
    columns : Columns
    labels : Labels
    occupation_ids : bool
        Whether the data gives occupations as numbers.
    head : bytes
        The first bios as an Arrow stream. Every worker lets the model predict them first and reads
        all other outputs as it read these, so that all agree.
    archive : str or None
        Where the model lies among the executor's files; None for predictions that stand in the
        data.
    model_config : mapping or None
        Passed on when the model is loaded.
    tracking_uri : str
        For an encoder that is named by a model URI.
    keep : bool
        Whether predictions and flips are asked for.
    nonce : str
        Tells this task from others where what a model is made of cannot be compared.
    """

    config: EvaluationConfig
    columns: Columns
    labels: Labels
    occupation_ids: bool
    head: bytes
    archive: str | None
    model_config: Mapping[str, Any] | None
    tracking_uri: str
    keep: bool
    nonce: str = ""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Evaluate the windows of a partition."""
        try:
            yield from self._run(batches)
        except (FastPathError, MlflowException) as found:
            error = found if isinstance(found, MlflowException) else _not_fast(found)
            told = json.dumps({"message": error.message, "code": error.error_code}).encode()
            # Spark hands on no more than an exception's text.
            coded = base64.b64encode(told).decode()
            raise RuntimeError(f"{error.message} <biasbios {coded}>") from None

    def reader(self, returns: Returns | None = None) -> OutputReader:
        """Return a reader of outputs that has read none."""
        return output_reader(
            self.labels,
            self.config,
            returns=returns or Returns(),
            occupation_ids=self.occupation_ids,
        )

    def _run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        config = self.config
        if self.keep:  # all flips of a window, of which the part then keeps a sample
            config = config.model_copy(update={"max_flips": config.window_size})
        total: Part | None = None
        with ExitStack() as stack:
            for number, table in self._windows(batches):
                if total is None:  # a partition without bios needs no model
                    ready = self._ready()
                    stack.enter_context(ready.predictor.session())
                    reader = self.reader(ready.predictor.returns)
                    reader.learn(ready.learned)
                    store = window_store(ready.predictor, config)
                watch, rows = Stopwatch(), _Rows()
                bios = self._bios(table)
                assert len(bios) == len(table)  # incomplete bios were left out before
                result = evaluate_window(
                    bios,
                    ready.predictor,
                    reader,
                    config,
                    watch,
                    store=store,
                    writer=rows if self.keep else None,
                )
                flips = result.flips
                if not config.log_texts:
                    own = config.counterfactual_column is not None
                    flips = flips.without_texts(None if own else config.scope)
                if self.keep:
                    yield from _batches("prediction", PREDICTION_TYPES, rows.tables)
                    yield from _batches("flip", FLIP_TYPES, [_flips_table(flips)])
                result = replace(
                    result,
                    flips=Flips(limit=self.config.max_flips) + flips,
                    # A number a bio is too much to return: Spark looks for duplicates itself.
                    findings=replace(result.findings, prints=(), cells=()),
                )
                part = Part(
                    windows=Counter({number: len(bios)}),
                    result=result,
                    seconds=Counter(watch.seconds),
                    learned=ready.learned,
                    path=ready.predictor.path,
                    identity=ready.predictor.identity,
                    told=ready.told,
                )
                total = part if total is None else total + part
        if total is not None:
            yield _part_batch(total, keep=self.keep)

    def _windows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.Table]]:
        """Yield the windows with their numbers, one in memory at a time."""
        size = self.config.window_size
        current, pieces = -1, list[pa.RecordBatch]()
        for batch in batches:
            numbers = batch.column(POSITION).to_numpy() // size
            # Where another window begins, and the end.
            cuts = [*np.flatnonzero(np.diff(numbers, prepend=-1)).tolist(), len(numbers)]
            for start, stop in itertools.pairwise(cuts):
                number = int(numbers[start])
                if number != current and pieces:
                    yield current, pa.Table.from_batches(pieces)
                    pieces = []
                current = number
                pieces.append(batch.slice(start, stop - start))
        if pieces:
            yield current, pa.Table.from_batches(pieces)

    def _bios(self, table: pa.Table) -> Bios:
        frame = table.drop_columns([ROW, POSITION]).to_pandas()
        return encode_bios(
            frame,
            self.columns,
            self.labels,
            gender_values=self.config.gender_values,
            rows=table.column(ROW).to_numpy(),
        )

    @cached_property
    def _key(self) -> str:
        about = [self.archive, self.model_config, self.config.model_dump_json()]
        state = [about, self.labels.names, self.occupation_ids, self.tracking_uri, self.nonce]
        return hashlib.sha256(repr(state).encode() + self.head).hexdigest()

    def _ready(self) -> Ready:
        if self._key not in _loaded:
            _loaded.clear()
            _loaded[self._key] = self._load()
        return _loaded[self._key]

    def _load(self) -> Ready:
        import mlflow

        mlflow.set_tracking_uri(self.tracking_uri)
        model = None
        if self.archive is not None:
            from pyspark import SparkFiles

            folder = Path(SparkFiles.getRootDirectory()) / self.archive
            model_config = None if self.model_config is None else dict(self.model_config)
            model = mlflow.pyfunc.load_model(str(folder), model_config=model_config)
        predictor = find_predictor(model, self.config)
        bios = self._bios(pa.ipc.open_stream(self.head).read_all())
        told: tuple[str, ...] = ()
        try:
            return self._tried(predictor, bios, told)
        except FastPathError as dropped:
            instead = dropped.instead or predictor.reference
            assert instead is not None
            return self._tried(instead, bios, (dropped.told(),))

    def _tried(self, predictor: Predictor, bios: Bios, told: tuple[str, ...]) -> Ready:
        """Let the model predict the first bios, which tells how its output is to be read."""
        reader = self.reader(predictor.returns)
        probe = None if predictor.reference is None else Probe(predictor, reader)
        with predictor.session():
            swapped = bios.texts
            if predictor.swaps:
                swapped = list(Swapped.of(bios, self.config.scope).texts)
            predict_pair(predictor, reader, bios, swapped, probe=probe)
        more = () if probe is None else tuple(probe.warnings)
        return Ready(predictor, reader.state(), (*told, *more))


class _Rows:
    """Takes the rows of a window as `biasbios_mlflow.rows.RowsWriter` does, to hand them on."""

    def __init__(self) -> None:
        self.tables: list[pa.Table] = []

    def write(
        self, bios: Bios, pair: PredictedPair, outcomes: Outcomes, names: Sequence[str]
    ) -> None:
        self.tables.append(rows_table(bios, pair, outcomes, names))


def add_up(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Add up the parts of one partition."""
    total: Part | None = None
    for batch in batches:
        for pickled in batch.column("part").to_pylist():
            part: Part = pickle.loads(pickled)
            total = part if total is None else total + part
    if total is not None:
        yield _part_batch(total, keep=False)


def user_error(text: str) -> MlflowException | None:
    """Return the user error that the text of a failed task tells of, None where there is none."""
    found = _USER_ERROR.search(text)
    if found is None:
        return None
    told = json.loads(base64.b64decode(found.group(1)))
    error = MlflowException(told["message"])
    error.error_code = told["code"]
    return error


def _not_fast(error: FastPathError) -> MlflowException:
    """Return the user error for a fast path that failed after others had used it."""
    return invalid(
        "prediction",
        found=f"a fast path that does not hold for all bios ({error})",
        expected="one way to predict all bios",
        fix="set prediction='pyfunc'",
    )


def _part_batch(part: Part, *, keep: bool) -> pa.RecordBatch:
    columns = {"part": pa.array([pickle.dumps(part)], pa.binary())}
    if keep:
        for name, types in (("prediction", PREDICTION_TYPES), ("flip", FLIP_TYPES)):
            columns[name] = pa.nulls(1, _struct(types))
    return pa.RecordBatch.from_pydict(columns)


def _batches(
    name: str, types: Mapping[str, str], tables: Sequence[pa.Table]
) -> Iterator[pa.RecordBatch]:
    """Yield rows in the column ``name``, the other columns empty."""
    for table in tables:
        n = len(table)
        if n == 0:
            continue
        fields = list(_struct(types))
        arrays = [
            table.column(field.name).combine_chunks().cast(field.type)
            if field.name in table.column_names
            else pa.nulls(n, field.type)
            for field in fields
        ]
        columns = {
            "part": pa.nulls(n, pa.binary()),
            "prediction": pa.nulls(n, _struct(PREDICTION_TYPES)),
            "flip": pa.nulls(n, _struct(FLIP_TYPES)),
        }
        columns[name] = pa.StructArray.from_arrays(arrays, fields=fields)
        yield pa.RecordBatch.from_pydict(columns)


def _struct(types: Mapping[str, str]) -> pa.StructType:
    return pa.struct([pa.field(name, _ARROW_TYPES[type]) for name, type in types.items()])


def _flips_table(flips: Flips) -> pa.Table:
    return pa.table(
        {
            name: pa.array([getattr(flip, name) for flip in flips.sample], _ARROW_TYPES[kind])
            for name, kind in FLIP_TYPES.items()
        }
    )
