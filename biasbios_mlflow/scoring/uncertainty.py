"""Confidence intervals of the metrics from counts, without resampling; bootstrap replicates.

Every interval is for the value in the population, given the numbers of bios. The choice of methods
was made by simulation (``benchmarks/coverage.py``); ``docs/metrics.md`` has its table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import special

from biasbios_mlflow.scoring import metrics
from biasbios_mlflow.scoring.counts import Counts
from biasbios_mlflow.scoring.outcomes import CTF_READINGS

__all__ = [
    "GapIntervals",
    "gamma_interval",
    "gap_intervals",
    "intervals",
    "mean_share_interval",
    "newcombe_interval",
    "replicates",
    "wilson_interval",
]

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64] | FloatArray
Interval = tuple[FloatArray, FloatArray]
Moments = tuple[FloatArray, FloatArray, FloatArray]

_PATH_END = 30.0


def wilson_interval(hits: npt.ArrayLike, n: npt.ArrayLike, confidence: float = 0.95) -> Interval:
    """Score interval of a binomial proportion (Wilson 1927); NaN where ``n`` is 0.

    Examples
    --------
    >>> low, high = wilson_interval(8, 10)
    >>> round(float(low), 4), round(float(high), 4)
    (0.4902, 0.9433)
    """
    p, size = metrics.share(hits, n), np.maximum(np.asarray(n, dtype=np.float64), 1e-300)
    z2 = _z(confidence) ** 2
    centre = (p + z2 / (2 * size)) / (1 + z2 / size)
    half = np.sqrt(z2 * (p * (1 - p) + z2 / (4 * size)) / size) / (1 + z2 / size)
    # At 0 and 1 the bound is exact, which rounding would miss.
    low = np.where(p == 0, 0.0, np.maximum(centre - half, 0.0))
    high = np.where(p == 1, 1.0, np.minimum(centre + half, 1.0))
    return np.where(np.isnan(p), np.nan, low), np.where(np.isnan(p), np.nan, high)


def newcombe_interval(hits: npt.ArrayLike, n: npt.ArrayLike, confidence: float = 0.95) -> Interval:
    """Interval of a difference of two proportions; shapes (2, ...) to (...).

    Newcombe 1998 (Statistics in Medicine 17, method 10), from two Wilson intervals.

    Examples
    --------
    >>> low, high = newcombe_interval([56, 48], [70, 80])
    >>> round(float(low), 4), round(float(high), 4)
    (0.0524, 0.3339)
    """
    p = metrics.share(hits, n)
    low, high = wilson_interval(hits, n, confidence)
    gap = p[0] - p[1]
    below = np.hypot(p[0] - low[0], high[1] - p[1])
    above = np.hypot(high[0] - p[0], p[1] - low[1])
    return gap - below, gap + above


def mean_share_interval(hits: Numbers, n: Numbers, confidence: float = 0.95) -> Interval:
    """Interval of an unweighted mean of proportions over the last axis, empty ones left out.

    Wilson's interval with the effective number of bios, p(1 − p) / variance, as in survey sampling
    (Franco et al., Journal of Survey Statistics and Methodology 2019). The variance comes from
    (hits + 1/2) / (n + 1), so that a proportion of 0 or 1 has some.

    Examples
    --------
    >>> low, high = mean_share_interval(np.array([10, 6]), np.array([10, 10]))
    >>> round(float(low), 4), round(float(high), 4)
    (0.6072, 0.9119)
    """
    count = (n > 0).sum(axis=-1)
    shrunken = np.where(n > 0, (hits + 0.5) / (n + 1), 0.0)
    variance = metrics.share(shrunken * (1 - shrunken), n)
    centre = metrics.share(shrunken.sum(axis=-1), count)
    mean = metrics.share(np.nansum(metrics.share(hits, n), axis=-1), count)
    size = metrics.share(centre * (1 - centre) * np.square(count), np.nansum(variance, axis=-1))
    return wilson_interval(mean * size, size, confidence)


def gamma_interval(
    n: npt.ArrayLike,
    mean: npt.ArrayLike,
    mean_square: npt.ArrayLike,
    *,
    largest: float,
    confidence: float = 0.95,
) -> Interval:
    """Interval of the mean of non-negative, skewed values, such as CTF values.

    The mean of the sample is taken as gamma distributed with the variance observed; the skewness
    that comes with it moves both bounds up. Where all values are 0 the upper bound is that of a
    share of values ``largest`` of which none was seen.

    Examples
    --------
    >>> low, high = gamma_interval(1000, 0.004, 0.0004, largest=0.25)
    >>> round(float(low), 5), round(float(high), 5)
    (0.00302, 0.00556)
    """
    size, value = np.asarray(n, dtype=np.float64), np.asarray(mean, dtype=np.float64)
    tail = (1 - confidence) / 2
    spread = np.maximum(np.asarray(mean_square, dtype=np.float64) - value**2, 0.0)
    variance = metrics.share(spread, np.maximum(size - 1, 1))
    unseen = largest * -np.expm1(np.log(tail) / np.maximum(size, 1))
    with np.errstate(divide="ignore", invalid="ignore"):
        shape = value**2 / variance
        low = value * shape / special.gammaincinv(shape, 1 - tail)
        high = value * shape / special.gammaincinv(shape, tail)
    constant = (variance <= 0) & (value > 0)
    low = np.where(value == 0, 0.0, np.where(constant, value, low))
    high = np.where(value == 0, unseen, np.where(constant, value, high))
    return low, np.minimum(high, np.maximum(value, largest))


@dataclass(frozen=True)
class GapIntervals:
    """Intervals of the root mean square and of the mean absolute gap, and their centres.

    The centre is the population value under which a result below and one above the observed are
    equally likely: an estimate without the upward bias of the plug-in value.
    """

    rms: Interval
    rms_centre: FloatArray
    abs: Interval
    abs_centre: FloatArray


def gap_intervals(
    hits: Numbers, bios: Numbers, scored: BoolArray, confidence: float = 0.95
) -> GapIntervals:
    """Invert tests of the population's RMS and mean absolute gap.

    A bound is the population value under which a statistic as extreme as the observed one has
    probability (1 − confidence) / 2. The statistic is the unbiased mean square gap for the RMS, and
    the mean absolute gap for the other. Which population has a given RMS or mean absolute gap? The
    sizes of its gaps are estimated from the data by adaptive shrinkage (a scale mixture of normals,
    Stephens, Biostatistics 2017) and then moved along a path: for the RMS multiplied down, and up
    where it adds most variance; for the mean absolute gap shifted by one constant and cut at 0. The
    TPRs around the gaps follow from the hits of both genders together. Under each population the
    mean square has its exact binomial variance and the mean absolute gap the moments of folded
    normals; mean, variance and skewness are matched by a shifted gamma distribution.

    An observed statistic more than one standard deviation below what a population without gaps
    gives counts as one below for the upper bound, so that luck cannot shrink the interval to
    nothing.

    Parameters
    ----------
    hits, bios : arrays of shape (..., 2, K)
        Bios predicted right and all bios; or false positives and negatives.
    scored : bool array of shape (K,)
        Occupations to take; at least one.
    confidence : float
        Level of the intervals.

    Examples
    --------
    >>> hits, bios = np.array([[90, 50], [40, 50]]), np.full((2, 2), 100)
    >>> low, high = gap_intervals(hits, bios, np.array([True, True])).rms
    >>> round(float(low), 2), round(float(high), 2)
    (0.26, 0.42)
    """
    populations = _Populations.fit(hits[..., scored], bios[..., scored])
    tail = (1 - confidence) / 2
    probabilities = (1 - tail, 0.5, tail)
    rms = populations.solve(populations.rms_path, populations.mean_square_test, probabilities)
    mean = populations.solve(populations.abs_path, populations.mean_abs_test, probabilities)
    root = np.sqrt(np.square(rms).mean(axis=-1))
    absolute = np.abs(mean).mean(axis=-1)
    return GapIntervals((root[0], root[2]), root[1], (absolute[0], absolute[2]), absolute[1])


@dataclass(frozen=True)
class _Populations:
    """The populations that a gap metric's observed value is tested against; shapes (..., K)."""

    bios: FloatArray  # (..., 2, K)
    pooled: FloatArray  # TPR of both genders together
    gap: FloatArray  # observed
    mean_square: FloatArray  # unbiased, (...)
    variance: FloatArray  # of each gap
    size: FloatArray  # estimated size of each true gap

    @classmethod
    def fit(cls, hits: Numbers, bios: Numbers) -> _Populations:
        n = np.broadcast_to(bios, hits.shape).astype(np.float64)
        everyone = np.ones(hits.shape[-1], dtype=np.bool_)
        gap = metrics.rate_gap(hits, n)
        shrunken = (hits + 0.5) / (n + 1)
        variance = (shrunken * (1 - shrunken) / n).sum(axis=-2)
        return cls(
            bios=n,
            pooled=(hits.sum(axis=-2) + 0.5) / (n.sum(axis=-2) + 1),
            gap=gap,
            mean_square=metrics.gap_mean_square(hits, n, everyone),
            variance=variance,
            size=_shrunken_sizes(gap, variance),
        )

    def rates(self, size: FloatArray) -> FloatArray:
        """TPRs with these sizes of the gaps that keep the hits of both genders together."""
        total = self.bios.sum(axis=-2)
        gap = np.copysign(size, self.gap)
        moved = np.stack(
            [gap * self.bios[..., 1, :] / total, -gap * self.bios[..., 0, :] / total], axis=-2
        )
        edge = np.minimum(1e-3, 0.5 / (total + 1))[..., None, :]
        return np.clip(self.pooled[..., None, :] + moved, edge, 1 - edge)

    def rms_path(self, t: FloatArray) -> FloatArray:
        """Sizes of gaps, from none (t = −∞) through the estimated ones (t = 0) upwards."""
        square = np.square(self.size)
        leverage = square * self.variance
        leverage = leverage / leverage.mean(axis=-1, keepdims=True)
        factor = np.where(t[..., None] < 0, 1.0, leverage)
        return np.asarray(np.sqrt(square * np.maximum(1 + np.expm1(t)[..., None] * factor, 0.0)))

    def abs_path(self, t: FloatArray) -> FloatArray:
        """Sizes of gaps, from none through the estimated ones (t = 0) upwards."""
        largest = self.size.max(axis=-1, keepdims=True)
        shift = t[..., None] / _PATH_END * np.where(t[..., None] < 0, largest, 1.0)
        return np.maximum(self.size + shift, 0.0)

    def mean_square_test(self, rates: FloatArray) -> tuple[FloatArray, Moments]:
        """Observed mean square gap, and its moments under these rates."""
        k = rates.shape[-1]
        mean, variance, third = _mean_square_moments(rates, self.bios)
        return self.mean_square, (mean / k, variance / k**2, third / k**3)

    def mean_abs_test(self, rates: FloatArray) -> tuple[FloatArray, Moments]:
        """Observed mean absolute gap, and its moments under these rates."""
        k = rates.shape[-1]
        gap = rates[..., 0, :] - rates[..., 1, :]
        sd = np.sqrt((rates * (1 - rates) / self.bios).sum(axis=-2))
        first, second, third = metrics.folded_normal_moments(gap, sd)
        variance = second - np.square(first)
        central = third - 3 * first * second + 2 * first**3
        moments = first.mean(axis=-1), variance.sum(axis=-1) / k**2, central.sum(axis=-1) / k**3
        return np.abs(self.gap).mean(axis=-1), moments

    def solve(
        self,
        path: Callable[[FloatArray], FloatArray],
        test: Callable[[FloatArray], tuple[FloatArray, Moments]],
        probabilities: tuple[float, ...],
    ) -> FloatArray:
        """Find the gaps on the path under which a lower statistic has each of the probabilities."""
        shape = (len(probabilities), *self.mean_square.shape)
        target = np.reshape(probabilities, (-1,) + (1,) * self.mean_square.ndim)
        none = self.rates(np.zeros_like(self.gap))
        observed, (mean, variance, _) = test(none)
        floor = np.where(target < 0.5, mean - np.sqrt(variance), -np.inf)
        observed = np.maximum(observed, floor)

        def above(rates: FloatArray) -> BoolArray:
            mean, variance, third = test(rates)[1]
            variance = np.maximum(variance, 1e-60)
            z = (observed - mean) / np.sqrt(variance)
            return np.asarray(_shifted_gamma_cdf(z, third / variance**1.5) > target)

        low, high = np.full(shape, -_PATH_END), np.full(shape, _PATH_END)
        for _ in range(36):
            middle = (low + high) / 2
            further = above(self.rates(path(middle)))
            low, high = np.where(further, middle, low), np.where(further, high, middle)
        rates = self.rates(path((low + high) / 2))
        gap = np.where(above(none)[..., None], rates[..., 0, :] - rates[..., 1, :], 0.0)
        # Where even the path's end is not excluded, nothing is.
        open_ended = above(self.rates(path(np.full(shape, _PATH_END))))
        return np.where(open_ended[..., None], 1.0, gap)


