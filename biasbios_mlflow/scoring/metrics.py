"""The formulas of the metrics, one pure function each, from arrays of counts.

Arrays have a gender axis of length 2 (male first) and an occupation axis of length K last, and may
have leading axes (replicates). What cannot be computed is NaN; `biasbios_mlflow.scoring.scores`
leaves it out and says why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special

__all__ = [
    "Tables",
    "Variants",
    "abs_noise_floor",
    "accuracy",
    "accuracy_by_gender",
    "accuracy_gap",
    "balanced_accuracy",
    "balanced_accuracy_ovr",
    "debiased_occupations",
    "false_positives",
    "gap_abs",
    "gap_abs_noise_floor",
    "gap_mean_square",
    "gap_rms",
    "gap_rms_debiased",
    "gap_rms_noise_floor",
    "gap_variance",
    "marked_share",
    "rate_gap",
    "rates",
    "rms_noise_floor",
    "scored_occupations",
    "share",
]

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
Numbers = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Variants:
    """How often an event occurs for the bios of each cell, and for their swapped copies.

    Attributes
    ----------
    cells : int array of shape (..., 2, K)
        Bios with a counterfactual for which the event may occur, by gender and occupation.
    own, swapped, both : int arrays of shape (..., 2, K)
        Those for which it occurs; for whose copy it occurs; for which both is so.
    """

    cells: Numbers
    own: Numbers
    swapped: Numbers
    both: Numbers

    def take(self, chosen: BoolArray, effects: FloatArray | None = None) -> Variants:
        """Return the chosen occupations, as many independent bios as a design effect leaves."""
        divisor = 1 if effects is None else effects[:, chosen]
        return Variants(
            *(x[..., chosen] / divisor for x in (self.cells, self.own, self.swapped, self.both))
        )


@dataclass(frozen=True, eq=False)
class Tables:
    """The sums of counts that the metrics are made of.

    Attributes
    ----------
    bios, hits, predicted : int arrays of shape (..., 2, K)
        Bios by gender and true occupation; those predicted right; bios by gender and predicted
        occupation (predictions outside the label set are in none).
    paired, consistent, changed, changed_consistent : int arrays of shape (...)
        Bios that have a counterfactual; whose counterfactual has the same prediction; bios that the
        swap changed; those of them with the same prediction.
    marks : mapping of str to int array of shape (..., 2, 2)
        Of each mark (see `Outcomes`) by gender: the bios of which it is recorded whether they have
        it, and those that have it.
    hit_variants, false_variants : Variants or None
        Hits, and false positives, of bios and of their copies; None for replicates.
    """

    bios: Numbers
    hits: Numbers
    predicted: Numbers
    paired: Numbers
    consistent: Numbers
    changed: Numbers
    changed_consistent: Numbers
    marks: Mapping[str, Numbers] = field(default_factory=dict)
    hit_variants: Variants | None = None
    false_variants: Variants | None = None


def share(part: npt.ArrayLike, whole: npt.ArrayLike) -> FloatArray:
    """Divide counts; NaN where ``whole`` is 0.

    Examples
    --------
    >>> share([1, 0], [4, 0]).tolist()
    [0.25, nan]
    """
    top, bottom = np.asarray(part, dtype=np.float64), np.asarray(whole, dtype=np.float64)
    out = np.full(np.broadcast_shapes(top.shape, bottom.shape), np.nan)
    np.divide(top, bottom, out=out, where=bottom > 0)
    return out


def accuracy(hits: Numbers, bios: Numbers) -> FloatArray:
    """Share of bios predicted right; shapes (..., 2, K) to (...).

    Examples
    --------
    >>> float(accuracy(np.array([[2, 1], [1, 0]]), np.array([[2, 2], [2, 2]])))
    0.5
    """
    return share(hits.sum(axis=(-2, -1)), bios.sum(axis=(-2, -1)))


def accuracy_by_gender(hits: Numbers, bios: Numbers) -> FloatArray:
    """Share of bios of each gender predicted right; shapes (..., 2, K) to (..., 2)."""
    return share(hits.sum(axis=-1), bios.sum(axis=-1))


def accuracy_gap(hits: Numbers, bios: Numbers) -> FloatArray:
    """Accuracy of male bios minus accuracy of female bios; shapes (..., 2, K) to (...)."""
    both = accuracy_by_gender(hits, bios)
    return np.asarray(both[..., 0] - both[..., 1])


def marked_share(marks: Numbers) -> FloatArray:
    """Share of all bios that have a mark; shapes (..., 2, 2) to (...).

    Of one gender: ``share(marks[..., gender, 1], marks[..., gender, 0])``.

    Examples
    --------
    >>> float(marked_share(np.array([[10, 1], [10, 4]])))
    0.25
    """
    return share(marks[..., 1].sum(axis=-1), marks[..., 0].sum(axis=-1))


def balanced_accuracy(hits: Numbers, bios: Numbers) -> FloatArray:
    """Unweighted mean of recall over the occupations present; shapes (..., 2, K) to (...).

    Equals ``sklearn.metrics.balanced_accuracy_score``.

    Examples
    --------
    >>> float(balanced_accuracy(np.array([[2, 0], [1, 0]]), np.array([[2, 1], [2, 0]])))
    0.375
    """
    return _mean(share(hits.sum(axis=-2), bios.sum(axis=-2)), bios.sum(axis=-2) > 0)


def balanced_accuracy_ovr(hits: Numbers, predicted: Numbers, bios: Numbers) -> FloatArray:
    """Mean over the occupations present of (sensitivity + specificity) / 2, one against the rest.

    The multiclass reading of balanced accuracy that averages two-class balanced accuracies. NaN
    with fewer than two occupations: there is no rest. Shapes (..., 2, K) to (...).

    Examples
    --------
    >>> hits, bios = np.array([[2, 0], [1, 0]]), np.array([[2, 1], [2, 0]])
    >>> float(balanced_accuracy_ovr(hits, np.array([[3, 0], [1, 1]]), bios))
    0.375
    """
    n, right = bios.sum(axis=-2), hits.sum(axis=-2)
    rest = n.sum(axis=-1, keepdims=True) - n
    specificity = 1 - share(predicted.sum(axis=-2) - right, rest)
    return _mean((share(right, n) + specificity) / 2, n > 0)


def scored_occupations(bios: Numbers, min_cell: int = 5) -> BoolArray:
    """Say which occupations hold at least ``min_cell`` bios of each gender; (2, K) to (K,)."""
    return np.asarray((bios >= max(min_cell, 1)).all(axis=-2))


def rates(hits: Numbers, bios: Numbers) -> FloatArray:
    """TPR of each gender and occupation; with false positives and negatives, FPR. NaN if empty."""
    return share(hits, bios)


def rate_gap(hits: Numbers, bios: Numbers) -> FloatArray:
    """Rate of male bios minus rate of female bios; shapes (..., 2, K) to (..., K).

    Examples
    --------
    >>> rate_gap(np.array([[3, 1], [1, 1]]), np.array([[4, 2], [2, 0]])).tolist()
    [0.25, nan]
    """
    both = rates(hits, bios)
    return np.asarray(both[..., 0, :] - both[..., 1, :])


def false_positives(
    hits: Numbers, predicted: Numbers, bios: Numbers
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Count false positives and negatives of each gender and occupation; all shapes (..., 2, K).

    Negatives of an occupation are the bios of all other occupations; the FPR is their quotient.
    """
    return predicted - hits, bios.sum(axis=-1, keepdims=True) - bios


