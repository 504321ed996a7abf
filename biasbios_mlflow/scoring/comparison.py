"""Two models on the same bios: differences of every metric with paired intervals."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import special

from biasbios_mlflow.errors import invalid
from biasbios_mlflow.scoring.joint import JointCounts, Link, Pair, Rise
from biasbios_mlflow.scoring.outcomes import Outcomes
from biasbios_mlflow.scoring.parts import PARTS
from biasbios_mlflow.scoring.scores import (
    Scores,
    check_options,
    estimate,
    interval_bounds,
    records,
)
from biasbios_mlflow.scoring.shares import z_value
from biasbios_mlflow.scoring.specs import METRICS, better, is_of_each

__all__ = ["Comparison", "JointCounts", "better", "compare", "compare_counts", "paired_interval"]

FloatArray = npt.NDArray[np.float64]
Estimate = tuple[npt.ArrayLike, ...]


@dataclass(frozen=True, eq=False)
class Comparison:
    """How model b differs from model a on the same bios.

    Attributes
    ----------
    differences : pandas.DataFrame
        One row a metric, indexed by its name: ``a``, ``b``, ``difference`` (b minus a), ``ci_low``,
        ``ci_high``, ``better`` (see `better`), ``margin`` and ``probability_worse``, the
        probability that b is worse than a by more than the margin.
    reasons : dict of str to str
        Why a metric could not be compared.
    options : dict
        ``confidence``, ``n_replicates``, ``seed`` and ``min_cell`` as used.
    """

    differences: pd.DataFrame
    reasons: dict[str, str]
    options: dict[str, Any]
    _rises: dict[str, Rise] = field(repr=False)

    def probability_worse(self, metric: str, margin: float = 0.0) -> float:
        """Return the probability that b is worse than a by more than ``margin``.

        It is the smallest probability of error at which the paired bound on the worse side is
        within the margin: below (1 − confidence) / 2 exactly when that bound of the interval is.
        For a signed gap, worse is further from zero.

        Raises
        ------
        mlflow.exceptions.MlflowException
            When the metric was not compared.
        """
        if metric not in self.differences.index:
            raise invalid(
                "metric",
                found=f"{metric} ({self.reasons.get(metric, 'not a metric that is compared')})",
                expected=f"one of {', '.join(self.differences.index[:6])}, ...",
                fix="compare scores that both have this metric",
            )
        if metric in self._rises:
            return self._rises[metric].probability_above(margin)
        row = self.differences.loc[metric]
        sign = -1.0 if row["better"] == "higher" else 1.0
        worse_by = sign * float(row["difference"])
        bounds = sorted((sign * float(row["ci_low"]), sign * float(row["ci_high"])))
        z = z_value(self.options["confidence"])
        spread = (worse_by - bounds[0] if margin < worse_by else bounds[1] - worse_by) / z
        if spread <= 0:
            return float(worse_by > margin)
        return float(special.ndtr((worse_by - margin) / spread))

    def to_dict(self) -> dict[str, Any]:
        """Return everything as dicts, lists, strings and numbers, fit for JSON."""
        rows = self.differences.rename_axis("metric").reset_index()
        return {
            "differences": records(rows),
            "reasons": dict(self.reasons),
            "options": dict(self.options),
        }

    def __str__(self) -> str:
        percent = f"{100 * self.options['confidence']:g} % interval"
        lines = [
            f"{'metric':<30} {'a':>7} {'b':>7} {'b - a':>8}  {percent:<18} P(worse)",
        ]
        for name, row in self.differences.iterrows():
            if is_of_each(str(name)):
                continue
            span = f"{row['ci_low']:.4f} to {row['ci_high']:.4f}"
            lines.append(
                f"{name!s:<30} {row['a']:>7.4f} {row['b']:>7.4f} {row['difference']:>8.4f}  "
                f"{span:<18} {row['probability_worse']:>6.3f}"
            )
        return "\n".join([*lines, *self._parts_lines()])

    def _parts_lines(self, most: int = 5) -> list[str]:
        """Put both parts of the gaps of both models side by side, the largest gaps of a first."""
        table = self.differences
        head = "tpr_gap/"
        names = [str(name).removeprefix(head) for name in table.index if str(name).startswith(head)]
        taken = [n for n in names if all(f"tpr_gap_{part}/{n}" in table.index for part in PARTS)]
        if not taken:
            return []
        values: dict[str, dict[str, float]] = {
            model: {str(name): float(value) for name, value in table[model].items()}
            for model in ("a", "b")
        }
        taken.sort(key=lambda name: -abs(values["a"][head + name]))
        columns = [head, *(f"tpr_gap_{part}/" for part in PARTS)]
        lines = [
            "",
            f"{'Parts of the largest TPR gaps':<30} {'gap':^17}  {'by words':^17}  {'rest':^17}",
            f"{'occupation':<30}" + "  ".join([f" {'a':>8}{'b':>8}"] * 3),
        ]
        for name in taken[:most]:
            pairs = (
                " ".join(f"{values[model][c + name]:>+8.4f}" for model in ("a", "b"))
                for c in columns
            )
            lines.append(f"{name[:30]:<30} " + "  ".join(pairs))
        return lines


def compare(
    a: Scores | Outcomes,
    b: Scores | Outcomes,
    *,
    margin: float | Mapping[str, float] = 0.0,
    confidence: float = 0.95,
    n_replicates: int = 10_000,
    seed: int = 0,
    min_cell: int | None = None,
    metrics: Collection[str] | None = None,
) -> Comparison:
    """Compare two models on the same bios, pair by pair.

    Gaps are compared by `PairedGaps`, from the bios that only one of the two models has right. The
    difference of any other metric has an interval made of the two models' own intervals and the
    correlation of their estimates (the method of variance estimates recovery; Zou & Donner,
    Statistics in Medicine 2008). The correlation is that of joint bootstrap replicates, drawn from
    the cells (gender, occupation, right or wrong by each model), or of the bios' own values for the
    CTF readings. Where no bio tells the models apart, the interval is [0, 0].

    Parameters
    ----------
    a, b : Scores or Outcomes
        Results for the same bios in the same order; `Scores` must come from `score`, which keeps
        the rows.
    margin : float or mapping of metric to float
        By how much b may be worse; for ``probability_worse``.
    confidence : float
        Level of the intervals.
    n_replicates, seed : int
        Number and seed of the replicates.
    min_cell : int, optional
        Bios each gender needs for an occupation to be scored. Default: as in the scores, or 5.
    metrics : collection of str, optional
        Compare these only, which takes less time. Default: all.

    Returns
    -------
    Comparison

    Raises
    ------
    mlflow.exceptions.MlflowException
        When the bios are not the same, or scores have no rows.

    Examples
    --------
    >>> from biasbios_mlflow.scoring import score
    >>> occupations, genders = ["nurse", "poet"] * 100, ["male", "male", "female", "female"] * 50
    >>> a = score(occupations, genders, ["nurse"] * 200)
    >>> b = score(occupations, genders, ["nurse", "poet", "nurse", "nurse"] * 50)
    >>> row = compare(a, b).differences.loc["balanced_accuracy"]
    >>> float(row["difference"]), bool(row["ci_low"] > 0), float(row["probability_worse"]) < 0.001
    (0.25, True, True)
    """
    if min_cell is None:
        chosen = {s.options["min_cell"] for s in (a, b) if isinstance(s, Scores)}
        if len(chosen) > 1:
            raise invalid(
                "min_cell",
                found=f"scores made with {' and '.join(map(str, sorted(chosen)))}",
                expected="the same for both",
                fix="pass min_cell, or score both models with the same",
            )
        min_cell = chosen.pop() if chosen else 5
    options = check_options(
        confidence=confidence, n_replicates=n_replicates, seed=seed, min_cell=min_cell
    )
    joint = JointCounts.from_outcomes(_rows("a", a), _rows("b", b))
    return compare_counts(joint, margin=margin, metrics=metrics, **options)


def compare_counts(
    joint: JointCounts,
    *,
    margin: float | Mapping[str, float] = 0.0,
    confidence: float = 0.95,
    n_replicates: int = 10_000,
    seed: int = 0,
    min_cell: int = 5,
    metrics: Collection[str] | None = None,
) -> Comparison:
    """Compare two models from their joint counts; the rest is as for `compare`."""
    if not joint.a.total:
        raise invalid("a", found="no bios", expected="at least one", fix="compare on some data")
    pair = Pair(joint, min_cell=min_cell, n_replicates=n_replicates, seed=seed)
    evidence = [replace(one, confidence=confidence) for one in pair.evidence]
    values, reasons = [], {}
    for which, one in zip(("a", "b"), evidence, strict=True):
        estimates, absences = estimate(one)
        values.append(estimates)
        reasons.update({metric: f"{which}: {why}" for metric, why in absences.items()})
    links: dict[str, Link] = {
        name: spec.compared.link(pair, spec, k)
        for spec in METRICS.values()
        if spec.compared is not None
        for name, k in spec.names(joint.a.labels)
        if all(name in one for one in values) and (metrics is None or name in metrics)
    }
    correlated = {name for name, link in links.items() if isinstance(link, float)}
    bounds = [interval_bounds(one, correlated) for one in evidence]
    rises: dict[str, Rise] = {}
    rows: dict[str, dict[str, Any]] = {}
    for metric, link in links.items():
        a, b = (one[metric] for one in values)
        if isinstance(link, Rise):
            rises[metric] = link
            low, high = link.interval(confidence)
        elif link is None:
            low, high = 0.0, 0.0
        elif all(metric in one for one in bounds):
            own_a, own_b = bounds[0][metric], bounds[1][metric]
            low, high = map(float, paired_interval((a, *own_a), (b, *own_b), link))
        else:
            reasons[metric] = "it has no interval"
            continue
        rows[metric] = {
            "a": a,
            "b": b,
            "difference": b - a,
            "ci_low": low,
            "ci_high": high,
            "better": better(metric),
        }
    columns = ["a", "b", "difference", "ci_low", "ci_high", "better"]
    comparison = Comparison(
        differences=pd.DataFrame.from_dict(rows, orient="index", columns=columns),
        reasons=reasons,
        options={
            "confidence": confidence,
            "n_replicates": n_replicates,
            "seed": seed,
            "min_cell": min_cell,
        },
        _rises=rises,
    )
    margins = [margin.get(m, 0.0) if isinstance(margin, Mapping) else margin for m in rows]
    worse = [comparison.probability_worse(m, by) for m, by in zip(rows, margins, strict=True)]
    table = comparison.differences.assign(margin=margins, probability_worse=worse)
    return replace(comparison, differences=table)


def paired_interval(
    a: Estimate, b: Estimate, correlation: npt.ArrayLike
) -> tuple[FloatArray, FloatArray]:
    """Interval of the difference b minus a of two correlated estimates.

    Parameters
    ----------
    a, b : tuple of float or arrays of one shape
        Estimate, low and high bound of each.
    correlation : float or array
        Correlation of the two estimates.

    Examples
    --------
    >>> low, high = paired_interval((0.5, 0.4, 0.6), (0.7, 0.6, 0.8), 0.5)
    >>> round(float(low), 3), round(float(high), 3)
    (0.1, 0.3)
    """
    (at_a, low_a, high_a), (at_b, low_b, high_b) = (np.asarray(x, dtype=np.float64) for x in (a, b))
    rho = np.asarray(correlation)

    def joined(x: FloatArray, y: FloatArray) -> FloatArray:
        return np.sqrt(np.maximum(x * x + y * y - 2 * rho * x * y, 0.0))

    low = at_b - at_a - joined(at_b - low_b, high_a - at_a)
    high = at_b - at_a + joined(high_b - at_b, at_a - low_a)
    return low, high


def _rows(name: str, scores: Scores | Outcomes) -> Outcomes:
    outcomes = scores.outcomes if isinstance(scores, Scores) else scores
    if outcomes is None:
        raise invalid(
            name,
            found="scores without rows",
            expected="the outcome of each bio",
            fix="make them with score(), or pass Outcomes",
        )
    return outcomes