def _shrunken_sizes(gap: FloatArray, variance: FloatArray) -> FloatArray:
    """Posterior root mean square of each gap under a scale mixture of normals fitted by EM."""
    largest = 2 * np.maximum(np.abs(gap), np.sqrt(variance)).max(axis=-1)
    scale = np.append(largest[..., None] * 0.5 ** np.arange(8), 0 * largest[..., None], axis=-1)
    total = np.square(scale)[..., None] + variance[..., None, :]
    log_density = -0.5 * (np.log(total) + np.square(gap)[..., None, :] / total)
    density = np.exp(log_density - log_density.max(axis=-2, keepdims=True))
    n_scales = scale.shape[-1]
    weight = np.full(scale.shape, 1 / n_scales)
    for _ in range(50):
        member = weight[..., None] * density
        member /= member.sum(axis=-2, keepdims=True)
        # One pseudo-observation, spread evenly, keeps every scale possible.
        weight = (member.sum(axis=-1) + 1 / n_scales) / (gap.shape[-1] + 1)
    shrinkage = np.square(scale)[..., None] / total
    square = np.square(shrinkage * gap[..., None, :]) + shrinkage * variance[..., None, :]
    return np.asarray(np.sqrt((member * square).sum(axis=-2)))


def _mean_square_moments(rates: FloatArray, bios: FloatArray) -> Moments:
    """Mean, exact variance and approximate third central moment of Σ (d² − v) for binomial cells.

    Hoeffding's decomposition of d² − v, with e the error of each rate and δ the true gap, is
    δ² + 2δ(e_male − e_female) + B_male + B_female − 2 e_male e_female; its parts are uncorrelated,
    and B has variance 2(p(1 − p))² / (n(n − 1)). The third moment is that of normal noise around
    the gap plus the leading term of the binomials' own skewness.
    """
    each = rates * (1 - rates)
    noise = each / bios
    square = 2 * np.square(each) / np.maximum(bios * (bios - 1), 2.0)
    gap = rates[..., 0, :] - rates[..., 1, :]
    both = noise.sum(axis=-2)
    variance = (
        4 * np.square(gap) * both + square.sum(axis=-2) + 4 * noise[..., 0, :] * noise[..., 1, :]
    )
    skew = noise * (1 - 2 * rates) / bios
    third = (
        8 * both**3 + 24 * np.square(both * gap) + 8 * gap**3 * (skew[..., 0, :] - skew[..., 1, :])
    )
    return np.square(gap).sum(axis=-1), variance.sum(axis=-1), third.sum(axis=-1)


