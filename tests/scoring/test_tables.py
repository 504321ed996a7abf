"""The tables' statistics equal scipy's and published values."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from biasbios_mlflow.scoring import Counts, score
from biasbios_mlflow.scoring.shares import newcombe_interval
from biasbios_mlflow.scoring.tables import fisher_mid_p, flip_labels, flips, gap_share_correlation


@pytest.mark.parametrize(
    ("hits", "n", "expected"),
    [
        # Newcombe 1998, table II, method 10.
        ((56, 48), (70, 80), (0.0524, 0.3339)),
        ((9, 3), (10, 10), (0.1705, 0.8090)),
        ((6, 2), (7, 7), (0.0582, 0.8062)),
        ((5, 0), (56, 29), (-0.0381, 0.1926)),
        ((0, 0), (10, 20), (-0.1611, 0.2775)),
        ((0, 0), (10, 10), (-0.2775, 0.2775)),
        ((10, 0), (10, 20), (0.6791, 1.0)),
        ((10, 0), (10, 10), (0.6075, 1.0)),
    ],
)
def test_newcombe_interval_as_published(hits, n, expected) -> None:  # type: ignore[no-untyped-def]
    found = [round(float(bound), 4) for bound in newcombe_interval(hits, n)]
    assert found == list(expected)


@settings(deadline=None, max_examples=300)
@given(st.integers(1, 40), st.integers(1, 40), st.data())
def test_mid_p_equals_the_definition(n_a: int, n_b: int, data: st.DataObject) -> None:
    a, b = data.draw(st.integers(0, n_a)), data.draw(st.integers(0, n_b))
    law = stats.hypergeom(n_a + n_b, a + b, n_a)
    pmf = law.pmf(np.arange(0, n_a + 1))
    observed = law.pmf(a)
    tied = np.isclose(pmf, observed, rtol=1e-6, atol=0)
    expected = pmf[(pmf < observed) & ~tied].sum() + pmf[tied].sum() / 2
    assert fisher_mid_p([a, b], [n_a, n_b]) == pytest.approx(expected, rel=1e-8, abs=1e-300)
    fisher = stats.fisher_exact([[a, n_a - a], [b, n_b - b]]).pvalue
    assert fisher_mid_p([a, b], [n_a, n_b]) == pytest.approx(
        fisher - pmf[tied].sum() / 2, rel=1e-6, abs=1e-12
    )


def test_mid_p_keeps_its_size_in_small_cells_and_has_more_power_than_fisher() -> None:
    rng = np.random.default_rng(0)
    rejected = {"null": [0, 0], "gap": [0, 0]}
    for name, rates in {"null": (0.8, 0.8), "gap": (0.9, 0.6)}.items():
        for _ in range(800):
            a, b = rng.binomial([30, 25], rates)
            fisher = stats.fisher_exact([[a, 30 - a], [b, 25 - b]]).pvalue
            rejected[name][0] += fisher_mid_p([a, b], [30, 25]) <= 0.05
            rejected[name][1] += fisher <= 0.05
    assert rejected["null"][0] / 800 <= 0.065
    assert rejected["gap"][0] > rejected["gap"][1]


def test_adjusted_p_values_and_order_of_the_table() -> None:
    rng = np.random.default_rng(1)
    y, g = rng.integers(0, 6, 600), rng.integers(0, 2, 600)
    p = np.where(rng.random(600) < 0.6 + 0.3 * (g == 0) * (y < 3), y, 5 - y)
    table = score(y, g, p, min_cell=5).occupations
    gaps = table.loc[table["scored"], "tpr_gap"].abs().to_numpy()
    assert (np.diff(gaps) <= 0).all()
    raw = table["p_value"].to_numpy()
    m = len(raw)
    order = np.argsort(raw)
    adjusted = np.minimum.accumulate((raw[order] * m / np.arange(1, m + 1))[::-1])[::-1]
    assert table["p_adjusted"].to_numpy()[order] == pytest.approx(np.minimum(adjusted, 1))
    inside = (table["tpr_gap_ci_low"] <= table["tpr_gap"]) & (
        table["tpr_gap"] <= table["tpr_gap_ci_high"]
    )
    assert inside.all()


def test_occupations_without_both_genders_are_listed_last_and_not_scored() -> None:
    table = score(
        ["dj", "dj", "poet"],
        ["m", "f", "f"],
        ["dj", "poet", "poet"],
        labels=["poet", "dj", "model"],
        min_cell=1,
    ).occupations
    assert table["occupation"].tolist() == ["dj", "poet", "model"]
    assert table["scored"].tolist() == [True, False, False]
    assert table.loc[1:, ["tpr_gap", "p_value", "p_adjusted"]].isna().all(axis=None)


def test_correlation_of_gap_and_share_of_women() -> None:
    y = [0] * 40 + [1] * 40 + [2] * 40
    g = [0] * 30 + [1] * 10 + [0] * 20 + [1] * 20 + [0] * 10 + [1] * 30
    p = [0] * 35 + [9] * 5 + [1] * 40 + [9] * 5 + [2] * 35
    counts = Counts.from_codes(genders=g, occupations=y, predictions=p, labels=list("abc"))
    gaps = [1 - 0.5, 0, 0.5 - 1]
    expected = np.corrcoef(gaps, [0.25, 0.5, 0.75])[0, 1]
    assert gap_share_correlation(counts, min_cell=1) == pytest.approx(expected)
    assert np.isnan(gap_share_correlation(counts, min_cell=11))


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 10**6), st.integers(1, 80))
def test_flips_equal_a_plain_count(seed: int, n: int) -> None:
    rng = np.random.default_rng(seed)
    g, y = rng.integers(0, 2, n), rng.integers(0, 3, n)
    p, q = rng.integers(0, 4, (2, n))  # 3 is outside the label set
    counts = Counts.from_codes(
        genders=g, occupations=y, predictions=p, counterfactual_predictions=q, labels=list("abc")
    )
    table = flips(counts).set_index("direction")
    for direction, mine in (
        ("male_to_female", g == 0),
        ("female_to_male", g == 1),
        ("all", g >= 0),
    ):
        row = table.loc[direction]
        towards = int((mine & (p != y) & (q == y)).sum())
        away = int((mine & (p == y) & (q != y)).sum())
        assert row["bios"] == mine.sum()
        assert row["flipped"] == (mine & (p != q)).sum()
        assert (row["towards"], row["away"]) == (towards, away)
        assert row["flipped"] == row["towards"] + row["away"] + row["between"]
        exact = 1.0
        if towards + away:
            exact = stats.binomtest(towards, towards + away).pvalue
        assert row["p_value"] == pytest.approx(exact, rel=1e-9)
    labelled = flip_labels(counts)
    assert labelled["bios"].sum() == (p != q).sum()
    assert labelled["bios"].is_monotonic_decreasing
