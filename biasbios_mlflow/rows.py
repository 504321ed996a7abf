"""predictions.parquet: what was predicted for each bio, written window by window."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from biasbios_mlflow.bios.checked import Bios
from biasbios_mlflow.bios.occupations import GENDERS
from biasbios_mlflow.errors import invalid
from biasbios_mlflow.prediction.outputs import Predictions
from biasbios_mlflow.prediction.predictor import PredictedPair
from biasbios_mlflow.scoring.outcomes import (
    CTF_READINGS,
    MARK_UNREADABLE,
    NO_COUNTERFACTUAL,
    Outcomes,
)

__all__ = [
    "ROWS_FILE",
    "SUMMARY_FILE",
    "RowsSink",
    "RowsWriter",
    "file_digest",
    "read_outcomes",
    "rows_table",
]

_METADATA = b"biasbios"

SUMMARY_FILE = "summary.json"
"""Everything about an evaluation but its rows."""

ROWS_FILE = "predictions.parquet"
"""One row a bio; the summary holds its hash."""


class RowsSink(Protocol):
    """Takes what was predicted for a window of bios."""

    def write(
        self, bios: Bios, pair: PredictedPair, outcomes: Outcomes, names: Sequence[str]
    ) -> None:
        """Take a window (see `rows_table`)."""


class RowsWriter:
    """Writes one row a bio (see `rows_table`), each window a row group.

    The labels stand in the schema's metadata.

    Parameters
    ----------
    path : Path
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._writer: pq.ParquetWriter | None = None

    def write(
        self, bios: Bios, pair: PredictedPair, outcomes: Outcomes, names: Sequence[str]
    ) -> None:
        """Write a window of bios.

        Parameters
        ----------
        bios : Bios
        pair : PredictedPair
        outcomes : Outcomes
            Of the same bios.
        names : sequence of str
            What the prediction codes stand for.
        """
        table = rows_table(bios, pair, outcomes, names)
        with _written(self.path):
            if self._writer is None:
                about = json.dumps({"labels": list(outcomes.labels)}).encode()
                schema = table.schema.with_metadata({_METADATA: about})
                # Dictionaries of numbers that hardly repeat cost time and space.
                strings = [column.name for column in schema if column.type == pa.string()]
                self._writer = pq.ParquetWriter(
                    self.path, schema, compression="zstd", use_dictionary=strings
                )
            self._writer.write_table(table.replace_schema_metadata(self._writer.schema.metadata))

    def close(self) -> None:
        """Finish the file."""
        if self._writer is not None:
            with _written(self.path):
                self._writer.close()


@contextmanager
def _written(path: Path) -> Iterator[None]:
    """Turn what a full disk raises in the block into a user error."""
    try:
        yield
    except OSError as error:
        raise invalid(
            path.name,
            found=f"no way to write it in {path.parent} ({error})",
            expected="a folder for temporary files, with room for a few bytes a bio",
            fix="set TMPDIR to a folder with room, or log_predictions to false",
        ) from error


def rows_table(bios: Bios, pair: PredictedPair, outcomes: Outcomes, names: Sequence[str]) -> Any:
    """Return one row a bio: no text, but all that scores are made of.

    Parameters
    ----------
    bios : Bios
        n bios.
    pair : PredictedPair
    outcomes : Outcomes
        Of the same bios.
    names : sequence of str
        What the prediction codes stand for.

    Returns
    -------
    pyarrow.Table of n rows
        Columns: ``row`` of the source, ``id`` where there is one, ``gender``, ``occupation``,
        ``prediction``, ``probability`` (of that prediction), ``counterfactual_prediction``,
        ``counterfactual_probability`` (both empty for a bio without counterfactual), ``changed``
        (by the swap), ``unreadable`` (of answers in words), the readings of the CTF score in double
        precision, and ``probabilities`` and
        ``counterfactual_probabilities`` as float32 lists in label order.
    """
    columns: dict[str, Any] = {"row": pa.array(bios.rows)}
    ids = bios.ids()
    if ids is not None:
        columns["id"] = pa.array([None if i is None else str(i) for i in ids], pa.string())
    columns["gender"] = _named(GENDERS, bios.genders)
    columns["occupation"] = _named(outcomes.labels, bios.occupations)
    lacking = outcomes.counterfactual_predictions == NO_COUNTERFACTUAL
    nowhere = np.zeros(len(bios), dtype=np.bool_)
    for prefix, predictions, mask in (
        ("", pair.original, nowhere),
        ("counterfactual_", pair.counterfactual, nowhere | lacking),
    ):
        if predictions is None:
            continue
        columns[f"{prefix}prediction"] = _named(names, predictions.codes, mask)
        if predictions.probabilities is not None:
            columns[f"{prefix}probability"] = _of_prediction(predictions, mask)
    if outcomes.changed is not None:
        columns["changed"] = pa.array(outcomes.changed)
    for name, mark in outcomes.marks.items():
        columns[name] = pa.array(mark)
    if outcomes.ctf is not None:
        for column, name in enumerate(CTF_READINGS):
            columns[name] = pa.array(outcomes.ctf[:, column], from_pandas=True)
    for prefix, predictions in (("", pair.original), ("counterfactual_", pair.counterfactual)):
        if predictions is not None and predictions.probabilities is not None:
            matrix = predictions.probabilities.astype(np.float32)
            columns[f"{prefix}probabilities"] = pa.FixedSizeListArray.from_arrays(
                pa.array(matrix.ravel()), matrix.shape[1]
            )
    return pa.table(columns)


