"""The network and its methods, on features whose sensitive direction is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from mlflow.exceptions import MlflowException

torch = pytest.importorskip("torch")
pytest.importorskip("inFairness")

from biasbios_mlflow.training.methods import METHODS, Settings  # noqa: E402
from biasbios_mlflow.training.network import Examples, _balanced_batches, fit_head  # noqa: E402

N, D, LABELS = 600, 12, 4


@pytest.fixture(scope="module")
def examples() -> Examples:
    """Occupation in four coordinates; gender along one direction, and correlated with it."""
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    occupations = rng.integers(0, LABELS, N)
    gender = np.where(rng.random(N) < 0.1 + 0.8 * (occupations % 2), 1.0, -1.0)
    features = rng.normal(0, 1, (N, D))
    features[np.arange(N), occupations] += 2.0
    swapped = features.copy()
    direction = np.ones(D) / np.sqrt(D)
    features += 1.5 * gender[:, None] * direction
    swapped -= 1.5 * gender[:, None] * direction
    return Examples(
        features=features.astype(np.float32),
        counterfactuals=swapped.astype(np.float32),
        occupations=occupations,
        n_labels=LABELS,
    )


def settings(method: str, **chosen: Any) -> Settings:
    """Quick settings, with a subspace as large as that of the examples."""
    quick: dict[str, Any] = {"width": 32, "steps": 80, "directions": 1, "learning_rate": 5e-3}
    quick |= {"auditor_steps": 5, "auditor_rate": 0.4}
    return Settings.of(method, {**quick, **chosen})


def probabilities(weights: dict[str, np.ndarray], features: np.ndarray) -> np.ndarray:
    """The network in plain numpy."""
    hidden = np.maximum(features @ weights["hidden.weight"].T + weights["hidden.bias"], 0)
    logits = hidden @ weights["output.weight"].T + weights["output.bias"]
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    return odds / odds.sum(axis=1, keepdims=True)


def fitted(examples: Examples, method: str, seed: int = 0, **chosen: Any) -> dict[str, np.ndarray]:
    return fit_head(examples, method=method, settings=settings(method, **chosen), seed=seed)


@pytest.fixture(scope="module")
def unfairness(examples: Examples) -> dict[str, tuple[float, float]]:
    """By method: accuracy, and how far the swap moves probabilities."""
    found = {}
    for method in METHODS:
        weights = fitted(examples, method)
        before = probabilities(weights, examples.features)
        after = probabilities(weights, examples.counterfactuals)
        accuracy = float((before.argmax(axis=1) == examples.occupations).mean())
        found[method] = accuracy, float(np.abs(before - after).max(axis=1).mean())
    return found


def test_baseline_uses_gender(unfairness: dict[str, tuple[float, float]]) -> None:
    assert unfairness["baseline"][0] > 0.8
    assert unfairness["baseline"][1] > 0.2


@pytest.mark.parametrize("method", [method for method in METHODS if method != "baseline"])
def test_every_method_makes_the_swap_matter_less(
    method: str, unfairness: dict[str, tuple[float, float]]
) -> None:
    accuracy, moved = unfairness[method]
    assert accuracy > 0.6
    assert moved < 0.6 * unfairness["baseline"][1]


def test_project_is_blind_to_the_sensitive_direction(examples: Examples) -> None:
    weights = fitted(examples, "project")
    before = probabilities(weights, examples.features)
    np.testing.assert_allclose(before, probabilities(weights, examples.counterfactuals), atol=1e-4)


def test_stronger_pairing_pulls_closer(examples: Examples) -> None:
    moved = []
    for pairing in (0.0, 0.1, 10.0):
        weights = fitted(examples, "clp", pairing=pairing)
        before = probabilities(weights, examples.features)
        moved.append(np.abs(before - probabilities(weights, examples.counterfactuals)).mean())
    assert moved[0] > moved[1] > moved[2]


def test_without_pairing_clp_is_the_baseline(examples: Examples) -> None:
    plain, paired = fitted(examples, "baseline"), fitted(examples, "clp", pairing=0.0)
    for name in plain:
        np.testing.assert_allclose(plain[name], paired[name], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("method", METHODS)
def test_same_seed_same_weights(examples: Examples, method: str) -> None:
    first, again = (fitted(examples, method, seed=3, steps=10) for _ in range(2))
    other = fitted(examples, method, seed=4, steps=10)
    for name in first:
        np.testing.assert_array_equal(first[name], again[name])
    assert (first["hidden.weight"] != other["hidden.weight"]).any()


def test_global_generators_stay_as_they_were(examples: Examples) -> None:
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002
    expected = torch.rand(3), np.random.random(3)  # noqa: NPY002
    torch.manual_seed(5)
    np.random.seed(5)  # noqa: NPY002
    fitted(examples, "sensei", steps=2)
    np.testing.assert_array_equal(torch.rand(3), expected[0])
    np.testing.assert_array_equal(np.random.random(3), expected[1])  # noqa: NPY002


def test_the_unit_of_features_does_not_matter(examples: Examples) -> None:
    shift = np.linspace(-50, 50, D)
    other = Examples(
        features=(examples.features * 100 + shift).astype(np.float32),
        counterfactuals=(examples.counterfactuals * 100 + shift).astype(np.float32),
        occupations=examples.occupations,
        n_labels=LABELS,
    )
    np.testing.assert_allclose(
        probabilities(fitted(other, "baseline"), other.features),
        probabilities(fitted(examples, "baseline"), examples.features),
        atol=1e-2,
    )


def test_a_feature_that_never_varies(examples: Examples) -> None:
    constant = np.full((N, 1), 3.0, dtype=np.float32)
    wider = Examples(
        features=np.hstack([examples.features, constant]),
        counterfactuals=np.hstack([examples.counterfactuals, constant]),
        occupations=examples.occupations,
        n_labels=LABELS,
    )
    for method in METHODS:
        weights = fitted(wider, method, steps=5)
        assert all(np.isfinite(array).all() for array in weights.values())
        assert np.abs(weights["hidden.weight"]).max() < 10


def test_batches_hold_equally_many_of_each_occupation_there_is() -> None:
    labels = torch.tensor([0] * 500 + [2] * 5 + [3])
    chosen = settings("baseline", steps=200, bios_per_occupation=4)
    seen = set()
    for rows in _balanced_batches(labels, chosen):
        assert torch.bincount(labels[rows], minlength=4).tolist() == [4, 0, 4, 4]
        seen |= set(rows.tolist())
    assert {500, 501, 502, 503, 504, 505} <= seen
    assert len(seen) > 300


def test_fewer_bios_than_directions(examples: Examples) -> None:
    tiny = Examples(
        examples.features[:6], examples.counterfactuals[:6], examples.occupations[:6], LABELS
    )
    for method in METHODS:
        weights = fitted(tiny, method, steps=3, directions=25)
        assert np.isfinite(probabilities(weights, tiny.features)).all()


def test_no_bio_with_anything_to_swap(examples: Examples) -> None:
    same = Examples(examples.features, examples.features, examples.occupations, LABELS)
    for method in ("project", "sensr", "sensei"):
        with pytest.raises(MlflowException, match="no bio that the swap changes"):
            fitted(same, method)
    fitted(same, "clp", steps=3)


def test_report_is_told_every_step(examples: Examples) -> None:
    told: list[tuple[int, float]] = []
    fit_head(
        examples,
        method="baseline",
        settings=settings("baseline", steps=30),
        seed=0,
        report=lambda step, loss: told.append((step, loss)),
    )
    assert [step for step, _ in told] == list(range(30))
    assert told[-1][1] < told[0][1]
