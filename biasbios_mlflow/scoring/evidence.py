"""What the metrics are computed from: tables of counts, and what is asked of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import numpy.typing as npt

from biasbios_mlflow.scoring import metrics
from biasbios_mlflow.scoring.counts import Counts
from biasbios_mlflow.scoring.gaps import (
    Differences,
    GapIntervals,
    independent_differences,
    stacked,
)
from biasbios_mlflow.scoring.parts import PARTS, Part, part_differences, part_gap
from biasbios_mlflow.scoring.shares import Interval, wilson_interval

__all__ = ["RATES", "Evidence", "Rate"]

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64] | FloatArray
Rate = Literal["tpr", "fpr"]

RATES: tuple[Rate, Rate] = ("tpr", "fpr")
"""The rates whose gaps are taken apart."""


@dataclass(frozen=True, eq=False)
class Evidence:
    """Counts and the options that bear on what is made of them; the argument of every formula.

    Attributes
    ----------
    tables : metrics.Tables
        Sums of counts; with leading axes (...) where they are replicates.
    min_cell : int
        Bios that each gender needs for an occupation to be scored.
    all_counts : Counts or None
        All counts; None for replicates, which consist of tables alone.
    confidence : float
        Level of the intervals.
    design_effects : float array of shape (2, K) or None
        By gender and occupation, how many times as large variances are as those of as many
        independent bios.

    Examples
    --------
    >>> counts = Counts.from_codes(
    ...     genders=[0, 1, 1], occupations=[0, 0, 1], predictions=[0, 1, 1], labels=["a", "b"]
    ... )
    >>> Evidence.of(counts, min_cell=1).tpr_gap.tolist()
    [1.0, nan]
    """

    tables: metrics.Tables
    min_cell: int = 5
    all_counts: Counts | None = None
    confidence: float = 0.95
    design_effects: FloatArray | None = None

    @classmethod
    def of(
        cls,
        counts: Counts,
        *,
        min_cell: int = 5,
        confidence: float = 0.95,
        design_effects: FloatArray | None = None,
    ) -> Evidence:
        """Take everything from ``counts``."""
        return cls(counts.tables, min_cell, counts, confidence, design_effects)

    @property
    def counts(self) -> Counts:
        """All counts.

        Raises
        ------
        ValueError
            For replicates: a metric that needs more than tables is not `resampled`.
        """
        if self.all_counts is None:
            raise ValueError("replicates are tables alone; declare the metric with resampled=False")
        return self.all_counts

    @cached_property
    def scored(self) -> BoolArray:
        """Which occupations are scored; shape (..., K)."""
        return metrics.scored_occupations(self.tables.bios, self.min_cell)

    @cached_property
    def debiased(self) -> BoolArray:
        """Which of the scored occupations have a variance; shape (..., K)."""
        return metrics.debiased_occupations(self.tables.bios, self.scored)

    @cached_property
    def false_positives(self) -> tuple[Numbers, Numbers]:
        """False positives and negatives; shape (..., 2, K) each."""
        t = self.tables
        return metrics.false_positives(t.hits, t.predicted, t.bios)

    @cached_property
    def fpr_scored(self) -> BoolArray:
        """Which of the scored occupations have negatives of both genders; shape (..., K)."""
        return np.asarray(self.scored & (self.false_positives[1] > 0).all(axis=-2))

    @cached_property
    def tpr_gap(self) -> FloatArray:
        """TPR of men minus TPR of women; shape (..., K), NaN where an occupation is not scored."""
        gap = metrics.rate_gap(self.tables.hits, self.tables.bios)
        return np.where(self.scored, gap, np.nan)

    @cached_property
    def fpr_gap(self) -> FloatArray:
        """FPR of men minus FPR of women; shape (..., K)."""
        return metrics.rate_gap(*self.false_positives)

    @cached_property
    def effects(self) -> FloatArray:
        """Design effect of each gender and occupation; shape (2, K)."""
        bios = self.tables.bios
        return np.ones(bios.shape) if self.design_effects is None else self.design_effects

    def effect(self, axis: int | tuple[int, int]) -> FloatArray:
        """Design effect of cells taken together: that of a mean over all of their bios."""
        n = self.tables.bios.sum(axis=axis)
        weighted = (self.effects * self.tables.bios).sum(axis=axis)
        return np.asarray(np.where(n > 0, weighted / np.maximum(n, 1), 1.0))

    @cached_property
    def whole_effect(self) -> FloatArray:
        """Design effect of all bios; shape ()."""
        return self.effect((0, 1))

    @cached_property
    def gender_effects(self) -> FloatArray:
        """Design effect of all bios of each gender; shape (2,)."""
        return self.effect(1)

    @cached_property
    def occupation_effects(self) -> FloatArray:
        """Design effect of all bios of each occupation; shape (K,)."""
        return self.effect(0)

    @cached_property
    def negatives_effects(self) -> FloatArray:
        """Design effect of the negatives of each gender and occupation; shape (2, K)."""
        bios = self.tables.bios
        weighted = self.effects * bios
        n = bios.sum(axis=-1, keepdims=True) - bios
        rest = weighted.sum(axis=-1, keepdims=True) - weighted
        return np.where(n > 0, rest / np.maximum(n, 1), 1.0)

    def wilson(self, part: npt.ArrayLike, whole: npt.ArrayLike) -> Interval:
        """Wilson's interval of a share of all bios."""
        effect = self.whole_effect
        return wilson_interval(
            np.asarray(part) / effect, np.asarray(whole) / effect, self.confidence
        )

    def differences(
        self, events: Numbers, cells: Numbers, effects: FloatArray, chosen: BoolArray
    ) -> Differences:
        """Differences of the rates of men and women in the chosen occupations."""
        effect = effects[:, chosen]
        return independent_differences(
            events[:, chosen] / effect, cells[:, chosen] / effect, self.confidence
        )

    @cached_property
    def tpr_intervals(self) -> GapIntervals:
        """Intervals over the scored occupations; there must be one."""
        t = self.tables
        return GapIntervals.of(self.differences(t.hits, t.bios, self.effects, self.scored))

    @cached_property
    def debiased_intervals(self) -> GapIntervals:
        """Intervals over the scored occupations that have a variance; there must be one."""
        if (self.debiased == self.scored).all():
            return self.tpr_intervals
        t = self.tables
        return GapIntervals.of(self.differences(t.hits, t.bios, self.effects, self.debiased))

    @cached_property
    def fpr_intervals(self) -> GapIntervals:
        """Intervals over the scored occupations with negatives; there must be one."""
        events, cells = self.false_positives
        return GapIntervals.of(
            self.differences(events, cells, self.negatives_effects, self.fpr_scored)
        )

    def variants(self, rate: Rate) -> metrics.Variants:
        """Return hits, or false positives, of bios and their copies.

        Raises
        ------
        ValueError
            For replicates, which have none.
        """
        found = self.tables.hit_variants if rate == "tpr" else self.tables.false_variants
        if found is None:
            raise ValueError("replicates have no variants; declare the metric with resampled=False")
        return found

    @cached_property
    def swapped_scored(self) -> BoolArray:
        """Which of the scored occupations have ``min_cell`` swapped bios of each gender; (K,)."""
        least = max(self.min_cell, 1)
        return np.asarray(self.scored & (self.variants("tpr").cells >= least).all(axis=-2))

    def part_chosen(self, rate: Rate) -> BoolArray:
        """Return in which occupations the parts of a gap are taken; shape (K,)."""
        return np.asarray(self.swapped_scored & (self.variants(rate).cells > 0).all(axis=-2))

    def part_gap(self, rate: Rate, part: Part) -> FloatArray:
        """Return a part of the gap of each occupation; shape (K,), NaN where it is not taken."""
        return np.where(self.part_chosen(rate), part_gap(self.variants(rate), part), np.nan)

    @cached_property
    def part_differences(self) -> dict[Rate, dict[Part, Differences]]:
        """Parts of the gaps where they are taken, with intervals; no rate without an occupation."""
        effects = {"tpr": self.effects, "fpr": self.negatives_effects}
        return {
            rate: {
                part: part_differences(
                    self.variants(rate).take(self.part_chosen(rate), effects[rate]),
                    part,
                    self.confidence,
                )
                for part in PARTS
            }
            for rate in RATES
            if self.part_chosen(rate).any()
        }

    @cached_property
    def part_intervals(self) -> dict[Rate, dict[Part, GapIntervals]]:
        """Intervals over these occupations."""
        found: dict[Rate, dict[Part, GapIntervals]] = {}
        for rate in RATES:
            if rate in self.part_differences:
                every = GapIntervals.of(stacked(list(self.part_differences[rate].values())))
                found[rate] = {
                    part: GapIntervals(
                        (every.rms[0][i], every.rms[1][i]), (every.abs[0][i], every.abs[1][i])
                    )
                    for i, part in enumerate(PARTS)
                }
        return found

    def part_bounds(self, rate: Rate, part: Part) -> Interval:
        """Return the interval of a part in each occupation; shape (K,), NaN where not taken."""
        chosen = self.part_chosen(rate)
        low, high = np.full(chosen.shape, np.nan), np.full(chosen.shape, np.nan)
        if rate in self.part_differences:
            found = self.part_differences[rate][part]
            low[chosen], high[chosen] = found.low, found.high
        return low, high
