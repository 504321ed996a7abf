"""Output forms: whatever a model returns becomes label codes and, where it can, probabilities."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.special import softmax

from biasbios_mlflow.bios.occupations import Labels, as_objects, canonical
from biasbios_mlflow.errors import invalid

__all__ = ["OutputReader", "Predictions"]

_RANGE_TOLERANCE = 1e-3
"""How far outside 0 to 1 a probability may lie: half precision rounds to about 5e-4."""

_ENOUGH = 20
"""So many first predictions without one known label are a foreign label set, not an accident."""


@dataclass(frozen=True, eq=False)
class Predictions:
    """The predictions for n bios.

    Attributes
    ----------
    codes : ndarray of int64 of shape (n,)
        Predicted occupations: positions in `OutputReader.names`, of which those from
        ``len(OutputReader.labels)`` on are names outside the label set.
    probabilities : ndarray of float64 of shape (n, len(labels)) or None
    """

    codes: npt.NDArray[np.int64]
    probabilities: npt.NDArray[np.float64] | None = None

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, rows: slice | npt.NDArray[Any]) -> Predictions:
        """Return the predictions of some rows."""
        matrix = None if self.probabilities is None else self.probabilities[rows]
        return Predictions(self.codes[rows], matrix)


class OutputReader:
    """Reads the outputs of one model: the form is decided once and then held to.

    Parameters
    ----------
    labels : Labels
        The occupations of the data.
    classes : sequence, optional
        What the columns of a matrix, or integer outputs, stand for: ``classes_`` of a scikit-learn
        model, the values of ``id2label`` of a transformers one.
    column : str, optional
        Which column of a wider frame holds the predictions.
    ids_known : bool, default=True
        Whether the order of the labels is known to be that of the model's ids: the user gave it, or
        the data holds ids itself. If not, a model with ids for another number of classes is
        refused: its ids may count anything.

    Attributes
    ----------
    labels : Labels
        Those of the data, and after them the classes that only the model knows.
    names : list of str
        What the codes stand for: the labels, and after them every other name that was predicted.
    form : str or None
        The form that the first output had.
    no_probabilities : str or None
        Why there are no probabilities, once that is known.

    Examples
    --------
    >>> reader = OutputReader(Labels(["nurse", "poet"]))
    >>> reader.read(["Poet", "nurse", "astronaut"], 3).codes.tolist()
    [1, 0, 2]
    >>> reader.form
    'labels'
    """

    def __init__(
        self,
        labels: Labels,
        *,
        classes: Sequence[Any] | None = None,
        column: str | None = None,
        ids_known: bool = True,
    ) -> None:
        self.labels = labels
        self.names = list(labels.names)
        self.form: str | None = None
        self.no_probabilities: str | None = None
        self._data_labels = labels
        self._column = column
        self._classes: list[Any] | None = None
        self._ids_known = ids_known
        self._outside: dict[str, int] = {}
        self._columns: npt.NDArray[np.int64] | None = None
        self._in_order = False
        self._logits = False
        if classes is not None:
            self._learn_classes(list(classes))

    def read(
        self, output: object, n: int, *, rows: npt.NDArray[np.int64] | None = None
    ) -> Predictions:
        """Turn a model's output for n bios into predictions.

        Parameters
        ----------
        output : object
            Whatever ``predict`` returned.
        n : int
            How many bios went in.
        rows : ndarray of int64 of shape (n,), optional
            The row of each of them in the data, for messages.

        Returns
        -------
        Predictions

        Raises
        ------
        MlflowException
            Too few or too many rows, values that are no numbers, another form than before, labels
            that have nothing in common with those of the data.
        """
        rows = np.arange(n) if rows is None else rows
        if n == 0:
            return Predictions(np.empty(0, dtype=np.int64))
        form, content, classes = self._recognise(output, n)
        if len(content) != n:
            raise invalid(
                "model output",
                found=f"{len(content)} predictions for {n} bios (from row {rows[0]} on)",
                expected="one prediction a bio, in order",
                fix="let predict return one row for each row it gets",
            )
        first = self.form is None
        if first:
            self.form = form
            if form == "matrix":
                self._learn_columns(classes, content.shape[1])
                self._logits = not _are_probabilities(content)
        elif form != self.form:
            raise invalid(
                f"model output for the bios from row {rows[0]} on",
                found=f"{form}",
                expected=f"{self.form}, as for the bios before",
                fix="let the model return one form for all bios",
            )
        if form == "matrix":
            return self._from_matrix(content, classes, rows)
        return self._from_labels(content, first)

    # -- state ------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return what was learned from the outputs so far, as plain JSON values."""
        return {
            "labels": list(self.labels.names),
            "form": self.form,
            "no_probabilities": self.no_probabilities,
            "classes": None if self._classes is None else self._class_names,
            "logits": self._logits,
        }

    def learn(self, state: Mapping[str, Any]) -> bool:
        """Take over what another reader learned; False where the two do not agree."""
        if self.form is None:
            if state["classes"] is not None and self._classes is None:
                self._learn_classes(list(state["classes"]))
            if state["form"] == "matrix":
                self._learn_columns(None, len(state["classes"]))
            self.form = state["form"]
            self.no_probabilities = state["no_probabilities"]
            self._logits = state["logits"]
        return all(self.state()[name] == state[name] for name in ("labels", "form", "logits"))

    # -- forms --------------------------------------------------------------------------------

    def _recognise(self, output: Any, n: int) -> tuple[str, Any, list[Any] | None]:
        """Return the form ("labels" or "matrix"), the content, and the columns' names if any."""
        if hasattr(output, "detach"):  # a torch tensor, without importing torch
            output = output.detach().cpu().float().numpy()
        if isinstance(output, Mapping):
            output = pd.DataFrame(
                {
                    k: v if isinstance(v, list | np.ndarray | pd.Series) else [v]
                    for k, v in output.items()
                }
            )
        if isinstance(output, str) or np.isscalar(output):
            output = [output]
        if isinstance(output, pd.DataFrame):
            return self._recognise_frame(output, n)
        if isinstance(output, pd.Series):
            return self._recognise_cells(output)
        if isinstance(output, np.ndarray):
            if output.ndim == 2 and output.shape[1] == 1:
                output = output[:, 0]
            if output.ndim == 2:
                return self._recognise_matrix(output)
            if output.ndim == 1:
                return self._recognise_cells(output)
            raise self._unreadable(f"an array of shape {output.shape}")
        if isinstance(output, Iterable):
            return self._recognise_cells(list(output))
        raise self._unreadable(f"an object of type {type(output).__name__}")

    def _recognise_frame(self, frame: pd.DataFrame, n: int) -> tuple[str, Any, list[Any] | None]:
        if self._column is not None:
            if self._column not in frame.columns:
                raise invalid(
                    "predictions",
                    found=f"no column {self._column!r} in the model output: {list(frame.columns)}",
                    expected="the column that holds the predicted occupation",
                    fix="name one of these columns in predictions",
                )
            return self._recognise_cells(frame[self._column])
        if frame.shape[1] == 1:
            return self._recognise_cells(frame.iloc[:, 0])
        if {"label", "score"} <= set(frame.columns):
            return self._recognise_cells(frame["label"], top_only=True)
        if all(_holds_dicts(frame[name]) for name in frame.columns):
            return self._recognise_cells(frame.to_numpy().tolist())
        numeric = all(pd.api.types.is_numeric_dtype(dtype) for dtype in frame.dtypes)
        if numeric:
            names: list[Any] = list(frame.columns)
            positions = names == list(range(len(names)))
            return "matrix", frame.to_numpy(dtype=np.float64), None if positions else names
        raise self._unreadable(f"a frame with the columns {list(frame.columns)}")

    def _recognise_matrix(self, matrix: npt.NDArray[Any]) -> tuple[str, Any, list[Any] | None]:
        try:
            return "matrix", np.asarray(matrix, dtype=np.float64), None
        except (TypeError, ValueError):
            if _holds_dicts(matrix[:, 0]):
                return self._recognise_cells(matrix.tolist())
            raise invalid(
                "model output",
                found="probability rows that are not numbers",
                expected="one number for each class",
                fix="return a numeric array of shape (bios, classes)",
            ) from None

    def _recognise_cells(
        self, cells: Any, *, top_only: bool = False
    ) -> tuple[str, Any, list[Any] | None]:
        values = as_objects(cells)
        first = next((value for value in values if value is not None), None)
        if isinstance(first, Mapping):
            if set(first) == {"label", "score"}:
                self._say_no_probabilities("the model returns only its top class")
                return "labels", _pick(values, lambda cell: cell["label"]), None
            return self._recognise_frame(pd.DataFrame(list(values)), len(values))
        if isinstance(first, list | tuple | np.ndarray) and len(first):
            if isinstance(first[0], Mapping):
                return self._recognise_top_k(values)
            try:
                return "matrix", np.array([list(row) for row in values], dtype=np.float64), None
            except (TypeError, ValueError):
                raise invalid(
                    "model output",
                    found="probability rows that are not numbers or not of one length",
                    expected="one number for each class",
                    fix="return a numeric array of shape (bios, classes)",
                ) from None
        if isinstance(first, float | np.floating) and not float(first).is_integer():
            raise self._unreadable("one number that is not whole for each bio")
        self._say_no_probabilities(
            "the model returns only its top class" if top_only else "the model returns only labels"
        )
        return "labels", values, None

    def _recognise_top_k(self, rows: npt.NDArray[np.object_]) -> tuple[str, Any, list[Any] | None]:
        """Read lists of {label, score}: a matrix when all classes are there, else labels."""
        names = sorted({str(cell["label"]) for row in rows for cell in row})
        whole = all(len(row) == len(names) for row in rows)
        enough = self._classes is None or len(names) == len(self._classes)
        if self.form == "labels" or not (whole and enough and len(names) > 1):
            self._say_no_probabilities("the model returns only its top classes")
            best = _pick(rows, lambda row: max(row, key=lambda cell: cell["score"])["label"])
            return "labels", best, None
        position = {name: column for column, name in enumerate(names)}
        matrix = np.empty((len(rows), len(names)))
        for i, row in enumerate(rows):
            for cell in row:
                matrix[i, position[str(cell["label"])]] = cell["score"]
        return "matrix", matrix, names

    def _unreadable(self, found: str) -> Exception:
        return invalid(
            "model output",
            found=found,
            expected="labels, a matrix of probabilities, label/score frames or lists of them",
            fix="name the column with the labels in predictions, or return one of these forms",
        )

    def _say_no_probabilities(self, why: str) -> None:
        if self.no_probabilities is None:
            self.no_probabilities = why

    # -- labels -------------------------------------------------------------------------------

    def _from_labels(self, values: npt.NDArray[np.object_], first: bool) -> Predictions:
        positions, distinct = pd.factorize(values, use_na_sentinel=False)
        codes = np.array([self._code(value) for value in distinct], dtype=np.int64)[positions]
        if first and len(codes) >= _ENOUGH:
            self.check_any_known(Counter(codes.tolist()))
        return Predictions(codes)

    def unknown(self, predictions: Predictions) -> Counter[str]:
        """Count the predicted names that are not among the labels of the data."""
        outside = predictions.codes[predictions.codes >= len(self._data_labels)]
        return Counter(self.names[code] for code in outside.tolist())

    def check_any_known(self, codes: Iterable[int]) -> None:
        """Raise where none of some predicted codes is a label of the data."""
        codes = list(codes)
        if codes and min(codes) >= len(self._data_labels):
            raise self._no_common_labels(sorted({self.names[code] for code in codes}))

    def encode(self, names: Iterable[str]) -> npt.NDArray[np.int64]:
        """Return the codes of names that another reader of the same model had."""
        return np.array([self._named(name) for name in names], dtype=np.int64)

    def _code(self, value: object) -> int:
        code = self.labels.code(value)
        if code < len(self.labels):
            return code
        if self._classes is not None:
            # A whole number that the label set cannot place may be a position in the classes.
            position = Labels([str(i) for i in range(len(self._classes))], ids=True).code(value)
            if position < len(self._classes):
                return self.labels.code(self._classes[position])
        return self._named(_shown(value))

    def _named(self, name: str) -> int:
        code = self.labels.code(name)
        if code < len(self.labels):
            return code
        # Names outside the label set keep codes of their own: two different ones are a flip.
        code = self._outside.setdefault(canonical(name), len(self.names))
        if code == len(self.names):
            self.names.append(name)
        return code

    # -- matrices -----------------------------------------------------------------------------

    def _learn_classes(self, classes: list[Any]) -> None:
        known = [name for name in classes if self.labels.code(name) < len(self.labels)]
        if not known or self._undecidable(classes):
            raise self._no_common_labels([str(name) for name in classes])
        self._classes = classes
        self.labels = self.labels.extended(classes)
        self.names = list(self.labels.names)

    @property
    def _class_names(self) -> list[str]:
        return [str(name) for name in self._classes or ()]

    def _undecidable(self, classes: list[Any]) -> bool:
        """Tell whether classes are bare ids 0 … K - 1 of another label set than the data's."""
        if self._ids_known or len(classes) == len(self._data_labels):
            return False
        bare = Labels([str(i) for i in range(len(classes))], ids=True)
        return [bare.code(name) for name in classes] == list(range(len(classes)))

    def _learn_columns(self, names: list[Any] | None, width: int) -> None:
        if names is not None:
            self._learn_classes(names)
        if self._classes is None:
            if width != len(self.labels):
                raise invalid(
                    "model output",
                    found=f"a matrix of {width} columns without names",
                    expected=f"one column for each of the {len(self.labels)} labels "
                    f"{list(self.labels.names)}",
                    fix="set label_names to the occupations in the order of the model's columns",
                )
            self._classes = list(self.labels.names)
        if len(self._classes) != width:
            raise invalid(
                "model output",
                found=f"a matrix of {width} columns",
                expected=f"one column for each of the model's {len(self._classes)} classes",
                fix="return the whole probability matrix",
            )
        self._columns = np.array([self.labels.code(name) for name in self._classes], dtype=np.int64)
        if len(set(self._columns.tolist())) != width:
            raise invalid(
                "model output",
                found=f"columns that stand for the same label: {self._classes}",
                expected="one column for each label",
                fix="give every column its own label",
            )
        self._in_order = width == len(self.labels) and bool(
            (self._columns == np.arange(width)).all()
        )

    def _from_matrix(
        self,
        matrix: npt.NDArray[np.float64],
        names: list[Any] | None,
        rows: npt.NDArray[np.int64],
    ) -> Predictions:
        assert self._classes is not None
        assert self._columns is not None
        if matrix.shape[1] != len(self._columns) or (
            names is not None and list(map(str, names)) != self._class_names
        ):
            raise invalid(
                f"model output for the bios from row {rows[0]} on",
                found=f"a matrix of {matrix.shape[1]} columns {names or ''}".rstrip(),
                expected=f"the {len(self._columns)} columns of the bios before",
                fix="let the model return the same columns for all bios",
            )
        # One bad value makes the sum of all not finite: far cheaper than a mask of all.
        if not np.isfinite(matrix.sum()):
            bad = np.flatnonzero(~np.isfinite(matrix).all(axis=1))
            if len(bad):
                raise invalid(
                    f"model output for the bio of row {rows[bad[0]]}",
                    found="probabilities that are not finite numbers",
                    expected="finite numbers for every class",
                    fix="find out why the model returns NaN or infinity for this bio",
                )
        if self._logits:
            matrix = softmax(matrix, axis=1)
        elif not _are_probabilities(matrix):
            raise invalid(
                f"model output for the bios from row {rows[0]} on",
                found="numbers outside 0 to 1",
                expected="probabilities, as for the bios before",
                fix="let the model return probabilities for all bios, or logits for all",
            )
        if not self._in_order:
            whole = np.zeros((len(matrix), len(self.labels)))
            whole[:, self._columns] = matrix
            matrix = whole
        return Predictions(matrix.argmax(axis=1), matrix)

    def _no_common_labels(self, found: Sequence[str]) -> Exception:
        return invalid(
            "label set of the model",
            found=f"{list(found)[:30]}",
            expected=f"the data's {list(self._data_labels.names)}",
            fix="set label_names to the occupations in the order of the model's ids",
        )


def _are_probabilities(matrix: npt.NDArray[np.float64]) -> bool:
    """Tell probabilities from logits; rows of independent (sigmoid) probabilities count as such."""
    low, high = matrix.min(initial=0.0), matrix.max(initial=0.0)
    return bool(low >= -_RANGE_TOLERANCE and high <= 1 + _RANGE_TOLERANCE)


def _holds_dicts(cells: Any) -> bool:
    return len(cells) > 0 and all(isinstance(cell, Mapping) for cell in list(cells)[:3])


def _pick(values: Iterable[Any], key: Any) -> npt.NDArray[np.object_]:
    return as_objects([None if value is None else key(value) for value in values])


def _shown(value: object) -> str:
    return "(no prediction)" if value is None or value != value else str(value)
