"""Intervals of shares and means agree with references; replicates resample bios."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from biasbios_mlflow.scoring import Counts, scores_from_counts
from biasbios_mlflow.scoring.evidence import Evidence
from biasbios_mlflow.scoring.shares import (
    fay_feuer_interval,
    mean_share_interval,
    wilson_interval,
)
from biasbios_mlflow.scoring.specs import resampled_metrics
from biasbios_mlflow.scoring.uncertainty import replicates


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


@pytest.mark.parametrize("seen", [0, 1, 3])
def test_ctf_interval_of_rare_large_values_is_close_to_the_exact_one(seen: int) -> None:
    n, largest = 50, 0.25
    low, high = fay_feuer_interval(n, seen * largest / n, seen * largest**2 / n, largest=largest)
    exact = stats.binomtest(seen, n).proportion_ci(0.95, method="exact")
    assert float(high) == pytest.approx(largest * exact.high, rel=0.06)
    assert float(high) >= largest * exact.high
    assert float(low) == pytest.approx(largest * exact.low, rel=0.06)


def test_ctf_interval_as_fay_and_feuer_compute_it() -> None:
    values = np.array([0.25, 0.01, 0.0, 0.04, 0.1] * 8)
    y, v, w = values.mean(), np.square(values / 40).sum(), 0.25 / 40
    low, high = fay_feuer_interval(40, y, np.square(values).mean(), largest=0.25)
    assert float(low) == pytest.approx(v / (2 * y) * stats.chi2.ppf(0.025, 2 * y**2 / v))
    assert float(high) == pytest.approx(
        (v + w**2) / (2 * (y + w)) * stats.chi2.ppf(0.975, 2 * (y + w) ** 2 / (v + w**2))
    )


@pytest.mark.parametrize("large", [0.002, 0.01, 0.05, 0.5])
def test_ctf_interval_covers_the_mean_of_skewed_values(large: float) -> None:
    rng = np.random.default_rng(0)
    values = np.where(rng.random((2000, 400)) < large, 0.2, rng.exponential(0.0005, (2000, 400)))
    truth = large * 0.2 + (1 - large) * 0.0005
    low, high = fay_feuer_interval(
        400, values.mean(axis=1), np.square(values).mean(axis=1), largest=0.25
    )
    assert covered(low, high, truth) >= 0.94


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
        evidence = Evidence.of(again)
        for spec, value in resampled_metrics(evidence, evidence):
            for name, k in spec.names(list("abc")):
                resampled.setdefault(name, []).append(float(value if k is None else value[k]))
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