def gap_rms(gap: FloatArray, scored: BoolArray) -> FloatArray:
    """Root mean square of the gaps of the scored occupations; shapes (..., K) to (...).

    De-Arteaga et al. 2019 and Romanov et al. 2019 call it GAP RMS.

    Examples
    --------
    >>> float(gap_rms(np.array([0.5, -0.5, 0.9]), np.array([True, True, False])))
    0.5
    """
    return np.sqrt(_mean(np.square(gap), scored))


def gap_abs(gap: FloatArray, scored: BoolArray) -> FloatArray:
    """Mean absolute gap of the scored occupations; shapes (..., K) to (...).

    Examples
    --------
    >>> float(gap_abs(np.array([0.25, -0.5, 0.9]), np.array([True, True, False])))
    0.375
    """
    return _mean(np.abs(gap), scored)


def gap_variance(hits: Numbers, bios: Numbers) -> FloatArray:
    """Estimate the variance of each gap, p(1 − p)/(n − 1) summed over the genders.

    Unbiased for binomial cells; shapes (..., 2, K) to (..., K). NaN where a gender has a single
    bio: one bio does not vary.
    """
    p = rates(hits, bios)
    return np.asarray(share(p * (1 - p), bios - 1).sum(axis=-2))


def debiased_occupations(bios: Numbers, scored: BoolArray) -> BoolArray:
    """Say for which of the scored occupations `gap_variance` exists; (..., 2, K) to (..., K)."""
    return np.asarray(scored & (bios >= 2).all(axis=-2))