def file_digest(path: Path | str) -> str:
    """Return the SHA-256 of a file as 64 hexadecimal digits."""
    with Path(path).open("rb") as file:
        digest = hashlib.sha256()
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def read_outcomes(path: Path | str) -> Outcomes:
    """Read the outcomes back from a predictions.parquet, exactly as they were counted.

    Parameters
    ----------
    path : path
        Of the file.

    Returns
    -------
    Outcomes
        With ids where the data had them, else the numbers of the rows.

    Raises
    ------
    MlflowException
        When the file is another one.
    """
    try:
        about = pq.read_schema(path).metadata[_METADATA]
    except (KeyError, TypeError, pa.ArrowInvalid) as error:
        raise invalid(
            str(path),
            found="a file without the labels of an evaluation",
            expected="a predictions.parquet of this evaluator",
            fix="take the artifact biasbios/predictions.parquet of the run",
        ) from error
    labels = tuple(json.loads(about)["labels"])
    wanted = [
        "row", "id", "gender", "occupation", "prediction", "counterfactual_prediction", "changed",
        MARK_UNREADABLE, *CTF_READINGS,
    ]  # fmt: skip
    there = pq.read_schema(path).names
    table = pq.read_table(path, columns=[name for name in wanted if name in there])
    codes = {name: code for code, name in enumerate(labels)}

    def encode(column: str) -> npt.NDArray[np.int64]:
        chunks = table[column].combine_chunks().dictionary_encode()
        # Names outside the label set follow the known ones, each with a code of its own.
        known = [codes.setdefault(name, len(codes)) for name in chunks.dictionary.to_pylist()]
        places = chunks.indices.fill_null(len(known)).to_numpy()
        return np.array([*known, NO_COUNTERFACTUAL], dtype=np.int64)[places]

    def flat(column: str) -> Any:
        return table[column].to_numpy() if column in table.column_names else None

    swapped = "counterfactual_prediction" in table.column_names
    ctf = None
    if CTF_READINGS[0] in table.column_names:
        ctf = np.column_stack([flat(name).astype(np.float64) for name in CTF_READINGS])
    return Outcomes(
        labels=labels,
        genders=(flat("gender") == GENDERS[1]).astype(np.int64),
        occupations=encode("occupation"),
        predictions=encode("prediction"),
        counterfactual_predictions=encode("counterfactual_prediction") if swapped else None,
        changed=flat("changed"),
        ctf=ctf,
        marks={MARK_UNREADABLE: flat(MARK_UNREADABLE)} if MARK_UNREADABLE in there else {},
        ids=flat("id") if "id" in table.column_names else flat("row"),
    )


def _named(
    names: Sequence[str], codes: npt.NDArray[Any], mask: npt.NDArray[np.bool_] | None = None
) -> Any:
    places = pa.array(codes, pa.int32(), mask=mask)
    encoded = pa.DictionaryArray.from_arrays(places, pa.array(names))
    return encoded.cast(pa.string())


def _of_prediction(predictions: Predictions, mask: npt.NDArray[np.bool_]) -> Any:
    assert predictions.probabilities is not None
    known = predictions.codes < predictions.probabilities.shape[1]
    codes = np.where(known, predictions.codes, 0)
    values = predictions.probabilities[np.arange(len(codes)), codes].astype(np.float32)
    return pa.array(values, mask=~known | mask)
