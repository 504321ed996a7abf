"""A metric is declared once: what is declared is scored, compared, gated, reported and listed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mlflow.exceptions import MlflowException

from biasbios_mlflow import GatePolicy, compare, score
from biasbios_mlflow.gating.decision import Measured, decide
from biasbios_mlflow.gating.metric_names import read_metric
from biasbios_mlflow.report.files import summary
from biasbios_mlflow.report.page import report_page
from biasbios_mlflow.scoring import HEADLINE, Counts, JointCounts, Outcomes, Scores, metrics, specs
from biasbios_mlflow.scoring.comparison import compare_counts
from biasbios_mlflow.scoring.scores import scores_from_counts, scores_from_outcomes
from biasbios_mlflow.scoring.uncertainty import replicates
from tests.report.conftest import evaluated, predicted

DOCS = Path(__file__).parents[2] / "docs" / "metrics.md"
OWN = "missed_women"
REFUSED = "refused"


def refused_share(e: Any) -> Any:
    return metrics.marked_share(e.tables.marks[REFUSED])


@pytest.fixture
def declared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two metrics more: one from the cells, one from counts of its own."""
    for spec in (
        specs.MetricSpec(
            name=OWN,
            meaning="share of women's bios predicted wrong",
            formula=lambda e: 1 - metrics.accuracy_by_gender(e.tables.hits, e.tables.bios)[..., 1],
            better="lower",
            interval=specs.IntervalMethod(
                "Wilson", lambda e: e.wilson(*(x[1].sum() for x in (misses(e), e.tables.bios)))
            ),
        ),
        specs.MetricSpec(
            name="answers_refused",
            meaning="share of bios for which the model refuses to answer",
            formula=refused_share,
            better="lower",
            needs=(specs.recorded(REFUSED, "whether the model refused"),),
            interval=specs.share_of_mark(REFUSED),
            compared=specs.by_mark(REFUSED),
        ),
    ):
        monkeypatch.setitem(specs.METRICS, spec.name, spec)


def misses(e: Any) -> Any:
    return e.tables.bios - e.tables.hits


def outcomes(seed: int, *, wrong: float, refused: float, n: int = 600) -> Outcomes:
    rng = np.random.default_rng(0)
    occupations, genders = rng.integers(0, 3, n), rng.integers(0, 2, n)
    rng = np.random.default_rng(seed)
    return Outcomes.from_codes(
        genders=genders,
        occupations=occupations,
        predictions=np.where(rng.random(n) < wrong, (occupations + 1) % 3, occupations),
        marks={REFUSED: rng.random(n) < refused},
        labels=["dj", "nurse", "poet"],
    )


@pytest.mark.usefixtures("declared")
def test_a_declared_metric_is_everywhere() -> None:
    first, second = outcomes(1, wrong=0.1, refused=0.05), outcomes(2, wrong=0.3, refused=0.2)
    a, b = scores_from_outcomes(first), scores_from_outcomes(second)
    women = first.genders == 1
    differences, none = compare(a, b, n_replicates=500), compare(a, a, n_replicates=200)
    wrong = (first.predictions != first.occupations)[women].mean()
    assert a.metrics[OWN] == pytest.approx(wrong)
    assert a.metrics["answers_refused"] == pytest.approx(first.marks[REFUSED].mean())
    for name in (OWN, "answers_refused"):
        low, high = a.intervals[name]
        assert low < a.metrics[name] < high
        assert f"{name} " in str(a)
        row = differences.differences.loc[name]
        assert row["difference"] == b.metrics[name] - a.metrics[name]
        assert row["better"] == "lower"
        assert row["ci_low"] > 0
        same = none.differences.loc[name]
        assert (same["ci_low"], same["ci_high"]) == (0, 0)
        assert replicates(a.counts, n_replicates=200)[name].std() > 0
        assert f"| `{name}` | {specs.spec_of(name).meaning} | lower |" in specs.table_of_metrics()

        written = name.replace("_", " ").title()
        assert read_metric(written) == name
        rules: list[dict[str, Any]] = [
            {"metric": written, "max": 0.5},
            {"metric": name, "no_worse_than_champion": {"margin": 0.01}},
        ]
        policy = GatePolicy.parse({"rules": rules, "champion": "champion"})
        found = decide(policy, measured(b), {0.95: differences})
        assert [(v.metric, v.passed) for v in found] == [(name, True), (name, False)]