def gap_mean_square(hits: Numbers, bios: Numbers, scored: BoolArray) -> FloatArray:
    """Unbiased estimate of the mean square gap, mean(d² − v) over scored occupations.

    d is the gap, v its estimated variance (`gap_variance`); it can be negative. Occupations without
    v are left out. Shapes (..., 2, K) to (...). After Lum, Zhang & Bower, "De-biasing 'bias'
    measurement", FAccT 2022.
    """
    chosen = debiased_occupations(bios, scored)
    return _mean(np.square(rate_gap(hits, bios)) - gap_variance(hits, bios), chosen)


def gap_rms_debiased(hits: Numbers, bios: Numbers, scored: BoolArray) -> FloatArray:
    """Root of the mean square gap less what chance adds to it, 0 if chance explains all of it.

    Over the scored occupations with two bios of each gender at least; NaN if there are none.

    Examples
    --------
    >>> hits, bios = np.array([[9], [2]]), np.array([[10], [10]])
    >>> round(float(gap_rms_debiased(hits, bios, np.array([True]))) ** 2, 6)
    0.462222
    """
    mean_square = gap_mean_square(hits, bios, scored)
    # Where chance explains the gaps exactly, rounding leaves something, and its root is far larger.
    terms = np.square(rate_gap(hits, bios)) + gap_variance(hits, bios)
    rounding = 8 * np.finfo(np.float64).eps * _mean(terms, debiased_occupations(bios, scored))
    return np.sqrt(np.where(mean_square <= rounding, 0.0, mean_square))


def gap_abs_noise_floor(hits: Numbers, bios: Numbers, scored: BoolArray) -> float:
    """Compute the expected `gap_abs` of a model without any gap, given the cell sizes; (2, K).

    Given how many bios of an occupation are predicted right, those of men among them are
    hypergeometric when there is no gap, whatever the TPR: the expectation under that distribution
    is right on average over the bios too, in cells of any size.

    Examples
    --------
    >>> round(
    ...     gap_abs_noise_floor(np.array([[5], [5]]), np.array([[10], [10]]), np.array([True])), 2
    ... )
    0.17
    """
    return abs_noise_floor(_null_gaps(hits, bios, scored))


def gap_rms_noise_floor(hits: Numbers, bios: Numbers, scored: BoolArray) -> float:
    """Compute the expected `gap_rms` of a model without any gap, given the cell sizes; (2, K).

    From the same distribution as `gap_abs_noise_floor`.

    Examples
    --------
    >>> round(
    ...     gap_rms_noise_floor(np.array([[5], [5]]), np.array([[10], [10]]), np.array([True])), 2
    ... )
    0.17
    """
    return rms_noise_floor(_null_gaps(hits, bios, scored))


