"""CTF of shares of drawn answers: on average that of the probabilities behind them."""

from __future__ import annotations

import numpy as np
import pytest

from biasbios_mlflow.scoring import Counts, Outcomes, ctf_values
from biasbios_mlflow.scoring.scores import scores_from_counts

READINGS = ("ctf", "ctf_true_class", "ctf_all_classes")


@pytest.mark.parametrize("draws", [2, 4, 9])
@pytest.mark.parametrize("moved", [0.0, 0.2])
def test_unbiased(draws: int, moved: float) -> None:
    """The label is one draw more, as an evaluation takes it, so that it is drawn by chance too."""
    rng = np.random.default_rng(draws)
    n, times = 12, 4000
    before = rng.dirichlet([1, 0.7, 0.5], n)
    after = (1 - moved) * before + moved * rng.dirichlet([0.5, 1, 1], n)
    truth = rng.integers(0, 3, n)
    # All repetitions at once: the i-th of each n rows is one and the same bio.
    p, q, true = np.tile(before, (times, 1)), np.tile(after, (times, 1)), np.tile(truth, times)
    labels = (p.cumsum(axis=1) < rng.random(n * times)[:, None]).sum(axis=1)
    shares = [rng.multinomial(draws, each) / draws for each in (p, q)]
    values = ctf_values(*shares, labels, true, draws=draws)
    found = {name: values[name].reshape(times, n).mean(axis=1) for name in READINGS}
    plain = ctf_values(*shares, labels, true)["ctf"]
    squared = (after - before) ** 2 / 4
    expected = {
        "ctf": (before * squared).sum(axis=1).mean(),  # over the labels that may be drawn
        "ctf_true_class": squared[np.arange(n), truth].mean(),
        "ctf_all_classes": squared.sum(axis=1).mean(),
    }
    for name, value in expected.items():
        error = np.std(found[name]) / np.sqrt(times)
        assert abs(np.mean(found[name]) - value) < 4 * error, name
    assert plain.mean() > expected["ctf"] + 0.01


def test_the_same_draws_have_no_noise() -> None:
    shares = np.array([[0.5, 0.5], [0.5, 0.5]])
    values = ctf_values(
        shares, shares, np.zeros(2, int), np.zeros(2, int), draws=3, drawn_apart=np.array([0, 1])
    )
    assert values["ctf"].tolist() == [0, -0.0625]


def test_sums_of_values_below_0_are_exact() -> None:
    rng = np.random.default_rng(0)
    shares = [rng.multinomial(4, [0.6, 0.4], 50) / 4 for _ in range(2)]
    outcomes = Outcomes.from_codes(
        genders=rng.integers(0, 2, 50),
        occupations=rng.integers(0, 2, 50),
        predictions=np.zeros(50, int),
        counterfactual_predictions=np.zeros(50, int),
        probabilities=shares[0],
        counterfactual_probabilities=shares[1],
        changed=np.ones(50, bool),
        draws=4,
        labels=["nurse", "poet"],
    )
    assert outcomes.ctf is not None
    assert (outcomes.ctf[:, 0] < 0).any()
    counts = Counts.from_outcomes(outcomes)
    mean = outcomes.ctf[:, 0].mean()
    assert counts.ctf_moments("ctf")[1] == pytest.approx(mean, abs=1e-17)
    scores = scores_from_counts(counts)
    assert scores.metrics["ctf"] == max(0.0, counts.ctf_moments("ctf")[1])
    low, high = scores.intervals["ctf"]
    assert 0 <= low <= scores.metrics["ctf"] <= high <= 0.25
