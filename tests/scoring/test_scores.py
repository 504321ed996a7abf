"""Arrays in, scores out: the door's checks, the report, the dict."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from mlflow.exceptions import MlflowException

from biasbios_mlflow.scoring import Counts, Outcomes, Scores, score, scores_from_counts
from biasbios_mlflow.scoring.specs import is_of_each

FOUR: dict[str, Any] = {
    "occupations": ["nurse", "nurse", "poet", "poet"],
    "genders": ["male", "female", "male", "female"],
    "predictions": ["poet", "nurse", "poet", "poet"],
}
MATRIX = [[0.4, 0.6], [0.9, 0.1], [0.2, 0.8], [0.1, 0.9]]


def many(n: int = 2000, seed: int = 0) -> Scores:
    rng = np.random.default_rng(seed)
    names = np.array(["interior_designer", "software_engineer", "poet", "yoga_teacher"])
    probabilities = rng.dirichlet(np.ones(4), n)
    swapped = rng.dirichlet(np.ones(4), n)
    return score(
        names[rng.integers(0, 4, n)],
        np.array(["male", "female"])[rng.integers(0, 2, n)],
        names[probabilities.argmax(1)],
        names[swapped.argmax(1)],
        probabilities=probabilities,
        counterfactual_probabilities=swapped,
        labels=names,
        changed=rng.random(n) < 0.9,
    )


@pytest.mark.parametrize(
    "genders",
    [
        ["male", "female", "male", "female"],
        ["M", "F", "m", "f"],
        ["MALE", " Female", "Male", "female"],
        [0, 1, 0, 1],
        [0.0, 1.0, 0.0, 1.0],
        ["0", "1", "0", "1"],
        np.array([False, True, False, True]).astype(int),
        pd.Series(["M", "F", "M", "F"], index=[7, 3, 5, 1]),
    ],
)
def test_genders_in_every_spelling(genders: Any) -> None:
    scores = score(FOUR["occupations"], genders, FOUR["predictions"], min_cell=1)
    assert scores.metrics["tpr_gap/nurse"] == -1
    assert scores.metrics["gap_abs"] == 0.5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"genders": ["male", "female", "male"]}, r"genders: found 3 rows, expected 4"),
        ({"predictions": ["poet"] * 5}, r"predictions: found 5 rows"),
        (
            {"genders": ["male", "female", "x", "y"]},
            r"genders: found the value\(s\) 'x', 'y', the first",
        ),
        ({"genders": [0, 1, 2, 1]}, r"genders: found the value\(s\) '2', the first in row 2"),
        ({"genders": ["male", None, "male", "female"]}, r"1 missing values, the first in row 1"),
        ({"predictions": ["poet", np.nan, "poet", "poet"]}, r"predictions: found 1 missing"),
        ({"occupations": ["nurse", None, None, "poet"]}, r"occupations: found 2 missing"),
        ({"counterfactual_predictions": ["poet"]}, r"counterfactual_predictions: found 1 rows"),
        ({"occupations": np.zeros((4, 2))}, r"occupations: found rows of 2 values"),
        ({"labels": ["nurse"]}, r"occupations: found 'poet' in row 2, expected one of the labels"),
        ({"labels": ["nurse", "poet", "nurse"]}, r"labels: found the same label twice"),
        ({"labels": []}, r"labels: found no label"),
        ({"probabilities": [["a", "b"]] * 4}, r"probabilities: found rows that are not numbers"),
        ({"probabilities": [[1.0], [1.0, 0.0], [1.0], [1.0]]}, r"rows that are not numbers"),
        ({"probabilities": np.ones((4, 3))}, r"probabilities: found shape \(4, 3\), expected"),
        ({"probabilities": np.ones(4)}, r"probabilities: found shape \(4,\)"),
        ({"probabilities": np.ones((3, 2))}, r"probabilities: found 3 rows"),
        ({"probabilities": [[0.5, 0.5]] * 3 + [[np.nan, 1]]}, r"not finite in row 3"),
        ({"probabilities": [[2.5, -1.5]] + [[0.5, 0.5]] * 3}, r"values outside \[0, 1\].*row 0"),
        ({"changed": [True, False, True, "maybe"]}, r"changed: found 'maybe', expected True or"),
        ({"confidence": 95}, r"confidence: found 95, expected a number between 0 and 1"),
        ({"min_cell": 0}, r"min_cell: found 0, expected a whole number of at least 1"),
        ({"n_replicates": 5}, r"n_replicates: found 5"),
        ({"seed": 0.5}, r"seed: found 0.5"),
    ],
)
def test_errors_name_what_is_wrong(change: dict[str, Any], message: str) -> None:
    with pytest.raises(MlflowException, match=message) as caught:
        score(**{**FOUR, **change})
    assert caught.value.error_code == "INVALID_PARAMETER_VALUE"


def test_labels_default_to_all_that_occur_in_the_order_of_predict_proba() -> None:
    assert score([10, 9, 10], [0, 1, 1], [2, 9, 10]).counts.labels == ("2", "9", "10")
    scores = score(
        **FOUR,
        counterfactual_predictions=["nurse", "nurse", "poet", "poet"],
        probabilities=MATRIX,
        counterfactual_probabilities=MATRIX[::-1],
    )
    assert scores.counts.labels == ("nurse", "poet")
    assert scores.metrics["ctf"] == pytest.approx(np.mean([0.15, 0.35, 0.35, 0.15]) ** 2 + 0.01)


def test_half_precision_overshoot_is_accepted() -> None:
    probabilities = np.array([[1.0005, 0.0]] * 4, dtype=np.float16)
    scores = score(**FOUR, probabilities=probabilities, counterfactual_probabilities=probabilities)
    assert scores.metrics["ctf"] == 0


def test_reasons_of_absent_metrics() -> None:
    scores = score(**FOUR)
    assert scores.reasons["ctf"] == "no counterfactual predictions"
    assert scores.reasons["prediction_consistency"] == "no counterfactual predictions"
    assert scores.reasons["swap_coverage"] == "not known which bios the swap changed"
    paired = score(**FOUR, counterfactual_predictions=FOUR["predictions"], changed=[False] * 4)
    assert paired.reasons["ctf"] == "no probabilities"
    assert paired.metrics["swap_coverage"] == 0
    assert paired.reasons["prediction_consistency_changed"] == "the swap changed no bio"
    men = score(["a", "b"], ["m", "m"], ["a", "a"])
    assert men.reasons["accuracy_gap"] == "no bios of women"
    assert men.reasons["gap_rms"] == "no occupation has at least 5 bios of each gender"
    mixed = Counts.from_codes(genders=[0], occupations=[0], predictions=[0], labels=["a"]) + (
        Counts.from_codes(
            genders=[0, 1],
            occupations=[0, 0],
            predictions=[0, 0],
            counterfactual_predictions=[0, 0],
            labels=["a"],
        )
    )
    assert scores_from_counts(mixed).metrics["prediction_consistency"] == 1  # of two


def test_no_bios_at_all() -> None:
    scores = scores_from_counts(Counts.empty(["a", "b"]))
    assert scores.metrics == {"bios": 0, "occupations_scored": 0, "occupations_excluded": 2}
    assert scores.reasons["gap_rms"] == "no bios"
    assert scores.intervals == {}
    str(scores)
    json.dumps(scores.to_dict(), allow_nan=False)


def test_one_bio_and_one_class() -> None:
    one = score(["poet"], ["female"], ["poet"])
    assert one.metrics["balanced_accuracy"] == 1
    assert one.metrics["balanced_accuracy_ci_low"] < 0.5
    two = score(["poet"] * 2, ["m", "f"], ["poet"] * 2, min_cell=1)
    assert two.metrics["gap_rms"] == 0
    assert two.metrics["gap_rms_ci_high"] > 0.3
    assert "fpr_gap_rms" in two.reasons


def test_scoring_rows_and_counts_gives_the_same_numbers() -> None:
    by_rows = many()
    assert by_rows.outcomes is not None
    by_counts = scores_from_counts(Counts.from_outcomes(by_rows.outcomes))
    assert by_counts.metrics == by_rows.metrics
    assert by_counts.outcomes is None


@pytest.mark.parametrize(
    "scores",
    [
        many(),
        score(**FOUR, min_cell=1),
        score(["a"], [0], ["an occupation with a name that is much longer than the column"]),
    ],
    ids=["full", "labels only", "one bio"],
)
def test_report_fits_a_terminal_and_names_every_metric(scores: Scores) -> None:
    report = str(scores)
    assert max(map(len, report.splitlines())) <= 80
    for name in (*scores.metrics, *scores.reasons):
        if is_of_each(name) or name.endswith(("_ci_low", "_ci_high")):
            continue
        assert name in report or name in ("bios", "occupations_scored", "occupations_excluded")


def test_dict_is_json_with_everything() -> None:
    scores = many()
    state = json.loads(json.dumps(scores.to_dict(), allow_nan=False))
    assert state["metrics"] == scores.metrics
    assert len(state["occupations"]) == 4
    assert state["options"] == {
        "confidence": 0.95,
        "n_replicates": 10_000,
        "seed": 0,
        "min_cell": 5,
    }
    assert all(math.isfinite(value) for value in state["metrics"].values())


def test_bounds_of_the_headline_are_metrics() -> None:
    scores = many()
    for name in ("balanced_accuracy", "ctf", "prediction_consistency", "gap_rms", "gap_abs"):
        bounds = scores.metrics[f"{name}_ci_low"], scores.metrics[f"{name}_ci_high"]
        assert scores.intervals[name] == bounds


def test_outcomes_check_lengths() -> None:
    with pytest.raises(MlflowException, match=r"predictions: found 1 rows, expected 2"):
        Outcomes.from_codes(genders=[0, 1], occupations=[0, 0], predictions=[0], labels=["a"])
