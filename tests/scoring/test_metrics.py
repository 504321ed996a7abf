"""The metrics equal scikit-learn's, fairlearn's and a slow plain version's."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from fairlearn.metrics import MetricFrame, false_positive_rate, true_positive_rate
from hypothesis import HealthCheck, given, settings
from scipy import stats
from sklearn.metrics import accuracy_score, precision_score, recall_score

from biasbios_mlflow.scoring import Counts, Outcomes, score, scores_from_counts
from biasbios_mlflow.scoring.metrics import (
    balanced_accuracy,
    gap_abs_noise_floor,
    gap_mean_square,
    gap_rms_debiased,
    gap_rms_noise_floor,
)
from biasbios_mlflow.scoring.scores import point_metrics
from tests.scoring.cases import rows
from tests.scoring.reference import Rows, reference_metrics

SLOW = settings(
    max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)


def outcomes_of(case: Rows) -> Outcomes:
    return Outcomes.from_labels(
        case.occupations,
        case.genders,
        case.predictions,
        case.counterfactual_predictions,
        probabilities=case.probabilities,
        counterfactual_probabilities=case.counterfactual_probabilities,
        changed=case.changed,
        labels=case.labels,
    )


@SLOW
@given(rows())
def test_every_metric_equals_a_plain_version_and_scikit_learn(case: Rows) -> None:
    counts = Counts.from_outcomes(outcomes_of(case))
    for min_cell in (1, 3):
        metrics, reasons = point_metrics(counts, min_cell=min_cell)
        expected = reference_metrics(case, min_cell)
        floors = {name for name in metrics if name.endswith("noise_floor")}
        assert set(metrics) - floors == set(expected)
        for name, value in expected.items():
            assert metrics[name] == pytest.approx(value, abs=1e-12), name
        assert all(math.isfinite(value) for value in metrics.values())
        assert not set(metrics) & set(reasons)
        assert all(reasons.values())
        present = sorted(set(case.occupations))
        recall = recall_score(
            case.occupations, case.predictions, labels=present, average="macro", zero_division=0
        )
        assert metrics["balanced_accuracy"] == pytest.approx(recall, abs=1e-12)


def test_balanced_accuracy_equals_scikit_learn() -> None:
    from sklearn.metrics import balanced_accuracy_score

    rng = np.random.default_rng(0)
    y, p, g = rng.integers(0, 5, (3, 400))
    counts = Counts.from_codes(
        genders=g % 2, occupations=y, predictions=p, labels=[str(k) for k in range(5)]
    )
    found = balanced_accuracy(counts.tables.hits, counts.tables.bios)
    assert float(found) == pytest.approx(balanced_accuracy_score(y, p), abs=1e-15)


@pytest.mark.parametrize("seed", range(25))
def test_gaps_equal_fairlearn(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, k = int(rng.integers(50, 400)), 4
    y, p = rng.integers(0, k, n), rng.integers(0, k, n)
    p = np.where(rng.random(n) < 0.6, y, p)
    genders = np.where(rng.random(n) < 0.4, "male", "female")
    scores = score(y, genders, p, min_cell=1)
    table = scores.occupations.set_index("occupation")
    for occupation in range(k):
        frame = MetricFrame(
            metrics={"tpr": true_positive_rate, "fpr": false_positive_rate},
            y_true=y == occupation,
            y_pred=p == occupation,
            sensitive_features=genders,
        )
        row = table.loc[str(occupation)]
        for gender in ("male", "female"):
            assert row[f"tpr_{gender}"] == pytest.approx(frame.by_group["tpr"][gender], abs=1e-12)
            assert row[f"fpr_{gender}"] == pytest.approx(frame.by_group["fpr"][gender], abs=1e-12)
        assert abs(scores.metrics[f"tpr_gap/{occupation}"]) == pytest.approx(
            frame.difference()["tpr"], abs=1e-12
        )
    # The same again with the occupation as fairlearn's control feature.
    frame = MetricFrame(
        metrics=accuracy_score,
        y_true=y,
        y_pred=p,
        sensitive_features=genders,
        control_features=pd.Series(y, name="occupation"),
    )
    gaps = frame.difference()
    assert scores.metrics["gap_abs"] == pytest.approx(gaps.mean(), abs=1e-12)
    assert scores.metrics["gap_rms"] == pytest.approx(np.sqrt((gaps**2).mean()), abs=1e-12)
    precision = precision_score(y, p, average=None, labels=range(k))
    assert table["precision"][[str(o) for o in range(k)]].to_numpy() == pytest.approx(precision)


def test_missing_gender_is_left_out_and_not_scored_as_a_gap() -> None:
    scores = score(
        ["poet", "poet", "dj"], ["male", "female", "male"], ["poet", "poet", "poet"], min_cell=1
    )
    assert scores.metrics["gap_rms"] == 0
    assert scores.metrics["occupations_excluded"] == 1
    assert "tpr_gap/dj" not in scores.metrics
    assert "1 bios of men and 0 of women" in scores.reasons["tpr_gap/dj"]


@pytest.mark.parametrize(
    ("cells", "rates"),
    [
        ([[1, 2], [1, 3]], [0.8, 0.6]),
        ([[3, 5], [2, 4]], [0.98, 0.5]),
        ([[4], [6]], [0.9]),
    ],
)
def test_noise_floors_are_exact_in_small_cells(cells: list[list[int]], rates: list[float]) -> None:
    n = np.array(cells)
    scored = np.ones(n.shape[1], dtype=bool)
    expected, floors = np.zeros(2), np.zeros(2)
    for flat in itertools.product(*(range(size + 1) for size in n.ravel())):
        hits = np.array(flat).reshape(n.shape)
        weight = float(np.prod(stats.binom.pmf(hits, n, rates)))
        gap = np.abs(hits[0] / n[0] - hits[1] / n[1])
        expected += weight * np.array([np.sqrt((gap**2).mean()), gap.mean()])
        floors += weight * np.array(
            [gap_rms_noise_floor(hits, n, scored), gap_abs_noise_floor(hits, n, scored)]
        )
    assert floors == pytest.approx(expected, rel=2e-3)
    assert floors[1] == pytest.approx(expected[1], rel=1e-9)


@pytest.mark.parametrize(("cell", "rate"), [(50, 0.98), (1000, 0.98), (20_000, 0.5)])
def test_noise_floors_of_many_occupations(cell: int, rate: float) -> None:
    n = np.full((2, 28), cell)
    scored = np.ones(28, dtype=bool)
    hits = np.random.default_rng(2).binomial(n, rate, (4000, *n.shape))
    gap = np.abs(hits[:, 0] - hits[:, 1]) / cell
    for floor, values in (
        (gap_rms_noise_floor, np.sqrt((gap**2).mean(axis=1))),
        (gap_abs_noise_floor, gap.mean(axis=1)),
    ):
        found = np.mean([floor(one, n, scored) for one in hits[:60]])
        assert found == pytest.approx(values.mean(), rel=0.02)


def test_noise_floor_of_a_perfect_model_is_zero() -> None:
    n, scored = np.full((2, 3), 20), np.ones(3, dtype=bool)
    assert gap_rms_noise_floor(n, n, scored) == 0
    assert gap_abs_noise_floor(n, n, scored) == 0


def test_mean_square_gap_is_unbiased() -> None:
    rng = np.random.default_rng(0)
    n, p = np.array([[6, 12], [9, 4]]), np.array([[0.9, 0.4], [0.6, 0.5]])
    hits = rng.binomial(n, p, (400_000, 2, 2))
    found = gap_mean_square(hits, np.broadcast_to(n, hits.shape), np.ones(2, dtype=bool))
    truth = np.mean((p[0] - p[1]) ** 2)
    assert found.mean() == pytest.approx(truth, abs=5 * found.std() / np.sqrt(len(found)))


def test_a_gap_that_chance_explains_exactly_leaves_nothing() -> None:
    left_by_rounding = 0
    for n, m in itertools.product(range(2, 12), repeat=2):
        bios = np.array([[n], [m]])
        for a, b in itertools.product(range(n + 1), range(m + 1)):
            p, q = Fraction(a, n), Fraction(b, m)
            exact = (p - q) ** 2 - p * (1 - p) / (n - 1) - q * (1 - q) / (m - 1)
            hits, scored = np.array([[a], [b]]), np.array([True])
            found = float(gap_rms_debiased(hits, bios, scored))
            assert found == pytest.approx(math.sqrt(max(exact, 0)), rel=1e-12, abs=0)
            left_by_rounding += exact == 0 and float(gap_mean_square(hits, bios, scored)) > 0
    assert left_by_rounding > 0


def test_intervals_leave_the_point_estimates_alone() -> None:
    rng = np.random.default_rng(3)
    counts = Counts.from_codes(
        genders=rng.integers(0, 2, 500),
        occupations=rng.integers(0, 3, 500),
        predictions=rng.integers(0, 3, 500),
        counterfactual_predictions=rng.integers(0, 3, 500),
        labels=["dj", "poet", "model"],
    )
    bare = scores_from_counts(counts, intervals=False).metrics
    for options in ({}, {"confidence": 0.5}, {"n_replicates": 100, "seed": 9}):
        full = scores_from_counts(counts, **options).metrics
        assert {k: v for k, v in full.items() if not k.endswith(("_ci_low", "_ci_high"))} == bare
