"""The network and its methods, on features whose sensitive direction is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from mlflow.exceptions import MlflowException
from sklearn.linear_model import LogisticRegression

torch = pytest.importorskip("torch")
pytest.importorskip("inFairness")

from biasbios_mlflow.training.auditing import Auditor  # noqa: E402
from biasbios_mlflow.training.methods import METHODS, Settings  # noqa: E402
from biasbios_mlflow.training.network import (  # noqa: E402
    Examples,
    _balanced_batches,
    _seen,
    fit_head,
)
from biasbios_mlflow.training.weights import balanced_weights  # noqa: E402

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
        genders=(gender < 0).astype(np.int8),
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


@pytest.mark.parametrize("method", [name for name, known in METHODS.items() if known.acts_on])
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
        genders=examples.genders,
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
        genders=examples.genders,
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
        *(part[:6] for part in (examples.features, examples.counterfactuals)),
        *(part[:6] for part in (examples.occupations, examples.genders)),
        LABELS,
    )
    for method in METHODS:
        weights = fitted(tiny, method, steps=3, directions=8)
        assert np.isfinite(probabilities(weights, tiny.features)).all()


def test_no_bio_with_anything_to_swap(examples: Examples) -> None:
    same = replace(examples, counterfactuals=examples.features)
    for method in ("project", "sensr", "sensei"):
        with pytest.raises(MlflowException, match="no bio that the swap changes"):
            fitted(same, method)
    fitted(same, "clp", steps=3)


@pytest.mark.parametrize("method", METHODS)
def test_report_is_told_every_step(method: str, examples: Examples) -> None:
    told = steps_of(examples, method, steps=30)
    losses = [step["loss"] for step in told]
    assert np.mean(losses[-8:]) < np.mean(losses[:8])
    figures = {"loss"}
    if method in ("sensr", "sensei"):
        figures |= {"auditor_distance", "auditor_multiplier"}
    assert all(set(step) == figures for step in told)


def steps_of(examples: Examples, method: str, **chosen: Any) -> list[dict[str, float]]:
    """What is reported of each step, in order."""
    told: list[dict[str, float]] = []

    def report(step: int, figures: Mapping[str, float]) -> None:
        assert step == len(told)
        told.append(dict(figures))

    wanted = settings(method, **chosen)
    fit_head(examples, method=method, settings=wanted, seed=0, report=report)
    assert len(told) == wanted.steps
    return told


@pytest.fixture(scope="module", params=[384, 768])
def wide(request: pytest.FixtureRequest) -> tuple[Examples, Examples]:
    """Features as wide as those of encoders, gender in eight directions: to learn, to measure."""
    width, n, labels = request.param, 900, 10
    rng = np.random.default_rng(0)
    occupations = rng.integers(0, labels, n)
    genders = (rng.random(n) < 0.2 + 0.6 * (occupations % 2)).astype(np.int8)
    features = rng.normal(0, 1, (n, width)) + 0.35 * rng.normal(0, 1, (labels, width))[occupations]
    directions = 3 * rng.normal(0, 1, (8, width)) / np.sqrt(width)
    moves = (2.0 * genders - 1)[:, None] * (np.abs(rng.normal(1, 0.3, (n, 8))) @ directions)
    whole = (features - moves).astype(np.float32), (features + moves).astype(np.float32)
    parts = (slice(0, 600), slice(600, None))
    return tuple(
        Examples(*(each[part] for each in (*whole, occupations, genders)), labels) for part in parts
    )


@pytest.mark.parametrize("method", ["sensr", "sensei"])
def test_the_auditor_stays_within_eps(method: str, wide: tuple[Examples, Examples]) -> None:
    train, test = wide
    quick = {"width": 100, "directions": 8, "learning_rate": 1e-3, "steps": 45}
    for eps in (0.1, 1.0, 10.0, 100.0):
        told = steps_of(train, method, eps=eps, **quick)
        assert max(step["auditor_distance"] for step in told) <= eps * (1 + 1e-5)
        if eps <= 1:  # and it uses what it may
            assert min(step["auditor_distance"] for step in told[20:]) > 0.5 * eps
        late = np.array([step["auditor_multiplier"] for step in told[20:]])
        assert np.isfinite(late).all()
        assert late.max() < 20 * np.median(late)
        weights = fit_head(
            train, method=method, settings=settings(method, eps=eps, **quick), seed=0
        )
        right = probabilities(weights, test.features).argmax(axis=1) == test.occupations
        assert right.mean() > 0.8


def test_an_eps_beyond_the_occupations_is_cut_and_told(
    examples: Examples, caplog: pytest.LogCaptureFixture
) -> None:
    fitted(examples, "sensei", steps=2, eps=0.1)
    assert "eps" not in caplog.text
    told = steps_of(examples, "sensei", steps=2, eps=1e4)
    assert "eps is cut from 10000 to" in caplog.text
    assert told[-1]["auditor_distance"] < 10


@pytest.mark.parametrize("n_sensitive", [0, 1, 3])
def test_the_worst_point_of_a_linear_objective(n_sensitive: int) -> None:
    """By Cauchy and Schwarz: along the slopes, the bios with steeper slopes further."""
    generator = torch.Generator().manual_seed(n_sensitive)
    slopes = torch.randn(7, 6, generator=generator)
    slopes[:, :n_sensitive] = 0
    bios = torch.randn(7, 6, generator=generator)
    for eps in (0.1, 10.0):
        auditor = Auditor(n_sensitive=n_sensitive, eps=eps, steps=4, rate=0.5)
        found = auditor.audit(torch.nn.Identity(), bios, lambda x: (x * slopes).sum(dim=1))
        size = slopes.square().sum(dim=1).mean().sqrt()
        expected = bios + slopes * (eps**0.5 / size)
        np.testing.assert_allclose(
            found.worst[:, n_sensitive:], expected[:, n_sensitive:], rtol=1e-4, atol=1e-5
        )
        assert found.distance == pytest.approx(eps, rel=1e-4)
        assert found.multiplier == pytest.approx(size.item() / (2 * eps**0.5), rel=1e-4)


def test_moves_within_the_subspace_are_free() -> None:
    auditor = Auditor(n_sensitive=2, eps=0.01, steps=10, rate=0.5)
    slopes = torch.tensor([1.0, -1.0, 1.0])
    found = auditor.audit(torch.nn.Identity(), torch.zeros(5, 3), lambda x: x @ slopes)
    assert (found.worst[:, 0] > 4).all()
    assert (found.worst[:, 1] < -4).all()
    assert found.distance == pytest.approx(0.01, rel=1e-4)


def test_an_attack_that_fails_is_none() -> None:
    auditor = Auditor(n_sensitive=1, eps=1.0, steps=3, rate=5.0)
    bios = torch.tensor([[0.0, 0.0], [30.0, 0.0]])
    found = auditor.audit(torch.nn.Identity(), bios, lambda x: -x[:, 0].abs())
    assert found.worst[0].tolist() == [0.0, 0.0]  # a step beyond the peak at every try
    assert found.worst[1, 0] < 30


def test_the_network_stays_trainable() -> None:
    network = torch.nn.Linear(3, 2)
    network.bias.requires_grad_(False)
    auditor = Auditor(n_sensitive=1, eps=1.0, steps=2, rate=0.5)
    auditor.audit(network, torch.randn(4, 3), lambda logits: logits[:, 0])
    assert network.weight.requires_grad
    assert not network.bias.requires_grad
    assert network.weight.grad is None


def test_as_many_directions_as_features(examples: Examples) -> None:
    for method in ("project", "sensr", "sensei"):
        for directions in (D, D + 5):
            with pytest.raises(
                MlflowException, match=r"directions: found 1\d for features of length 12"
            ):
                fitted(examples, method, directions=directions)
    fitted(examples, "project", directions=D - 1, steps=2)


def test_fewer_bios_than_directions_is_told(
    examples: Examples, caplog: pytest.LogCaptureFixture
) -> None:
    fitted(examples, "project", directions=8, steps=2)
    assert "directions" not in caplog.text
    changed = np.zeros(N, dtype=bool)
    changed[:3] = True
    few = np.where(changed[:, None], examples.counterfactuals, examples.features)
    fitted(replace(examples, counterfactuals=few), "project", directions=8, steps=2)
    assert "3 directions instead of 8" in caplog.text


@pytest.mark.parametrize("method", ["leace", "inlp"])
def test_no_linear_classifier_finds_gender(method: str, examples: Examples) -> None:
    features = torch.from_numpy(examples.features - examples.features.mean(axis=0))
    genders = torch.from_numpy(examples.genders)
    seen, _ = _seen(method, features, features, genders, settings(method))
    assert seen is not None

    def found(vectors: Any) -> float:
        return float(
            LogisticRegression().fit(vectors, examples.genders).score(vectors, examples.genders)
        )

    guess = max(examples.genders.mean(), 1 - examples.genders.mean())
    assert found(features.numpy()) > guess + 0.2
    assert found((features @ seen).numpy()) < guess + 0.03


def test_leace_is_that_of_its_authors(examples: Examples) -> None:
    """Concept and features are uncorrelated afterwards, by the least change there is."""
    features = torch.from_numpy(examples.features - examples.features.mean(axis=0)).double()
    genders = torch.from_numpy(examples.genders)
    seen, _ = _seen("leace", features.float(), features.float(), genders, settings("leace"))
    assert seen is not None
    after = features @ seen.double()
    centred = genders.double() - genders.double().mean()
    assert (centred @ after).abs().max() / N < 0.05 * (centred @ features).abs().max() / N


def test_balanced_weights_against_a_slow_count(examples: Examples) -> None:
    weights = balanced_weights(examples.genders, examples.occupations)
    pairs = list(zip(examples.occupations.tolist(), examples.genders.tolist(), strict=True))
    for (occupation, gender), weight in zip(pairs, weights.tolist(), strict=True):
        of_occupation = sum(o == occupation for o, _ in pairs)
        expected = of_occupation / (2 * pairs.count((occupation, gender)))
        assert weight == pytest.approx(expected, rel=1e-6)


def test_weights_of_one_are_the_baseline(examples: Examples) -> None:
    even = replace(examples, genders=np.zeros(N, dtype=np.int8))
    plain, balanced = fitted(even, "baseline"), fitted(even, "balanced")
    for name in plain:
        np.testing.assert_array_equal(plain[name], balanced[name])


def test_every_setting_says_whose_it_is() -> None:
    for name, info in Settings.model_fields.items():
        assert set(info.json_schema_extra["of"]) <= set(METHODS), name
    assert "eps" in Settings.of("sensei").relevant("sensei")
    assert "eps" not in Settings.of("cda").relevant("cda")
    assert "rho" not in Settings.of("sensr").relevant("sensr")
