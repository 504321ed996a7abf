"""Output forms: whatever a model returns becomes label codes and, where it can, probabilities."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import INVALID_PARAMETER_VALUE
from scipy.special import softmax

from biasbios_mlflow.bios.occupations import Labels, as_objects, canonical, is_missing
from biasbios_mlflow.errors import invalid
from biasbios_mlflow.prediction.answers import (
    UNREADABLE,
    AnswerMode,
    AnswerReader,
    answer_text,
    is_chat_shaped,
    looks_written,
)
from biasbios_mlflow.prediction.prompts import Prompt

__all__ = ["Kind", "Output", "OutputReader", "Predictions", "ReadOtherwise", "Returns"]

Kind = Literal["labels", "probabilities", "logits"]
"""What the numbers that a model returns are; labels are no numbers, or ids."""

Rows = slice | npt.NDArray[np.int64]
"""Which rows of the inputs some output belongs to."""

_RANGE_TOLERANCE = 1e-3
"""How far outside 0 to 1 a probability may lie: half precision rounds to about 5e-4."""

_SUM_TOLERANCE = 1e-2
"""How far from 1 the sum of a row of probabilities may lie, as a share: rounded to two digits."""

_ENOUGH = 20
"""So many first predictions without one known label are a foreign label set, not an accident."""

_SHOWN_ANSWERS = 10
"""So many unreadable answers are kept to be shown, of so many characters each."""

_SHOWN_CHARACTERS = 200

_ONLY_LABELS = "the model returns only labels"
_ONLY_WORDS = "the model answers in words"
_ONLY_TOP = "the model returns only its top class"
_ONLY_TOPS = "the model returns only its top classes"


@dataclass(frozen=True)
class Returns:
    """What a model returns, as far as it is known before it is called.

    Attributes
    ----------
    kind : {"labels", "probabilities", "logits"} or None
        None where it has to be decided on the first window of outputs.
    classes : sequence or None
        What the columns of a matrix, or integer outputs, stand for: ``classes_`` of a scikit-learn
        model, the values of ``id2label`` of a transformers one.
    column : str or None
        Which column of a wider frame holds the predictions.
    no_probabilities : str or None
        Why there are none, where that is known.
    text : bool
        Whether the labels are answers in words, to be read (see `AnswerReader`).
    prompt : str or None
        The template of what was asked, where the model got more than the bio.
    draws : int or None
        Of how many answers that were drawn the probabilities are shares, where they are that.
    """

    kind: Kind | None = None
    classes: Sequence[Any] | None = None
    column: str | None = None
    no_probabilities: str | None = None
    text: bool = False
    prompt: str | None = None
    draws: int | None = None


@dataclass(frozen=True, eq=False)
class Output:
    """What a predictor returns that knows the labels and the scores of its model apart.

    Attributes
    ----------
    labels : array-like of shape (n,) or None
        The labels that the model's own ``predict`` gives; None where they are by definition the
        classes of the largest scores.
    scores : array-like of shape (n, classes) or None
        Probabilities or logits, as declared in `Returns`.
    """

    labels: Any = None
    scores: Any = None


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


class ReadOtherwise(MlflowException):
    """What was read so far was taken for another kind of numbers than it turned out to be.

    Attributes
    ----------
    kind : Kind
        What they are.
    """

    def __init__(self, message: str, kind: Kind) -> None:
        super().__init__(message, error_code=INVALID_PARAMETER_VALUE)
        self.kind: Kind = kind


@dataclass(frozen=True, eq=False)
class _Content:
    """Outputs taken out of their containers: cells, one a bio, or a matrix, or both."""

    cells: npt.NDArray[np.object_] | None = None
    matrix: npt.NDArray[np.float64] | None = None
    names: tuple[Any, ...] | None = None
    top_only: bool = False

    def __len__(self) -> int:
        return (
            len(self.matrix)
            if self.cells is None and self.matrix is not None
            else len(self.cells if self.cells is not None else ())
        )

    @property
    def columns(self) -> str:
        """Form, width and names of the columns, for messages."""
        if self.matrix is None:
            return self.form
        names = "" if self.names is None else f" {list(self.names)}"
        return f"{self.form} of {self.matrix.shape[1]} columns{names}"

    @property
    def form(self) -> str:
        """What it is, for messages: labels, matrix, labels and matrix."""
        parts = {"labels": self.cells, "matrix": self.matrix}
        return " and ".join(name for name, part in parts.items() if part is not None)


class OutputReader:
    """Reads the outputs of one model.

    What the predictor declares is taken as it is. What it leaves open is decided once, on the whole
    first window, and then held to.

    Parameters
    ----------
    labels : Labels
        The occupations of the data.
    returns : Returns, optional
        What is known of the model's output.
    ids_known : bool, default=True
        Whether the order of the labels is known to be that of the model's ids: the user gave it, or
        the data holds ids itself. If not, a model with ids for another number of classes is
        refused: its ids may count anything.
    answers : {"auto", "labels", "text"}, default="auto"
        How labels are read. ``"auto"``: as words where the predictor says so, where outputs have
        the shape of a chat, or where most of the first window's are plainly written (see
        `looks_written`).

    Attributes
    ----------
    labels : Labels
        Those of the data, and after them the classes that only the model knows.
    names : list of str
        What the codes stand for: the labels, and after them every other name that was predicted.
    form : str or None
        The form that the first output had: labels, matrix, or labels and matrix.
    kind : Kind or None
        What the numbers are; None as long as that is undecided.
    no_probabilities : str or None
        Why there are no probabilities, once that is known.
    text : bool or None
        Whether labels are read as words; None as long as that is undecided.
    prompt : str or None
        The template of what was asked, see `Returns`.
    unreadable : list of dict
        A few of the answers in which no occupation could be read: ``row``, ``answer`` and ``why``.

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
        returns: Returns | None = None,
        ids_known: bool = True,
        answers: AnswerMode = "auto",
    ) -> None:
        self.returns = returns or Returns()
        self.text: bool | None = {"auto": self.returns.text or None, "labels": False}.get(
            answers, True
        )
        self.prompt = self.returns.prompt
        self.unreadable: list[dict[str, Any]] = []
        self._answers: AnswerMode = answers
        self._answer_reader: AnswerReader | None = None
        self._guessed_text = False
        self._like_words = 0
        self.labels = labels
        self.names = list(labels.names)
        self.form: str | None = None
        self.kind: Kind | None = self.returns.kind
        self.no_probabilities: str | None = self.returns.no_probabilities
        self._data_labels = labels
        self._classes: list[Any] | None = None
        self._ids_known = ids_known
        self._outside: dict[str, int] = {}
        self._columns: npt.NDArray[np.int64] | None = None
        self._in_order = False
        self._sums_to_one = True
        self._declared = self.returns.kind is not None
        if self.returns.classes is not None:
            self._learn_classes(list(self.returns.classes))

    def another(self, returns: Returns) -> OutputReader:
        """Return a reader that has read nothing, of another model's outputs for the same data."""
        return OutputReader(
            self._data_labels, returns=returns, ids_known=self._ids_known, answers=self._answers
        )

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
        return self.read_window([(slice(None), output)], np.arange(n) if rows is None else rows)

    def read_window(
        self, parts: Iterable[tuple[Rows, object]], rows: npt.NDArray[np.int64]
    ) -> Predictions:
        """Turn a model's outputs for one window into predictions.

        Parameters
        ----------
        parts : iterable of tuple
            Outputs, each with the positions of its bios in the window; all positions once.
        rows : ndarray of int64 of shape (n,)
            The row of each bio in the data, for messages.

        Returns
        -------
        Predictions

        Raises
        ------
        MlflowException
            See `read`.
        ReadOtherwise
            When numbers that passed for probabilities so far turn out to be logits.
        """
        n = len(rows)
        if n == 0:
            return Predictions(np.empty(0, dtype=np.int64))
        contents, order = [], []
        for where, output in parts:
            content = self._unpack(output)
            expected = len(rows[where])
            if len(content) != expected:
                raise invalid(
                    "model output",
                    found=f"{len(content)} predictions for {expected} bios "
                    f"(from row {rows[where][0]} on)",
                    expected="one prediction a bio, in order",
                    fix="let predict return one row for each row it gets",
                )
            contents.append(content)
            order.append(np.arange(n)[where])
        whole = self._interpret(self._join(contents, order, rows), rows)
        first = self.form is None
        if first:
            self.form = whole.form
            if whole.matrix is not None:
                self._learn_columns(whole.names, whole.matrix.shape[1])
        elif whole.form != self.form:
            raise invalid(
                f"model output for the bios from row {rows[0]} on",
                found=whole.form,
                expected=f"{self.form}, as for the bios before",
                fix="let the model return one form for all bios",
            )
        largest = matrix = None
        if whole.matrix is not None:
            largest, matrix = self._from_matrix(whole.matrix, whole.names, rows)
        if whole.cells is None:
            assert largest is not None
            self._refuse_text()
            return Predictions(largest, matrix)
        if self.text is None:
            self._decide_text(whole.cells)
        if self.text:
            return Predictions(self._from_words(whole.cells, first, rows), matrix)
        return Predictions(self._from_labels(whole.cells, first), matrix)

    # -- state ------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return what was learned from the outputs so far, as plain JSON values."""
        return {
            "labels": list(self.labels.names),
            "form": self.form,
            "no_probabilities": self.no_probabilities,
            "classes": None if self._classes is None else self._class_names,
            "kind": self.kind,
            "sums_to_one": self._sums_to_one,
            "declared": self._declared,
            "text": self.text,
            "prompt": self.prompt,
        }

    def learn(self, state: Mapping[str, Any]) -> bool:
        """Take over what another reader learned; False where the two do not agree."""
        if self.returns.kind not in (None, state["kind"]):
            return False
        if self.form is None:
            if state["classes"] is not None and self._classes is None:
                self._learn_classes(list(state["classes"]))
            if "matrix" in (state["form"] or ""):
                self._learn_columns(None, len(state["classes"]))
            self.form = state["form"]
            self.no_probabilities = state["no_probabilities"]
            self.kind = state["kind"]
            self._declared = state["declared"]
            self.prompt = state["prompt"]
            if self._answers == "auto":
                self.text = state["text"]
        self._sums_to_one = self._sums_to_one and state["sums_to_one"]
        return all(self.state()[name] == state[name] for name in _MUST_AGREE)

    # -- windows ------------------------------------------------------------------------------

    def _join(
        self,
        contents: Sequence[_Content],
        order: Sequence[npt.NDArray[np.int64]],
        rows: npt.NDArray[np.int64],
    ) -> _Content:
        """Put the contents of the parts of a window together, in the order of its bios."""
        if len(contents) == 1 and (order[0][:-1] < order[0][1:]).all():
            return contents[0]
        if len({content.names for content in contents}) > 1:
            contents = [self._in_label_order(content) for content in contents]
        first = contents[0]
        for content, positions in zip(contents, order, strict=True):
            if content.columns != first.columns:
                raise invalid(
                    f"model output for the bios from row {rows[positions[0]]} on",
                    found=content.columns,
                    expected=f"{first.columns}, as for the bios before",
                    fix="let the model return one form for all bios",
                )
        back = np.argsort(np.concatenate(order), kind="stable")

        def together(parts: list[Any]) -> Any:
            return None if parts[0] is None else np.concatenate(parts)[back]

        return _Content(
            together([content.cells for content in contents]),
            together([content.matrix for content in contents]),
            first.names,
            first.top_only,
        )

    def _in_label_order(self, content: _Content) -> _Content:
        """Return named columns in the order of the labels, where they are these very labels."""
        if content.names is None or content.matrix is None:
            return content
        codes = [self.labels.code(name) for name in content.names]
        if sorted(codes) != list(range(len(self.labels))):
            return content
        return _Content(content.cells, content.matrix[:, np.argsort(codes)])

    # -- containers ---------------------------------------------------------------------------

    def _unpack(self, output: Any) -> _Content:
        """Take an output out of its container."""
        if isinstance(output, Output):
            cells = None if output.labels is None else as_objects(self._unpack_cells(output.labels))
            scores = _Content() if output.scores is None else self._unpack_scores(output.scores)
            return _Content(cells, scores.matrix, scores.names)
        if hasattr(output, "detach"):  # a torch tensor, without importing torch
            output = output.detach().cpu().float().numpy()
        if hasattr(output, "toarray"):  # a sparse matrix
            output = output.toarray()
        if is_chat_shaped(output):  # one answer
            output = [output]
        if isinstance(output, Mapping):
            output = self._as_frame(output)
        if isinstance(output, str) or np.isscalar(output) or output is None:
            output = [output]
        if isinstance(output, pd.DataFrame):
            return self._unpack_frame(output)
        if isinstance(output, pd.Series):
            return _Content(as_objects(output))
        if isinstance(output, np.ndarray):
            if self.kind == "labels":
                return _Content(as_objects(self._unpack_cells(output)))
            if output.ndim == 2 and output.shape[1] == 1 and not self._matrix_declared:
                output = output[:, 0]
            if output.ndim == 1:
                return _Content(as_objects(output))
            if output.ndim == 2:
                return self._unpack_matrix(output)
            raise self._unreadable(f"an array of shape {output.shape}")
        if isinstance(output, Iterable):
            return _Content(as_objects(list(output)))
        raise self._unreadable(f"an object of type {type(output).__name__}")

    @property
    def _matrix_declared(self) -> bool:
        return self.returns.kind in ("probabilities", "logits")

    def _as_frame(self, output: Mapping[Any, Any]) -> pd.DataFrame:
        whole = (list, tuple, np.ndarray, pd.Series)
        columns = {k: v if isinstance(v, whole) else [v] for k, v in output.items()}
        try:
            return pd.DataFrame({k: list(v) for k, v in columns.items()})
        except ValueError as error:
            raise self._unreadable(f"a dict with the keys {list(output)} ({error})") from error

    def _unpack_cells(self, labels: Any) -> npt.NDArray[Any]:
        if isinstance(labels, pd.DataFrame):
            labels = labels.to_numpy(dtype=object)
        array = labels if isinstance(labels, np.ndarray) else as_objects(labels)
        if array.ndim == 2 and array.shape[1] == 1:
            array = array[:, 0]
        if array.ndim != 1:
            raise invalid(
                "model output",
                found=f"labels of shape {array.shape}: a model with several outputs",
                expected="one occupation for each bio",
                fix="register a model that predicts the occupation alone",
            )
        return array

    def _unpack_scores(self, scores: Any) -> _Content:
        if isinstance(scores, np.ndarray) and scores.ndim == 2:
            return self._unpack_matrix(scores)
        if isinstance(scores, pd.DataFrame):
            return self._unpack_frame(scores)
        return self._interpret(_Content(as_objects(scores)), np.arange(len(scores)))

    def _unpack_frame(self, frame: pd.DataFrame) -> _Content:
        column = self.returns.column
        if column is not None:
            if column not in frame.columns:
                raise invalid(
                    "predictions",
                    found=f"no column {column!r} in the model output: {list(frame.columns)}",
                    expected="the column that holds the predicted occupation",
                    fix="name one of these columns in predictions",
                )
            return _Content(as_objects(frame[column]))
        numeric = all(pd.api.types.is_numeric_dtype(dtype) for dtype in frame.dtypes)
        names = list(frame.columns)
        if frame.shape[1] == 1:
            if not (numeric and self._is_class_column(frame)):
                return _Content(as_objects(frame.iloc[:, 0]))
        elif {"labels", "scores"} <= set(names):
            return _Content(as_objects(_zero_shot(frame)))
        elif {"label", "score"} <= set(names):
            return _Content(as_objects(frame["label"]), top_only=True)
        elif not numeric:
            if all(_are_dicts(frame[name]) for name in names):
                return _Content(as_objects(frame.to_numpy().tolist()))
            raise self._unreadable(f"a frame with the columns {names}")
        positions = list(frame.columns) == [*range(len(names))]
        matrix = frame.to_numpy(dtype=np.float64, na_value=np.nan)
        return _Content(matrix=matrix, names=None if positions else tuple(names))

    def _is_class_column(self, frame: pd.DataFrame) -> bool:
        """Tell the one probability of a model that knows one class from a column of ids."""
        if self._matrix_declared:
            return True
        if self.kind == "labels":
            return False
        name = frame.columns[0]
        known = isinstance(name, str) and self.labels.code(name) < len(self.labels)
        return known and frame.dtypes.iloc[0].kind == "f"

    def _unpack_matrix(self, matrix: npt.NDArray[Any]) -> _Content:
        if matrix.dtype == object and _are_dicts(matrix[:, 0]):
            return _Content(as_objects(matrix.tolist()))
        return _Content(matrix=_numbers(matrix))

    def _unreadable(self, found: str) -> Exception:
        return invalid(
            "model output",
            found=found,
            expected="labels, a matrix of probabilities, label/score frames or lists of them",
            fix="name the column with the labels in predictions, or return one of these forms",
        )

    # -- cells --------------------------------------------------------------------------------

    def _interpret(self, content: _Content, rows: npt.NDArray[np.int64]) -> _Content:
        """Decide what the cells of a whole window are."""
        cells = content.cells
        if cells is None or content.matrix is not None:
            return content
        if self.text or (self.text is None and any(map(is_chat_shaped, cells))):
            if any(_sort(cell) == "list" for cell in cells):
                raise self._no_words("list for each bio")
            self.text = True
            self._say_no_probabilities(_ONLY_WORDS)
            return content
        there = np.flatnonzero([not _is_missing(cell) for cell in cells])
        sorts = {_sort(cells[i]): int(i) for i in there[::-1].tolist()}
        if len(sorts) > 1:
            found = [f"a {name} for row {rows[at]}" for name, at in sorted(sorts.items())]
            raise invalid(
                "model output",
                found=" and ".join(found),
                expected="one form for all bios",
                fix="let the model return one form for all bios",
            )
        sort = next(iter(sorts), "label")
        if sort == "dict":
            return self._interpret_dicts(cells, there, rows)
        if sort == "list":
            values = [cells[i] for i in there]
            if any(isinstance(value, Mapping) for cell in values for value in cell):
                return self._interpret_ranked(cells, there, rows)
            _require_all(there, cells, rows)
            return _Content(matrix=_numbers(values))
        for i in there.tolist():
            value = cells[i]
            if isinstance(value, float | np.floating) and not float(value).is_integer():
                raise self._unreadable(f"one number that is not whole for each bio ({value!r})")
        self._say_no_probabilities(_ONLY_TOP if content.top_only else _ONLY_LABELS)
        return _Content(cells)

    def _interpret_dicts(
        self, cells: npt.NDArray[np.object_], there: npt.NDArray[Any], rows: npt.NDArray[np.int64]
    ) -> _Content:
        keys = [set(cells[i]) for i in there]
        if all({"labels", "scores"} <= some for some in keys):
            ranked = as_objects([None] * len(cells))
            for i in there.tolist():
                pairs = zip(cells[i]["labels"], cells[i]["scores"], strict=True)
                ranked[i] = [{"label": name, "score": score} for name, score in pairs]
            return self._interpret_ranked(ranked, there, rows)
        if any("label" in some for some in keys):
            lacking = [
                i for i, some in zip(there.tolist(), keys, strict=True) if "label" not in some
            ]
            if lacking:
                raise self._unreadable(
                    f"a dict with the keys {list(cells[lacking[0]])} for row {rows[lacking[0]]}"
                )
            self._say_no_probabilities(_ONLY_TOP)
            return _Content(_pick(cells, lambda cell: cell["label"]))
        _require_all(there, cells, rows)
        content = self._unpack_frame(pd.DataFrame(list(cells)))
        if content.cells is not None and any(_sort(cell) != "label" for cell in content.cells):
            raise self._unreadable(f"a dict with the keys {list(cells[0])} for row {rows[0]}")
        return self._interpret(content, rows)

    def _interpret_ranked(
        self, cells: npt.NDArray[np.object_], there: npt.NDArray[Any], rows: npt.NDArray[np.int64]
    ) -> _Content:
        """Read lists of {label, score}: a matrix when all classes are there, else labels."""
        for i in there.tolist():
            for entry in cells[i]:
                if not (isinstance(entry, Mapping) and {"label", "score"} <= set(entry)):
                    shown = list(entry) if isinstance(entry, Mapping) else entry
                    raise self._unreadable(f"a list with {shown!r:.80} for row {rows[i]}")
        names = sorted({str(entry["label"]) for i in there for entry in cells[i]})
        whole = len(there) == len(cells) and all(len(cells[i]) == len(names) for i in there)
        enough = self._classes is None or len(names) == len(self._classes)
        if self.form == "labels" or not (whole and enough and len(names) > 1):
            self._say_no_probabilities(_ONLY_TOPS)
            best = _pick(cells, lambda row: max(row, key=lambda entry: entry["score"])["label"])
            return _Content(best)
        position = {name: column for column, name in enumerate(names)}
        matrix = np.empty((len(cells), len(names)))
        for i, row in enumerate(cells):
            for entry in row:
                matrix[i, position[str(entry["label"])]] = entry["score"]
        return _Content(matrix=matrix, names=tuple(names))

    def _say_no_probabilities(self, why: str) -> None:
        if self.no_probabilities is None:
            self.no_probabilities = why

    # -- labels -------------------------------------------------------------------------------

    def _from_labels(self, values: npt.NDArray[np.object_], first: bool) -> npt.NDArray[np.int64]:
        positions, distinct = pd.factorize(values, use_na_sentinel=False)
        codes = np.array([self._code(value) for value in distinct], dtype=np.int64)[positions]
        if self._answers == "auto":
            outside = [i for i, value in enumerate(distinct) if self._could_be_read(value)]
            self._like_words += int(np.isin(positions, outside).sum())
        if first and len(codes) >= _ENOUGH:
            self.check_any_known(Counter(codes.tolist()))
        return codes

    def about_answers(self, *, quote: bool) -> dict[str, Any] | None:
        """Return how answers in words were asked for and read, as plain JSON values.

        Parameters
        ----------
        quote : bool
            Whether a few unreadable answers are quoted: they may repeat the bio.

        Returns
        -------
        dict or None
            ``words`` (False where a prompt was given, but likelihoods were taken), ``prompt`` and
            ``prompt_sha256`` (None where the model was given the bio alone), ``guessed`` (whether
            nothing but their look says that they are words) and ``unreadable``, a few of those that
            could not be read; None where the model was given no prompt and answers in no words.
        """
        if not self.text and self.prompt is None:
            return None
        shown = self.unreadable if quote else [{**one, "answer": None} for one in self.unreadable]
        return {
            "words": bool(self.text),
            "prompt": self.prompt,
            "prompt_sha256": None if self.prompt is None else Prompt(self.prompt).sha256,
            "guessed": self._guessed_text,
            "unreadable": shown,
        }

    # -- words --------------------------------------------------------------------------------

    def _refuse_text(self) -> None:
        if self._answers == "text":
            raise self._no_words(str(self.form))
        self.text = False

    def _no_words(self, found: str) -> Exception:
        return invalid(
            "answers",
            found=f"'text' for a model that returns a {found}",
            expected="a model that answers in words",
            fix="leave out answers",
        )

    def _words(self) -> AnswerReader:
        if self._answer_reader is None:
            self._answer_reader = AnswerReader(self.labels.names)
        return self._answer_reader

    def _decide_text(self, cells: npt.NDArray[np.object_]) -> None:
        self.text = self._guessed_text = looks_written(cells, self._words())
        if self.text and self.no_probabilities == _ONLY_LABELS:
            self.no_probabilities = _ONLY_WORDS

    def _from_words(
        self, values: npt.NDArray[np.object_], first: bool, rows: npt.NDArray[np.int64]
    ) -> npt.NDArray[np.int64]:
        reader = self._words()
        texts = as_objects([answer_text(value) for value in values])
        positions, distinct = pd.factorize(texts, use_na_sentinel=False)
        codes = np.empty(len(distinct), dtype=np.int64)
        for i, text in enumerate(distinct):
            found = reader.read(text)
            if found.code is not None:
                codes[i] = found.code
                continue
            assert found.why is not None
            codes[i] = self._named(found.why)
            if len(self.unreadable) < _SHOWN_ANSWERS:
                row = int(rows[np.flatnonzero(positions == i)[0]])
                shown = None if text is None else str(text)[:_SHOWN_CHARACTERS]
                self.unreadable.append({"row": row, "answer": shown, "why": found.why})
        if first and len(positions) >= _ENOUGH:
            self.check_any_known(codes.tolist())
        return codes[positions]

    def is_unreadable(self, predictions: Predictions) -> npt.NDArray[np.bool_]:
        """Tell of each prediction whether it stands for an answer that could not be read."""
        codes = [self._named(why) for why in UNREADABLE] if self.text else []
        return np.isin(predictions.codes, codes)

    def unknown(self, predictions: Predictions) -> Counter[str]:
        """Count the predicted names that are not among the labels of the data."""
        outside = predictions.codes[predictions.codes >= len(self._data_labels)]
        return Counter(self.names[code] for code in outside.tolist())

    def check_any_known(self, codes: Iterable[int]) -> None:
        """Raise where none of some predicted codes is a label of the data."""
        codes = list(codes)
        if codes and min(codes) >= len(self._data_labels):
            if self.text:
                raise self._nothing_read()
            raise self._no_common_labels(sorted({self.names[code] for code in codes}))

    def encode(self, names: Iterable[str]) -> npt.NDArray[np.int64]:
        """Return the codes of names that another reader of the same model had."""
        return np.array([self._named(name) for name in names], dtype=np.int64)

    def _code(self, value: object) -> int:
        if _is_missing(value):
            return self._named(_NO_PREDICTION)
        code = self.labels.code(value)
        if code < len(self.labels):
            return code
        if self._classes is not None:
            # A whole number that the label set cannot place may be a position in the classes.
            position = Labels([str(i) for i in range(len(self._classes))], ids=True).code(value)
            if position < len(self._classes):
                return self.labels.code(self._classes[position])
        return self._named(str(value))

    def _could_be_read(self, value: object) -> bool:
        """Tell whether a label that is none of the known names one of them in other words."""
        return (
            isinstance(value, str)
            and self.labels.code(value) == len(self.labels)
            and looks_written([value], self._words())
        )

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

    def _learn_columns(self, names: Sequence[Any] | None, width: int) -> None:
        if names is not None:
            self._learn_classes(list(names))
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
        names: Sequence[Any] | None,
        rows: npt.NDArray[np.int64],
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """Return the labels of the largest scores, and the probabilities."""
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
        self._check_kind(matrix, rows)
        # The largest in the model's own order: where two are equal, its first is its answer.
        largest = self._columns[matrix.argmax(axis=1)]
        if self.kind == "logits":
            matrix = softmax(matrix, axis=1)
        if not self._in_order:
            whole = np.zeros((len(matrix), len(self.labels)))
            whole[:, self._columns] = matrix
            matrix = whole
        return largest, matrix

    def _check_kind(self, matrix: npt.NDArray[np.float64], rows: npt.NDArray[np.int64]) -> None:
        """Decide whether numbers are probabilities or logits, or whether they still are."""
        if self.kind == "logits":
            return
        sums = matrix.sum(axis=1)
        if _are_probabilities(matrix):
            self.kind = self.kind or "probabilities"
            self._sums_to_one = self._sums_to_one and bool(
                (np.abs(sums - 1) <= _SUM_TOLERANCE).all()
            )
            return
        if matrix.min() >= -_RANGE_TOLERANCE and (np.abs(sums - 100) <= 100 * _SUM_TOLERANCE).all():
            raise invalid(
                f"model output for the bios from row {rows[0]} on",
                found="rows that sum to 100, as probabilities in percent do",
                expected="probabilities from 0 to 1, or logits",
                fix="divide the model's output by 100",
            )
        if self.kind is None:
            self.kind = "logits"
            return
        error = invalid(
            f"model output for the bios from row {rows[0]} on",
            found="numbers outside 0 to 1",
            expected="probabilities, as for the bios before",
            fix="let the model return probabilities for all bios, or logits for all",
        )
        if self.returns.kind is None and not self._sums_to_one:
            # Numbers in 0 to 1 that do not sum to 1 can be either; now it is known what they are.
            raise ReadOtherwise(error.message, "logits")
        raise error

    def note(self) -> str | None:
        """Return how undeclared outputs were understood where that is a guess, None otherwise."""
        if self._guessed_text:
            return (
                "the model's answers are no labels but written; they were read as words, which "
                "answers='text' says and answers='labels' forbids"
            )
        if self._like_words and not self.text:
            return (
                f"{self._like_words} of the model's labels are unknown but written, and name an "
                "occupation; they count as wrong, unless answers='text' has them read"
            )
        if self._declared or self.form is None or "matrix" not in self.form:
            return None
        if self.kind == "logits":
            return "the model's numbers lie outside 0 to 1 and were read as logits (softmax)"
        if not self._sums_to_one:
            return (
                "the model's numbers lie in 0 to 1 but do not sum to 1 for each bio; they were "
                "read as independent probabilities, as of a multi-label model"
            )
        return None

    def _nothing_read(self) -> Exception:
        return invalid(
            "model output",
            found=f"no answer that names an occupation of the data "
            f"({', '.join(sorted({one['why'] for one in self.unreadable}))})",
            expected=f"answers that name one of {list(self._data_labels.names)}",
            fix="ask for one of {occupations} in prompt, or mend the model's own instructions",
        )

    def _no_common_labels(self, found: Sequence[str]) -> Exception:
        return invalid(
            "label set of the model",
            found=f"{list(found)[:30]}",
            expected=f"the data's {list(self._data_labels.names)}",
            fix="set label_names to the occupations in the order of the model's ids",
        )


