"""Why there is a gap: the part that the gendered words cause, and the rest.

TPR_g^h is the true positive rate of the bios of gender g in the words of h: their own words, or the
swapped copy. The gap TPR_m^m − TPR_f^f is exactly the sum of

- words: ½[(TPR_m^m − TPR_m^f) + (TPR_f^m − TPR_f^f)], what the words change for the same bios;
- rest: ½[(TPR_m^m − TPR_f^m) + (TPR_m^f − TPR_f^f)], what stays where all are written alike;

the decomposition of Kitagawa 1955 (Journal of the American Statistical Association 50). Both are
differences of a mean over men and one over women: of ½(own − swapped) for the words, of
½(own + swapped) for the rest, where own and swapped say for a bio whether the event (a hit, or a
false positive) occurs for it and for its copy. ``docs/why.md`` derives this.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy import special

from biasbios_mlflow.scoring import metrics
from biasbios_mlflow.scoring.gaps import (
    Differences,
    independent_differences,
    moment_differences,
)
from biasbios_mlflow.scoring.metrics import Variants

__all__ = [
    "PARTS",
    "Part",
    "part_abs_noise_floor",
    "part_differences",
    "part_gap",
    "part_moments",
    "part_rms_debiased",
    "part_rms_noise_floor",
]

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
Part = Literal["words", "rest"]

PARTS: tuple[Part, Part] = ("words", "rest")
"""The two parts of a gap."""

_ENUMERATED = 8.0
"""Standard deviation of the sum over men up to which its distribution is enumerated."""


def part_moments(variants: Variants, part: Part) -> tuple[metrics.Numbers, metrics.Numbers]:
    """Add up own ∓ swapped and its square by gender and occupation; shapes (..., 2, K).

    Whole numbers: own − swapped is −1, 0 or 1, own + swapped 0, 1 or 2.

    Examples
    --------
    >>> one = np.array([[4], [4]])
    >>> variants = Variants(cells=4 * one, own=3 * one, swapped=2 * one, both=one)
    >>> [x.ravel().tolist() for x in part_moments(variants, "words")]
    [[4, 4], [12, 12]]
    """
    v = variants
    if part == "words":
        return v.own - v.swapped, v.own + v.swapped - 2 * v.both
    return v.own + v.swapped, v.own + v.swapped + 2 * v.both


def part_gap(variants: Variants, part: Part) -> FloatArray:
    """Compute a part of each gap; shapes (..., 2, K) to (..., K), NaN where a cell is empty.

    Examples
    --------
    A model that goes by the words alone, and one that does not see them:

    >>> cells = np.array([[10], [10]])
    >>> words = Variants(cells, np.array([[9], [3]]), np.array([[3], [9]]), np.array([[2], [2]]))
    >>> round(float(part_gap(words, "words")[0]), 3), float(part_gap(words, "rest")[0])
    (0.6, 0.0)
    >>> hits = np.array([[9], [3]])
    >>> blind = Variants(cells, hits, hits, hits)
    >>> float(part_gap(blind, "words")[0]), round(float(part_gap(blind, "rest")[0]), 3)
    (0.0, 0.6)
    """
    sums, _ = part_moments(variants, part)
    means = metrics.share(sums, 2 * variants.cells)
    return np.asarray(means[..., 0, :] - means[..., 1, :])


def _variances(variants: Variants, part: Part) -> FloatArray:
    """Unbiased variance of each mean; shapes (..., 2, K), NaN where a cell has a single bio."""
    sums, squares = part_moments(variants, part)
    n = np.asarray(variants.cells, dtype=np.float64)
    spread = metrics.share(squares, n) - np.square(metrics.share(sums, n))
    return metrics.share(np.maximum(spread, 0.0) / 4, n - 1)


def part_rms_debiased(variants: Variants, part: Part, chosen: BoolArray) -> FloatArray:
    """Root of the mean square part less what chance adds to it, 0 if chance explains all of it.

    As `metrics.gap_rms_debiased`: √ max(0, mean(d² − v)) over the chosen occupations that have two
    bios of each gender at least.
    """
    kept = chosen & (variants.cells >= 2).all(axis=-2)
    square = np.square(part_gap(variants, part))
    noise = _variances(variants, part).sum(axis=-2)
    count = kept.sum(axis=-1)
    mean_square = metrics.share(np.where(kept, square - noise, 0.0).sum(axis=-1), count)
    size = metrics.share(np.where(kept, square + noise, 0.0).sum(axis=-1), count)
    rounding = 8 * np.finfo(np.float64).eps * size
    return np.sqrt(np.where(mean_square <= rounding, 0.0, mean_square))


def part_abs_noise_floor(variants: Variants, part: Part, chosen: BoolArray) -> float:
    """Compute the expected mean absolute part if gender had no bearing on it; (2, K).

    As the noise floor of the gap: given how many bios of an occupation have each value of
    own ∓ swapped, which of them are men's is then drawn without replacement.
    """
    return metrics.abs_noise_floor(_null_parts(variants, part, chosen))


def part_rms_noise_floor(variants: Variants, part: Part, chosen: BoolArray) -> float:
    """Compute the expected root mean square part likewise; see `part_abs_noise_floor`."""
    return metrics.rms_noise_floor(_null_parts(variants, part, chosen))


def _null_parts(variants: Variants, part: Part, chosen: BoolArray) -> list[metrics.Null]:
    """Distribution of each occupation's part when it is dealt out to men and women by lot."""
    v = variants
    neither = v.cells - v.own - v.swapped + v.both
    one, other = v.own - v.both, v.swapped - v.both
    # Bios by the value of own ∓ swapped, in steps of 1.
    kinds = [other, v.both + neither, one] if part == "words" else [neither, one + other, v.both]
    nulls = []
    for k in np.flatnonzero(chosen):
        men, women = v.cells[:, k].tolist()
        pooled = [int(kind[:, k].sum()) for kind in kinds]
        unit = (1 / men + 1 / women) / 2
        nulls.append(_null_part(pooled, men, women, unit))
    return nulls


