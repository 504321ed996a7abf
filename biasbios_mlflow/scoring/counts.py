"""Counts that add up: what every metric is computed from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from biasbios_mlflow.errors import invalid
from biasbios_mlflow.scoring.metrics import Tables, Variants
from biasbios_mlflow.scoring.outcomes import CTF_READINGS, NO_COUNTERFACTUAL, Outcomes, ctf_values

__all__ = ["Counts", "ctf_values"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

# A CTF value v is kept as whole units of 2⁻⁶⁰ in two limbs, v ≈ high · 2⁻³⁰ + low · 2⁻⁶⁰.
_LIMB_BITS = 30
_LIMB = 1 << _LIMB_BITS
_POWERS = 2  # sums of values and of their squares
_CHANGED_UNKNOWN = 2


@dataclass(frozen=True, eq=False)
class Counts:
    """How many bios fell into each cell, and exact sums of their CTF values.

    A cell is (gender, occupation, prediction, counterfactual prediction, changed by the swap); only
    cells that hold a bio are kept, so a large label set costs nothing. Counts of parts add up to
    the counts of the whole, bit by bit, whatever the parts and their order: bios are whole numbers,
    and each CTF value is rounded to a multiple of 2⁻⁶⁰ (an error of at most 2⁻⁶¹, 4.4e-19) before
    it is added to an integer.

    Bios whose prediction lies outside the label set count in every label metric, as wrong; they
    have no probability of the predicted occupation, so they are left out of the CTF sums.

    Attributes
    ----------
    labels : tuple of str
        The K occupations in the order of their codes.
    cells, bios : int arrays of shape (number of cells,)
        Sorted codes of the cells and the bios in each.
    ctf_groups, ctf_bios : int arrays of shape (number of groups,)
        Sorted codes of the groups (gender, occupation, changed) with CTF values, and their bios.
    ctf_sums : int array of shape (number of groups, 4, 2, 2)
        By group, reading of the CTF score and power (1, 2), the sum as (high, low) limb.
    marks : mapping of str to int array of shape (2, 2)
        Of each mark (see `Outcomes`) by gender: the bios of which it is recorded whether they have
        it, and those that have it.

    Examples
    --------
    >>> first = Counts.from_codes(
    ...     genders=[0, 1], occupations=[0, 0], predictions=[0, 1], labels=["nurse", "poet"]
    ... )
    >>> second = Counts.from_codes(
    ...     genders=[1], occupations=[1], predictions=[1], labels=["nurse", "poet"]
    ... )
    >>> (first + second).tables.hits.tolist()
    [[1, 0], [0, 1]]
    >>> first + second == second + first == Counts.from_dict((second + first).to_dict())
    True
    """

    labels: tuple[str, ...]
    cells: IntArray
    bios: IntArray
    ctf_groups: IntArray
    ctf_bios: IntArray
    ctf_sums: IntArray
    marks: Mapping[str, IntArray] = field(default_factory=dict)

    @classmethod
    def empty(cls, labels: Sequence[str]) -> Counts:
        """Return the counts of no bio at all: what adding starts from."""
        none = np.zeros(0, dtype=np.int64)
        sums = np.zeros((0, len(CTF_READINGS), _POWERS, 2), dtype=np.int64)
        return cls(tuple(labels), none, none, none, none, sums)

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
        labels: Sequence[str],
    ) -> Counts:
        """Count bios given as codes.

        Parameters
        ----------
        genders, occupations, predictions : int arrays of shape (n,)
            Gender 0 is male, 1 female; occupations are codes of ``labels``; predictions outside
            ``0 .. K - 1`` are labels outside the set (a code for each, or K for all).
        counterfactual_predictions : int array of shape (n,), optional
            Prediction for the swapped copy of each bio.
        probabilities, counterfactual_probabilities : arrays of shape (n, K), optional
            Columns in the order of ``labels``; without both there are no CTF sums.
        changed : bool array of shape (n,), optional
            Whether the swap changed the bio.
        labels : sequence of str
            The K occupations.
        """
        return cls.from_outcomes(
            Outcomes.from_codes(
                genders=genders,
                occupations=occupations,
                predictions=predictions,
                counterfactual_predictions=counterfactual_predictions,
                probabilities=probabilities,
                counterfactual_probabilities=counterfactual_probabilities,
                changed=changed,
                labels=labels,
            )
        )

    @classmethod
    def from_outcomes(cls, outcomes: Outcomes) -> Counts:
        """Count the rows of ``outcomes``."""
        n_labels = len(outcomes.labels)
        changed: int | npt.NDArray[Any] = _CHANGED_UNKNOWN
        if outcomes.changed is not None:
            changed = outcomes.changed
        group = (outcomes.genders * n_labels + outcomes.occupations) * 3 + changed
        original = _collapse(outcomes.predictions, n_labels)
        if outcomes.counterfactual_predictions is None:
            swapped = np.full(len(outcomes), n_labels + 2)
        else:
            swapped = _collapse(outcomes.counterfactual_predictions, n_labels)
            none = outcomes.counterfactual_predictions == NO_COUNTERFACTUAL
            differ = outcomes.counterfactual_predictions != outcomes.predictions
            swapped[(original == n_labels) & (swapped == n_labels) & differ] = n_labels + 1
            swapped[none] = n_labels + 2
        code = (group * (n_labels + 1) + original) * (n_labels + 3) + swapped
        cells, bios = np.unique(code, return_counts=True)
        empty = cls.empty(outcomes.labels)
        groups, ctf_bios, sums = empty.ctf_groups, empty.ctf_bios, empty.ctf_sums
        if outcomes.ctf is not None:
            kept = ~np.isnan(outcomes.ctf[:, 0])
            groups, place, ctf_bios = np.unique(
                group[kept], return_inverse=True, return_counts=True
            )
            values = outcomes.ctf[kept]
            powers = np.stack([values, np.square(values)], axis=-1)
            sums = exact_sums(powers, place.reshape(-1), len(groups))
        return cls(
            outcomes.labels,
            cells,
            bios.astype(np.int64),
            groups,
            ctf_bios.astype(np.int64),
            sums,
            {name: count_marks(outcomes.genders, mark) for name, mark in outcomes.marks.items()},
        )

    def __add__(self, other: Counts) -> Counts:
        if not isinstance(other, Counts):
            return NotImplemented
        return self.merge(other)

    def merge(self, *others: Counts) -> Counts:
        """Return the counts of all bios together; order does not matter.

        Raises
        ------
        mlflow.exceptions.MlflowException
            When the label sets differ.
        """
        parts = (self, *others)
        for part in others:
            if part.labels != self.labels:
                raise invalid(
                    "counts",
                    found=f"parts with the labels {list(self.labels)} and {list(part.labels)}",
                    expected="one label set, in one order",
                    fix="count all parts with the same labels",
                )
        cells, (bios,) = _add_by_key([p.cells for p in parts], [[p.bios for p in parts]])
        groups, (ctf_bios, sums) = _add_by_key(
            [p.ctf_groups for p in parts],
            [[p.ctf_bios for p in parts], [p.ctf_sums for p in parts]],
        )
        marks = add_marks([p.marks for p in parts])
        return Counts(self.labels, cells, bios, groups, ctf_bios, carry(sums), marks)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Counts):
            return NotImplemented
        return (
            self.labels == other.labels
            and all(np.array_equal(getattr(self, name), getattr(other, name)) for name in _ARRAYS)
            and self.marks.keys() == other.marks.keys()
            and all(np.array_equal(mark, other.marks[name]) for name, mark in self.marks.items())
        )

    def __hash__(self) -> int:
        return hash((self.labels, *(getattr(self, name).tobytes() for name in _ARRAYS)))

    def to_dict(self) -> dict[str, Any]:
        """Return lists and strings only, fit for JSON; `from_dict` reads them back."""
        return {
            "labels": list(self.labels),
            **{name: getattr(self, name).tolist() for name in _ARRAYS},
            "marks": {name: mark.tolist() for name, mark in self.marks.items()},
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Counts:
        """Read back what `to_dict` returned."""
        arrays = {name: np.asarray(state[name], dtype=np.int64) for name in _ARRAYS}
        arrays["ctf_sums"] = arrays["ctf_sums"].reshape(-1, len(CTF_READINGS), _POWERS, 2)
        marks = {name: np.asarray(m, dtype=np.int64) for name, m in state.get("marks", {}).items()}
        return cls(tuple(state["labels"]), **arrays, marks=marks)

    @property
    def paired(self) -> int:
        """Number of bios that have a counterfactual prediction."""
        return self.total - self.where(counterfactuals=len(self.labels) + 2)

    @property
    def total(self) -> int:
        """Number of bios."""
        return int(self.bios.sum())

    @cached_property
    def columns(self) -> dict[str, IntArray]:
        """The cells taken apart, one array of shape (number of cells,) a component.

        ``genders``, ``occupations``, ``predictions`` (K is unknown), ``counterfactuals`` (K is
        unknown, K + 1 unknown and other than the unknown prediction of the bio, K + 2 none),
        ``changed`` (0 no, 1 yes, 2 not known).
        """
        n_labels = len(self.labels)
        rest, counterfactuals = np.divmod(self.cells, n_labels + 3)
        rest, predictions = np.divmod(rest, n_labels + 1)
        rest, changed = np.divmod(rest, 3)
        genders, occupations = np.divmod(rest, max(n_labels, 1))
        return {
            "genders": genders,
            "occupations": occupations,
            "predictions": predictions,
            "counterfactuals": counterfactuals,
            "changed": changed,
        }

    @cached_property
    def tables(self) -> Tables:
        """The sums that the metrics are made of, K occupations in label order."""
        c, n_labels = self.columns, len(self.labels)
        same = c["predictions"] == c["counterfactuals"]
        changed = c["changed"] == 1

        def table(name: str, where: npt.NDArray[np.bool_]) -> IntArray:
            place = c["genders"][where] * n_labels + c[name][where]
            # Float weights are exact up to 2⁵³ bios.
            flat = np.bincount(place, weights=self.bios[where], minlength=2 * n_labels)
            return flat.astype(np.int64).reshape(2, n_labels)

        right = c["predictions"] == c["occupations"]
        right_copy = c["counterfactuals"] == c["occupations"]
        paired = c["counterfactuals"] != n_labels + 2
        pairs = table("occupations", paired)
        negatives = pairs.sum(axis=-1, keepdims=True) - pairs
        return Tables(
            bios=table("occupations", np.ones(len(self.cells), dtype=np.bool_)),
            hits=table("occupations", right),
            predicted=table("predictions", c["predictions"] < n_labels),
            paired=np.asarray(self.paired),
            consistent=self.bios[same].sum(),
            changed=self.bios[changed].sum(),
            changed_consistent=self.bios[changed & same].sum(),
            marks=self.marks,
            hit_variants=Variants(
                cells=pairs,
                own=table("occupations", paired & right),
                swapped=table("occupations", paired & right_copy),
                both=table("occupations", paired & right & right_copy),
            ),
            false_variants=Variants(
                cells=negatives,
                own=table("predictions", paired & ~right & (c["predictions"] < n_labels)),
                swapped=table("counterfactuals", ~right_copy & (c["counterfactuals"] < n_labels)),
                both=table("predictions", same & ~right & (c["predictions"] < n_labels)),
            ),
        )

    def where(self, **values: int) -> int:
        """Count the bios of the cells whose components (see `columns`) have these values.

        Examples
        --------
        >>> counts = Counts.from_codes(
        ...     genders=[0, 1], occupations=[0, 0], predictions=[0, 2], labels=["nurse", "poet"]
        ... )
        >>> counts.where(predictions=2)
        1
        """
        chosen = np.ones(len(self.cells), dtype=np.bool_)
        for name, value in values.items():
            chosen &= self.columns[name] == value
        return int(self.bios[chosen].sum())

    def ctf_moments(self, reading: str, *, changed_only: bool = False) -> tuple[int, float, float]:
        """Return number of bios, mean and mean square of a reading of the CTF score.

        The sums are integers, so both means are correctly rounded quotients. NaN for no bio.
        """
        chosen = np.ones(len(self.ctf_groups), dtype=np.bool_)
        if changed_only:
            chosen = self.ctf_groups % 3 == 1
        n = int(self.ctf_bios[chosen].sum())
        if n == 0:
            return 0, float("nan"), float("nan")
        sums = self.ctf_sums[chosen, CTF_READINGS.index(reading)].sum(axis=0)
        return n, from_limbs(sums[0], n), from_limbs(sums[1], n)


_ARRAYS = ("cells", "bios", "ctf_groups", "ctf_bios", "ctf_sums")


def _collapse(predictions: IntArray, n_labels: int) -> IntArray:
    known = (predictions >= 0) & (predictions < n_labels)
    return np.where(known, predictions, n_labels)


def count_marks(genders: IntArray, mark: npt.NDArray[np.bool_]) -> IntArray:
    """Count bios, and those with a mark, by gender; shape (2, 2)."""
    counted = [np.bincount(g, minlength=2) for g in (genders, genders[mark])]
    return np.stack(counted, axis=-1).astype(np.int64)


def add_marks(parts: Sequence[Mapping[str, IntArray]]) -> dict[str, IntArray]:
    """Add up counts of marks; a part without a mark has no bios of which it is recorded."""
    names = sorted({name for part in parts for name in part})
    return {name: np.sum([part[name] for part in parts if name in part], axis=0) for name in names}


def carry(sums: IntArray) -> IntArray:
    """Bring the low limbs below 2³⁰ again, so that equal sums are equal arrays."""
    high, low = sums[..., 0], sums[..., 1]
    return np.stack([high + (low >> _LIMB_BITS), low & (_LIMB - 1)], axis=-1)


def exact_sums(values: FloatArray, place: IntArray, n_groups: int) -> IntArray:
    """Sum non-negative values by group in fixed point, the same in any order.

    Parameters
    ----------
    values : float array of shape (n, ...)
        What to sum, each rounded to a multiple of 2⁻⁶⁰.
    place : int array of shape (n,)
        Group of each row.
    n_groups : int
        Number of groups G.

    Returns
    -------
    int array of shape (G, ..., 2)
        Sums as (high, low) limb in units of 2⁻³⁰ and 2⁻⁶⁰; add them with `carry`.

    Notes
    -----
    ``np.bincount`` adds floats, which is exact while sums stay whole numbers below 2⁵³: rows are
    taken in slices short enough for that.
    """
    flat = values.reshape(len(values), int(np.prod(values.shape[1:])))
    sums = np.zeros((n_groups, flat.shape[1], 2), dtype=np.int64)
    step = max(1, int((1 << 22) / max(1.0, float(flat.max(initial=0.0)))))
    for start in range(0, len(flat), step):
        rows = place[start : start + step]
        for column in range(flat.shape[1]):
            scaled = flat[start : start + step, column] * _LIMB
            high = np.floor(scaled)
            low = np.rint((scaled - high) * _LIMB)
            for limb, part in enumerate((high, low)):
                added = np.bincount(rows, weights=part, minlength=n_groups)
                sums[:, column, limb] += added.astype(np.int64)
    return carry(sums).reshape(n_groups, *values.shape[1:], 2)


def from_limbs(limbs: IntArray, divisor: int) -> float:
    """Divide a sum given as (high, low) limb by a whole number, correctly rounded."""
    high, low = limbs.tolist()
    return float(((high << _LIMB_BITS) + low) / (divisor << (2 * _LIMB_BITS)))


def _add_by_key(
    keys: list[IntArray], columns: list[list[IntArray]]
) -> tuple[IntArray, list[IntArray]]:
    """Merge sorted keyed arrays, adding up the values of equal keys."""
    merged, place = np.unique(np.concatenate(keys), return_inverse=True)
    added = []
    for column in columns:
        values = np.concatenate(column)
        total = np.zeros((len(merged), *values.shape[1:]), dtype=np.int64)
        np.add.at(total, place.reshape(-1), values)
        added.append(total)
    return merged, added
