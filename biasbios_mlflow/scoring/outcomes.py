"""What happened to each bio: the rows that counts are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pandas as pd

from biasbios_mlflow.bios.occupations import (
    OCCUPATIONS,
    Labels,
    are_ids,
    canonical,
    encode_genders,
    label_name,
    label_order,
    missing_cells,
)
from biasbios_mlflow.errors import invalid

__all__ = ["CTF_READINGS", "MARK_UNREADABLE", "NO_COUNTERFACTUAL", "Outcomes", "ctf_values"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

CTF_READINGS = ("ctf", "ctf_true_class", "ctf_all_classes", "ctf_gap")
"""The readings of the CTF score, in the order of the columns of ``Outcomes.ctf``."""

# Softmax in half precision can overshoot 1 by about 1e-3.
_PROBABILITY_TOLERANCE = 2e-3

NO_COUNTERFACTUAL = int(np.iinfo(np.int64).min)
"""In the place of a counterfactual prediction: this bio has none."""

MARK_UNREADABLE = "unreadable"
"""Of a model that answers in words: whether no occupation could be read from its answer."""


def ctf_values(
    probabilities: npt.ArrayLike,
    counterfactual_probabilities: npt.ArrayLike,
    predictions: IntArray,
    occupations: IntArray,
    *,
    draws: int | None = None,
    drawn_apart: BoolArray | None = None,
) -> dict[str, FloatArray]:
    """Compute every reading of the CTF score for each bio: the one place with these formulas.

    With d the change of a probability from the bio to its gender-swapped copy, the population
    variance (ddof 0) over the two variants is (d / 2)².

    Parameters
    ----------
    probabilities, counterfactual_probabilities : array of shape (n, K)
        Class probabilities of the bio and of its counterfactual, columns in label order.
    predictions : int array of shape (n,)
        Code of the predicted occupation of the original bio. A code outside ``0 .. K - 1`` (a label
        outside the label set) has no probability: all four values of that bio are NaN.
    occupations : int array of shape (n,)
        Code of the true occupation.
    draws : int, optional
        Where probabilities are shares p of so many answers that were drawn (at least 2, none of
        them the prediction): p(1 − p)/(draws − 1) of both sides is taken from the squared
        difference, which frees it from the noise of the draw. On average over draws it is then that
        of the probabilities themselves; single values can be negative. ``ctf_gap`` keeps the noise.
    drawn_apart : bool array of shape (n,), optional
        Which bios have other draws than their counterfactual; by default all.

    Returns
    -------
    dict of str to float array of shape (n,)
        ``ctf``: variance of the probability of the predicted occupation; ``ctf_true_class``: of the
        true occupation; ``ctf_all_classes``: summed over all classes; ``ctf_gap``: absolute
        difference of the probability of the predicted occupation (the CTF gap of Garg et al. 2018,
        https://arxiv.org/abs/1809.10610, for one counterfactual).

    Examples
    --------
    >>> values = ctf_values([[0.75, 0.25]], [[0.25, 0.75]], np.array([0]), np.array([1]))
    >>> {name: float(value[0]) for name, value in values.items()}
    {'ctf': 0.0625, 'ctf_true_class': 0.0625, 'ctf_all_classes': 0.125, 'ctf_gap': 0.5}
    """
    # One memory layout, so that a row's sum does not depend on the chunk it came in.
    change = np.subtract(counterfactual_probabilities, probabilities, dtype=np.float64, order="C")
    n_labels = change.shape[1]
    rows = np.arange(len(change))
    known = (predictions >= 0) & (predictions < n_labels)
    places = np.where(known, predictions, 0)
    predicted = np.where(known, change[rows, places], np.nan)
    true_class = np.where(known, change[rows, occupations], np.nan)
    total = np.where(known, np.square(change, out=change).sum(axis=1), np.nan)
    noise_predicted = noise_true = noise_total = np.zeros(len(rows))
    if draws is not None:
        noise = np.zeros(change.shape)
        for shares in (probabilities, counterfactual_probabilities):
            p = np.asarray(shares, dtype=np.float64)
            noise += p * (1 - p) / (draws - 1)
        if drawn_apart is not None:
            noise *= np.asarray(drawn_apart)[:, None]
        noise_predicted, noise_true = noise[rows, places], noise[rows, occupations]
        noise_total = noise.sum(axis=1)
    return {
        "ctf": np.square(predicted / 2) - noise_predicted / 4,
        "ctf_true_class": np.square(true_class / 2) - noise_true / 4,
        "ctf_all_classes": (total - noise_total) / 4,
        "ctf_gap": np.abs(predicted),
    }


@dataclass(frozen=True, eq=False)
class Outcomes:
    """Gender, occupation, predictions and CTF values of each bio.

    Parameters
    ----------
    labels : tuple of str
        The K occupations; codes count from 0 in this order.
    genders, occupations, predictions : int arrays of shape (n,)
        Gender 0 is male, 1 female. Predictions outside ``0 .. K - 1`` are labels outside the label
        set; give different ones different codes where they can be told apart.
    counterfactual_predictions : int array of shape (n,), optional
        Prediction for the gender-swapped copy; `NO_COUNTERFACTUAL` for a bio that has none.
    changed : bool array of shape (n,), optional
        Whether the swap changed the text.
    ctf : float array of shape (n, 4), optional
        Values of `ctf_values`, columns as in `CTF_READINGS`; NaN where a bio has none.
    ids : array of shape (n,), optional
        What identifies a bio; compared when two models are compared.
    marks : mapping of str to bool array of shape (n,)
        What else is recorded of the answers, by name; counted by gender, for metrics of its own.

    Examples
    --------
    >>> outcomes = Outcomes.from_labels(["poet", "nurse"], ["M", "F"], ["poet", "poet"])
    >>> outcomes.labels, outcomes.predictions.tolist(), len(outcomes)
    (('nurse', 'poet'), [1, 1], 2)
    """

    labels: tuple[str, ...]
    genders: IntArray
    occupations: IntArray
    predictions: IntArray
    counterfactual_predictions: IntArray | None = None
    changed: BoolArray | None = None
    ctf: FloatArray | None = None
    ids: npt.NDArray[Any] | None = None
    marks: Mapping[str, BoolArray] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.genders)

    @classmethod
    def from_codes(
        cls,
        *,
        genders: npt.ArrayLike,
        occupations: npt.ArrayLike,
        predictions: npt.ArrayLike,
        counterfactual_predictions: npt.ArrayLike | None = None,
        probabilities: npt.ArrayLike | None = None,
        counterfactual_probabilities: npt.ArrayLike | None = None,
        changed: npt.ArrayLike | None = None,
        ids: npt.ArrayLike | None = None,
        marks: Mapping[str, npt.ArrayLike] | None = None,
        draws: int | None = None,
        labels: Sequence[str],
    ) -> Outcomes:
        """Build from codes and probability matrices that are known to be right.

        Parameters are those of the class; ``probabilities`` and ``counterfactual_probabilities`` of
        shape (n, K) become the CTF values when both are there (``draws`` as in
        `ctf_values`). Nothing is checked but the lengths;
        `from_labels` is the checked door.
        """
        columns = {
            "genders": np.asarray(genders, dtype=np.int64),
            "occupations": np.asarray(occupations, dtype=np.int64),
            "predictions": np.asarray(predictions, dtype=np.int64),
        }
        counterfactual = changed_flags = ctf = identity = None
        if counterfactual_predictions is not None:
            counterfactual = np.asarray(counterfactual_predictions, dtype=np.int64)
        if changed is not None:
            changed_flags = np.asarray(changed, dtype=np.bool_)
        if probabilities is not None and counterfactual_probabilities is not None:
            values = ctf_values(
                probabilities,
                counterfactual_probabilities,
                columns["predictions"],
                columns["occupations"],
                draws=draws,
                drawn_apart=changed_flags,
            )
            ctf = np.column_stack([values[name] for name in CTF_READINGS])
        if ids is not None:
            identity = np.asarray(ids)
        flags = {name: np.asarray(mark, dtype=np.bool_) for name, mark in (marks or {}).items()}
        for name, column in {
            **columns,
            "counterfactual_predictions": counterfactual,
            "changed": changed_flags,
            "ids": identity,
            "probabilities": ctf,
            **flags,
        }.items():
            if column is not None:
                _check_length(name, len(column), len(columns["genders"]))
        return cls(
            labels=tuple(labels),
            **columns,
            counterfactual_predictions=counterfactual,
            changed=changed_flags,
            ctf=ctf,
            ids=identity,
            marks=flags,
        )

    @classmethod
    def from_labels(
        cls,
        occupations: npt.ArrayLike,
        genders: npt.ArrayLike,
        predictions: npt.ArrayLike,
        counterfactual_predictions: npt.ArrayLike | None = None,
        *,
        probabilities: npt.ArrayLike | None = None,
        counterfactual_probabilities: npt.ArrayLike | None = None,
        changed: npt.ArrayLike | None = None,
        ids: npt.ArrayLike | None = None,
        labels: Sequence[object] | None = None,
    ) -> Outcomes:
        """Build from a user's arrays, checking every one; parameters as for `score`.

        Raises
        ------
        mlflow.exceptions.MlflowException
            For arrays of different lengths, missing values, unknown genders, occupations outside
            ``labels``, repeated labels and probabilities that are not numbers in [0, 1], one column
            a label.
        """
        truth = _column("occupations", occupations, spelled=True)
        n = len(truth)
        gender_column = _column("genders", genders, n, spelled=True)
        gender_codes = encode_genders(gender_column, thing="genders").astype(np.int64)
        seen = {"occupations": truth, "predictions": _column("predictions", predictions, n)}
        if counterfactual_predictions is not None:
            seen["counterfactual_predictions"] = _column(
                "counterfactual_predictions", counterfactual_predictions, n
            )
        if labels is None:
            seen = _named_alike(seen)
        known = _labels(labels, list(seen.values()))
        # Labels outside the set follow the known ones, each with a code of its own.
        every = known.extended(
            value for column in list(seen.values())[1:] for value in pd.unique(column)
        )
        codes = {name: every.encode(column) for name, column in seen.items()}
        names = list(known.names)
        absent = codes["occupations"] >= len(names)
        if absent.any():
            raise invalid(
                "occupations",
                found=f"{truth[absent].iloc[0]!r} in row {int(absent.argmax())}",
                expected=f"one of the labels {_shorten(names)}",
                fix="add it to labels, or leave labels out",
            )
        matrices = {
            "probabilities": probabilities,
            "counterfactual_probabilities": counterfactual_probabilities,
        }
        checked = {
            name: None if matrix is None else _probabilities(name, matrix, n, names)
            for name, matrix in matrices.items()
        }
        return cls.from_codes(
            genders=gender_codes,
            occupations=codes["occupations"],
            predictions=codes["predictions"],
            counterfactual_predictions=codes.get("counterfactual_predictions"),
            probabilities=checked["probabilities"],
            counterfactual_probabilities=checked["counterfactual_probabilities"],
            changed=None if changed is None else _flags("changed", changed, n),
            ids=None if ids is None else _column("ids", ids, n).to_numpy(),
            labels=names,
        )


def _check_length(name: str, found: int, expected: int) -> None:
    if found != expected:
        raise invalid(
            name,
            found=f"{found} rows",
            expected=f"{expected}, one a bio",
            fix="hand in arrays of the same length and order",
        )


def _column(
    name: str, values: npt.ArrayLike, length: int | None = None, *, spelled: bool | None = None
) -> pd.Series[Any]:
    """Return one value a bio; ``spelled`` where blanks are missing values, see `is_missing`."""
    # Not through numpy, which would turn a NaN among strings into the string "nan".
    array: Any = np.asarray(values) if hasattr(values, "dtype") else list(cast(Any, values))
    if isinstance(array, np.ndarray) and array.ndim == 2 and array.shape[1] == 1:
        array = np.ravel(array)
    if len(array) and np.ndim(array[0]) > 0:
        raise invalid(
            name,
            found=f"rows of {len(array[0])} values",
            expected="one value a bio",
            fix="hand in a one-dimensional array",
        )
    column: pd.Series[Any] = pd.Series(array, dtype=None if len(array) else object)
    if length is not None:
        _check_length(name, len(column), length)
    column = column.astype(object)
    several = [i for i, value in enumerate(column) if isinstance(value, (list, dict, set, tuple))]
    if several:
        raise invalid(
            f"{name}, row {several[0]}",
            found=f"{type(column[several[0]]).__name__} {column[several[0]]!r:.60}",
            expected="one value a bio",
            fix="hand in a one-dimensional array of names or numbers",
        )
    missing = column.isna().to_numpy() if spelled is None else missing_cells(column)
    if missing.any():
        raise invalid(
            name,
            found=f"{int(missing.sum())} missing values, the first in row {int(missing.argmax())}",
            expected="a value for each bio",
            fix="leave these bios out of all arrays",
        )
    return column


def _labels(labels: Sequence[object] | None, seen: Sequence[pd.Series[Any]]) -> Labels:
    """Return the label set: the user's, or all labels that occur, in order."""
    if labels is not None:
        names = [str(value) for value in labels]
        if not names or len({canonical(name) for name in names}) != len(names):
            raise invalid(
                "labels",
                found="no label" if not names else "the same label twice",
                expected="each occupation once (case, spaces, hyphens and underscores aside)",
                fix="hand in the model's classes in the order of the probability columns",
            )
        # Ids stand for positions only where the labels are names.
        return Labels(names, ids=not are_ids(names))
    own: dict[str, object] = {}
    for column in seen:
        for value in sorted(pd.unique(column), key=label_order):
            own.setdefault(canonical(value), value)
    return Labels([label_name(value) for value in sorted(own.values(), key=label_order)])


def _named_alike(seen: dict[str, pd.Series[Any]]) -> dict[str, pd.Series[Any]]:
    """Return names for the benchmark's ids where the other labels are names."""
    benchmark = Labels(OCCUPATIONS, ids=True)
    distinct = {value for column in seen.values() for value in pd.unique(column)}
    ids = {value for value in distinct if are_ids([value])}
    codes = benchmark.encode(seen["occupations"])
    if not ids or ids == distinct or (codes == len(benchmark)).any():
        return seen
    names = {i: OCCUPATIONS[benchmark.code(i)] for i in ids if benchmark.code(i) < len(benchmark)}
    return {part: column.map(lambda v: names.get(v, v)) for part, column in seen.items()}


def _flags(name: str, values: npt.ArrayLike, length: int) -> BoolArray:
    column = _column(name, values, length)
    if not column.isin([0, 1]).all():
        raise invalid(
            name,
            found=_shorten([repr(value) for value in column[~column.isin([0, 1])].unique()]),
            expected="True or False",
            fix="say for each bio whether the swap changed its text",
        )
    return column.to_numpy(dtype=np.bool_)


def _probabilities(
    name: str, matrix: npt.ArrayLike, length: int, labels: list[str]
) -> npt.NDArray[np.floating[Any]]:
    try:
        values = np.asarray(matrix)
        if values.dtype.kind != "f":
            values = np.asarray(matrix, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise invalid(
            name,
            found="rows that are not numbers or not of one length",
            expected=f"a matrix of {length} rows and {len(labels)} columns",
            fix="hand in what predict_proba returns",
        ) from error
    if values.ndim != 2 or values.shape[1] != len(labels):
        raise invalid(
            name,
            found=f"shape {values.shape}",
            expected=f"({length}, {len(labels)}), one column a label of {_shorten(labels)}",
            fix="pass labels= with the model's classes in the order of the columns",
        )
    _check_length(name, len(values), length)
    low, high = -_PROBABILITY_TOLERANCE, 1 + _PROBABILITY_TOLERANCE
    wrong = ~((values >= low) & (values <= high)).all(axis=1)
    if wrong.any():
        raise invalid(
            name,
            found=f"values outside [0, 1] or not finite in row {int(wrong.argmax())}",
            expected="probabilities",
            fix="turn scores into probabilities first, for example with a softmax",
        )
    return values


def _shorten(names: Sequence[object], limit: int = 6) -> str:
    shown = ", ".join(str(name) for name in names[:limit])
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"
