"""Tables and the figure of a benchmark, from figures made by hand."""

from __future__ import annotations

import pandas as pd
import pytest

from biasbios_mlflow.scoring import HEADLINE
from biasbios_mlflow.training.figures import tradeoff_figure
from biasbios_mlflow.training.tables import comparison_table, markdown, method_table, text_table


@pytest.fixture
def runs() -> pd.DataFrame:
    rows = []
    for method, values in {"baseline": (0.80, 0.82), "sensei": (0.79, 0.83)}.items():
        for seed, value in enumerate(values):
            metrics = dict.fromkeys(HEADLINE, value) | {"ctf": 1.234e-4 + 1e-5 * seed}
            rows.append({"method": method, "seed": seed, "run_id": "r", "error": "", **metrics})
    failed = {"method": "sensei", "seed": 2, "run_id": "", "error": "RuntimeError: no"}
    return pd.DataFrame([*rows, failed])


@pytest.fixture
def comparisons() -> pd.DataFrame:
    columns = ["method", "seed", "metric", "difference", "ci_low", "ci_high", "better"]
    rows = [
        ("sensei", 0, "ctf", -0.02, -0.03, -0.01, "lower"),
        ("sensei", 1, "ctf", -0.01, -0.03, 0.01, "lower"),
        ("sensei", 0, "balanced_accuracy", 0.02, 0.01, 0.03, "higher"),
        ("sensei", 1, "balanced_accuracy", -0.02, -0.03, -0.01, "higher"),
    ]
    return pd.DataFrame(rows, columns=columns)


def test_mean_and_standard_deviation(runs: pd.DataFrame) -> None:
    table = method_table(runs).set_index(["method", "metric"])
    assert table.loc[("sensei", "gap_rms"), "mean"] == pytest.approx(0.81)
    assert table.loc[("sensei", "gap_rms"), "sd"] == pytest.approx(0.02 * 2**0.5)
    assert table.loc[("sensei", "gap_rms"), "seeds"] == 2


def test_differences_over_the_seeds(comparisons: pd.DataFrame) -> None:
    ctf, accuracy = comparison_table(comparisons).to_dict("records")
    assert ctf["difference"] == pytest.approx(-0.015)
    assert (ctf["ci_low"], ctf["ci_high"]) == (-0.03, 0.01)
    assert (ctf["better"], ctf["worse"], ctf["seeds"]) == (1, 0, 2)
    assert (accuracy["better"], accuracy["worse"]) == (1, 1)


def test_as_text(runs: pd.DataFrame, comparisons: pd.DataFrame) -> None:
    text = text_table(runs, comparisons, confidence=0.9)
    assert max(map(len, text.splitlines())) <= 80
    assert "0.810±0.028" in text
    assert "1.3e-04±7e-06" in text
    assert "90 % intervals" in text
    assert text.endswith("sensei, seed 2 failed: RuntimeError: no")


def test_as_markdown(runs: pd.DataFrame, comparisons: pd.DataFrame) -> None:
    lines = markdown(runs, comparisons, confidence=0.95).splitlines()
    assert lines[0].startswith("| method | balanced_accuracy | ctf |")
    assert lines[2].startswith("| baseline | 0.8100 ± 0.0141 | 1.3e-04 ± 7.1e-06 |")
    assert lines[7] == "| sensei | ctf | -0.0150 | -0.0300 to +0.0100 | 1/2 | 0/2 |"


def test_further_metrics_have_a_table_of_their_own(
    runs: pd.DataFrame, comparisons: pd.DataFrame
) -> None:
    wide = runs.assign(gap_rms_words=[0.1, 0.2, 0.01, 0.02, float("nan")], ctf_gap=float("nan"))
    *_, head, _, baseline, sensei, blank, failed = markdown(
        wide, comparisons, confidence=0.95
    ).splitlines()
    assert head == "| method | gap_rms_words |"
    assert (baseline, sensei) == (
        "| baseline | 0.1500 ± 0.0707 |",
        "| sensei | 0.0150 ± 0.0071 |",
    )
    assert (blank, failed) == ("", "sensei, seed 2 failed: RuntimeError: no")
    table = method_table(wide).set_index(["method", "metric"])
    assert table.loc[("sensei", "gap_rms_words"), "mean"] == pytest.approx(0.015)
    assert max(map(len, text_table(wide, comparisons, confidence=0.9).splitlines())) <= 80


def test_one_seed_has_no_spread_and_all_failed_no_value(runs: pd.DataFrame) -> None:
    text = text_table(runs[runs["seed"] != 1], pd.DataFrame(), confidence=0.95)
    assert "±" not in text
    assert "0.790" in text
    alone = text_table(runs[runs["seed"] == 2], pd.DataFrame(), confidence=0.95)
    assert alone.splitlines()[1].split() == ["sensei", *["-"] * 5]


def test_figure(runs: pd.DataFrame) -> None:
    figure = tradeoff_figure(runs)
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles[0] == "ctf (lower is better)"
    assert titles[1] == "prediction_consistency (higher is better)"
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["baseline", "sensei"]
    means = figure.axes[1].containers[0].lines[0].get_xydata()
    assert means.tolist() == [[pytest.approx(0.81), pytest.approx(0.81)]]
