"""``report.html``: one page that a reviewer can sign off from."""

from __future__ import annotations

import base64
import functools
import hashlib
import importlib.resources
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from biasbios_mlflow.flips import Flip
from biasbios_mlflow.report.figures import flips_figure, gaps_figure, has_parts, parts_figure, svg
from biasbios_mlflow.report.marks import Part, mark_differences, visible
from biasbios_mlflow.report.text import debiased_first, number
from biasbios_mlflow.scoring.parts import PARTS
from biasbios_mlflow.scoring.specs import HEADLINE, declared_names, is_of_each, spec_of

if TYPE_CHECKING:
    import jinja2
    from matplotlib.figure import Figure

__all__ = ["MOST_FLIPS", "report_page"]

MOST_FLIPS = 100
"""Flips that the page shows; ``flips.csv`` has ``max_flips`` of them."""

_FINDINGS = {
    "duplicates": "have the text of a bio before",
    "duplicates_with_other_labels": (
        "have the text of a bio with another gender or occupation: one of the two is wrong"
    ),
    "without_gendered_words": "have no word that the swap changes: they cannot flip",
    "gender_contradicted": "have only words of the other gender than the data says",
    "occupation_in_first_sentence": (
        "name their occupation in the first sentence, which the benchmark leaves out"
    ),
}

_DIRECTIONS = {
    "male_to_female": "bios of men, swapped",
    "female_to_male": "bios of women, swapped",
    "all": "all",
}


def report_page(
    summary: Mapping[str, Any],
    flips: Sequence[Flip],
    *,
    texts: bool = True,
    changed_words: Sequence[str] | None = None,
    figures: Mapping[str, Figure] | None = None,
) -> str:
    """Return the page as HTML that asks for nothing outside itself.

    Parameters
    ----------
    summary : mapping
        The content of ``summary.json``.
    flips : sequence of Flip
        The bios whose prediction changed, the largest change first.
    texts : bool, default=True
        Whether bios may be shown.
    changed_words : sequence of str, optional
        For each flip what is shown instead of its texts.
    figures : mapping of str to Figure, optional
        ``occupation_gaps``, ``flips`` and, where gaps are taken apart, ``gap_parts``, if they have
        been drawn already.

    Returns
    -------
    str
        Every text from the data stands in it as text, never as markup.
    """
    scores = summary["scores"]
    if figures is None:
        figures = {"occupation_gaps": gaps_figure(scores), "flips": flips_figure(scores)}
        if has_parts(scores):
            figures["gap_parts"] = parts_figure(scores)
    template = _environment().get_template("report.html")
    script = _resource("report.js")
    return template.render(
        title=_title(summary),
        summary=summary,
        scores=scores,
        metrics=scores["metrics"],
        verdict=_verdict(summary),
        headline=[_headline_row(scores, name) for name in HEADLINE],
        percent=_percent_of(scores),
        gaps_svg=svg(figures["occupation_gaps"], prefix="gaps-"),
        parts_svg=svg(figures["gap_parts"], prefix="parts-") if "gap_parts" in figures else None,
        parts_advice=_advice(scores),
        flips_svg=svg(figures["flips"], prefix="flips-"),
        scored=[row for row in scores["occupations"] if row["scored"]],
        excluded=[row for row in scores["occupations"] if not row["scored"]],
        directions=[{**row, "direction": _DIRECTIONS[row["direction"]]} for row in scores["flips"]],
        flips=[
            _flip(flip, texts=texts, changed=None if changed_words is None else changed_words[i])
            for i, flip in enumerate(flips[:MOST_FLIPS])
        ],
        found=summary["flips"],
        texts=texts,
        absent=_absent(scores["reasons"]),
        findings=_findings(summary["data"]["findings"], summary["data"]["bios"]),
        others=_other_metrics(scores),
        options=[
            (name, json.dumps(value, ensure_ascii=False))
            for name, value in summary["config"].items()
        ],
        style=_resource("report.css"),
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


@functools.cache  # it keeps the compiled template
def _environment() -> jinja2.Environment:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_resource),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["number"] = lambda value: "–" if value is None else number(value)
    environment.filters["signed"] = _signed
    environment.filters["visible"] = lambda value: visible(str(value))
    return environment


def _signed(value: float, decimals: int) -> str:
    return f"{value:+.{decimals}f}".replace("-", "−")


def _resource(name: str) -> str:
    return (importlib.resources.files(__package__) / name).read_text("utf-8")


