"""The decision: every rule against what was measured; what is missing fails."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from biasbios_mlflow import GatePolicy, compare, score
from biasbios_mlflow.gating.decision import Measured, RuleVerdict, decide

MEASURED = Measured(
    metrics={
        "balanced_accuracy": 0.80,
        "balanced_accuracy_ci_low": 0.78,
        "gap_rms": 0.12,
        "tpr_gap/nurse": -0.30,
        "tpr_gap/nurse_ci_low": -0.45,
        "tpr_gap/poet": 0.10,
        "bios": 1000.0,
    },
    intervals={
        "balanced_accuracy": (0.78, 0.82),
        "gap_rms": (0.10, 0.16),
        "tpr_gap/nurse": (-0.45, -0.12),
        "tpr_gap/poet": (-0.05, 0.25),
    },
    reasons={"ctf": "the model returns only labels"},
)


def verdicts(*rules: dict[str, Any], **policy: Any) -> list[RuleVerdict]:
    return decide(GatePolicy.parse({"rules": list(rules), **policy}), MEASURED, None)


@pytest.mark.parametrize(
    ("rule", "passed", "tested"),
    [
        ({"metric": "balanced_accuracy", "min": 0.78}, True, 0.78),
        ({"metric": "balanced_accuracy", "min": 0.79}, False, 0.78),
        ({"metric": "balanced_accuracy", "min": 0.79, "bound": "point"}, True, 0.80),
        ({"metric": "gap_rms", "max": 0.15}, False, 0.16),
        ({"metric": "gap_rms", "max": 0.15, "bound": "point"}, True, 0.12),
        ({"metric": "gap_rms", "max": 0.12, "bound": "point"}, True, 0.12),
        ({"metric": "tpr_gap/nurse", "abs_max": 0.40}, False, 0.45),
        ({"metric": "tpr_gap/nurse", "abs_max": 0.40, "bound": "point"}, True, 0.30),
        ({"metric": "tpr_gap/nurse", "abs_max": 0.45}, True, 0.45),
        ({"metric": "bios", "min": 500, "bound": "point"}, True, 1000.0),
    ],
)
def test_limits(rule: dict[str, Any], passed: bool, tested: float) -> None:
    [verdict] = verdicts(rule)
    assert (verdict.passed, verdict.tested) == (passed, tested)
    assert verdict.room is not None
    assert (verdict.room >= 0) == passed
    assert (verdict.reason is None) == passed


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ({"metric": "ctf", "max": 1.0}, "missing: the model returns only labels"),
        ({"metric": "gap_abs", "max": 1.0}, "missing: no such metric"),
        ({"metric": "tpr_gap/rapper*", "abs_max": 1.0}, "missing: no such metric"),
        ({"metric": "bios", "min": 1}, "no interval; set bound: point"),
    ],
)
def test_what_is_missing_fails(rule: dict[str, Any], says: str) -> None:
    [verdict] = verdicts(rule)
    assert not verdict.passed
    assert verdict.reason is not None
    assert says in verdict.reason


def test_a_pattern_is_a_rule_for_each_metric_but_not_for_their_bounds() -> None:
    found = verdicts({"metric": "tpr_gap/*", "abs_max": 0.40})
    assert [(v.metric, v.passed) for v in found] == [
        ("tpr_gap/nurse", False),
        ("tpr_gap/poet", True),
    ]


def test_every_limit_of_a_rule_counts() -> None:
    found = verdicts({"metric": "gap_rms", "min": 0.11, "max": 0.2, "abs_max": 0.1})
    assert [(v.rule, v.passed) for v in found] == [
        ("min 0.11", False),
        ("max 0.2", True),
        ("abs_max 0.1", False),
    ]


@pytest.mark.parametrize("first", ["allow", "refuse"])
def test_without_a_champion(first: str) -> None:
    rule = {"metric": "gap_rms", "no_worse_than_champion": {"margin": 0.01}}
    [verdict] = verdicts(rule, champion="champion", first_champion=first)
    assert verdict.passed == (first == "allow")
    assert verdict.reason == "the alias champion does not exist yet"


def against(rule: dict[str, Any], comparison: Any) -> RuleVerdict:
    policy = GatePolicy.parse({"rules": [rule], "champion": "champion"})
    champion_rule = policy.rules[0].no_worse_than_champion
    assert champion_rule is not None
    [verdict] = decide(policy, MEASURED, {champion_rule.confidence: comparison})
    return verdict


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1), st.floats(0, 0.2), st.sampled_from([0.9, 0.95, 0.99]))
def test_the_pairwise_rule_is_the_probability_of_being_worse(
    seed: int, margin: float, confidence: float
) -> None:
    rng = np.random.default_rng(seed)
    names = np.array(["nurse", "poet", "surgeon"])
    truth, genders = names[rng.integers(0, 3, 300)], rng.choice(["male", "female"], 300)

    def scores(wrong: float) -> Any:
        predicted = np.where(rng.random(300) < wrong, names[rng.integers(0, 3, 300)], truth)
        return score(truth, genders, predicted, n_replicates=200)

    old, new = scores(0.2), scores(rng.choice([0.1, 0.2, 0.4]))
    metrics = ["balanced_accuracy", "gap_rms"]
    comparison = compare(old, new, confidence=confidence, n_replicates=200, metrics=metrics)
    for metric in metrics:
        champion = {"margin": margin, "confidence": confidence}
        verdict = against({"metric": metric, "no_worse_than_champion": champion}, comparison)
        worse = comparison.probability_worse(metric, margin)
        assert verdict.tested == worse
        assert verdict.passed == (worse <= 1 - confidence)
        assert verdict.value == comparison.differences["difference"][metric]


def test_a_verdict_says_that_one_cell_decides_it() -> None:
    rng = np.random.default_rng(0)
    cells = [("male", "surgeon", 400), ("female", "surgeon", 7), ("male", "poet", 300)]
    cells += [("female", "poet", 500), ("male", "nurse", 400), ("female", "nurse", 400)]
    genders = np.repeat([cell[0] for cell in cells], [cell[2] for cell in cells])
    truth = np.repeat([cell[1] for cell in cells], [cell[2] for cell in cells])
    predicted = np.where(rng.random(len(truth)) < 0.8, truth, "dj")
    rules = [
        {"metric": "gap_rms", "max": 0.9},
        {"metric": "gap_rms", "max": 0.001},
        {"metric": "balanced_accuracy", "min": 0.1},
    ]
    policy = GatePolicy.parse({"rules": rules})

    def reasons(kept: Any) -> list[str | None]:
        scores = score(truth[kept], genders[kept], predicted[kept], n_replicates=100)
        measured = Measured.from_summary({"scores": scores.to_dict()})
        return [verdict.reason for verdict in decide(policy, measured, None)]

    passes, fails, other = reasons(np.arange(len(truth)))
    assert passes is not None
    assert "one cell decides" in passes
    assert "surgeon, 7 women" in passes
    assert fails is not None
    assert "above the limit; " in fails
    assert "surgeon, 7 women" in fails
    assert other is None
    passes, fails, other = reasons((truth != "surgeon") | (genders == "none"))
    assert (passes, other) == (None, None)
    assert fails is not None
    assert "cell" not in fails


def test_a_metric_that_cannot_be_compared_fails() -> None:
    scores = score(["nurse", "poet"] * 5, ["male", "female"] * 5, ["nurse", "poet"] * 5)
    rule = {"metric": "ctf", "no_worse_than_champion": {"margin": 1.0}}
    verdict = against(rule, compare(scores, scores))
    assert not verdict.passed
    assert verdict.reason is not None
    assert verdict.reason.startswith("missing")
