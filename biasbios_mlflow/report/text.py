"""Plain-text tables for a terminal of 80 columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from biasbios_mlflow.report.marks import visible
from biasbios_mlflow.scoring import HEADLINE
from biasbios_mlflow.scoring.specs import logged_bounds

__all__ = ["debiased_first", "gaps_table", "headline_table", "number"]


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
            if debiased_first(scores["metrics"], metric) is not None:
                notes[
                    "debiased: without what chance adds in small cells, which lifts the raw value "
                    "above its own interval"
                ] = None
            if metric in scores["reasons"]:
                notes[f"{metric}: {scores['reasons'][metric]}"] = None
        rows.append(row)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    return "\n".join([*lines, *notes])


def gaps_table(summary: Mapping[str, Any], *, rows: int = 5) -> str:
    """Return the occupations with the largest TPR gaps, one a line.

    Parameters
    ----------
    summary : mapping
        The content of a ``summary.json``.
    rows : int
        At most so many.

    Examples
    --------
    >>> row = {"occupation": "poet", "scored": True, "n_male": 20, "n_female": 12, "tpr_gap": -0.25}
    >>> row |= {"tpr_gap_ci_low": -0.41, "tpr_gap_ci_high": 0.02, "p_adjusted": 0.0412}
    >>> scores = {"occupations": [row], "options": {"confidence": 0.95}}
    >>> print(gaps_table({"scores": scores}))
    largest TPR gaps            men   women     gap  95 % interval       adj. p
    poet                         20      12  -0.250  [-0.410, +0.020]    0.041
    """
    scores = summary["scores"]
    scored = [row for row in scores["occupations"] if row["scored"]][:rows]
    if not scored:
        return "no occupation is scored: there is no TPR gap to show"
    percent = f"{100 * scores['options']['confidence']:g} % interval"
    head = ("largest TPR gaps", "men", "women", "gap", percent, "adj. p")
    lines = ["{:<22} {:>8} {:>7} {:>7}  {:<18}  {}".format(*head)]
    for row in scored:
        low, high = row["tpr_gap_ci_low"], row["tpr_gap_ci_high"]
        name = visible(row["occupation"])
        lines.append(
            f"{name if len(name) <= 22 else name[:21] + '…':<22} {row['n_male']:>8,} "
            f"{row['n_female']:>7,} {row['tpr_gap']:>+7.3f}  {f'[{low:+.3f}, {high:+.3f}]':<18}  "
            f"{row['p_adjusted']:.2g}"
        )
    return "\n".join(lines)


def _cell(metrics: Mapping[str, float], metric: str) -> str:
    if metric not in metrics:
        return "-"
    low, high = (metrics.get(name) for name in logged_bounds(metric) or ("", ""))
    interval = "" if low is None or high is None else f" [{number(low)}, {number(high)}]"
    debiased = debiased_first(metrics, metric)
    if debiased is not None:
        return f"{number(debiased)} debiased{interval}, raw {number(metrics[metric])}"
    return f"{number(metrics[metric])}{interval}"


def debiased_first(metrics: Mapping[str, float], metric: str) -> float | None:
    """Return the debiased value where the plug-in one lies above its own interval, else None.

    Examples
    --------
    >>> debiased_first(
    ...     {"gap_rms": 0.2, "gap_rms_ci_high": 0.15, "gap_rms_debiased": 0.1}, "gap_rms"
    ... )
    0.1
    """
    _, upper = logged_bounds(metric) or ("", "")
    value, high = metrics.get(metric), metrics.get(upper)
    if value is None or high is None or value <= high:
        return None
    return metrics.get(f"{metric}_debiased")


def number(value: float) -> str:
    """Four decimals, or two significant digits where these would show next to nothing."""
    return f"{value:.4f}" if value == 0 or abs(value) >= 0.001 else f"{value:.1e}"
