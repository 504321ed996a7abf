"""Policies: what is read, what is refused, and with which words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from mlflow.exceptions import MlflowException

from biasbios_mlflow import GatePolicy

EXAMPLE = """
rules:
  - {metric: balanced_accuracy, min: 0.75}
  - {metric: gap_rms, max: 0.15}
  - {metric: "tpr_gap/*", abs_max: 0.40, bound: point}
  - {metric: prediction_consistency, no_worse_than_champion: {margin: 0.01, confidence: 0.95}}
champion: champion
promote: champion
first_champion: allow
"""


@pytest.fixture
def example(tmp_path: Path) -> Path:
    path = tmp_path / "gate.yaml"
    path.write_text(EXAMPLE, "utf-8")
    return path


def test_a_file(example: Path) -> None:
    policy = GatePolicy.parse(example)
    assert [rule.metric for rule in policy.rules] == [
        "balanced_accuracy",
        "gap_rms",
        "tpr_gap/*",
        "prediction_consistency",
    ]
    assert [rule.bound for rule in policy.rules] == ["ci", "ci", "point", "ci"]
    assert policy.rules[3].no_worse_than_champion is not None
    assert policy.rules[3].no_worse_than_champion.margin == 0.01
    assert (policy.champion, policy.promote, policy.first_champion) == (
        "champion",
        "champion",
        "allow",
    )


def test_the_hash_is_of_the_meaning(example: Path) -> None:
    policy = GatePolicy.parse(example)
    as_json = policy.model_dump(mode="json", exclude_defaults=True)
    assert GatePolicy.parse(json.loads(json.dumps(as_json))).sha256() == policy.sha256()
    other = GatePolicy.parse({**as_json, "first_champion": "refuse"})
    assert other.sha256() != policy.sha256()


RULE = {"metric": "gap_rms", "max": 0.1}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({"rule": [RULE]}, "policy: found the key 'rule'.*did you mean 'rules'"),
        ({"rules": [{**RULE, "mx": 1}]}, r"policy.rules.0: found the key 'mx'.*'max'"),
        ({"rules": [RULE], "promot": "x"}, "did you mean 'promote'"),
        ({"rules": []}, "policy.rules: found .*at least 1"),
        ({}, "policy.rules: found nothing"),
        ({"rules": [{"metric": "gap_rms"}]}, "needs min, max, abs_max or no_worse_than_champion"),
        ({"rules": [{"metric": "", "max": 1}]}, "policy.rules.0.metric"),
        ({"rules": [{**RULE, "max": "low"}]}, r"policy.rules.0.max: found 'low'"),
        ({"rules": [{**RULE, "max": float("nan")}]}, "finite"),
        ({"rules": [{**RULE, "abs_max": -0.1}]}, "policy.rules.0.abs_max"),
        ({"rules": [{**RULE, "bound": "maybe"}]}, "'ci' or 'point'"),
        (
            {"rules": [{"metric": "ctf", "no_worse_than_champion": {"margin": 0.1}}]},
            "needs champion",
        ),
        (
            {
                "rules": [{"metric": "ctf", "no_worse_than_champion": {"margn": 0.1}}],
                "champion": "champion",
            },
            "did you mean 'margin'",
        ),
        ({"rules": [RULE], "promote": "latest"}, "reserved"),
        ({"rules": [RULE], "champion": "v12"}, "reserved"),
        ({"rules": [RULE], "first_champion": "ask"}, "'allow' or 'refuse'"),
        ([RULE], "policy: found"),
        (None, "policy: found None"),
    ],
)
def test_mistakes(content: Any, says: str) -> None:
    with pytest.raises(MlflowException, match=says) as caught:
        GatePolicy.parse(content)
    assert caught.value.error_code == "INVALID_PARAMETER_VALUE"


@pytest.mark.parametrize("text", ["rules: [", "\tx", b"\xff\xfe rules"])
def test_a_broken_file(text: str | bytes, tmp_path: Path) -> None:
    path = tmp_path / "gate.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(MlflowException, match=r"policy .*gate\.yaml"):
        GatePolicy.parse(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(MlflowException, match="check the path"):
        GatePolicy.parse(tmp_path / "nowhere.yaml")


def test_the_schema_knows_every_key() -> None:
    schema = GatePolicy.model_json_schema()
    assert set(schema["properties"]) == {
        *("evaluation", "rules", "champion", "promote", "first_champion")
    }
    assert schema["additionalProperties"] is False
    assert set(schema["$defs"]["Rule"]["properties"]) == {
        *("metric", "min", "max", "abs_max", "bound", "no_worse_than_champion")
    }
