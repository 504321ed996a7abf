"""Intervals of the RMS and of the mean absolute value of differences, one an occupation.

The differences may be TPR gaps, FPR gaps, changes of a gap from one model to another, or anything
else that is estimated apart in each occupation: an estimate, its variance and its own interval go
in (`Differences`), intervals of the two summaries come out. ``docs/intervals.md`` derives them and
shows where they fail.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import special

from biasbios_mlflow.scoring import metrics
from biasbios_mlflow.scoring.shares import Interval, newcombe_interval, z_value

__all__ = [
    "Differences",
    "GapIntervals",
    "independent_differences",
    "mean_abs_bounds",
    "moment_differences",
    "paired_differences",
    "rms_bounds",
    "rms_upper_bound",
    "stacked",
    "variance_shares",
]

FloatArray = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64] | FloatArray

_LUCK = 0.2
"""A mean square below this quantile of its distribution without any difference counts as that."""

_LEAST_SIZE = 0.25
"""Squared size, in units of its variance, from which a difference near zero is grown."""

_PRIOR_PAIRS = 2.0
"""Discordant pairs that each cell is given at the overall rate, for its variance."""

_BIAS_SCALE = 0.7
"""Width, in standard errors, of what is taken off an absolute value; see `mean_abs_bounds`."""


@dataclass(frozen=True, eq=False)
class Differences:
    """One estimated difference an occupation; all of shape (..., K).

    Attributes
    ----------
    estimate : float array
        Unbiased, in [−1, 1].
    variance : float array
        Unbiased estimate of the variance of each; may be 0.
    low, high : float array
        Each one's own interval at ``confidence``.
    sampling : float array
        What the numbers of bios alone say of the variances, up to a factor: 1/n over both genders.
    confidence : float
        Level of the intervals that `low` and `high` are.
    """

    estimate: FloatArray
    variance: FloatArray
    low: FloatArray
    high: FloatArray
    sampling: FloatArray
    confidence: float

    @property
    def scale(self) -> FloatArray:
        """Squared standard error of each: the larger of the variance and what its interval says.

        The interval's longer side over the normal quantile is a standard error too; unlike the
        variance it is not 0 where all bios are predicted right.
        """
        side = np.maximum(self.estimate - self.low, self.high - self.estimate)
        return np.maximum(np.square(side / z_value(self.confidence)), self.variance)

    @property
    def nearest(self) -> FloatArray:
        """Smallest absolute difference within each interval."""
        return np.maximum(np.maximum(self.low, -self.high), 0.0)

    @property
    def furthest(self) -> FloatArray:
        """Largest absolute difference within each interval, at most 1."""
        return np.minimum(np.maximum(np.abs(self.low), np.abs(self.high)), 1.0)


@dataclass(frozen=True)
class GapIntervals:
    """Intervals of the root mean square and of the mean absolute difference."""

    rms: Interval
    abs: Interval

    @classmethod
    def of(cls, differences: Differences) -> GapIntervals:
        """Compute both at the level of the differences' own intervals.

        Examples
        --------
        >>> hits, bios = np.array([[90, 50], [40, 50]]), np.full((2, 2), 100)
        >>> low, high = GapIntervals.of(independent_differences(hits, bios)).rms
        >>> round(float(low), 2), round(float(high), 2)
        (0.26, 0.44)
        """
        tail = (1 - differences.confidence) / 2
        if _is_own_interval(differences, tail):
            own = differences.nearest[..., 0], differences.furthest[..., 0]
            return cls(own, own)
        low, high, by_squares = _rms_bounds(differences, tail, (_LOWER, _UPPER, _BY_SIZE))
        return cls((low, high), _mean_abs_bounds(differences, tail, by_squares))


def stacked(several: Sequence[Differences]) -> Differences:
    """Put differences of one shape (K,) and confidence together; shape (several, K)."""
    names = ("estimate", "variance", "low", "high", "sampling")
    arrays = {name: np.stack([getattr(one, name) for one in several]) for name in names}
    return Differences(**arrays, confidence=several[0].confidence)


def independent_differences(hits: Numbers, bios: Numbers, confidence: float = 0.95) -> Differences:
    """Take differences of two independent proportions, with Newcombe's intervals.

    Parameters
    ----------
    hits, bios : arrays of shape (..., 2, K)
        Of each gender and occupation; no cell may be empty. Fractions are fine: a design effect
        divides both.
    confidence : float
        Level of the intervals.

    Notes
    -----
    The variance is p(1 − p)/(n − 1), summed over the genders. A cell of less than two bios has no
    such estimate; there p(1 − p) is that of both genders together, which is right when there is no
    difference.
    """
    n = np.broadcast_to(np.asarray(bios, dtype=np.float64), np.shape(hits))
    p = metrics.share(hits, n)
    total = n.sum(axis=-2)
    pooled = metrics.share(np.asarray(hits).sum(axis=-2), total)
    pooled = pooled * (1 - pooled) * total / np.maximum(total - 1, 1)
    own = p * (1 - p) / np.maximum(n - 1, 1)
    variance = np.where(n >= 2, own, pooled[..., None, :] / n).sum(axis=-2)
    low, high = newcombe_interval(
        np.moveaxis(np.asarray(hits), -2, 0), np.moveaxis(n, -2, 0), confidence
    )
    return Differences(
        p[..., 0, :] - p[..., 1, :], variance, low, high, (1 / n).sum(axis=-2), confidence
    )


def paired_differences(
    gained: Numbers, lost: Numbers, bios: Numbers, confidence: float = 0.95
) -> Differences:
    """Estimate how gaps change from one model to another on the same bios, from discordant pairs.

    Parameters
    ----------
    gained, lost : arrays of shape (..., 2, K)
        Bios that only the second, and only the first model has right.
    bios : array of shape (..., 2, K)
        All of them; no cell may be empty.
    confidence : float
        Level of the intervals.

    Notes
    -----
    The change of a TPR is (gained − lost)/n, its variance (q − change²)/n with q the share of
    discordant pairs. In the variance the share of each direction in a cell is taken with two more
    pairs at the share of all cells together, so that a cell without discordant pairs among cells
    that have some is not taken as certain. Where no pair is discordant anywhere every interval is
    [0, 0].

    Examples
    --------
    >>> same = np.zeros((2, 3))
    >>> found = paired_differences(same, same, np.full((2, 3), 40))
    >>> found.low.tolist(), found.high.tolist()
    ([0.0, 0.0, 0.0], [0.0, 0.0, 0.0])
    """
    n = np.broadcast_to(np.asarray(bios, dtype=np.float64), np.shape(gained))
    whole = n.sum(axis=(-2, -1), keepdims=True)
    change = np.asarray((np.asarray(gained) - np.asarray(lost)) / n, dtype=np.float64)
    shares = []
    for discordant in (gained, lost):
        overall = np.asarray(discordant).sum(axis=(-2, -1), keepdims=True) / whole
        prior = np.where(overall > 0, _PRIOR_PAIRS / np.where(overall > 0, overall, 1.0), 0.0)
        shares.append((discordant + overall * prior) / (n + prior))
    variance = shares[0] + shares[1] - np.square(shares[0] - shares[1])
    variance = (np.maximum(variance, 0.0) / n).sum(axis=-2)
    estimate = change[..., 0, :] - change[..., 1, :]
    half = z_value(confidence) * np.sqrt(variance)
    return Differences(
        estimate,
        variance,
        np.maximum(estimate - half, -1.0),
        np.minimum(estimate + half, 1.0),
        (1 / n).sum(axis=-2),
        confidence,
    )


def moment_differences(
    sums: Numbers,
    squares: Numbers,
    cells: Numbers,
    confidence: float = 0.95,
    *,
    least: float = 0.0,
) -> Differences:
    """Estimate differences of the means of half whole numbers that are mostly 0.

    As `paired_differences` estimates those of values −1, 0 and 1; here the mean of men minus that
    of women, of values −1, −½, 0, ½ and 1.

    Parameters
    ----------
    sums, squares : arrays of shape (..., 2, K)
        Of twice the values, by gender and occupation.
    cells : array of shape (..., 2, K)
        Number of values; no cell may be empty.
    confidence : float
        Level of the intervals.
    least : float
        Least sum of squares over all cells that variances are computed from: above 0, what was
        never seen is still not taken as impossible.

    Examples
    --------
    >>> n = np.full((2, 1), 100)
    >>> found = moment_differences(np.array([[10], [0]]), np.array([[12], [4]]), n)
    >>> float(found.estimate[0]), round(float(found.low[0]), 3), round(float(found.high[0]), 3)
    (0.05, 0.012, 0.088)
    """
    n = np.broadcast_to(np.asarray(cells, dtype=np.float64), np.shape(sums))
    whole = n.sum(axis=(-2, -1), keepdims=True)
    every = np.asarray(squares, dtype=np.float64).sum(axis=(-2, -1), keepdims=True)
    overall = np.maximum(every, least) / whole
    prior = np.where(overall > 0, 2 * _PRIOR_PAIRS / np.where(overall > 0, overall, 1.0), 0.0)
    drift = np.asarray(sums, dtype=np.float64).sum(axis=(-2, -1), keepdims=True) / whole
    mean = (sums + drift * prior) / (n + prior)
    square = (squares + overall * prior) / (n + prior)
    variance = (np.maximum(square - np.square(mean), 0.0) / (4 * n)).sum(axis=-2)
    means = np.asarray(sums / (2 * n), dtype=np.float64)
    estimate = means[..., 0, :] - means[..., 1, :]
    half = z_value(confidence) * np.sqrt(variance)
    return Differences(
        estimate,
        variance,
        np.maximum(estimate - half, -1.0),
        np.minimum(estimate + half, 1.0),
        (1 / n).sum(axis=-2),
        confidence,
    )


def _is_own_interval(differences: Differences, tail: float | FloatArray) -> bool:
    own = (1 - differences.confidence) / 2
    return differences.estimate.shape[-1] == 1 and bool(np.all(np.isclose(tail, own)))


def rms_bounds(differences: Differences, tail: float | FloatArray) -> Interval:
    """Bounds of the root mean square difference, each missed with probability ``tail``.

    A bound is the population value under which a debiased mean square as extreme as the observed
    one has probability ``tail``. With δ the true differences and σ their standard errors, the mean
    square is distributed as a weighted sum of noncentral chi-squares; its distribution function is
    a saddlepoint approximation. Under which δ of a given root mean square? Under those on a path
    that starts from shrunken sizes and moves each in proportion to its variance, as the profile
    likelihood does: δ / (1 − μσ²).

    A mean square below the 20 % quantile of its distribution without any difference counts as that
    quantile for the upper bound, so that luck cannot shrink the interval to nothing. A single
    occupation has its own interval.

    Parameters
    ----------
    differences : Differences
    tail : float or array of shape (...)
        Probability of missing on each side.
    """
    if _is_own_interval(differences, tail):
        return differences.nearest[..., 0], differences.furthest[..., 0]
    low, high = _rms_bounds(differences, tail, (_LOWER, _UPPER))
    return low, high


def rms_upper_bound(differences: Differences, tail: float | FloatArray) -> FloatArray:
    """Compute the upper one of `rms_bounds` alone."""
    if _is_own_interval(differences, tail):
        return differences.furthest[..., 0]
    return np.asarray(_rms_bounds(differences, tail, (_UPPER,))[0])


_LOWER, _UPPER, _BY_SIZE = "lower", "upper", "upper, weighted by the numbers of bios"


def _rms_bounds(
    differences: Differences, tail: float | FloatArray, which: Sequence[str]
) -> FloatArray:
    """Compute several bounds at once, which takes little longer than one; shape (bounds, ...)."""
    tails = np.asarray(tail, dtype=np.float64)
    shape = differences.estimate.shape
    # An axis for the bounds in front, and room for tails that have more axes than the differences.
    room = (1,) * (max(tails.ndim, len(shape) - 1) - len(shape) + 1)

    def placed(x: FloatArray) -> FloatArray:
        return np.broadcast_to(x, shape).reshape(1, *room, *shape)

    square, scale = placed(np.square(differences.estimate)), placed(differences.scale)
    weights = [_size_weights(differences) if one == _BY_SIZE else np.ones(shape) for one in which]
    w = np.concatenate([placed(one) for one in weights])
    w = w / w.mean(axis=-1, keepdims=True)
    count = shape[-1]
    certain = scale.max(axis=-1) <= 0
    scale = np.maximum(scale, np.where(certain, 1.0, scale.max(axis=-1))[..., None] * 1e-12)
    observed = (w * (square - placed(differences.variance))).sum(axis=-1)
    sizes = np.maximum(square - scale, 0.0) + _LEAST_SIZE * scale
    paths = _Paths(w, np.broadcast_to(scale, w.shape), np.broadcast_to(sizes, w.shape))
    upper = np.array([one != _LOWER for one in which]).reshape(-1, *(1,) * (w.ndim - 2))
    statistic = np.where(upper, np.maximum(observed, paths.null_quantile(_LUCK)), observed)
    solved = paths.solve(statistic, np.where(upper, tails, 1 - tails))
    solved = np.where(certain, (w * square).sum(axis=-1), solved)
    return np.minimum(np.sqrt(solved / count), 1.0)


def _size_weights(differences: Differences) -> FloatArray:
    weights = 1 / np.sqrt(differences.sampling)
    return np.asarray(weights / weights.mean(axis=-1, keepdims=True))


def mean_abs_bounds(differences: Differences, tail: float | FloatArray) -> Interval:
    """Bounds of the mean absolute difference, each missed with probability ``tail`` or less.

    An absolute value of an estimate is biased upwards, by at most √(2/π) standard errors (where
    the difference is 0) and by next to nothing beyond two. No estimate of a mean of absolute values
    is unbiased, so each bound leans on one whose bias has a known sign: the lower on |d| less
    c·exp(−d²/(2τ²σ²)) with c such that its expectation is 0 without a difference and below |δ|
    everywhere; the upper on |d| itself, whose expectation is at least |δ|. Their errors add up as
    independent normal ones. The upper bound is moreover at most what the mean square allows by the
    inequality of Cauchy and Schwarz, with weights that go by the numbers of bios alone.

    Parameters
    ----------
    differences : Differences
    tail : float or array of shape (...)
        Probability of missing on each side.
    """
    if _is_own_interval(differences, tail):
        return differences.nearest[..., 0], differences.furthest[..., 0]
    (by_squares,) = _rms_bounds(differences, tail, (_BY_SIZE,))
    return _mean_abs_bounds(differences, tail, by_squares)


def _mean_abs_bounds(
    differences: Differences, tail: float | FloatArray, root: FloatArray
) -> Interval:
    """Bounds from one of the root mean square that is weighted by the numbers of bios."""
    z = special.ndtri(1 - np.asarray(tail))
    size = np.abs(differences.estimate)
    error = np.sqrt(differences.scale)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(error > 0, size / error, np.inf)
    bias = _BIAS_AT_ZERO * error * np.exp(-np.square(ratio / _BIAS_SCALE) / 2)
    half = z * np.sqrt(np.square(error).sum(axis=-1)) / size.shape[-1]
    low = np.maximum((size - bias).mean(axis=-1) - half, 0.0)
    high = size.mean(axis=-1) + half
    by_squares = root * np.sqrt((1 / _size_weights(differences)).mean(axis=-1))
    return np.minimum(low, 1.0), np.minimum(np.minimum(high, by_squares), 1.0)


_BIAS_AT_ZERO = float(np.sqrt(2 / np.pi) * np.sqrt(1 + _BIAS_SCALE**2) / _BIAS_SCALE)


def variance_shares(differences: Differences) -> FloatArray:
    """Share of each occupation in the variance of the mean square difference; shape (..., K).

    2σ⁴ + 4δ²σ² over their sum, with max(0, d² − σ²) for δ². NaN where nothing is uncertain.
    """
    scale = differences.scale
    size = np.maximum(np.square(differences.estimate) - scale, 0.0)
    variance = 2 * np.square(scale) + 4 * size * scale
    return metrics.share(variance, variance.sum(axis=-1, keepdims=True))


@dataclass(frozen=True)
class _Paths:
    """Populations of given sizes of the differences, and the mean square's distribution in each.

    All of shape (..., K): weights, squared standard errors and the squared sizes to start from.
    """

    weights: FloatArray
    scale: FloatArray
    sizes: FloatArray

    def at(self, place: FloatArray) -> FloatArray:
        """Squared differences from none (place 0) to all of size 1 (place 3).

        From 0 to 1, μσ² of the largest σ² runs from −∞ to 0, from 1 to 2 on to 1, and beyond that
        without end; a difference that would exceed 1 is 1.
        """
        x = place[..., None]
        mu = np.where(
            x < 1,
            1 - 1 / np.maximum(x, 1e-12),
            np.where(x < 2, x - 1, 1 / np.maximum(3 - x, 1e-15)),
        )
        rest = 1 - mu * self.scale / self.scale.max(axis=-1, keepdims=True)
        with np.errstate(over="ignore"):
            grown = self.sizes / np.square(np.maximum(rest, 1e-9))
        return np.asarray(np.where(rest > 0, np.minimum(grown, 1.0), 1.0))

    def cdf(self, statistic: FloatArray, squares: FloatArray) -> FloatArray:
        """Probability that Σ w(d² − σ²) is at most ``statistic``: a saddlepoint approximation.

        In the form of Lugannani & Rice 1980 that Barndorff-Nielsen 1986 gave it, for a weighted sum
        of noncentral chi-squares.
        """
        part = self.weights * self.scale
        ratio = squares / self.scale
        target = np.maximum(statistic + part.sum(axis=-1), 1e-300)
        largest = part.max(axis=-1)
        # The cumulant generating function at t = (1 − y)/(2 max a), y > 0; in logarithms its
        # derivative is nearly a straight line, so that Newton's method takes few steps.
        log_y = np.zeros(np.broadcast_shapes(target.shape, squares.shape[:-1]))
        share = part / largest[..., None]
        for _ in range(_NEWTON_STEPS):
            y = np.exp(log_y)
            rest = 1 - share * (1 - y[..., None])
            term = part / rest
            pull = term * ratio / rest
            first = (term + pull).sum(axis=-1)
            slope = -(share * (term + 2 * pull) / rest).sum(axis=-1) * y / first
            step = (np.log(target) - np.log(first)) / np.minimum(slope, -1e-12)
            log_y = np.clip(log_y + np.clip(step, -4.0, 4.0), -60.0, 60.0)
        y = np.exp(log_y)
        t = (1 - y) / (2 * largest)
        rest = 1 - share * (1 - y[..., None])
        term = part / rest
        pull = term * ratio / rest
        cumulant = (ratio * share * (1 - y[..., None]) / (2 * rest) - np.log(rest) / 2).sum(axis=-1)
        second = (2 * term * term + 4 * term * pull).sum(axis=-1)
        w = np.sign(t) * np.sqrt(np.maximum(2 * (t * target - cumulant), 0.0))
        u = t * np.sqrt(second)
        third = (8 * term**3 + 24 * term**2 * pull).sum(axis=-1)
        near = np.abs(u) < 1e-3
        with np.errstate(divide="ignore", invalid="ignore"):
            shift = np.where(near, third / second**1.5 / 6, np.log(u / w) / w)
        return np.asarray(special.ndtr(w + np.nan_to_num(shift)))

    def null_quantile(self, probability: float) -> FloatArray:
        """Quantile of Σ w(d² − σ²) where there is no difference (Satterthwaite's chi-square)."""
        part = self.weights * self.scale
        second, third = np.square(part).sum(axis=-1), (part**3).sum(axis=-1)
        degrees = second**3 / np.square(third)
        quantile = 2 * special.gammaincinv(degrees / 2, probability)
        return np.asarray(third / second * (quantile - degrees))

    def solve(self, statistic: FloatArray, probability: float | FloatArray) -> FloatArray:
        """Find Σ wδ² on the path under which ``statistic`` is the quantile of ``probability``.

        By Chandrupatla 1997 (Advances in Engineering Software 28), for all at once: inverse
        quadratic interpolation where the function allows it, halves of the bracket where not.
        """
        shape = np.broadcast_shapes(np.shape(statistic), np.shape(probability))

        def excess(place: FloatArray) -> FloatArray:
            return self.cdf(statistic, self.at(place)) - probability

        a, b = np.full(shape, _FURTHEST_PLACE), np.zeros(shape)
        f_a, f_b = excess(a), excess(b)
        none, never = f_b <= 0, f_a > 0
        step = np.full(shape, 0.5)
        for _ in range(_STEPS):
            x = a + step * (b - a)
            f_x = excess(x)
            same = np.sign(f_x) == np.sign(f_a)
            c, f_c = np.where(same, a, b), np.where(same, f_a, f_b)
            b, f_b = np.where(same, b, a), np.where(same, f_b, f_a)
            a, f_a = x, f_x
            width = np.abs(b - a)
            if (width[~(none | never)] < _PLACE_TOLERANCE).all():
                break
            with np.errstate(divide="ignore", invalid="ignore"):
                xi, phi = (a - b) / (c - b), (f_a - f_b) / (f_c - f_b)
                inverse = f_a / (f_b - f_a) * f_c / (f_b - f_c)
                inverse = inverse + (c - a) / (b - a) * f_a / (f_c - f_a) * f_b / (f_c - f_b)
                least = np.minimum(_PLACE_TOLERANCE / 4 / width, 0.5)
            smooth = (phi**2 < xi) & ((1 - phi) ** 2 < 1 - xi) & np.isfinite(inverse)
            step = np.clip(np.where(smooth, inverse, 0.5), least, 1 - least)
        high = np.where(never, _FURTHEST_PLACE, np.where(f_a <= 0, a, b))
        return np.where(none, 0.0, (self.weights * self.at(high)).sum(axis=-1))


_STEPS = 60
_FURTHEST_PLACE = 3.0
_PLACE_TOLERANCE = 1e-9
_NEWTON_STEPS = 6