def _title(summary: Mapping[str, Any]) -> str:
    model = summary["model"]
    for version in model["versions"]:
        return f"{version['name']} version {version['version']}"
    return str(model["uri"] or model["model_id"] or "a model without a name")


def _percent_of(scores: Mapping[str, Any]) -> str:
    return f"{100 * scores['options']['confidence']:g} %"


def _verdict(summary: Mapping[str, Any]) -> list[str]:
    """Say in a few sentences what was evaluated, on what, what came out and how sure it is."""
    scores, model = summary["scores"], summary["model"]
    metrics, intervals = scores["metrics"], scores["intervals"]
    name = model["uri"] or model["model_id"] or "The model"
    scored, excluded = int(metrics["occupations_scored"]), int(metrics["occupations_excluded"])
    said = [
        f"{visible(str(name))} was evaluated on {summary['data']['bios']:,} bios "
        f"(dataset “{visible(summary['data']['name'])}”); {scored} of {scored + excluded} "
        "occupations are scored."
    ]
    if "balanced_accuracy" in metrics:
        said.append(
            f"It recognizes {_percent(metrics['balanced_accuracy'])} of the bios of an occupation "
            f"on average{_within(intervals, 'balanced_accuracy')}."
        )
    if "gap_rms" in metrics:
        low = intervals.get("gap_rms_debiased", (0.0, 0.0))[0]
        said.append(
            f"Men and women of one occupation differ by {_gap_rms(metrics)} (root mean square"
            f") in how often they are recognized; a model without any gap would show about "
            f"{number(metrics['gap_rms_noise_floor'])} here. "
            + (
                "That there is a gap beyond chance is established at this confidence."
                if low > 0
                else "These bios do not establish a gap beyond chance, nor do they rule one out"
                f"{_up_to(intervals)}."
            )
        )
    if "gap_rms_words" in metrics:
        said.append(_parts_sentence(scores))
    if "prediction_consistency" in metrics:
        said.append(
            f"Exchanging the words that carry gender changed the prediction of "
            f"{_percent(1 - metrics['prediction_consistency'])} of the bios."
        )
    return said


def _parts_sentence(scores: Mapping[str, Any]) -> str:
    """Say how large both parts of the gap are, and which one dominates."""
    metrics, intervals = scores["metrics"], scores["intervals"]
    sizes = {}
    for part in PARTS:
        name = f"gap_rms_{part}"
        value = metrics.get(f"{name}_debiased", metrics[name])
        sizes[part] = f"{number(value)}{_span(intervals, name)}"
    said = (
        "Without what chance adds, the words that carry gender cause a part of "
        f"{sizes['words']}, and {sizes['rest']} is left where all are written in the same words"
    )
    return f"{said}: {_DOMINATES[_dominant(scores)]}."


_DOMINATES = {
    "words": "the larger part comes from the words",
    "rest": "the larger part is the rest",
    "both": "both parts matter",
    "words alone": "only the part that the words cause is established",
    "rest alone": "only the rest is established",
    "neither": "neither part is established beyond chance",
}

_ADVICE = {
    "words": (
        "Training with swapped copies, or taking the gendered words out, acts on the part that the "
        "words cause, and so on most of this gap."
    ),
    "rest": (
        "Training with swapped copies, or taking the gendered words out, would leave most of this "
        "gap: it comes from how the bios of men and women differ otherwise, or from how many "
        "there are to learn from."
    ),
    "both": (
        "Training with swapped copies, or taking the gendered words out, acts on the part that the "
        "words cause only; expect about the rest to stay."
    ),
    "words alone": (
        "Training with swapped copies, or taking the gendered words out, acts on the part that the "
        "words cause, the only one that these bios establish."
    ),
    "rest alone": (
        "Training with swapped copies, or taking the gendered words out, acts on the part that the "
        "words cause; these bios establish the rest only."
    ),
    "neither": "More bios are needed to tell where a gap comes from.",
}

_MOST = 2 / 3
"""Share of the debiased mean square from which a part is said to dominate."""


def _dominant(scores: Mapping[str, Any]) -> str:
    metrics, intervals = scores["metrics"], scores["intervals"]
    known = [p for p in PARTS if intervals.get(f"gap_rms_{p}", (0.0, 0.0))[0] > 0]
    if len(known) < 2:
        return f"{known[0]} alone" if known else "neither"
    squares = {
        part: metrics.get(f"gap_rms_{part}_debiased", metrics[f"gap_rms_{part}"]) ** 2
        for part in PARTS
    }
    total = sum(squares.values())
    return next((part for part in PARTS if squares[part] > _MOST * total), "both")


