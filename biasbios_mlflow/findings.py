"""What may be wrong with bios: findings of windows that add up, in a few bytes a bio."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from biasbios_mlflow.bios.checked import Bios
from biasbios_mlflow.bios.drawing import keyed_hashes
from biasbios_mlflow.counterfactual import DIRECTIONS
from biasbios_mlflow.scoring.shares import design_effects

__all__ = ["Findings"]

IntArray = npt.NDArray[np.int64]

_LONG = 2048
"""Bios of so many words or more share the last place of the histogram."""

_SENTENCE_END = re.compile(r"[.!?]+(?=\s)|\n")


@dataclass(frozen=True, eq=False)
class Findings:
    """What may be wrong with some bios, whatever model reads them.

    Attributes
    ----------
    labels : tuple of str
        The K occupations.
    counts : int array of shape (2, K)
        Bios by gender and occupation.
    words : int array of shape (2049,)
        Bios by their number of words, which are what lies between spaces; the last place holds all
        that are longer.
    longest : int
        Words of the longest bio.
    leaks : int
        Bios whose first sentence names their occupation: the benchmark leaves that sentence out.
    broken : int
        Bios with U+FFFD, which stands for what was no character: the encoding is wrong, or a text
        was cut in the middle of one.
    neutral, contradicted : int or None
        Bios without a gendered word, and those that have only words of the other gender than the
        data says; None where the swap did not look.
    prints, cells : tuple of arrays
        By window, a number that stands for the text, and the code of gender and occupation.
    repeated : tuple of int or None
        ``duplicates`` and ``conflicting`` where they were counted elsewhere; there are no prints
        then.

    Examples
    --------
    >>> from biasbios_mlflow.bios.checked import check_bios, find_columns
    >>> import pandas as pd
    >>> frame = pd.DataFrame(
    ...     {
    ...         "text": ["She is a nurse. She heals.", "He heals.", "He heals."],
    ...         "profession": "nurse",
    ...         "gender": ["F", "M", "F"],
    ...     }
    ... )
    >>> bios = check_bios(frame, find_columns(list(frame)))
    >>> found = Findings.of(bios, directions=np.array([2, 1, 1]))
    >>> found.leaks, found.contradicted, found.duplicates, found.conflicting
    (1, 1, 1, 2)
    """

    labels: tuple[str, ...]
    counts: IntArray
    words: IntArray
    longest: int
    leaks: int
    broken: int
    neutral: int | None
    contradicted: int | None
    prints: tuple[npt.NDArray[np.uint64], ...] = field(repr=False)
    cells: tuple[npt.NDArray[np.int32], ...] = field(repr=False)
    repeated: tuple[int, int] | None = None

    @classmethod
    def of(cls, bios: Bios, directions: npt.NDArray[np.int8] | None) -> Findings:
        """Look at n bios.

        Parameters
        ----------
        bios : Bios
        directions : ndarray of int8 of shape (n,), optional
            From `swap_with_directions`.
        """
        cells = bios.genders.astype(np.int64) * len(bios.labels) + bios.occupations
        # Counting spaces takes an eighth of the time that splitting takes.
        lengths = np.array([text.count(" ") + 1 for text in bios.texts], dtype=np.int64)
        neutral = contradicted = None
        if directions is not None:
            # A man's bio whose words all are a woman's, and the other way round.
            other = np.array([_FEMALE_ONLY, _MALE_ONLY])[bios.genders]
            neutral = int((directions == _NEUTRAL).sum())
            contradicted = int((directions == other).sum())
        return cls(
            labels=bios.labels.names,
            counts=np.bincount(cells, minlength=2 * len(bios.labels)).reshape(2, -1),
            words=np.bincount(np.minimum(lengths, _LONG), minlength=_LONG + 1),
            longest=int(lengths.max(initial=0)),
            leaks=_leaks(bios),
            broken=sum("\ufffd" in text for text in bios.texts),
            neutral=neutral,
            contradicted=contradicted,
            prints=(keyed_hashes(bios.texts, ""),),
            cells=(cells.astype(np.int32),),
        )

    def __add__(self, other: Findings) -> Findings:
        return Findings(
            labels=self.labels,
            counts=self.counts + other.counts,
            words=self.words + other.words,
            longest=max(self.longest, other.longest),
            leaks=self.leaks + other.leaks,
            broken=self.broken + other.broken,
            neutral=_sum(self.neutral, other.neutral),
            contradicted=_sum(self.contradicted, other.contradicted),
            prints=self.prints + other.prints,
            cells=self.cells + other.cells,
        )

    @property
    def bios(self) -> int:
        """Number of bios."""
        return int(self.counts.sum())

    @property
    def duplicates(self) -> int:
        """Bios whose text another bio before has."""
        return self._duplicates[0]

    @property
    def conflicting(self) -> int:
        """Bios whose text another bio has with another gender or occupation."""
        return self._duplicates[1]

    @cached_property
    def _duplicates(self) -> tuple[int, int]:
        if self.repeated is not None:
            return self.repeated
        prints, cells = np.concatenate(self.prints), np.concatenate(self.cells)
        if len(prints) == 0:
            return 0, 0
        order = np.argsort(prints, kind="stable")
        prints, cells = prints[order], cells[order]
        starts = np.flatnonzero(np.concatenate([[True], prints[1:] != prints[:-1]]))
        sizes = np.diff(np.append(starts, len(prints)))
        conflict = np.minimum.reduceat(cells, starts) != np.maximum.reduceat(cells, starts)
        return len(prints) - len(starts), int(sizes[conflict].sum())

    def design_effects(self, labels: Sequence[str]) -> npt.NDArray[np.float64] | None:
        """Return how much equal texts add to variances, by gender and occupation of ``labels``.

        See `biasbios_mlflow.scoring.shares.design_effects`. None where texts were compared
        elsewhere.
        """
        if self.repeated is not None or not self.prints:
            return None
        own = {label: code for code, label in enumerate(self.labels)}
        of_cells = design_effects(
            np.concatenate(self.prints), np.concatenate(self.cells), 2 * len(self.labels)
        ).reshape(2, -1)
        places = [own.get(label, -1) for label in labels]
        return np.where(np.array(places) >= 0, of_cells[:, places], 1.0)

    def also_in(self, other: Findings) -> int:
        """Return how many of these bios have a text that is among those others too."""
        return int(np.isin(np.concatenate(self.prints), np.concatenate(other.prints)).sum())

    def length(self, share: float) -> int:
        """Return the number of words that so large a share of the bios does not exceed.

        The longest bio's, where it lies beyond what is counted apart.
        """
        place = int(np.searchsorted(np.cumsum(self.words), share * self.bios))
        return min(place, self.longest) if place < _LONG else self.longest

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers as plain JSON values; what is not known is left out."""
        found: dict[str, Any] = {
            "duplicates": self.duplicates,
            "duplicates_with_other_labels": self.conflicting,
            "without_gendered_words": self.neutral,
            "gender_contradicted": self.contradicted,
            "occupation_in_first_sentence": self.leaks,
            "broken_characters": self.broken,
            "words": {
                "median": self.length(0.5),
                "p95": self.length(0.95),
                "longest": self.longest,
            },
        }
        return {name: value for name, value in found.items() if value is not None}


_NEUTRAL = DIRECTIONS.index("none")
_MALE_ONLY = DIRECTIONS.index("male_to_female")
_FEMALE_ONLY = DIRECTIONS.index("female_to_male")


def _sum(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


def _leaks(bios: Bios) -> int:
    names = [_spellings(name) for name in bios.labels.names]
    leaks = 0
    for text, code in zip(bios.texts, bios.occupations.tolist(), strict=True):
        word, spelled = names[code]
        # A quick look first: hardly a bio has even the word before its first full stop.
        end = text.find(". ")
        if word in (text if end < 0 else text[:end]).lower():
            sentence = _SENTENCE_END.split(text, 1)[0]
            leaks += spelled.search(sentence.lower()) is not None
    return leaks


@cache
def _spellings(name: str) -> tuple[str, re.Pattern[str]]:
    """Return the first word of an occupation, and an expression for its name in lower case."""
    # As texts are lowered, and not folded further: "straße" stays itself.
    words = [word for word in re.split(r"[\s_-]+", name.lower()) if word] or [""]
    spelled = r"[\s-]*".join(map(re.escape, words))
    return words[0], re.compile(rf"(?<!\w){spelled}s?(?!\w)")
