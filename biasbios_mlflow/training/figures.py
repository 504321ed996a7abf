"""The figure of a benchmark: what accuracy each method keeps, and what fairness it gains."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd

from biasbios_mlflow.report.figures import QUIET, style
from biasbios_mlflow.scoring import HEADLINE
from biasbios_mlflow.scoring.specs import better
from biasbios_mlflow.training.methods import METHODS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["tradeoff_figure"]


def tradeoff_figure(runs: pd.DataFrame) -> Figure:
    """Draw balanced accuracy against each fairness metric.

    Parameters
    ----------
    runs : DataFrame
        See `BenchmarkResult`.

    Returns
    -------
    matplotlib.figure.Figure
        One panel a metric: small marks are seeds, large ones means, with bars of one standard
        deviation.
    """
    with style():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(8.0, 6.4), layout="constrained")
        done = runs[runs["error"] == ""]
        accuracy, *fairness = HEADLINE
        for axes, metric in zip(figure.subplots(2, 2).flat, fairness, strict=True):
            for method, known in METHODS.items():
                color, marker = known.color, known.marker
                points = done.loc[done["method"] == method, [accuracy, metric]].dropna()
                if points.empty:
                    continue
                axes.scatter(
                    points[accuracy], points[metric], s=12, color=color, marker=marker, alpha=0.4
                )
                spread = points.std(ddof=1).fillna(0.0)
                axes.errorbar(
                    points[accuracy].mean(),
                    points[metric].mean(),
                    xerr=spread[accuracy],
                    yerr=spread[metric],
                    color=color,
                    marker=marker,
                    markersize=8,
                    linestyle="none",
                    label=method,
                )
            axes.set_title(f"{metric} ({better(metric)} is better)")
            axes.set_xlabel(accuracy)
            axes.grid(color=QUIET, alpha=0.2)
        handles, labels = figure.axes[0].get_legend_handles_labels()
        figure.legend(
            handles, labels, loc="outside lower center", ncols=min(len(labels), 6), frameon=False
        )
        return figure
