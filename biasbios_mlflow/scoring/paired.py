"""How much larger a model's gaps are than another's on the same bios: bounds from discordant pairs.

Bios that both models have right, or both wrong, say nothing about the difference of the two; a
model compared with itself has no such difference, at any level. ``docs/intervals.md`` has the
derivation and the simulation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy import special

from biasbios_mlflow.scoring.gaps import (
    Differences,
    independent_differences,
    mean_abs_bounds,
    paired_differences,
    rms_bounds,
    rms_upper_bound,
)

__all__ = ["PairedGaps"]

FloatArray = npt.NDArray[np.float64]
Numbers = npt.NDArray[np.int64] | FloatArray

_SURE = 2.0
"""From so many standard errors on the sign of a gap begins to be known; one more is enough."""

_EACH = 0.6
"""Part of the error probability that each of two bounds is given of which the smaller counts."""

_WRONG_SIGN = 0.1
"""Part of the error probability that is spent on excluding the other sign of a single gap."""


@dataclass(frozen=True, eq=False)
class PairedGaps:
    """The gaps of two models on the same bios, and their change from a to b.

    Attributes
    ----------
    a, b, change : Differences
        Of shape (..., K); the change is b's gap minus a's.

    Examples
    --------
    >>> hits, bios = np.array([[80, 70], [75, 60]]), np.full((2, 2), 100)
    >>> same = PairedGaps.from_hits(hits, hits, hits, bios)
    >>> float(same.rms_rise(0.025)), float(same.abs_rise(0.025))
    (0.0, 0.0)
    """

    a: Differences
    b: Differences
    change: Differences

    @classmethod
    def from_hits(
        cls, a: Numbers, b: Numbers, both: Numbers, bios: Numbers, confidence: float = 0.95
    ) -> PairedGaps:
        """Build from the hits of each model and of both at once; arrays of shape (..., 2, K)."""
        return cls(
            independent_differences(a, bios, confidence),
            independent_differences(b, bios, confidence),
            paired_differences(b - both, a - both, bios, confidence),
        )

    def reversed(self) -> PairedGaps:
        """Return the same from b to a."""
        c = self.change
        back = replace(c, estimate=-c.estimate, low=-c.high, high=-c.low)
        return PairedGaps(self.b, self.a, back)

    @property
    def _sum(self) -> tuple[FloatArray, FloatArray]:
        """Sum of both models' gaps and its variance, at least that of two equal gaps in part."""
        a, b, change = self.a.scale, self.b.scale, self.change.scale
        return self.a.estimate + self.b.estimate, np.maximum(2 * a + 2 * b - change, a + b)

    def rms_rise(self, tail: float | FloatArray) -> FloatArray:
        """Upper bound of RMS(b) − RMS(a), exceeded with probability ``tail``; shape (...).

        RMS(b) − RMS(a) is at most the RMS of the changes (triangle inequality). Where a has a gap,
        and the more so the more it exceeds that bound, a second bound counts that is sharper then:
        with T the difference of the mean squares, whose variance is that of a mean of products of
        change and sum, RMS(b) − RMS(a) is √(A² + T) − A for A = RMS(a).
        """
        tail = _EACH * np.asarray(tail)
        triangle = rms_upper_bound(self.change, tail)
        difference, spread = self.change.estimate, self.change.scale
        total, total_spread = self._sum
        common = self.b.scale - self.a.scale
        product = spread * total_spread + np.square(common)
        variance = np.maximum(
            np.square(difference) * total_spread
            + np.square(total) * spread
            + 2 * difference * total * common
            - product,
            product,
        )
        squares = [np.square(x.estimate) - x.variance for x in (self.a, self.b)]
        count = difference.shape[-1]
        z = special.ndtri(1 - tail)
        rise = (squares[1] - squares[0]).mean(axis=-1)
        rise = rise + z * np.sqrt(variance.sum(axis=-1)) / count
        low, high = rms_bounds(self.a, tail)
        start = np.where(rise > 0, low, np.maximum(high, np.sqrt(np.maximum(-rise, 0.0))))
        by_squares = np.sqrt(np.maximum(np.square(start) + rise, 0.0)) - start
        # Without a gap of a both are bounds of RMS(b), and the smaller would fail twice as often.
        known = np.clip(low / np.maximum(triangle, 1e-300), 0.0, 1.0)
        return triangle - known * np.maximum(triangle - by_squares, 0.0)

    def abs_rise(self, tail: float | FloatArray) -> FloatArray:
        """Upper bound of mean|b| − mean|a|, exceeded with probability ``tail``; shape (...).

        The smaller of two bounds: the mean absolute change; and a mean in which an occupation whose
        gap has a known sign counts with its signed change, others with the absolute one.
        """
        tail = _EACH * np.asarray(tail)
        z = special.ndtri(1 - tail)
        change, error = self.change.estimate, np.sqrt(self.change.scale)
        total, total_spread = self._sum
        sure = np.clip(np.abs(total) / np.sqrt(np.maximum(total_spread, 1e-300)) - _SURE, 0.0, 1.0)
        signed = np.maximum(np.sign(total) * change, -np.abs(total))
        counted = sure * signed + (1 - sure) * np.abs(change)
        half = z * np.sqrt(np.square(error).sum(axis=-1)) / change.shape[-1]
        return np.minimum(mean_abs_bounds(self.change, tail)[1], counted.mean(axis=-1) + half)

    def each_rise(self, tail: float | FloatArray) -> FloatArray:
        """Upper bound of |b| − |a| in each occupation alone; shape (..., K).

        With D the change and M the sum of both gaps, |b| − |a| is the smaller of |D| and |M| with
        the sign of DM. A sign of M counts unless it is excluded, with a tenth of ``tail``.
        """
        total, total_spread = self._sum
        tail = _column(np.asarray(tail))
        reach = special.ndtri(1 - _WRONG_SIGN * tail) * np.sqrt(total_spread)
        z = special.ndtri(1 - (1 - _WRONG_SIGN) * tail)
        error = z * np.sqrt(self.change.scale)
        bound = np.full(np.broadcast_shapes(error.shape, np.shape(reach)), -np.inf)
        for sign in (1, -1):
            falls = -np.maximum(sign * total - reach, 0.0)
            rises = np.maximum(sign * self.change.estimate + error, falls)
            bound = np.where(sign * total + reach >= 0, np.maximum(bound, rises), bound)
        return np.where(self.change.scale > 0, bound, np.abs(self.change.estimate))


def _column(values: FloatArray) -> FloatArray:
    """Give what has shape (...) an axis for the occupations; a number stays one."""
    return values[..., None] if np.ndim(values) else values
