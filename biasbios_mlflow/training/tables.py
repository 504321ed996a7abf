"""Tables of a benchmark: methods by metric, and each method against the baseline."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from biasbios_mlflow.report.text import number
from biasbios_mlflow.scoring import HEADLINE

__all__ = ["FURTHER", "comparison_table", "markdown", "method_table", "text_table"]

FURTHER = (
    *("ctf_true_class", "ctf_all_classes", "ctf_gap"),
    *("gap_rms_noise_floor", "gap_rms_words", "gap_rms_rest"),
    *("gap_abs_noise_floor", "gap_abs_words", "gap_abs_rest"),
)
"""What a benchmark lists beside the five: readings of CTF (a published one may be any of them), the
gaps to be expected of a model without any, and the parts of the gaps."""

_SHORT = {
    "balanced_accuracy": "bal_accuracy",
    "prediction_consistency": "consistency",
}


def method_table(runs: pd.DataFrame) -> pd.DataFrame:
    """Return mean and standard deviation over the seeds of each metric.

    Parameters
    ----------
    runs : DataFrame
        See `BenchmarkResult`.

    Returns
    -------
    DataFrame
        ``method``, ``metric``, ``mean``, ``sd`` (NaN for one seed) and ``seeds``.
    """
    done = runs[runs["error"] == ""]
    rows = []
    for method in runs["method"].unique():
        of_method = done[done["method"] == method]
        for metric in (*HEADLINE, *(name for name in FURTHER if name in runs)):
            values = of_method[metric].dropna() if metric in of_method else pd.Series(dtype=float)
            mean, sd = values.mean(), values.std(ddof=1)
            rows.append((method, metric, mean, sd, len(values)))
    return pd.DataFrame(rows, columns=["method", "metric", "mean", "sd", "seeds"])


def comparison_table(comparisons: pd.DataFrame) -> pd.DataFrame:
    """Return the differences from the baseline over the seeds.

    Parameters
    ----------
    comparisons : DataFrame
        See `BenchmarkResult`.

    Returns
    -------
    DataFrame
        ``method``, ``metric``, ``difference`` and ``sd`` over the seeds; ``ci_low`` and
        ``ci_high``, between which the paired intervals of all seeds lie; in how many of the
        ``seeds`` the interval lies wholly on the ``better`` or on the ``worse`` side of zero.
    """
    rows = []
    for (method, metric), group in comparisons.groupby(["method", "metric"], sort=False):
        above, below = int((group["ci_low"] > 0).sum()), int((group["ci_high"] < 0).sum())
        higher = group["better"].iloc[0] == "higher"
        rows.append(
            {
                "method": method,
                "metric": metric,
                "difference": group["difference"].mean(),
                "sd": group["difference"].std(ddof=1),
                "ci_low": group["ci_low"].min(),
                "ci_high": group["ci_high"].max(),
                "better": above if higher else below,
                "worse": below if higher else above,
                "seeds": len(group),
            }
        )
    columns = ["method", "metric", "difference", "sd", "ci_low", "ci_high"]
    return pd.DataFrame(rows, columns=[*columns, "better", "worse", "seeds"])


def markdown(runs: pd.DataFrame, comparisons: pd.DataFrame, *, confidence: float) -> str:
    """Return both tables, a third of further metrics, and what failed, as Markdown."""
    lines = _in_pipes(_method_cells(runs, HEADLINE, exact=True))
    if len(comparisons):
        lines += ["", *_in_pipes(_comparison_cells(comparisons, confidence, exact=True))]
    known = [name for name in FURTHER if name in runs and runs[name].notna().any()]
    if known:
        lines += ["", *_in_pipes(_method_cells(runs, known, exact=True))]
    return "\n".join([*lines, *_failures(runs)]) + "\n"


def text_table(runs: pd.DataFrame, comparisons: pd.DataFrame, *, confidence: float) -> str:
    """Return the same, shorter, for a terminal of 80 columns."""
    lines = _in_columns(_method_cells(runs, HEADLINE, exact=False))
    if len(comparisons):
        lines += ["", *_in_columns(_comparison_cells(comparisons, confidence, exact=False))]
    return "\n".join([*lines, *_failures(runs)])


def _method_cells(runs: pd.DataFrame, metrics: Sequence[str], *, exact: bool) -> list[list[str]]:
    table = method_table(runs).set_index(["method", "metric"])
    cells = [["method", *(_named(metric, exact) for metric in metrics)]]
    for method in runs["method"].unique():
        spreads = table.loc[method]
        cells.append([str(method), *(_with_spread(spreads.loc[m], exact) for m in metrics)])
    return cells


def _comparison_cells(
    comparisons: pd.DataFrame, confidence: float, *, exact: bool
) -> list[list[str]]:
    cells = [
        [
            "against baseline" if exact else "method",
            _named("metric", exact),
            "difference",
            f"{100 * confidence:g} % intervals",
            "better",
            "worse",
        ]
    ]
    cells.extend(
        [
            str(row["method"]),
            _named(str(row["metric"]), exact),
            _signed(row["difference"]),
            f"{_signed(row['ci_low'])} to {_signed(row['ci_high'])}",
            f"{row['better']}/{row['seeds']}",
            f"{row['worse']}/{row['seeds']}",
        ]
        for row in comparison_table(comparisons).to_dict("records")
    )
    return cells


def _named(metric: str, exact: bool) -> str:
    return metric if exact else _SHORT.get(metric, metric)


def _with_spread(spread: pd.Series, exact: bool) -> str:
    mean, sd = float(spread["mean"]), float(spread["sd"])
    if math.isnan(mean):
        return "-"
    if exact:
        return number(mean) if math.isnan(sd) else f"{number(mean)} ± {number(sd)}"
    large = abs(mean) >= 0.01
    value = f"{mean:.3f}" if large else f"{mean:.1e}"
    if math.isnan(sd):
        return value
    return f"{value}±{sd:.3f}" if large or sd == 0 else f"{value}±{sd:.0e}"


def _signed(value: float) -> str:
    return f"{'-' if value < 0 else '+'}{number(abs(value))}"


def _failures(runs: pd.DataFrame) -> list[str]:
    failed = runs[runs["error"] != ""]
    lines = [f"{row.method}, seed {row.seed} failed: {row.error}" for row in failed.itertuples()]
    return ["", *lines] if lines else []


def _in_pipes(cells: list[list[str]]) -> list[str]:
    head, *rows = ["| " + " | ".join(row) + " |" for row in cells]
    return [head, "| " + " | ".join("---" for _ in cells[0]) + " |", *rows]


def _in_columns(cells: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in cells]
