"""Intervals cover the population value, and agree with references where there are any."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from biasbios_mlflow.scoring import Counts, score, scores_from_counts
from biasbios_mlflow.scoring.scores import point_metrics
from biasbios_mlflow.scoring.uncertainty import (
    _mean_square_moments,
    gamma_interval,
    gap_intervals,
    mean_share_interval,
    replicates,
    wilson_interval,
)


def covered(low: np.ndarray, high: np.ndarray, truth: float) -> float:
    return float(((low <= truth) & (truth <= high)).mean())


@pytest.mark.parametrize(("hits", "n"), [(0, 1), (0, 30), (3, 7), (29, 30), (30, 30), (500, 1234)])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
def test_wilson_interval_equals_scipy(hits: int, n: int, confidence: float) -> None:
    expected = stats.binomtest(hits, n).proportion_ci(confidence, method="wilson")
    found = wilson_interval(hits, n, confidence)
    assert [float(bound) for bound in found] == pytest.approx(list(expected), abs=1e-12)


def test_mean_share_interval_of_one_share_is_close_to_wilson() -> None:
    found = mean_share_interval(np.array([80]), np.array([100]))
    assert np.ravel(found) == pytest.approx(np.ravel(wilson_interval(80, 100)), abs=0.003)


def test_mean_share_interval_of_perfect_shares_has_a_width() -> None:
    low, high = mean_share_interval(np.full(28, 30), np.full(28, 30))
    assert 0.98 < low < 0.999
    assert high == 1


def test_variance_of_the_mean_square_gap_is_exact() -> None:
    n, p = np.array([[5.0], [7.0]]), np.array([[0.8], [0.35]])
    support = [np.arange(6), np.arange(8)]
    values, weights = [], []
    for x, y in itertools.product(*support):
        rate = x / 5, y / 7
        noise = rate[0] * (1 - rate[0]) / 4 + rate[1] * (1 - rate[1]) / 6
        values.append((rate[0] - rate[1]) ** 2 - noise)
        weights.append(stats.binom.pmf(x, 5, 0.8) * stats.binom.pmf(y, 7, 0.35))
    mean = np.dot(weights, values)
    variance = np.dot(weights, np.square(values)) - mean**2
    found = _mean_square_moments(p, n)
    assert float(found[0]) == pytest.approx(mean, abs=1e-12)
    assert float(found[1]) == pytest.approx(variance, abs=1e-12)


@pytest.mark.parametrize("gap", [0.0, 0.05, 0.1])
@pytest.mark.parametrize("cell", [30, 300])
def test_gap_intervals_cover_the_population_value(gap: float, cell: int) -> None:
    rng = np.random.default_rng(11)
    k = 28
    signed = gap * rng.choice([-1, 1], k)
    base = rng.permutation(np.linspace(0.5, 0.92, k))
    n = np.full((2, k), cell)
    hits = rng.binomial(n, np.stack([base + signed / 2, base - signed / 2]), (600, 2, k))
    found = gap_intervals(hits, n, np.ones(k, dtype=bool))
    # Three standard errors below the 93 % that the docs promise.
    assert covered(*found.rms, gap) > 0.93 - 0.03
    assert covered(*found.abs, gap) > 0.93 - 0.03
    low, high = found.rms
    assert (low <= found.rms_centre).all()
    assert (found.rms_centre <= high).all()
    assert (high > 0).all()
    if gap and cell == 300:
        assert covered(*found.rms, gap) < 0.98
        assert (high - low).mean() < 0.04


@pytest.mark.parametrize("cell", [2, 5, 1])
def test_gap_intervals_exist_for_tiny_cells_and_perfect_models(cell: int) -> None:
    n = np.full((2, 3), cell)
    for hits in (n, 0 * n, np.array([[cell] * 3, [0] * 3])):
        found = gap_intervals(hits, n, np.ones(3, dtype=bool))
        for low, high in (found.rms, found.abs):
            assert 0 <= low <= high <= 1
            assert high > 0.05


def test_gap_interval_of_one_occupation_is_close_to_newcombe() -> None:
    scores = score([0] * 400, [0, 1] * 200, [0, 1] * 100 + [0] * 200)
    low, high = scores.intervals["tpr_gap/0"]
    assert scores.intervals["gap_rms"] == pytest.approx((low, high), abs=0.02)


def test_gamma_interval_covers_the_mean_of_skewed_values() -> None:
    rng = np.random.default_rng(0)
    large = rng.random((1500, 2000)) < 0.05
    change = np.where(large, rng.uniform(0.2, 0.9, large.shape), rng.normal(0, 0.03, large.shape))
    values = np.square(change / 2)
    truth = (0.05 * (0.9**3 - 0.2**3) / 3 / 0.7 + 0.95 * 0.03**2) / 4
    low, high = gamma_interval(
        2000, values.mean(axis=1), np.square(values).mean(axis=1), largest=0.25
    )
    assert 0.93 <= covered(low, high, truth) <= 0.97
    # Both tails are missed about equally often, unlike with a normal approximation.
    assert abs((high < truth).mean() - (low > truth).mean()) < 0.02


def test_gamma_interval_of_constant_values() -> None:
    low, high = gamma_interval(100, 0.0, 0.0, largest=0.25)
    assert low == 0
    assert high == pytest.approx(0.25 * (1 - 0.025**0.01))
    assert np.ravel(gamma_interval(100, 0.0625, 0.0625**2, largest=0.25)).tolist() == [0.0625] * 2


def bios(n: int, seed: int = 0) -> Counts:
    rng = np.random.default_rng(seed)
    y, g = rng.integers(0, 3, n), rng.integers(0, 2, n)
    p = np.where(rng.random(n) < 0.7 + 0.1 * g, y, rng.integers(0, 3, n))
    q = np.where(rng.random(n) < 0.9, p, rng.integers(0, 3, n))
    return Counts.from_codes(
        genders=g,
        occupations=y,
        predictions=p,
        counterfactual_predictions=q,
        changed=rng.random(n) < 0.8,
        labels=list("abc"),
    )


def test_replicates_have_the_distribution_of_resampled_bios() -> None:
    rng = np.random.default_rng(3)
    n = 250
    counts = bios(n)
    columns = {name: np.repeat(column, counts.bios) for name, column in counts.columns.items()}
    resampled: dict[str, list[float]] = {}
    for _ in range(1200):
        rows = rng.integers(0, n, n)
        again = Counts.from_codes(
            genders=columns["genders"][rows],
            occupations=columns["occupations"][rows],
            predictions=columns["predictions"][rows],
            counterfactual_predictions=columns["counterfactuals"][rows],
            changed=columns["changed"][rows] == 1,
            labels=list("abc"),
        )
        for name, value in point_metrics(again, min_cell=1)[0].items():
            resampled.setdefault(name, []).append(value)
    drawn = replicates(counts, n_replicates=5000, seed=1)
    drawn.update({f"tpr_gap/{label}": drawn["tpr_gap"][:, k] for k, label in enumerate("abc")})
    del drawn["tpr_gap"]
    for name, values in drawn.items():
        expected = np.array(resampled[name])
        error = expected.std() / np.sqrt(len(expected))
        assert values.mean() == pytest.approx(expected.mean(), abs=5 * error), name
        assert values.std() == pytest.approx(expected.std(), rel=0.12), name


def test_replicates_are_reproducible_by_seed() -> None:
    counts = bios(300)
    first, second, third = (
        replicates(counts, n_replicates=200, seed=seed)["gap_rms"] for seed in (5, 5, 6)
    )
    np.testing.assert_array_equal(first, second)
    assert (first != third).any()


def test_scores_use_the_replicate_options() -> None:
    scores = scores_from_counts(bios(300), n_replicates=150, seed=4)
    expected = replicates(scores.counts, n_replicates=150, seed=4)["accuracy"]
    np.testing.assert_array_equal(scores.replicates()["accuracy"], expected)


def test_every_metric_has_an_interval_that_holds_its_estimate() -> None:
    scores = scores_from_counts(bios(3000))
    without = {"bios", "occupations_scored", "occupations_excluded"}
    names = {
        name
        for name in scores.metrics
        if not name.endswith(("_ci_low", "_ci_high", "noise_floor")) and name not in without
    }
    assert set(scores.intervals) == names
    for name in names - {"gap_rms", "gap_abs", "fpr_gap_rms", "fpr_gap_abs"}:
        low, high = scores.intervals[name]
        assert low <= scores.metrics[name] <= high, name
    wider = scores_from_counts(bios(3000), confidence=0.99).intervals
    for name, (low, high) in scores.intervals.items():
        assert wider[name][0] <= low <= high <= wider[name][1], name
