"""The bios whose prediction the swap changed: a bounded sample that merges with others."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from biasbios_mlflow.bios.checked import Bios
from biasbios_mlflow.bios.occupations import GENDERS
from biasbios_mlflow.counterfactual import changed_words
from biasbios_mlflow.prediction.outputs import Predictions
from biasbios_mlflow.prediction.predictor import PredictedPair

__all__ = ["Flip", "Flips"]


@dataclass(frozen=True)
class Flip:
    """One bio whose prediction changed with the gender of its words."""

    row: int
    id: str | None
    gender: str
    occupation: str
    prediction: str
    counterfactual_prediction: str
    probability: float | None
    counterfactual_probability: float | None
    change: float | None
    text: str
    counterfactual_text: str | None
    changed_words: str | None = None

    def rank(self) -> tuple[float, int]:
        """Return what flips are sorted by: largest change first, then the order of the data."""
        return (-(self.change or 0.0), self.row)


_COLUMNS = [column.name for column in fields(Flip)]


@dataclass(frozen=True)
class Flips:
    """The ``limit`` flips with the largest change, and how many there were in all.

    ``probability`` is that of the prediction for the original, ``counterfactual_probability`` that
    of the prediction for the swapped bio, and ``change`` the absolute difference that the swap made
    to the probability of the original prediction; all None where the model returns labels only.

    Examples
    --------
    >>> (Flips(limit=5) + Flips(limit=5)).found
    0
    """

    limit: int
    found: int = 0
    sample: tuple[Flip, ...] = field(default=())

    def __add__(self, other: Flips) -> Flips:
        return Flips(
            limit=self.limit,
            found=self.found + other.found,
            sample=_largest(self.limit, [*self.sample, *other.sample]),
        )

    @classmethod
    def of(
        cls,
        bios: Bios,
        counterfactual_texts: Sequence[str] | None,
        pair: PredictedPair,
        *,
        names: Sequence[str],
        limit: int,
    ) -> Flips:
        """Collect the flips of a window.

        Parameters
        ----------
        bios : Bios
            A window of n bios.
        counterfactual_texts : sequence of str of length n, optional
            None where they are not known (static predictions).
        pair : PredictedPair
            For the n bios and for their swapped copies.
        names : sequence of str
            What the prediction codes stand for.
        limit : int
            Most flips to keep.
        """
        original, counterfactual = pair.original, pair.counterfactual
        if counterfactual is None:
            return cls(limit=limit)
        flipped = np.flatnonzero(original.codes != counterfactual.codes)
        ids = bios.ids()
        changes = _changes(original, counterfactual, flipped)
        order = np.lexsort((bios.rows[flipped], -np.nan_to_num(changes)))[:limit]
        sample = []
        for position in order:
            i = int(flipped[position])
            before, after = int(original.codes[i]), int(counterfactual.codes[i])
            change = float(changes[position])
            sample.append(
                Flip(
                    row=int(bios.rows[i]),
                    id=None if ids is None else str(ids[i]),
                    gender=GENDERS[bios.genders[i]],
                    occupation=bios.labels.names[bios.occupations[i]],
                    prediction=names[before],
                    counterfactual_prediction=names[after],
                    probability=_probability(original, i, before),
                    counterfactual_probability=_probability(counterfactual, i, after),
                    change=None if np.isnan(change) else change,
                    text=bios.texts[i],
                    counterfactual_text=counterfactual_texts[i] if counterfactual_texts else None,
                )
            )
        return cls(limit=limit, found=len(flipped), sample=tuple(sample))

    def without_texts(self, scope: str | None) -> Flips:
        """Return the same flips with the words that the swap changed instead of the texts.

        Parameters
        ----------
        scope : str or None
            Scope of the swap; None where the counterfactuals were the user's own, of which no word
            is shown.
        """

        def stripped(flip: Flip) -> Flip:
            words = flip.changed_words
            if words is None and scope is not None:
                words = "; ".join(f"{a} > {b}" for a, b in changed_words(flip.text, scope))
            return replace(flip, text="", counterfactual_text=None, changed_words=words)

        return replace(self, sample=tuple(map(stripped, self.sample)))

    def table(self, *, texts: bool = True, scope: str | None = None) -> pd.DataFrame:
        """Return one row a flip, largest change first.

        Parameters
        ----------
        texts : bool, default=True
            Whether to show both texts; else only the words that the swap changed.
        scope : str, optional
            See `without_texts`.
        """
        flips = self if texts else self.without_texts(scope)
        table = pd.DataFrame([vars(flip) for flip in flips.sample], columns=_COLUMNS)
        if table["id"].isna().all():
            table = table.drop(columns="id")
        if texts:
            return table.drop(columns="changed_words")
        shown = table.drop(columns=["text", "counterfactual_text"])
        return shown if scope is not None else shown.drop(columns="changed_words")


def _largest(limit: int, flips: Iterable[Flip]) -> tuple[Flip, ...]:
    return tuple(heapq.nsmallest(limit, flips, key=Flip.rank))


def _changes(
    original: Predictions,
    counterfactual: Predictions,
    rows: npt.NDArray[np.int64],
) -> npt.NDArray[np.float64]:
    changes = np.full(len(rows), np.nan)
    if original.probabilities is None or counterfactual.probabilities is None:
        return changes
    codes = original.codes[rows]
    known = codes < original.probabilities.shape[1]
    at = (rows[known], codes[known])
    changes[known] = np.abs(original.probabilities[at] - counterfactual.probabilities[at])
    return changes


def _probability(predictions: Predictions, i: int, code: int) -> float | None:
    matrix = predictions.probabilities
    return None if matrix is None or code >= matrix.shape[1] else float(matrix[i, code])