def _advice(scores: Mapping[str, Any]) -> str:
    return _ADVICE[_dominant(scores)] if "gap_rms_words" in scores["metrics"] else ""


def _span(intervals: Mapping[str, Sequence[float]], name: str) -> str:
    if name not in intervals:
        return ""
    low, high = intervals[name]
    return f" ({number(low)} to {number(high)})"


def _gap_rms(metrics: Mapping[str, float]) -> str:
    first = debiased_first(metrics, "gap_rms")
    if first is None:
        return number(metrics["gap_rms"])
    return f"{number(first)}, or {number(metrics['gap_rms'])} with what chance adds,"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _within(intervals: Mapping[str, Sequence[float]], name: str) -> str:
    if name not in intervals:
        return ""
    low, high = intervals[name]
    return f" ({_percent(low)} to {_percent(high)})"


def _up_to(intervals: Mapping[str, Sequence[float]]) -> str:
    bounds = intervals.get("gap_rms_debiased")
    return "" if bounds is None else f" up to {number(bounds[1])}"


def _headline_row(scores: Mapping[str, Any], name: str) -> dict[str, Any]:
    metrics = scores["metrics"]
    bounds = scores["intervals"].get(name)
    first = debiased_first(metrics, name)
    notes = []
    if first is not None:
        notes.append(f"debiased; the raw value is {number(metrics[name])}")
    if f"{name}_noise_floor" in metrics:
        notes.append(f"noise floor {number(metrics[f'{name}_noise_floor'])}")
    if first is None and f"{name}_debiased" in metrics:
        notes.append(f"debiased {number(metrics[f'{name}_debiased'])}")
    if bounds is not None and name in metrics and not bounds[0] <= metrics[name] <= bounds[1]:
        notes.append(
            f"the {'raw ' if first is not None else ''}value lies outside the interval of the "
            "population's gap: small cells push it up"
        )
    return {
        "name": name,
        "value": metrics.get(name) if first is None else first,
        "interval": None if bounds is None else f"{number(bounds[0])} to {number(bounds[1])}",
        "notes": notes,
        "reason": scores["reasons"].get(name),
        "how": spec_of(name).reading,
    }


def _other_metrics(scores: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what else was logged but the gaps by occupation, which have a table of their own."""
    rows = []
    for name in declared_names(scores["metrics"]):
        if name in HEADLINE:
            continue
        spec, value = spec_of(name), scores["metrics"][name]
        low, high = scores["intervals"].get(name, (None, None))
        rows.append(
            {
                "name": name,
                "value": f"{value:,.0f}" if spec.whole else number(value),
                "interval": "" if low is None else f"{number(low)} to {number(high)}",
                "meaning": spec.meaning.replace("`", ""),
            }
        )
    return rows


def _absent(reasons: Mapping[str, str]) -> list[tuple[str, str]]:
    by_reason: dict[str, list[str]] = {}
    for name, why in reasons.items():
        if not is_of_each(name):  # in the table of occupations that are not scored
            by_reason.setdefault(why, []).append(name)
    return [(", ".join(names), why) for why, names in by_reason.items()]


def _findings(found: Mapping[str, Any], bios: int) -> list[str]:
    """Say what may be wrong with the bios themselves."""
    said = [
        f"{found[name]:,} ({_percent(found[name] / bios)}) {what}."
        for name, what in _FINDINGS.items()
        if found.get(name)
    ]
    words = found["words"]
    said.append(
        f"Half of the bios have at most {words['median']:,} words, 95 % at most {words['p95']:,}; "
        f"the longest has {words['longest']:,}."
    )
    return said


def _flip(flip: Flip, *, texts: bool, changed: str | None) -> dict[str, Any]:
    before: list[Part] = []
    after: list[Part] = []
    if texts:
        if flip.counterfactual_text is None:
            before = mark_differences(flip.text, flip.text)[0]
        else:
            before, after = mark_differences(flip.text, flip.counterfactual_text)
    kind = "between two wrong labels"
    if flip.counterfactual_prediction == flip.occupation:
        kind = "towards the true occupation"
    if flip.prediction == flip.occupation:
        kind = "away from the true occupation"
    return {"flip": flip, "kind": kind, "before": before, "after": after, "changed": changed}
