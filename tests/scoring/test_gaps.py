"""Intervals of gap metrics: what was broken, what must hold of them, and that they cover."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from biasbios_mlflow.scoring import Counts, score, scores_from_counts
from biasbios_mlflow.scoring.gaps import (
    Differences,
    GapIntervals,
    independent_differences,
    mean_abs_bounds,
    rms_bounds,
)
from biasbios_mlflow.scoring.metrics import gap_rms_debiased
from biasbios_mlflow.scoring.shares import newcombe_interval
from biasbios_mlflow.scoring.uncertainty import deciding_cell

Bounds = dict[str, tuple[float, float]]


def bounds(hits: object, bios: object, confidence: float = 0.95) -> Bounds:
    found = GapIntervals.of(independent_differences(np.asarray(hits), np.asarray(bios), confidence))
    return {
        name: (float(low), float(high))
        for name, (low, high) in (("rms", found.rms), ("abs", found.abs))
    }


@pytest.mark.parametrize("size", [10, 100, 1000])
def test_equal_rates_do_not_shrink_the_upper_bound_to_nothing(size: int) -> None:
    for hits in (6 * size // 10, size, 0):
        even = bounds([[hits], [hits]], [[size], [size]])
        other = hits + 1 if hits < size else hits - 1
        odd = bounds([[other], [hits]], [[size], [size]])
        for name in even:
            assert even[name][1] > 0.6 * odd[name][1] > 0


def test_larger_cells_elsewhere_do_not_hide_a_small_one() -> None:
    highs = []
    for others in (50, 500, 5000):
        bios = np.full((2, 28), others)
        bios[1, 0] = 5
        hits = 8 * bios // 10
        highs.append(bounds(hits, bios)["rms"][1])
    # The small cell alone allows a gap of 0.4 or more, 0.075 in the root mean square.
    assert min(highs) > 0.06
    assert max(highs) < 1.5 * min(highs)


def test_one_bio_a_cell_is_not_debiased() -> None:
    ones = np.ones((2, 20), dtype=int)
    scored = np.ones(20, dtype=bool)
    assert np.isnan(gap_rms_debiased(np.stack([ones[0], 0 * ones[1]]), ones, scored))
    rng = np.random.default_rng(0)
    bios = np.array([[1, 30], [40, 30]])
    hits = rng.binomial(bios, [[0.9, 0.8], [0.6, 0.5]])
    both = gap_rms_debiased(hits, bios, scored[:2])
    assert both == gap_rms_debiased(hits[:, 1:], bios[:, 1:], scored[:1])
    scores = score([0] * 2, ["m", "f"], [0, 1], min_cell=1)
    assert "a single bio of one gender" in scores.reasons["gap_rms_debiased"]
    assert scores.intervals["gap_rms"][1] == 1


@settings(deadline=None, max_examples=15)
@given(st.integers(1, 60), st.integers(1, 60), st.data())
def test_one_occupation_has_newcombes_interval(men: int, women: int, data: st.DataObject) -> None:
    hits = [data.draw(st.integers(0, men)), data.draw(st.integers(0, women))]
    low, high = map(float, newcombe_interval(hits, [men, women]))
    expected = max(0.0, low, -high), min(1.0, max(abs(low), abs(high)))
    found = bounds([[hits[0]], [hits[1]]], [[men], [women]])
    assert found["rms"] == found["abs"] == pytest.approx(expected)


@st.composite
def tables(draw: st.DrawFn, most: int = 6) -> tuple[np.ndarray, np.ndarray]:
    """Hits and bios of a few occupations, cells from 2 to 5,000, often at the edges."""
    k = draw(st.integers(1, most))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    bios = np.rint(2 * 2500 ** rng.random((2, k))).astype(int)
    if draw(st.booleans()):
        bios[:] = bios[0, 0]
    rates = rng.choice([0.02, 0.5, 0.8, 0.98, 1.0], (2, k))
    if draw(st.booleans()):
        rates[1] = rates[0]
    return rng.binomial(bios, rates), bios


@settings(deadline=None, max_examples=15)
@given(tables(), st.randoms(use_true_random=False))
def test_bounds_are_symmetric_ordered_and_nested(case: tuple, random: object) -> None:
    hits, bios = case
    found = bounds(hits, bios)
    order = list(range(hits.shape[1]))
    random.shuffle(order)  # type: ignore[attr-defined]
    for other in (
        bounds(hits[::-1], bios[::-1]),
        bounds(hits[:, order], bios[:, order]),
        bounds(bios - hits, bios),
    ):
        for name, pair in found.items():
            assert other[name] == pytest.approx(pair, abs=1e-6)
    wider = bounds(hits, bios, 0.99)
    narrower = bounds(hits, bios, 0.8)
    for name, (low, high) in found.items():
        assert 0 <= wider[name][0] - 1e-9 + 1e-9 <= low + 1e-6
        assert low <= narrower[name][0] + 1e-6
        assert narrower[name][1] <= high + 1e-6 <= wider[name][1] + 2e-6 <= 1 + 2e-6
        assert low <= high
        assert high > 0


@settings(deadline=None, max_examples=15)
@given(tables(), st.data())
def test_no_single_bio_moves_a_bound_by_more_than_its_weight(
    case: tuple, data: st.DataObject
) -> None:
    hits, bios = case
    k = data.draw(st.integers(0, hits.shape[1] - 1))
    gender = data.draw(st.integers(0, 1))
    more = hits.copy()
    more[gender, k] += 1 if hits[gender, k] < bios[gender, k] else -1
    before, after = bounds(hits, bios), bounds(more, bios)
    # One bio moves its TPR by 1/n, and the standard error by a few of these at the edge.
    step = 4 / bios[gender, k]
    for name in before:
        scale = np.sqrt(hits.shape[1]) if name == "rms" else hits.shape[1]
        for old, new in zip(before[name], after[name], strict=True):
            if name == "rms":  # a root: near 0 it is its square that moves little
                assert abs(new - old) <= 2 * step / scale or (
                    abs(new**2 - old**2) <= 2 * step * (new + old + step) / scale
                )
            else:
                assert abs(new - old) <= 4 * step / scale + 1e-6


@settings(deadline=None, max_examples=15)
@given(tables(), st.data())
def test_bounds_grow_with_the_gap_of_one_occupation(case: tuple, data: st.DataObject) -> None:
    """The gap moves, its standard error and all else stay."""
    found = independent_differences(*case)
    k = data.draw(st.integers(0, case[0].shape[1] - 1))
    sign = 1 if found.estimate[k] >= 0 else -1
    by = data.draw(st.floats(0.001, 0.2))
    if abs(found.estimate[k]) + by > 1:
        return

    def moved(values: np.ndarray) -> np.ndarray:
        copy = values.copy()
        copy[k] += sign * by
        return copy

    larger = Differences(
        moved(found.estimate),
        found.variance,
        moved(found.low),
        moved(found.high),
        found.sampling,
        found.confidence,
    )
    for formula in (rms_bounds, mean_abs_bounds):
        for old, new in zip(formula(found, 0.025), formula(larger, 0.025), strict=True):
            assert new >= old - 1e-6


@pytest.mark.parametrize("k", [1, 28, 100])
def test_the_distribution_is_exact_for_equal_standard_errors(k: int) -> None:
    """Both bounds from scipy's noncentral chi-square."""
    rng = np.random.default_rng(k)
    error, truth = 0.05, np.linspace(0, 0.2, k)
    for _ in range(5):
        d = truth + error * rng.standard_normal(k)
        half = np.full(k, 1.959963984540054 * error)
        found = Differences(d, np.full(k, error**2), d - half, d + half, np.ones(k), 0.95)
        low, high = rms_bounds(found, 0.02)
        observed = np.square(d / error).sum()
        for bound, probability in ((low, 0.98), (high, 0.02)):
            if bound > 0 and stats.chi2.cdf(observed, k) > 0.2:
                noncentrality = k * float(bound) ** 2 / error**2
                assert stats.ncx2.cdf(observed, k, noncentrality) == pytest.approx(
                    probability, abs=1.5e-3
                )