def _shifted_gamma_cdf(z: FloatArray, skewness: FloatArray) -> FloatArray:
    """Distribution function of the gamma distribution with mean 0, variance 1 and this skewness."""
    shape = 4 / np.maximum(np.square(skewness), 1e-6)
    place = shape + np.where(skewness < 0, -1, 1) * np.sqrt(shape) * np.clip(z, -40, 40)
    lower = special.gammainc(shape, np.maximum(place, 0.0))
    return np.where(skewness >= 0, lower, 1 - lower)


def intervals(
    counts: Counts, *, confidence: float = 0.95, min_cell: int = 1
) -> tuple[dict[str, tuple[float, float]], dict[str, float]]:
    """Compute the interval of every metric of ``counts`` that has one.

    Shares have Wilson's interval, ``accuracy_gap`` and ``tpr_gap/<occupation>`` Newcombe's, the
    balanced accuracies `mean_share_interval`, the CTF readings the gamma interval, and the
    gap metrics those of `gap_intervals`. ``gap_rms`` and ``gap_rms_debiased`` estimate the same
    population value and share an interval.

    Returns
    -------
    intervals : dict of str to (float, float)
        Bounds by metric; what cannot be computed is left out.
    centres : dict of str to float
        For the gap metrics, the estimate without upward bias (`GapIntervals`).
    """
    t, n = counts.tables, counts.total
    n_occupation, right = t.bios.sum(axis=0), t.hits.sum(axis=0)
    rest = np.where(n_occupation > 0, n - n_occupation, 0)
    true_negatives = np.where(rest > 0, rest - (t.predicted.sum(axis=0) - right), 0)
    bounds: dict[str, Interval] = {
        "balanced_accuracy": mean_share_interval(right, n_occupation, confidence),
        "balanced_accuracy_ovr": mean_share_interval(
            np.append(right, true_negatives), np.append(n_occupation, rest), confidence
        ),
        "accuracy": wilson_interval(t.hits.sum(), n, confidence),
        "accuracy_gap": newcombe_interval(t.hits.sum(axis=-1), t.bios.sum(axis=-1), confidence),
        "prediction_consistency": wilson_interval(t.consistent, counts.paired, confidence),
        "swap_coverage": wilson_interval(t.changed, n, confidence),
        "prediction_consistency_changed": wilson_interval(
            t.changed_consistent, t.changed, confidence
        ),
    }
    for gender, name in enumerate(("accuracy_male", "accuracy_female")):
        bounds[name] = wilson_interval(t.hits[gender].sum(), t.bios[gender].sum(), confidence)
    for reading in CTF_READINGS:
        bounds[reading] = gamma_interval(
            *counts.ctf_moments(reading), largest=_LARGEST_CTF[reading], confidence=confidence
        )
    bounds["ctf_changed"] = gamma_interval(
        *counts.ctf_moments("ctf", changed_only=True), largest=0.25, confidence=confidence
    )
    scored = metrics.scored_occupations(t.bios, min_cell)
    false_positives, negatives = metrics.false_positives(t.hits, t.predicted, t.bios)
    centres = {}
    for prefix, events, cells in (("", t.hits, t.bios), ("fpr_", false_positives, negatives)):
        chosen = scored & (cells > 0).all(axis=0)
        if chosen.any():
            gaps = gap_intervals(events, cells, chosen, confidence)
            bounds.update({f"{prefix}gap_rms": gaps.rms, f"{prefix}gap_abs": gaps.abs})
            centres[f"{prefix}gap_rms"] = float(gaps.rms_centre)
            centres[f"{prefix}gap_abs"] = float(gaps.abs_centre)
    if scored.any():
        bounds["gap_rms_debiased"] = bounds["gap_rms"]
        centres["gap_rms_debiased"] = centres["gap_rms"]
    low, high = newcombe_interval(t.hits, t.bios, confidence)
    for k in np.flatnonzero(scored):
        bounds[f"tpr_gap/{counts.labels[k]}"] = low[k], high[k]
    finite = {
        name: (float(low), float(high))
        for name, (low, high) in bounds.items()
        if np.isfinite(low) and np.isfinite(high)
    }
    return finite, centres


