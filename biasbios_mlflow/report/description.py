"""The description of a run or a version in MLflow's own pages: Markdown, a few lines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from biasbios_mlflow.report.text import number
from biasbios_mlflow.scoring.scores import HEADLINE

__all__ = ["describe", "is_ours"]

_BEGINNING = "**biasbios"


def is_ours(description: str) -> bool:
    """Tell whether a description was written here, so that it may be written anew."""
    return description.startswith(_BEGINNING)


def describe(
    summary: Mapping[str, Any],
    *,
    run_id: str,
    experiment_id: str,
    folder: str = "biasbios",
    verdict: str | None = None,
) -> str:
    """Return verdict, metrics with intervals and a link to the report, as Markdown.

    Parameters
    ----------
    summary : mapping
        The content of a ``summary.json``.
    run_id, experiment_id, folder : str
        Where the report lies.
    verdict : str, optional
        What a gate came to, in a sentence.

    Examples
    --------
    >>> scores = {"metrics": {"ctf": 0.25}, "intervals": {"ctf": [0.2, 0.31]}, "reasons": {}}
    >>> summary = {"scores": scores, "data": {"name": "bios.csv", "bios": 1200}}
    >>> print(describe(summary, run_id="7f", experiment_id="0", verdict="passed: all 2 rules"))
    **biasbios: passed: all 2 rules**
    <BLANKLINE>
    | metric | value | interval |
    | --- | ---: | --- |
    | ctf | 0.2500 | 0.2000 to 0.3100 |
    <BLANKLINE>
    1,200 bios of `bios.csv`. [Report](#/experiments/0/runs/7f/artifacts/biasbios/report.html)
    """
    scores, data = summary["scores"], summary["data"]
    lines = ["| metric | value | interval |", "| --- | ---: | --- |"]
    for name in HEADLINE:
        if name in scores["metrics"]:
            bounds = scores["intervals"].get(name)
            interval = "" if bounds is None else " to ".join(map(number, bounds))
            lines.append(f"| {name} | {number(scores['metrics'][name])} | {interval} |")
        elif name in scores["reasons"]:
            lines.append(f"| {name} | | {_plain(scores['reasons'][name])} |")
    # Relative to MLflow's page, whatever its address.
    report = f"#/experiments/{experiment_id}/runs/{run_id}/artifacts/{folder}/report.html"
    head = f"{_BEGINNING}: {_plain(verdict)}**" if verdict else f"{_BEGINNING}**"
    source = str(data["name"]).replace("`", "'")
    where = f"{data['bios']:,} bios of `{source}`. [Report]({report})"
    return "\n".join([head, "", *lines, "", where])


def _plain(text: str) -> str:
    """Return a text in which nothing is markup: it may hold names from the data."""
    return "".join(f"\\{c}" if c in "\\`*_{}[]()<>#|!~" else c for c in text.replace("\n", " "))