_NO_PREDICTION = "(no prediction)"

_MUST_AGREE = ("labels", "form", "kind", "text")
"""What two readers must have learned alike."""


def _are_probabilities(matrix: npt.NDArray[np.float64]) -> bool:
    """Tell probabilities from logits; rows of independent (sigmoid) probabilities count as such."""
    low, high = matrix.min(initial=0.0), matrix.max(initial=0.0)
    return bool(low >= -_RANGE_TOLERANCE and high <= 1 + _RANGE_TOLERANCE)


def _numbers(rows: Any) -> npt.NDArray[np.float64]:
    """Return rows of numbers as a matrix of shape (n, classes)."""
    try:
        if isinstance(rows, np.ndarray) and rows.dtype != object:
            return rows.astype(np.float64, copy=False)
        matrix = np.array([np.asarray(row, dtype=np.float64) for row in rows])
        if matrix.ndim == 2:
            return matrix
    except (TypeError, ValueError):
        pass
    raise invalid(
        "model output",
        found="probability rows that are not numbers or not of one length",
        expected="one number for each class",
        fix="return a numeric array of shape (bios, classes)",
    )


def _zero_shot(frame: pd.DataFrame) -> list[Any]:
    """Return one ranked list a bio from the frames of zero-shot classification.

    The pipeline returns lists of labels and scores in each row; MLflow writes them out, one row a
    label, the rows of a bio one after the other.
    """
    labels, scores = frame["labels"].tolist(), frame["scores"].tolist()
    if all(isinstance(cell, list | tuple | np.ndarray) for cell in labels):
        pairs = zip(labels, scores, strict=True)
        return [[{"label": x, "score": y} for x, y in zip(a, b, strict=True)] for a, b in pairs]
    classes = len(set(map(str, labels)))
    cells = [{"label": x, "score": y} for x, y in zip(labels, scores, strict=True)]
    return [cells[start : start + classes] for start in range(0, len(cells), classes)]


def _are_dicts(cells: Any) -> bool:
    there = [cell for cell in cells if not _is_missing(cell)]
    return len(there) > 0 and all(isinstance(cell, Mapping) for cell in there)


def _is_missing(cell: object) -> bool:
    """Tell what is no prediction at all from a text, be it empty, that the model answered."""
    return not isinstance(cell, str) and is_missing(cell)


def _sort(cell: object) -> str:
    if isinstance(cell, Mapping):
        return "dict"
    return "list" if isinstance(cell, list | tuple | np.ndarray) else "label"


def _require_all(
    there: npt.NDArray[Any], cells: npt.NDArray[np.object_], rows: npt.NDArray[np.int64]
) -> None:
    if len(there) < len(cells):
        absent = sorted(set(range(len(cells))) - set(there.tolist()))
        raise invalid(
            f"model output for the bio of row {rows[absent[0]]}",
            found="no prediction, where others have a number for every class",
            expected="one number for each class",
            fix="let the model return probabilities for every bio",
        )


def _pick(values: Iterable[Any], key: Any) -> npt.NDArray[np.object_]:
    return as_objects([None if _is_missing(value) else key(value) for value in values])
