"""How often the 95 % intervals hold the population value, and how wide they are.

Simulates test sets from populations that are known, with the benchmark's own cell sizes (a 25 %
test split) and with 30, 100 and 1000 bios a cell, and prints one table a part:

    python benchmarks/coverage.py occupations.csv --sets 1000

``occupations.csv`` has the columns occupation, bios, women. Parts: ``gaps`` (the intervals in use),
``methods`` (others that were tried for the gap metrics), ``means`` (balanced accuracy, prediction
consistency, CTF), ``paired`` (differences of two models), ``parts`` (of the gap: words and rest)
and ``wide`` (some 600 settings off this grid: small, uneven and drawn cells, TPRs near 0 and 1, one
to a hundred occupations).
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import special

from biasbios_mlflow.scoring import metrics
from biasbios_mlflow.scoring.comparison import paired_interval
from biasbios_mlflow.scoring.gaps import Differences, GapIntervals, independent_differences
from biasbios_mlflow.scoring.metrics import Variants
from biasbios_mlflow.scoring.paired import PairedGaps
from biasbios_mlflow.scoring.parts import (
    PARTS,
    Part,
    part_differences,
    part_gap,
    part_moments,
    part_rms_noise_floor,
)
from biasbios_mlflow.scoring.shares import (
    fay_feuer_interval,
    mean_share_interval,
    wilson_interval,
)

FloatArray = npt.NDArray[np.float64]
Bounds = tuple[FloatArray, FloatArray]
Row = dict[str, Any]

Z = float(special.ndtri(0.975))
GAPS = (0.0, 0.05, 0.1)
SPREADS = ("equal", "one sign", "normal", "one occupation", "smallest cell")


@dataclass(frozen=True)
class Population:
    """TPRs of both genders in every occupation, and the cell sizes of its test sets."""

    cells: str
    bios: npt.NDArray[np.int64]
    gap: float
    spread: str
    rates: FloatArray

    @property
    def gaps(self) -> FloatArray:
        """TPR of men minus TPR of women."""
        return self.rates[0] - self.rates[1]

    @property
    def rms(self) -> float:
        """Population value of ``gap_rms``."""
        return float(np.sqrt(np.mean(self.gaps**2)))

    @property
    def absolute(self) -> float:
        """Population value of ``gap_abs``."""
        return float(np.mean(np.abs(self.gaps)))

    def draw(self, sets: int, seed: int) -> npt.NDArray[np.int64]:
        """Hits of simulated test sets."""
        rng = np.random.default_rng(seed)
        return rng.binomial(self.bios, self.rates, (sets, *self.bios.shape))


def cell_sizes(path: Path) -> dict[str, npt.NDArray[np.int64]]:
    table = pd.read_csv(path)
    men = table["bios"] - table["women"]
    benchmark = np.stack([men.to_numpy() // 4, table["women"].to_numpy() // 4])
    equal = {str(size): np.full_like(benchmark, size) for size in (30, 100, 1000)}
    return {"benchmark": benchmark, **equal}


def population(
    cells: str, bios: npt.NDArray[np.int64], gap: float, spread: str, seed: int = 0
) -> Population:
    """TPRs from 0.5 to 0.95 in random order, with a root mean square gap of ``gap``."""
    k = bios.shape[1]
    rng = np.random.default_rng(seed)
    base = rng.permutation(np.linspace(0.5, 0.95, k))
    signed = np.zeros(k)
    if spread == "equal":
        signed[:] = gap * rng.choice([-1, 1], k)
    elif spread == "one sign":
        signed[:] = gap
    elif spread == "normal":
        signed = rng.standard_normal(k)
        signed *= gap / np.sqrt(np.mean(signed**2))
    elif spread == "one occupation":
        signed[rng.integers(k)] = gap * np.sqrt(k)
    elif spread == "smallest cell":
        signed[bios.min(axis=0).argmin()] = gap * np.sqrt(k)
    half = np.abs(signed) / 2
    base = np.clip(base, half + 0.01, 0.99 - half)
    return Population(cells, bios, gap, spread, np.stack([base + signed / 2, base - signed / 2]))


def populations(
    sizes: dict[str, npt.NDArray[np.int64]], spreads: tuple[str, ...]
) -> Iterator[Population]:
    for cells, bios in sizes.items():
        for gap in GAPS:
            for spread in spreads if gap else ("none",):
                yield population(cells, bios, gap, spread)


def result(bounds: Bounds, truth: float | FloatArray) -> dict[str, float]:
    low, high = bounds
    held = (low <= truth + 1e-12) & (truth <= high + 1e-12)
    return {"coverage": float(held.mean()), "width": float((high - low).mean())}


def gaps_part(sizes: dict[str, npt.NDArray[np.int64]], sets: int, seed: int) -> Iterator[Row]:
    for p in populations(sizes, SPREADS):
        hits = p.draw(sets, seed)
        scored = np.ones(hits.shape[-1], dtype=bool)
        found = GapIntervals.of(independent_differences(hits, p.bios))
        floors = [
            (
                metrics.gap_rms_noise_floor(h, p.bios, scored),
                metrics.gap_abs_noise_floor(h, p.bios, scored),
            )
            for h in (hits[:200] if p.gap == 0 else ())
        ]
        plug_in = metrics.rate_gap(hits, np.broadcast_to(p.bios, hits.shape))
        square = metrics.gap_mean_square(hits, np.broadcast_to(p.bios, hits.shape), scored)
        for name, bounds, truth, value, floor in (
            ("gap_rms", found.rms, p.rms, metrics.gap_rms(plug_in, scored), 0),
            ("gap_rms_debiased", found.rms, p.rms, np.sqrt(np.maximum(square, 0)), None),
            ("gap_abs", found.abs, p.absolute, metrics.gap_abs(plug_in, scored), 1),
        ):
            yield {
                "cells": p.cells,
                "true RMS": p.gap,
                "spread": p.spread,
                "metric": name,
                **result(bounds, truth),
                "truth": truth,
                "mean estimate": float(value.mean()),
                "floor / simulated": float(np.mean([f[floor] for f in floors]) / value.mean())
                if floors and floor is not None
                else np.nan,
            }


def bootstrap_methods(
    hits: npt.NDArray[np.int64], bios: npt.NDArray[np.int64], n_replicates: int, seed: int
) -> dict[str, dict[str, Bounds]]:
    """Compute the intervals that resampling gives for every simulated test set."""
    rng = np.random.default_rng(seed)
    scored = np.ones(hits.shape[-1], dtype=bool)
    found: dict[str, dict[str, list[tuple[float, float]]]] = {"gap_rms": {}, "gap_abs": {}}

    def add(metric: str, method: str, low: float, high: float) -> None:
        found[metric].setdefault(method, []).append((max(low, 0.0), max(high, 0.0)))

    def root(value: float) -> float:
        return float(np.sqrt(max(value, 0.0)))

    for one in hits:
        drawn = rng.binomial(bios, one / bios, (n_replicates, *bios.shape))
        gap = metrics.rate_gap(drawn, np.broadcast_to(bios, drawn.shape))
        own_gap = metrics.rate_gap(one, bios)
        own_noise = metrics.gap_variance(one, bios).mean()
        noise = metrics.gap_variance(drawn, np.broadcast_to(bios, drawn.shape)).mean(axis=-1)
        for metric, formula in (("gap_rms", metrics.gap_rms), ("gap_abs", metrics.gap_abs)):
            value, values = float(formula(own_gap, scored)), formula(gap, scored)
            low, high = np.quantile(values, [0.025, 0.975])
            add(metric, "percentile", low, high)
            add(metric, "basic", 2 * value - high, 2 * value - low)
            below = np.clip((values < value).mean(), 1e-4, 1 - 1e-4)
            shift = 2 * special.ndtri(below) + np.array([-Z, Z])
            add(metric, "bias-corrected", *np.quantile(values, special.ndtr(shift)))
        square, squares = float(np.mean(own_gap**2)), np.mean(gap**2, axis=-1)
        low, high = np.quantile(squares - noise - own_noise, [0.025, 0.975])
        add("gap_rms", "double correction", root(low), root(high))
        low, high = np.quantile(squares - noise - square, [0.025, 0.975])
        debiased = square - own_noise
        add("gap_rms", "reverse, debiased square", root(debiased - high), root(debiased - low))
    return {
        metric: {name: tuple(np.array(bounds).T) for name, bounds in methods.items()}
        for metric, methods in found.items()
    }


def methods_part(
    sizes: dict[str, npt.NDArray[np.int64]], sets: int, seed: int, n_replicates: int
) -> Iterator[Row]:
    for p in populations(sizes, ("normal",)):
        hits = p.draw(sets, seed)
        found = bootstrap_methods(hits, p.bios, n_replicates, seed)
        used = GapIntervals.of(independent_differences(hits, p.bios))
        found["gap_rms"]["inverted test (in use)"] = used.rms
        found["gap_abs"]["inverted test (in use)"] = used.abs
        for metric, truth in (("gap_rms", p.rms), ("gap_abs", p.absolute)):
            for method, bounds in found[metric].items():
                yield {
                    "cells": p.cells,
                    "true RMS": p.gap,
                    "metric": metric,
                    "method": method,
                    **result(bounds, truth),
                }


def draw_changes(
    rng: np.random.Generator, sets: int, n: int, *, large: float
) -> npt.NDArray[np.float64]:
    """Draw changes of a probability under the swap: 3 % none, some large, the rest small."""
    change = rng.laplace(0, 0.03, (sets, n))
    change = np.where(rng.random((sets, n)) < large, rng.uniform(0.2, 0.9, (sets, n)), change)
    return np.where(rng.random((sets, n)) < 0.03, 0.0, change)


def mean_ctf(large: float) -> float:
    big = (0.9**3 - 0.2**3) / 3 / 0.7
    return 0.97 * (large * big + (1 - large) * 2 * 0.03**2) / 4


def means_part(sizes: dict[str, npt.NDArray[np.int64]], sets: int, seed: int) -> Iterator[Row]:
    for cells, bios in sizes.items():
        n = int(bios.sum())
        rng = np.random.default_rng(seed)
        for top in (0.95, 0.995):
            rates = np.linspace(0.5 if top < 0.99 else 0.9, top, bios.shape[1])
            per_occupation = bios.sum(axis=0)
            hits = rng.binomial(per_occupation, rates, (sets, bios.shape[1]))
            share = hits / per_occupation
            estimate, truth = share.mean(axis=1), float(rates.mean())
            error = np.sqrt((share * (1 - share) / per_occupation).sum(axis=1)) / bios.shape[1]
            low, high = wilson_interval(hits, per_occupation)
            below = np.sqrt(((share - low) ** 2).mean(axis=1) / bios.shape[1])
            above = np.sqrt(((high - share) ** 2).mean(axis=1) / bios.shape[1])
            for method, bounds in {
                "normal": (estimate - Z * error, estimate + Z * error),
                "recovered from Wilson's": (estimate - below, estimate + above),
                "effective Wilson (in use)": mean_share_interval(
                    hits, np.broadcast_to(per_occupation, hits.shape)
                ),
            }.items():
                yield {
                    "cells": cells,
                    "setting": f"recall up to {top}",
                    "metric": "balanced_accuracy",
                    "method": method,
                    **result(bounds, truth),
                }
        for flips in (0.08, 0.01):
            same = rng.binomial(n, 1 - flips, sets)
            share = same / n
            error = np.sqrt(share * (1 - share) / n)
            for method, bounds in {
                "normal": (share - Z * error, share + Z * error),
                "Wilson (in use)": wilson_interval(same, n),
            }.items():
                yield {
                    "cells": cells,
                    "setting": f"{flips:.0%} flips",
                    "metric": "prediction_consistency",
                    "method": method,
                    **result(bounds, 1 - flips),
                }
        for large in (0.08, 0.02):
            mean, square = np.empty(sets), np.empty(sets)
            step = max(1, 2_000_000 // n)
            for start in range(0, sets, step):
                rows = slice(start, min(start + step, sets))
                change = draw_changes(rng, rows.stop - rows.start, n, large=large)
                values = np.square(np.clip(change, -1, 1) / 2)
                mean[rows], square[rows] = values.mean(axis=1), np.square(values).mean(axis=1)
            error = np.sqrt((square - mean**2) / (n - 1))
            factor = np.exp(Z * error / mean)
            for method, bounds in {
                "normal": (mean - Z * error, mean + Z * error),
                "log-normal": (mean / factor, mean * factor),
                "Fay–Feuer (in use)": fay_feuer_interval(n, mean, square, largest=0.25),
            }.items():
                yield {
                    "cells": cells,
                    "setting": f"{large:.0%} large changes",
                    "metric": "ctf",
                    "method": method,
                    **result(bounds, mean_ctf(large)),
                }


def draw_both(
    rng: np.random.Generator,
    bios: npt.NDArray[np.int64],
    a: FloatArray,
    b: FloatArray,
    both: FloatArray,
    sets: int,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    cells = np.stack([both, a - both, b - both, 1 - a - b + both], axis=-1)
    cells = np.clip(cells, 0, 1)
    cells /= cells.sum(axis=-1, keepdims=True)
    drawn = rng.multinomial(np.broadcast_to(bios, (sets, *bios.shape)), cells)
    return drawn[..., 0] + drawn[..., 1], drawn[..., 0] + drawn[..., 2], drawn[..., 0]


def paired_part(sizes: dict[str, npt.NDArray[np.int64]], sets: int, seed: int) -> Iterator[Row]:
    """Two models whose hits agree more than by chance: coverage, and what passes a margin.

    ``passes at the margin`` is how often b is found no worse than by the difference that there is,
    at a confidence of 95 % (nominal 5 %), ``passes .02`` how often no worse than by .02.
    """
    patterns = {
        "none, none": (0.0, 0.0, False),
        "none, 0.02": (0.0, 0.02, False),
        "none, 0.1": (0.0, 0.1, False),
        "0.1, 0.1": (0.1, 0.1, False),
        "0.1, 0.12": (0.1, 0.12, False),
        "0.1, 0.12 elsewhere": (0.1, 0.12, True),
        "0.1, 0.05": (0.1, 0.05, False),
    }
    for cells, bios in sizes.items():
        for pattern, (of_a, of_b, elsewhere) in patterns.items():
            for agreement in (0.5, 0.9):
                models = [
                    population(cells, bios, of_a, "normal", seed=1),
                    population(cells, bios, of_b, "normal", seed=1),
                ]
                a, b = (model.rates for model in models)
                if elsewhere:
                    middle = b.mean(axis=0)
                    half = (b[0] - b[1])[::-1] / 2
                    middle = np.clip(middle, np.abs(half) + 0.01, 0.99 - np.abs(half))
                    b = np.stack([middle + half, middle - half])
                both = a * b + agreement * (np.minimum(a, b) - a * b)
                rng = np.random.default_rng(seed)
                hits_a, hits_b, common = draw_both(rng, bios, a, b, both, sets)
                gaps = PairedGaps.from_hits(hits_a, hits_b, common, bios)
                back = gaps.reversed()
                truths = models[1].rms - models[0].rms, models[1].absolute - models[0].absolute
                for metric, rise, fall, truth in (
                    ("gap_rms", gaps.rms_rise, back.rms_rise, truths[0]),
                    ("gap_abs", gaps.abs_rise, back.abs_rise, truths[1]),
                ):
                    passing = rise(0.05)
                    yield {
                        "cells": cells,
                        "RMS gap of a, b": pattern,
                        "agreement": agreement,
                        "metric": metric,
                        **result((-fall(0.025), rise(0.025)), truth),
                        "passes at the margin": float((passing <= truth - 1e-12).mean()),
                        "passes .02": float((passing <= 0.02).mean()),
                    }
        yield from paired_means(cells, int(bios.sum()), sets, seed)


def paired_means(cells: str, n: int, sets: int, seed: int) -> Iterator[Row]:
    """Differences of prediction consistency and of CTF of two models that agree in part."""
    rng = np.random.default_rng(seed)
    for agreement in (0.5, 0.9):
        flips = np.array([0.06, 0.04])
        both = flips.prod() + agreement * (flips.min() - flips.prod())
        drawn = rng.multinomial(
            n, [both, flips[0] - both, flips[1] - both, 1 - flips.sum() + both], size=sets
        )
        changed = drawn[:, 0] + drawn[:, 1], drawn[:, 0] + drawn[:, 2]
        share = [c / n for c in changed]
        cross = drawn[:, 0] / n - share[0] * share[1]
        rho = cross / np.sqrt(share[0] * (1 - share[0]) * share[1] * (1 - share[1]))
        estimates = [
            (1 - s, *wilson_interval(n - c, n)) for s, c in zip(share, changed, strict=True)
        ]
        yield {
            "cells": cells,
            "RMS gap of a, b": "",
            "agreement": agreement,
            "metric": "prediction_consistency",
            **result(paired_interval(*estimates, rho), float(flips[0] - flips[1])),
        }
        moments = np.empty((sets, 5))
        step = max(1, 2_000_000 // n)
        for start in range(0, sets, step):
            rows = slice(start, min(start + step, sets))
            count = rows.stop - rows.start
            first = draw_changes(rng, count, n, large=0.06)
            kept = rng.random((count, n)) < agreement
            second = np.where(kept, first, draw_changes(rng, count, n, large=0.03))
            a, b = (np.square(np.clip(x, -1, 1) / 2) for x in (first, second))
            moments[rows] = np.stack([x.mean(axis=1) for x in (a, a * a, b, b * b, a * b)], axis=1)
        mean_a, square_a, mean_b, square_b, product = moments.T
        rho = (product - mean_a * mean_b) / np.sqrt((square_a - mean_a**2) * (square_b - mean_b**2))
        estimates = [
            (m, *fay_feuer_interval(n, m, s, largest=0.25))
            for m, s in ((mean_a, square_a), (mean_b, square_b))
        ]
        truth = (1 - agreement) * (mean_ctf(0.03) - mean_ctf(0.06))
        yield {
            "cells": cells,
            "RMS gap of a, b": "",
            "agreement": agreement,
            "metric": "ctf",
            **result(paired_interval(*estimates, rho), truth),
        }


def draw_variants(
    rng: np.random.Generator, bios: npt.NDArray[np.int64], shares: FloatArray, sets: int
) -> Variants:
    """Test sets in which a bio, its copy, both or neither are recognized with these shares."""
    drawn = rng.multinomial(np.broadcast_to(bios, (sets, *bios.shape)), shares)
    both, own, copy = drawn[..., 0], drawn[..., 1], drawn[..., 2]
    return Variants(np.broadcast_to(bios, both.shape), both + own, both + copy, both)


def parts_part(sizes: dict[str, npt.NDArray[np.int64]], sets: int, seed: int) -> Iterator[Row]:
    """Cover the part of the gap that the words cause, and the rest.

    TPRs from .5 to .9 (mean of both variants), of which ``flips`` in both directions go with the
    swap without regard to gender. One part has the size and spread of the row, the other is 0.1,
    spread normally, or 0.
    """
    for cells, bios in sizes.items():
        k = bios.shape[1]
        for part, size, spread, other, flips in itertools.product(
            PARTS, GAPS, ("normal", "one occupation"), (0.0, 0.1), (0.002, 0.03)
        ):
            if (not size and spread != "normal") or (part == "words" and not other):
                continue
            signed = population(cells, bios, size, spread, seed=1).gaps
            across = population(cells, bios, other, "normal", seed=2).gaps
            words, rest = (signed, across) if part == "words" else (across, signed)
            middle = np.random.default_rng(seed).permutation(np.linspace(0.5, 0.9, k))
            half = np.abs(rest) / 2 + np.abs(words) / 2 + flips + 0.01
            middle = np.clip(middle, half, 1 - half)
            mean = np.stack([middle + rest / 2, middle - rest / 2])
            change = np.stack([words, -words])
            own, copy = flips + np.maximum(change, 0), flips + np.maximum(-change, 0)
            both = mean - (own + copy) / 2
            shares = np.stack([both, own, copy, 1 - both - own - copy], axis=-1)
            drawn = draw_variants(np.random.default_rng(seed), bios, shares, sets)
            methods = {
                "in use": GapIntervals.of(part_differences(drawn, part)),
                "own variances": GapIntervals.of(by_own_variances(drawn, part)),
            }
            truths = float(np.sqrt(np.mean(signed**2))), float(np.mean(np.abs(signed)))
            estimate = np.sqrt(np.mean(part_gap(drawn, part) ** 2, axis=-1))
            floors = [
                part_rms_noise_floor(
                    Variants(*(x[i] for x in (drawn.cells, drawn.own, drawn.swapped, drawn.both))),
                    part,
                    np.ones(k, dtype=bool),
                )
                for i in range(40 if size == 0 else 0)
            ]
            for (method, found), (name, truth) in itertools.product(
                methods.items(), zip(("rms", "abs"), truths, strict=True)
            ):
                yield {
                    "cells": cells,
                    "metric": f"gap_{name}_{part}",
                    "true RMS": size,
                    "spread": spread if size else "none",
                    "other part": other,
                    "flips": flips,
                    "method": method,
                    **result(getattr(found, name), truth),
                    "floor / simulated": float(np.mean(floors) / estimate.mean())
                    if floors and name == "rms"
                    else np.nan,
                }


def by_own_variances(variants: Variants, part: Part) -> Differences:
    """Take the variance of each cell from itself alone, and normal intervals."""
    sums, squares = part_moments(variants, part)
    n = variants.cells
    variance = ((squares / n - np.square(sums / n)) / 4 / (n - 1)).sum(axis=-2)
    gap, half = part_gap(variants, part), Z * np.sqrt(variance)
    return Differences(gap, variance, gap - half, gap + half, (1 / n).sum(axis=-2), 0.95)


def drawn_bios(rng: np.random.Generator, k: int, low: int, high: int) -> npt.NDArray[np.int64]:
    """Cell sizes between two numbers, spread evenly over their logarithms."""
    return np.rint(low * (high / low) ** rng.random((2, k))).astype(np.int64)


def wide_grid(seed: int) -> Iterator[tuple[dict[str, Any], npt.NDArray[np.int64], FloatArray, int]]:
    """Yield settings off the usual grid: what they are, cell sizes, rates, and least drawn cell.

    Occupations 1 to 100; cells 2 to 5,000, even, uneven and even but for a few small ones; TPRs .02
    to .998; gaps 0 to 1 in all occupations, in half of them, in one, in the smallest cells or in
    the largest. A least drawn cell above 0 says that the sizes are those of drawn data, and which
    occupations are then scored. In random order, so that the first ones stand for all.
    """
    every = list(_settings(seed))
    for place in np.random.default_rng(seed).permutation(len(every)):
        yield every[place]


def _settings(
    seed: int,
) -> Iterator[tuple[dict[str, Any], npt.NDArray[np.int64], FloatArray, int]]:
    rng = np.random.default_rng(seed)
    for k in (1, 2, 3, 5, 10, 28, 100):
        cells = {f"{n} each": np.full((2, k), n) for n in (2, 3, 5, 10, 30, 100, 1000)}
        cells["5 to 5,000"] = drawn_bios(rng, k, 5, 5000)
        cells["2 to 100"] = drawn_bios(rng, k, 2, 100)
        if k > 2:
            for small in (2, 5, 10):
                cells[f"5,000, {small} women in one"] = np.full((2, k), 5000)
                cells[f"5,000, {small} women in one"][1, 0] = small
            cells["5,000, 10 women in half"] = np.full((2, k), 5000)
            cells["5,000, 10 women in half"][1, : k // 2] = 10
        for name, bios in cells.items():
            for rate in (0.02, 0.3, 0.8, 0.98, 0.998):
                for where in ("nowhere", "all", "half", "one", "smallest", "largest"):
                    if where in ("half", "one", "largest", "smallest") and k == 1:
                        continue
                    # A third of all combinations, and each of them once.
                    if rng.random() > 0.34:
                        continue
                    gap = 0.0
                    if where != "nowhere":
                        gap = float(rng.choice([0.02, 0.1, 0.2, 0.5, 0.95]))
                    least = bios.min(axis=0)
                    chosen = np.zeros(k, dtype=bool)
                    if where == "all":
                        chosen[:] = True
                    elif where == "half":
                        chosen[rng.permutation(k)[: k // 2]] = True
                    elif where == "one":
                        chosen[rng.integers(k)] = True
                    elif where == "smallest":
                        chosen[least.argmin()] = True
                    elif where == "largest":
                        chosen[least.argmax()] = True
                    far = rate - gap if rate - gap >= 0.002 else min(rate + gap, 0.998)
                    lower = rng.integers(0, 2, k)
                    rates = np.full((2, k), rate)
                    rates[lower[chosen], np.flatnonzero(chosen)] = far
                    drawn = 0
                    if name in ("5 to 5,000", "2 to 100") and rng.random() < 0.5:
                        drawn = 5
                    what = {"K": k, "cells": name, "TPR": rate, "gap": gap, "in": where}
                    yield {**what, "sizes": "drawn" if drawn else "fixed"}, bios, rates, drawn


def wide_part(sets: int, seed: int) -> Iterator[Row]:
    """Coverage of the population's RMS and mean absolute gap on the wide grid."""
    for number, (what, bios, rates, drawn) in enumerate(wide_grid(seed)):
        rng = np.random.default_rng([seed, number])
        # Drawn sizes have occupations of their own in each set: one call a set.
        repeats = max(1, sets // 3) if drawn else sets
        sizes = np.broadcast_to(bios, (repeats, *bios.shape))
        if drawn:
            total = int(bios.sum())
            sizes = rng.multinomial(total, (bios / total).ravel(), repeats).reshape(sizes.shape)
        hits = rng.binomial(sizes, rates)
        gap = np.abs(rates[0] - rates[1])
        found: dict[str, list[tuple[float, float]]] = {"rms": [], "abs": []}
        if drawn:
            for h, n in zip(hits, sizes, strict=True):
                kept = (n >= drawn).all(axis=0)
                if not kept.any():
                    continue
                one = GapIntervals.of(independent_differences(h[:, kept], n[:, kept]))
                truths = np.sqrt(np.mean(gap[kept] ** 2)), np.mean(gap[kept])
                for (low, high), truth, name in zip((one.rms, one.abs), truths, found, strict=True):
                    held = low <= truth + 1e-12 and truth <= high + 1e-12
                    found[name].append((float(held), float(high - low)))
        else:
            every = GapIntervals.of(independent_differences(hits, sizes))
            truths = np.sqrt(np.mean(gap**2)), np.mean(gap)
            for (low, high), truth, name in zip((every.rms, every.abs), truths, found, strict=True):
                held = (low <= truth + 1e-12) & (truth <= high + 1e-12)
                found[name] = list(zip(held.astype(float), high - low, strict=True))
        figures = {name: np.array(values).mean(axis=0) for name, values in found.items() if values}
        yield {
            **what,
            "sets": repeats,
            "least cell": 5 if drawn else int(bios.min()),
            **{f"{n} coverage": 100 * value[0] for n, value in figures.items()},
            **{f"{n} width": value[1] for n, value in figures.items()},
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("occupations", type=Path)
    parser.add_argument("--sets", type=int, default=1000)
    parser.add_argument("--replicates", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="folder for one csv a part")
    names = ("gaps", "methods", "means", "paired", "parts", "wide")
    parser.add_argument("--part", action="append", choices=names)
    options = parser.parse_args()
    sizes = cell_sizes(options.occupations)
    parts: dict[str, Callable[[], Iterator[Row]]] = {
        "gaps": lambda: gaps_part(sizes, options.sets, options.seed),
        "methods": lambda: methods_part(sizes, options.sets, options.seed, options.replicates),
        "means": lambda: means_part(sizes, options.sets, options.seed),
        "paired": lambda: paired_part(sizes, options.sets, options.seed),
        "parts": lambda: parts_part(sizes, options.sets, options.seed),
        "wide": lambda: wide_part(options.sets, options.seed),
    }
    pd.set_option("display.width", 200, "display.max_rows", None, "display.max_columns", None)
    for name in options.part or names:
        start = time.perf_counter()
        table = pd.DataFrame(parts[name]())
        if options.out:
            options.out.mkdir(parents=True, exist_ok=True)
            table.to_csv(options.out / f"{name}.csv", index=False)
        print(f"\n{name}: {options.sets} test sets a row, {time.perf_counter() - start:.0f} s")
        print(table.round(4).to_string(index=False))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