def replicates(
    counts: Counts, *, n_replicates: int = 10_000, seed: int = 0, min_cell: int = 1
) -> dict[str, FloatArray]:
    """Draw bootstrap replicates of every metric that counts alone determine.

    Resampling bios with replacement is the same as drawing counts from a multinomial, so the time
    does not depend on the number of bios. Bios and hits are drawn by gender and occupation; false
    positives by gender and predicted occupation, and changed and consistent bios by right or wrong,
    given the number of wrong or right bios. Each metric has its exact bootstrap distribution, but
    for FPR gaps, whose denominators are drawn apart from the false positives.

    Parameters
    ----------
    counts : Counts
        What to resample.
    n_replicates, seed : int
        Number of replicates R, and seed of the generator.
    min_cell : int
        Bios that each gender needs in a replicate for an occupation to be scored in it.

    Returns
    -------
    dict of str to float array of shape (R,)
        NaN where a replicate has no value. ``tpr_gap`` has shape (R, K).

    Examples
    --------
    >>> counts = Counts.from_codes(
    ...     genders=[0, 1] * 50,
    ...     occupations=[0] * 100,
    ...     predictions=[0, 1, 0, 0] * 25,
    ...     labels=["nurse", "poet"],
    ... )
    >>> drawn = replicates(counts, n_replicates=1000)
    >>> drawn["accuracy"].shape, bool(abs(drawn["accuracy"].mean() - 0.75) < 0.01)
    ((1000,), True)
    """
    rng = np.random.default_rng(seed)
    t, n = counts.tables, counts.total
    c, n_labels = counts.columns, len(counts.labels)
    if n == 0:
        raise ValueError("no bios to resample")
    bios = rng.multinomial(n, t.bios.ravel() / n, size=n_replicates).reshape(-1, *t.bios.shape)
    hits = rng.binomial(bios, metrics.share(t.hits, np.maximum(t.bios, 1)))
    right = c["predictions"] == c["occupations"]
    predicted = hits.copy()
    for gender in (0, 1):
        wrong = ~right & (c["genders"] == gender)
        mistakes = np.bincount(
            c["predictions"][wrong], weights=counts.bios[wrong], minlength=n_labels + 1
        )
        if mistakes.any():
            n_wrong = (bios - hits)[:, gender].sum(axis=-1)
            drawn = rng.multinomial(n_wrong, mistakes / mistakes.sum())
            predicted[:, gender] += drawn[:, :n_labels]
    # 0 neither, 1 consistent, 2 changed, 3 both
    kind = (c["predictions"] == c["counterfactuals"]) + 2 * (c["changed"] == 1)
    kinds = np.zeros((n_replicates, 4), dtype=np.int64)
    n_right = hits.sum(axis=(1, 2))
    for chosen, size in ((right, n_right), (~right, n - n_right)):
        weight = np.bincount(kind[chosen], weights=counts.bios[chosen], minlength=4)
        if weight.any():
            kinds += rng.multinomial(size, weight / weight.sum())
    tables = metrics.Tables(
        bios=bios,
        hits=hits,
        predicted=predicted,
        consistent=kinds[:, 1] + kinds[:, 3],
        changed=kinds[:, 2] + kinds[:, 3],
        changed_consistent=kinds[:, 3],
    )
    return metrics.count_metrics(tables, min_cell=min_cell)


_LARGEST_CTF = {"ctf": 0.25, "ctf_true_class": 0.25, "ctf_all_classes": 0.5, "ctf_gap": 1.0}


def _z(confidence: float) -> float:
    return float(special.ndtri((1 + confidence) / 2))
