"""Plain-text tables for a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from biasbios_mlflow.scoring import HEADLINE

__all__ = ["headline_table"]


def headline_table(summaries: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the five metrics of one model or of several side by side.

    Parameters
    ----------
    summaries : mapping of str to mapping
        By the name of each column, the content of a ``summary.json``.

    Returns
    -------
    str
        A value with its interval in brackets; a dash where a metric is absent, with the reason
        below the table.

    Examples
    --------
    >>> scores = {"metrics": {"gap_rms": 0.1234}, "reasons": {"ctf": "no probabilities"}}
    >>> print(headline_table({"mine": {"scores": scores}}))
                            mine
    balanced_accuracy       -
    ctf                     -
    prediction_consistency  -
    gap_rms                 0.1234
    gap_abs                 -
    ctf: no probabilities
    """
    rows = [["", *summaries]]
    notes: dict[str, None] = {}
    for metric in HEADLINE:
        row = [metric]
        for summary in summaries.values():
            scores = summary["scores"]
            row.append(_cell(scores["metrics"], metric))
            if metric in scores["reasons"]:
                notes[f"{metric}: {scores['reasons'][metric]}"] = None
        rows.append(row)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    return "\n".join([*lines, *notes])


def _cell(metrics: Mapping[str, float], metric: str) -> str:
    if metric not in metrics:
        return "-"
    low, high = metrics.get(f"{metric}_ci_low"), metrics.get(f"{metric}_ci_high")
    interval = "" if low is None or high is None else f" [{_number(low)}, {_number(high)}]"
    return f"{_number(metrics[metric])}{interval}"


def _number(value: float) -> str:
    """Four decimals, or two significant digits where these would show next to nothing."""
    return f"{value:.4f}" if value == 0 or abs(value) >= 0.001 else f"{value:.1e}"
