"""Two models on the same bios."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from mlflow.exceptions import MlflowException

from biasbios_mlflow.scoring import Counts, Outcomes, compare, score, scores_from_counts
from biasbios_mlflow.scoring.comparison import better
from biasbios_mlflow.scoring.paired import PairedGaps

K = 4
LABELS = [f"occupation {k}" for k in range(K)]


def population(n: int, seed: int, *, right: float, gap: float, agree: float = 0.0) -> Any:
    """Rows of two models: a with these rates, b its copy in a share of the bios."""
    rng = np.random.default_rng(seed)
    y, g = rng.integers(0, K, n), rng.integers(0, 2, n)

    def model() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        hit = rng.random(n) < right + gap * (0.5 - g)
        p = np.where(hit, y, (y + rng.integers(1, K, n)) % K)
        q = np.where(rng.random(n) < 0.93, p, (p + 1) % K)
        probability = rng.dirichlet(np.ones(K), n)
        return p, q, probability, np.where(rng.random((n, 1)) < 0.5, probability, 1 / K)

    first, second = model(), model()
    kept = rng.random(n) < agree
    second = tuple(
        np.where(kept.reshape(-1, *[1] * (x.ndim - 1)), x, z)
        for x, z in zip(first, second, strict=True)
    )
    return tuple(
        Outcomes.from_codes(
            genders=g,
            occupations=y,
            predictions=p,
            counterfactual_predictions=q,
            probabilities=x,
            counterfactual_probabilities=z,
            changed=np.ones(n, dtype=bool),
            labels=LABELS,
        )
        for p, q, x, z in (first, second)
    )


def test_a_model_does_not_differ_from_itself() -> None:
    a, _ = population(3000, 0, right=0.8, gap=0.1)
    found = compare(a, a, n_replicates=300, margin=0.01)
    table = found.differences
    assert (table["difference"] == 0).all()
    assert (table["ci_low"] == 0).all()
    assert (table["ci_high"] == 0).all()
    assert (table["probability_worse"] == 0).all()
    assert all(found.probability_worse(str(name), 0.0) == 0 for name in table.index)


def test_differences_are_those_of_the_scores() -> None:
    a, b = population(2000, 1, right=0.8, gap=0.2)
    found = compare(a, b, n_replicates=200)
    one = compare(a, b, n_replicates=200, metrics=["gap_abs"]).differences
    assert one.equals(found.differences.loc[["gap_abs"]])
    scores = [scores_from_counts(Counts.from_outcomes(x)).metrics for x in (a, b)]
    for name, row in found.differences.iterrows():
        assert row["difference"] == scores[1][name] - scores[0][name]
        assert row["ci_low"] <= row["ci_high"]
    compared = set(found.differences.index)
    assert {"ctf", "gap_rms", "gap_abs", "fpr_gap_rms", "ctf_changed"} <= compared
    assert {f"tpr_gap/{label}" for label in LABELS} <= compared


@pytest.mark.parametrize("agree", [0.0, 0.9])
@pytest.mark.parametrize("gap", [0.0, 0.2])
def test_paired_intervals_cover_no_difference(agree: float, gap: float) -> None:
    names = ["balanced_accuracy", "prediction_consistency", "ctf", "gap_rms", "gap_abs"]
    misses = dict.fromkeys(names, 0)
    for seed in range(60):
        a, b = population(800, seed, right=0.75, gap=gap, agree=agree)
        table = compare(a, b, n_replicates=100, seed=seed, metrics=names).differences
        assert set(table.index) == set(names)
        for name in names:
            misses[name] += not table.loc[name, "ci_low"] <= 0 <= table.loc[name, "ci_high"]
    # 7 % of 60 is 4; more than 10 has a probability below 0.003 then.
    assert max(misses.values()) <= 10, misses


def pairs(
    bios: int, first: np.ndarray, second: np.ndarray, agreement: float, sets: int
) -> PairedGaps:
    """Hits of two models with these rates, of shape (2, K), in many test sets."""
    both = first * second + agreement * (np.minimum(first, second) - first * second)
    cells = np.stack([both, first - both, second - both, 1 - first - second + both], axis=-1)
    n = np.full((sets, *first.shape), bios)
    drawn = np.random.default_rng(0).multinomial(n, np.clip(cells, 0, 1))
    hits_a, hits_b = drawn[..., 0] + drawn[..., 1], drawn[..., 0] + drawn[..., 2]
    return PairedGaps.from_hits(hits_a, hits_b, drawn[..., 0], n)


def with_gaps(gaps: np.ndarray) -> np.ndarray:
    middle = np.linspace(0.55, 0.88, len(gaps))
    return np.stack([middle + gaps / 2, middle - gaps / 2])


@pytest.mark.parametrize(
    ("of_a", "of_b"), [(0.0, 0.1), (0.1, 0.12)], ids=["no gap before", "a gap before"]
)
def test_at_the_margin_few_pass(of_a: float, of_b: float) -> None:
    """Nominal 5 %: of 400 sets at most 6 % and three standard errors may pass."""
    signs = np.where(np.arange(28) % 3 == 0, 1.0, -1.0)
    gaps = pairs(100, with_gaps(of_a * signs), with_gaps(of_b * signs), 0.9, 400)
    most = 0.06 + 3 * np.sqrt(0.06 * 0.94 / 400)
    assert (gaps.rms_rise(0.05) <= of_b - of_a).mean() <= most
    assert (gaps.abs_rise(0.05) <= of_b - of_a).mean() <= most
    assert (gaps.each_rise(0.05) <= of_b - of_a).mean() <= most


def test_models_without_gaps_that_mostly_agree_pass_a_small_margin() -> None:
    none = with_gaps(np.zeros(28))
    gaps = pairs(100, none, none, 0.9, 400)
    assert (gaps.rms_rise(0.05) <= 0.02).mean() >= 0.25


def test_a_gap_whose_sign_changes_is_compared_by_size() -> None:
    hits_a, hits_b, n = np.array([[900], [600]]), np.array([[600], [900]]), np.full((2, 1), 1000)
    gaps = PairedGaps.from_hits(hits_a, hits_b, np.array([[600], [600]]), n)
    # The change is 0.6, the sizes are the same.
    assert abs(float(gaps.each_rise(0.025)[0])) > 0.5
    known = PairedGaps.from_hits(hits_a, hits_a - [[100], [0]], hits_a - [[100], [0]], n)
    assert float(known.each_rise(0.025)[0]) < -0.05


def test_pairing_narrows_the_interval() -> None:
    widths = []
    for agree in (0.0, 0.95):
        a, b = population(3000, 2, right=0.75, gap=0.1, agree=agree)
        row = compare(a, b, n_replicates=300).differences.loc["balanced_accuracy"]
        widths.append(row["ci_high"] - row["ci_low"])
    assert widths[1] < 0.5 * widths[0]


def test_a_worse_model_is_found_out_and_the_margin_counts() -> None:
    a, _ = population(4000, 3, right=0.85, gap=0.0)
    b, _ = population(4000, 3, right=0.75, gap=0.3)
    found = compare(a, b, n_replicates=500, margin={"balanced_accuracy": 0.3})
    worse = found.differences["probability_worse"]
    assert worse["accuracy"] > 0.999
    assert worse["gap_rms"] > 0.99
    assert worse["balanced_accuracy"] < 0.001
    assert found.probability_worse("balanced_accuracy") > 0.999
    assert found.probability_worse("tpr_gap/occupation 0", 0.0) > 0.95
    back = compare(b, a, n_replicates=500)
    assert back.probability_worse("accuracy") < 0.001


def test_probability_agrees_with_the_interval() -> None:
    a, b = population(1500, 4, right=0.8, gap=0.1)
    found = compare(a, b, n_replicates=300)
    for name, row in found.differences.iterrows():
        if row["better"] == "nearer zero":
            continue
        worst = -row["ci_low"] if row["better"] == "higher" else row["ci_high"]
        # Of gaps the probability is found by bisection.
        close = 1e-3 if "gap" in str(name) else 1e-9
        assert found.probability_worse(str(name), float(worst)) == pytest.approx(0.025, abs=close)


def test_results_are_reproducible_and_json() -> None:
    a, b = population(500, 5, right=0.8, gap=0.1)
    first, second, other = (
        compare(a, b, n_replicates=200, seed=seed).to_dict() for seed in (1, 1, 2)
    )
    assert first == second != other
    json.dumps(first, allow_nan=False)
    assert max(map(len, str(compare(a, b, n_replicates=200)).splitlines())) <= 100


def test_label_sets_may_differ() -> None:
    y, g = ["poet", "poet", "dj", "dj"] * 20, ["m", "f"] * 40
    a = score(y, g, ["poet"] * 80)
    b = score(y, g, ["model", "poet", "dj", "dj"] * 20, labels=["model", "dj", "poet"])
    found = compare(a, b, n_replicates=200)
    assert found.differences.loc["accuracy", "difference"] == 0.25
    assert found.differences.loc["tpr_gap/poet", "b"] == -1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"genders": ["m"] * 4}, r"b: found other genders than a in 2 rows, first in row 1"),
        ({"occupations": ["dj"] * 4}, r"b: found other occupations than a in 2 rows"),
        ({"changed": [True, True, False, True]}, r"b: found other changed than a in 1 rows"),
        ({"ids": [1, 2, 4, 3]}, r"b: found other ids than a in 2 rows, first in row 2"),
    ],
)
def test_other_bios_are_an_error(change: dict[str, Any], message: str) -> None:
    same: dict[str, Any] = {
        "occupations": ["poet", "poet", "dj", "dj"],
        "genders": ["m", "f", "m", "f"],
        "predictions": ["poet"] * 4,
        "ids": [1, 2, 3, 4],
        "changed": [True] * 4,
    }
    with pytest.raises(MlflowException, match=message):
        compare(score(**same), score(**{**same, **change}))
    shorter = {name: values[:3] for name, values in same.items()}
    with pytest.raises(MlflowException, match=r"b: found 3 bios, expected the 4 bios of a"):
        compare(score(**same), score(**shorter))


def test_scores_without_rows_cannot_be_compared() -> None:
    scores = score(["a"], ["m"], ["a"])
    with pytest.raises(MlflowException, match=r"a: found scores without rows"):
        compare(scores_from_counts(scores.counts), scores)


def test_min_cell_must_agree() -> None:
    arguments = ["a", "a"], ["m", "f"], ["a", "a"]
    with pytest.raises(MlflowException, match=r"min_cell: found scores made with 1 and 2"):
        compare(score(*arguments, min_cell=1), score(*arguments, min_cell=2))


def test_unknown_metric_is_an_error() -> None:
    a, b = population(200, 6, right=0.8, gap=0.1)
    with pytest.raises(MlflowException, match=r"metric: found recall"):
        compare(a, b, n_replicates=100).probability_worse("recall")


def test_every_metric_has_a_direction() -> None:
    assert better("prediction_consistency_changed") == "higher"
    assert better("gap_rms_debiased") == better("fpr_gap_abs") == better("ctf_gap") == "lower"
    assert better("accuracy_gap") == "nearer zero"