def measured(scores: Scores) -> Measured:
    return Measured.from_summary({"scores": scores.to_dict()})


@pytest.mark.usefixtures("declared")
def test_a_declared_metric_is_in_the_report() -> None:
    rows = predicted(["She is one.", "He is one."] * 20, ["poet", "dj"])
    evaluation = evaluated(rows, label_names=["poet", "dj"])
    model = {"uri": "models:/x/1", "model_id": None, "versions": []}
    content = summary(evaluation, model=model, data={"name": "bios", "digest": "abc"})
    page = report_page(content, ())
    value = evaluation.scores.metrics[OWN]
    row = re.search(rf"<tr><th[^>]*><code>{OWN}</code></th><td>([^<]*)</td>.*?</tr>", page)
    assert row is not None
    assert float(row[1]) == pytest.approx(value, abs=1e-4)
    assert "share of women's bios" in row[0].replace("&#39;", "'")
    # Nothing was recorded: the reason stands where the others do.
    why = "not recorded: whether the model refused"
    assert evaluation.scores.reasons["answers_refused"] == why
    assert why in page


@pytest.mark.usefixtures("declared")
def test_what_has_no_value_is_absent_with_a_reason() -> None:
    men = score(["dj"] * 6, ["male"] * 6, ["dj"] * 6)
    assert OWN not in men.metrics
    assert men.reasons[OWN] == "its formula has no value for these bios"
    both = compare(men, men, n_replicates=100)
    assert OWN not in both.differences.index
    assert OWN in both.reasons


@pytest.mark.usefixtures("declared")
def test_counts_of_marks_add_up() -> None:
    one, other = (outcomes(seed, wrong=0.2, refused=0.3) for seed in (1, 2))
    parts = [
        Counts.from_codes(
            genders=one.genders[part],
            occupations=one.occupations[part],
            predictions=one.predictions[part],
            labels=one.labels,
        )
        for part in (slice(0, 100),)
    ]
    whole = Counts.from_outcomes(one)
    assert Counts.from_dict(whole.to_dict()) == whole == whole + Counts.empty(one.labels)
    # Bios of which it is not recorded do not count in the share.
    mixed = scores_from_counts(parts[0] + whole)
    assert mixed.metrics["answers_refused"] == pytest.approx(one.marks[REFUSED].mean())
    joint = JointCounts.from_outcomes(one, other)
    twice = compare_counts(joint + joint, n_replicates=200).differences
    once = compare_counts(joint, n_replicates=200).differences
    name = "answers_refused"
    assert twice.loc[name, "difference"] == pytest.approx(once.loc[name, "difference"])
    width = {k: t.loc[name, "ci_high"] - t.loc[name, "ci_low"] for k, t in ((1, once), (2, twice))}
    assert width[2] == pytest.approx(width[1] / np.sqrt(2), rel=0.1)


def test_the_table_of_the_docs_is_that_of_the_declarations() -> None:
    """To write it anew: python -m tests.scoring.test_specs."""
    assert DOCS.read_text("utf-8") == renewed(DOCS.read_text("utf-8"))


def renewed(page: str) -> str:
    return re.sub(
        r"(<!-- metrics: .*? -->\n).*?(\n<!-- end of metrics -->)",
        lambda found: found[1] + specs.table_of_metrics() + found[2],
        page,
        flags=re.S,
    )


def test_declarations_are_whole() -> None:
    assert HEADLINE == (
        "balanced_accuracy",
        "ctf",
        "prediction_consistency",
        "gap_rms",
        "gap_abs",
    )
    for name, spec in specs.METRICS.items():
        assert name == spec.name
        assert spec.meaning
        assert not spec.meaning.endswith(".")
        assert bool(spec.reading) == spec.headline
        # What is compared has a direction, and what has bounds has an interval.
        assert spec.compared is None or spec.better != "neither", name
        assert not spec.bounds_logged or spec.interval is not None, name


def test_names_are_declared_once() -> None:
    with pytest.raises(ValueError, match="ctf is declared twice"):
        specs.declare(specs.METRICS["ctf"])
    with pytest.raises(MlflowException, match=r"metric: found gap_rsm.*did you mean gap_rms\?"):
        specs.better("gap_rsm")


if __name__ == "__main__":
    DOCS.write_text(renewed(DOCS.read_text("utf-8")), "utf-8")
