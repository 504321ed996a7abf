"""Intervals of one proportion, of a difference of two, and of means."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special

from biasbios_mlflow.scoring import metrics

__all__ = [
    "Interval",
    "design_effects",
    "fay_feuer_interval",
    "mean_share_interval",
    "newcombe_interval",
    "wilson_interval",
    "z_value",
]

FloatArray = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64] | FloatArray
Interval = tuple[FloatArray, FloatArray]


def z_value(confidence: float) -> float:
    """Return the normal quantile that a two-sided interval of this level goes by.

    Examples
    --------
    >>> round(z_value(0.95), 3)
    1.96
    """
    return float(special.ndtri((1 + confidence) / 2))


def wilson_interval(hits: npt.ArrayLike, n: npt.ArrayLike, confidence: float = 0.95) -> Interval:
    """Score interval of a binomial proportion (Wilson 1927); NaN where ``n`` is 0.

    Examples
    --------
    >>> low, high = wilson_interval(8, 10)
    >>> round(float(low), 4), round(float(high), 4)
    (0.4902, 0.9433)
    """
    p, size = metrics.share(hits, n), np.maximum(np.asarray(n, dtype=np.float64), 1e-300)
    z2 = z_value(confidence) ** 2
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


def design_effects(clusters: npt.NDArray[Any], cells: npt.NDArray[Any], n_cells: int) -> FloatArray:
    """Compute how many times as large the variance of each cell's share is because of clusters.

    Bios of one cluster (equal texts) have one prediction. With m bios a cluster the variance of a
    share is that of Σm / Σm² times as many independent bios (Kish 1965): the effect is Σm² / Σm.

    Parameters
    ----------
    clusters : array of shape (n,)
        What bios of one cluster have in common.
    cells : int array of shape (n,)
        Cell of each bio, from 0 on.
    n_cells : int
        Number of cells.

    Returns
    -------
    float array of shape (n_cells,)
        At least 1.

    Examples
    --------
    >>> design_effects(np.array(["a", "a", "b", "c"]), np.array([0, 0, 1, 1]), 3).tolist()
    [2.0, 1.0, 1.0]
    """
    if len(clusters) == 0:
        return np.ones(n_cells)
    _, codes = np.unique(clusters, return_inverse=True)
    pairs = np.sort(codes.reshape(-1).astype(np.int64) * n_cells + cells)
    starts = np.flatnonzero(np.concatenate([[True], pairs[1:] != pairs[:-1]]))
    sizes = np.diff(np.append(starts, len(pairs))).astype(np.float64)
    place = pairs[starts] % n_cells
    squares = np.bincount(place, weights=np.square(sizes), minlength=n_cells)
    total = np.bincount(place, weights=sizes, minlength=n_cells)
    return np.where(total > 0, squares / np.maximum(total, 1), 1.0)


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


def fay_feuer_interval(
    n: npt.ArrayLike,
    mean: npt.ArrayLike,
    mean_square: npt.ArrayLike,
    *,
    largest: float,
    confidence: float = 0.95,
) -> Interval:
    """Interval of the mean of non-negative, skewed values, such as CTF values.

    Fay & Feuer 1997 (Statistics in Medicine 16), the gamma interval for weighted sums of Poisson
    counts: here every bio counts once, with its value as the weight. The upper bound is made with
    one more bio of the largest value there can be, so it is right where large values are rare and
    few or none were seen. Where all values are alike and far from 0 it is wider than need be, as a
    Poisson count has a variance of its own.

    Parameters
    ----------
    n : array
        Number of bios.
    mean, mean_square : arrays
        Of their values.
    largest : float
        Largest value there can be.
    confidence : float
        Level of the interval.

    Examples
    --------
    >>> low, high = fay_feuer_interval(50, 0.005, 0.00125, largest=0.25)
    >>> round(float(low), 5), round(float(high), 4)
    (0.00013, 0.0279)
    """
    size, value = np.asarray(n, dtype=np.float64), np.asarray(mean, dtype=np.float64)
    size = np.where(size > 0, size, np.nan)
    tail = (1 - confidence) / 2
    variance = np.asarray(mean_square, dtype=np.float64) / size
    one = largest / size
    shape = metrics.share(np.square(value), variance)
    low = np.where(
        value > 0, value * special.gammaincinv(np.nan_to_num(shape, nan=1.0), tail) / shape, 0.0
    )
    above, wider = value + one, variance + np.square(one)
    high = wider / above * special.gammainccinv(np.square(above) / wider, tail)
    return np.where(np.isnan(value), np.nan, low), np.minimum(high, np.maximum(value, largest))