def _null_part(pooled: list[int], men: int, women: int, unit: float) -> metrics.Null:
    total = men + women
    values = np.arange(3)
    counts = np.array(pooled)
    mean = float((values * counts).sum() / total)
    spread = float((np.square(values - mean) * counts).sum() / total)
    sd = float(np.sqrt(spread * men * women / max(total - 1, 1)))
    if sd == 0:
        return np.zeros(1), np.ones(1), 0.0
    if sd > _ENUMERATED:
        return np.zeros(1), np.ones(1), sd * unit
    low, middle, high = pooled
    of_high = _likely(high, men, total)[:, None]
    of_low = _likely(low, men, total)[None, :]
    of_middle = men - of_high - of_low
    possible = (of_middle >= 0) & (of_middle <= middle)
    log_pmf = (
        _log_choose(high, of_high)
        + _log_choose(low, of_low)
        + _log_choose(middle, np.clip(of_middle, 0, middle))
    )
    log_pmf = np.where(possible, log_pmf, -np.inf)
    sums = np.where(possible, of_middle + 2 * of_high, 0)
    least = int(sums[possible].min())
    weights = np.exp(log_pmf - log_pmf.max())
    weight = np.bincount((sums - least)[possible], weights=weights[possible])
    kept = np.flatnonzero(weight > 1e-14 * weight.sum())
    sizes = (kept + least - men * mean) * unit
    return np.asarray(sizes, dtype=np.float64), weight[kept] / weight[kept].sum(), 0.0


def _likely(of_kind: int, men: int, total: int) -> npt.NDArray[np.int64]:
    """How many bios of a kind may be men's: all numbers within ten standard deviations."""
    mean = of_kind * men / total
    share = (total - of_kind) * (total - men) / total / max(total - 1, 1)
    reach = 10 * np.sqrt(max(mean * share, 0.0)) + 10
    first, last = max(0, of_kind - (total - men)), min(of_kind, men)
    return np.arange(max(first, int(mean - reach)), min(last, int(mean + reach) + 1) + 1)


def _log_choose(n: int, k: npt.NDArray[np.int64]) -> FloatArray:
    return np.asarray(
        special.gammaln(n + 1) - special.gammaln(k + 1) - special.gammaln(n - k + 1),
        dtype=np.float64,
    )


def part_differences(variants: Variants, part: Part, confidence: float = 0.95) -> Differences:
    """Estimate a part of the gap in each occupation, with its variance and interval.

    The words part goes by the bios that the swap makes right or wrong, as a change between two
    models does (`moment_differences`). The rest is a difference of two means of values 0, ½ and 1;
    each has Wilson's interval with as many bios as its variance is worth (n to 2n), combined by
    Newcombe's rule.

    Parameters
    ----------
    variants : Variants
        No cell may be empty. Fractions are fine: a design effect divides all.
    part : "words" or "rest"
    confidence : float
        Level of the intervals.

    Examples
    --------
    >>> cells = np.array([[100], [100]])
    >>> variants = Variants(cells, cells * 0.9, cells * 0.7, cells * 0.65)
    >>> found = part_differences(variants, "rest")
    >>> round(float(found.low[0]), 3), round(float(found.high[0]), 3)
    (-0.081, 0.081)
    """
    sums, squares = part_moments(variants, part)
    cells = np.asarray(variants.cells, dtype=np.float64)
    if part == "words":
        found = moment_differences(sums, squares, cells, confidence, least=0.5)
    else:
        once = variants.own + variants.swapped - 2 * variants.both
        overall = once.sum(axis=(-2, -1), keepdims=True) / cells.sum(axis=(-2, -1), keepdims=True)
        halves = (once + 2 * overall) / (cells + 2)
        middle = (sums / 2 + 0.5) / (cells + 1)
        worth = 1 - np.clip(halves / (4 * middle * (1 - middle)), 0.0, 0.5)
        found = independent_differences(sums / 2 / worth, cells / worth, confidence)
    variance = _variances(variants, part).sum(axis=-2)
    return replace(found, variance=np.where(np.isnan(variance), found.variance, variance))