Null = tuple[FloatArray, FloatArray, float]
"""Distribution of an occupation's difference where gender has no bearing on it: values and weights,
and a standard deviation where it is taken as normal around 0."""


def abs_noise_floor(nulls: Sequence[Null]) -> float:
    """Compute the expected mean absolute value of independent differences; NaN for none."""
    if not nulls:
        return float("nan")
    return float(np.mean([np.sum(w * np.abs(c)) + np.sqrt(2 / np.pi) * s for c, w, s in nulls]))


def rms_noise_floor(nulls: Sequence[Null]) -> float:
    """Compute the expected root mean square of independent differences; NaN for none.

    With S the sum of squared differences, E √S = ∫ (1 − E exp(−tS)) t^(−3/2) dt / (2√π) over t > 0,
    and E exp(−tS) is a product over the occupations; the integral is taken over log t.
    """
    if not nulls:
        return float("nan")
    mean_square = float(sum(np.sum(w * np.square(c)) + s**2 for c, w, s in nulls))
    if mean_square == 0:
        return 0.0
    low, high = -9.0, 13.0
    nodes, weights = np.polynomial.legendre.leggauss(48)
    log_t = (high - low) / 2 * nodes + (high + low) / 2
    t = np.append(np.exp(log_t), np.exp(high)) / mean_square
    log_laplace = np.zeros(len(t))
    for c, w, s in nulls:
        # For normal noise of variance s² around c: E exp(−t(c + sZ)²).
        widened = 1 + 2 * t * s**2
        laplace = np.exp(-np.outer(t / widened, np.square(c))) @ w / np.sqrt(widened)
        log_laplace += np.log(np.maximum(laplace, 1e-300))
    rest = -np.expm1(log_laplace)
    middle = (high - low) / 2 * np.sum(weights * rest[:-1] * np.exp(-log_t / 2))
    tails = 2 * np.exp(low / 2) + 2 * rest[-1] * np.exp(-high / 2)
    root = (middle + tails) / (2 * np.sqrt(np.pi))
    return float(root * np.sqrt(mean_square / len(nulls)))


_ENUMERATED = 30.0
"""Standard deviation, in bios, up to which a hypergeometric distribution is enumerated."""


def _null_gaps(hits: Numbers, bios: Numbers, scored: BoolArray) -> list[Null]:
    """Distribution of each scored occupation's gap when gender has no bearing on the hits.

    Each has values c with weights w, or is normal around 0 with standard deviation s where it is
    too wide to be enumerated.
    """
    gaps = []
    for men, women, right in zip(
        *bios[:, scored].tolist(), hits[:, scored].sum(axis=0).tolist(), strict=True
    ):
        total = men + women
        mean = right * men / total
        variance = mean * (total - right) / total * women / max(total - 1, 1)
        unit = 1 / men + 1 / women  # the gap's change with one more man among the hits
        sd = float(np.sqrt(variance))
        if sd > _ENUMERATED:
            gaps.append((np.zeros(1), np.ones(1), sd * unit))
            continue
        reach = 10 * sd + 10
        first = max(0, right - women, int(mean - reach))
        last = min(men, right, int(mean + reach) + 1)
        of_men = np.arange(first, last + 1)
        log_pmf = -np.sum(
            [
                special.gammaln(part + 1)
                for part in (of_men, men - of_men, right - of_men, women - right + of_men)
            ],
            axis=0,
        )
        weight = np.exp(log_pmf - log_pmf.max())
        kept = weight > 1e-14 * weight.sum()
        gaps.append(((of_men[kept] - mean) * unit, weight[kept] / weight[kept].sum(), 0.0))
    return gaps


def _mean(values: FloatArray, where: Numbers) -> FloatArray:
    count = np.asarray(where).sum(axis=-1)
    total = np.where(where, values, 0.0).sum(axis=-1)
    return share(total, count)