SETTINGS = {
    "one occupation with a single woman": ([1, *[5000] * 27], 5000, 0.8, 0.8, 0),
    "one with ten women": ([10, *[5000] * 27], 5000, 0.98, 0.78, 1),
    "three with five women": ([5, 5, 5, *[5000] * 25], 5000, 0.8, 0.6, 3),
    "all alike near 1": ([50] * 28, 50, 0.995, 0.975, 28),
    "a hundred alike": ([20] * 100, 20, 0.995, 0.975, 100),
    "small cells": ([5] * 28, 5, 0.8, 0.6, 28),
    "no gap": ([30] * 28, 30, 0.8, 0.8, 0),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_intervals_cover_where_others_failed(name: str) -> None:
    women, men, rate, lower, gaps = SETTINGS[name]
    bios = np.stack([np.full(len(women), men), women])
    rates = np.full(bios.shape, rate)
    rates[1, :gaps] = lower
    hits = np.random.default_rng(1).binomial(bios, rates, (400, *bios.shape))
    found = GapIntervals.of(independent_differences(hits, bios))
    gap = rates[0] - rates[1]
    for (low, high), truth in (
        (found.rms, np.sqrt(np.mean(gap**2))),
        (found.abs, np.mean(gap)),
    ):
        # A single bio says too little of its TPR for the mean absolute gap.
        least = 0.85 if women[0] == 1 else 0.92
        assert ((low <= truth + 1e-12) & (truth <= high + 1e-12)).mean() >= least


def test_a_cell_that_decides_is_told() -> None:
    rows = [
        (occupation, gender, occupation if i % 5 else "dj")
        for occupation, sizes in [
            ("surgeon", (300, 7)),
            ("poet", (300, 300)),
            ("nurse", (300, 400)),
        ]
        for gender, size in zip(["male", "female"], sizes, strict=True)
        for i in range(size)
    ]
    occupations, genders, predictions = zip(*rows, strict=True)
    scores = score(occupations, genders, predictions)
    [warning] = scores.warnings
    assert "surgeon, 7 women: " in warning
    assert warning in " ".join(str(scores).split())
    assert scores.to_dict()["warnings"] == [warning]
    assert scores_from_counts(scores.counts, min_cell=10).warnings == ()


def test_even_cells_have_none_that_decides() -> None:
    rng = np.random.default_rng(0)
    y, g = rng.integers(0, 10, 4000), rng.integers(0, 2, 4000)
    p = np.where(rng.random(4000) < 0.8, y, 10)
    counts = Counts.from_codes(
        genders=g, occupations=y, predictions=p, labels=[str(k) for k in range(10)]
    )
    assert deciding_cell(counts) is None


def test_every_bio_twice_has_the_interval_of_every_bio_once() -> None:
    rng = np.random.default_rng(0)
    n = 600
    y, g = rng.integers(0, 3, n), rng.integers(0, 2, n)
    p = np.where(rng.random(n) < 0.8, y, 3)
    probabilities = rng.dirichlet(np.ones(4), n)
    once = score(y, g, p, labels=range(4))
    twice = [np.tile(values, 2) for values in (y, g, p)]
    texts = np.tile(np.arange(n), 2)
    told = score(*twice, labels=range(4), clusters=texts)
    assert told.metrics["gap_rms"] == once.metrics["gap_rms"]
    for name, pair in once.intervals.items():
        assert told.intervals[name] == pytest.approx(pair, abs=1e-6), name
    assert any("variances are those of 600" in said for said in told.warnings)
    silent = score(
        *twice,
        twice[2],
        labels=range(4),
        probabilities=np.tile(probabilities, (2, 1)),
        counterfactual_probabilities=np.tile(probabilities, (2, 1)),
    )
    assert any("600 of 1200 bios have occupation" in said for said in silent.warnings)
    assert silent.intervals["accuracy"] != once.intervals["accuracy"]
