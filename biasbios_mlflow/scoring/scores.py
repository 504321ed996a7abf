"""Scores: every declared metric with its interval, or the reason why it is absent."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Container, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from biasbios_mlflow.errors import invalid
from biasbios_mlflow.scoring import specs, tables, uncertainty
from biasbios_mlflow.scoring.counts import Counts
from biasbios_mlflow.scoring.evidence import Evidence
from biasbios_mlflow.scoring.outcomes import Outcomes
from biasbios_mlflow.scoring.reasons import Absence, Reason
from biasbios_mlflow.scoring.shares import design_effects
from biasbios_mlflow.scoring.specs import HEADLINE

__all__ = ["HEADLINE", "Scores", "score", "scores_from_counts"]

ONE_CELL = "one cell decides"
"""How the warning begins that the uncertainty of a gap metric comes from one cell."""

_REPEATED = 1.05
"""Design effect of all bios from which equal texts are told."""


@dataclass(frozen=True, eq=False)
class Scores:
    """What a model scored.

    Attributes
    ----------
    estimates : dict of str to float
        Every metric that could be computed, all finite, without bounds of intervals.
    intervals : dict of str to (float, float)
        Confidence interval of every metric that has one.
    absences : dict of str to Reason
        Why a metric is absent.
    occupations : pandas.DataFrame
        One row an occupation; columns as in `occupations_table`.
    flips, flip_labels : pandas.DataFrame
        How predictions change under the swap, by direction and from label to label.
    gap_share_correlation : float or None
        Correlation of the TPR gap with the share of women (the compounding imbalance of De-Arteaga
        et al. 2019); None if there is none.
    unknown_predictions, unknown_counterfactual_predictions : int
        Bios predicted to be something outside the label set.
    options : dict
        ``confidence``, ``n_replicates``, ``seed`` and ``min_cell`` as used.
    warnings : tuple of str
        What makes these numbers doubtful.
    counts : Counts
        What everything was computed from.
    outcomes : Outcomes or None
        The rows, where the scores were made from rows; `compare` needs them.
    """

    estimates: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    absences: dict[str, Reason]
    occupations: pd.DataFrame
    flips: pd.DataFrame
    flip_labels: pd.DataFrame
    gap_share_correlation: float | None
    unknown_predictions: int
    unknown_counterfactual_predictions: int
    options: dict[str, Any]
    warnings: tuple[str, ...]
    counts: Counts = field(repr=False)
    outcomes: Outcomes | None = field(default=None, repr=False)

    @property
    def metrics(self) -> dict[str, float]:
        """Every metric as it is logged: the estimates, and both bounds of those declared so.

        The five of the benchmark, the debiased gap and the gaps of occupations are among these.
        """
        logged = dict(self.estimates)
        for name, bounds in self.intervals.items():
            names = specs.logged_bounds(name)
            if names is not None:
                logged.update(zip(names, bounds, strict=True))
        return logged

    @property
    def reasons(self) -> dict[str, str]:
        """Why a metric is absent, in words."""
        return {name: str(why) for name, why in self.absences.items()}

    def replicates(self) -> dict[str, npt.NDArray[np.float64]]:
        """Draw bootstrap replicates of every metric that counts by cell alone determine.

        ``n_replicates`` of them, by ``seed``: arrays of that length by name of the metric, and
        ``tpr_gap`` with a column for each of ``counts.labels``.
        """
        o = self.options
        return uncertainty.replicates(
            self.counts,
            n_replicates=o["n_replicates"],
            seed=o["seed"],
            min_cell=o["min_cell"],
        )

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the rows as dicts, lists, strings and numbers, fit for JSON."""
        return {
            "metrics": self.metrics,
            "intervals": {name: list(bounds) for name, bounds in self.intervals.items()},
            "reasons": self.reasons,
            "occupations": records(self.occupations),
            "flips": records(self.flips),
            "flip_labels": records(self.flip_labels),
            "gap_share_correlation": self.gap_share_correlation,
            "unknown_predictions": self.unknown_predictions,
            "unknown_counterfactual_predictions": self.unknown_counterfactual_predictions,
            "options": dict(self.options),
            "warnings": list(self.warnings),
        }

    def __str__(self) -> str:
        return "\n".join(_report(self))


def scores_from_counts(
    counts: Counts,
    *,
    confidence: float = 0.95,
    n_replicates: int = 10_000,
    seed: int = 0,
    min_cell: int = 5,
    intervals: bool = True,
    design_effects: npt.NDArray[np.float64] | None = None,
) -> Scores:
    """Compute every metric, interval and table from counts.

    Parameters
    ----------
    counts : Counts
        Counts of all bios.
    confidence : float
        Level of the intervals, between 0 and 1.
    n_replicates, seed : int
        Number and seed of `Scores.replicates`; the intervals need no resampling.
    min_cell : int
        Bios that each gender needs for an occupation to be scored.
    intervals : bool
        Whether to compute intervals; the metrics themselves never depend on it.
    design_effects : float array of shape (2, K), optional
        By gender and occupation, how many times as large variances are as those of as many
        independent bios: those of `shares.design_effects`. Default: all bios are independent.

    Returns
    -------
    Scores

    Raises
    ------
    mlflow.exceptions.MlflowException
        For options out of range.

    Examples
    --------
    >>> counts = Counts.from_codes(
    ...     genders=[0, 1, 0, 1],
    ...     occupations=[0, 0, 1, 1],
    ...     predictions=[0, 1, 1, 1],
    ...     labels=["nurse", "poet"],
    ... )
    >>> scores = scores_from_counts(counts, min_cell=1)
    >>> scores.metrics["balanced_accuracy"], scores.metrics["gap_abs"]
    (0.75, 0.5)
    >>> scores.reasons["prediction_consistency"]
    'no counterfactual predictions'
    """
    options = check_options(
        confidence=confidence, n_replicates=n_replicates, seed=seed, min_cell=min_cell
    )
    evidence = Evidence.of(
        counts, min_cell=min_cell, confidence=confidence, design_effects=design_effects
    )
    estimates, absences = estimate(evidence)
    bounds = interval_bounds(evidence, estimates) if intervals and counts.total else {}
    correlation = tables.gap_share_correlation(counts, min_cell=min_cell)
    n_labels = len(counts.labels)
    return Scores(
        estimates=estimates,
        intervals=bounds,
        absences=absences,
        occupations=tables.occupations_table(evidence),
        flips=tables.flips(counts),
        flip_labels=tables.flip_labels(counts),
        gap_share_correlation=None if math.isnan(correlation) else correlation,
        unknown_predictions=counts.where(predictions=n_labels),
        unknown_counterfactual_predictions=counts.where(counterfactuals=n_labels)
        + counts.where(counterfactuals=n_labels + 1),
        options=options,
        warnings=_warnings(counts, min_cell=min_cell, effects=design_effects),
        counts=counts,
    )


def _warnings(
    counts: Counts, *, min_cell: int, effects: npt.NDArray[np.float64] | None
) -> tuple[str, ...]:
    """Say what makes the numbers doubtful."""
    said = []
    if effects is not None:
        n = counts.tables.bios
        repeated = float((effects * n).sum() / n.sum()) if n.sum() else 1.0
        if repeated > _REPEATED:
            said.append(
                "many bios are the same texts: variances are those of "
                f"{n.sum() / repeated:,.0f} independent bios, not of {n.sum():,}"
            )
    found = uncertainty.deciding_cell(counts, min_cell=min_cell, design_effects=effects)
    if found is not None:
        said.append(
            f"{ONE_CELL} gap_rms ({found}): its interval, and a gate that goes by it, hang "
            "on these few bios; more of them, or a larger min_cell, would help"
        )
    return tuple(said)


def score(
    occupations: npt.ArrayLike,
    genders: npt.ArrayLike,
    predictions: npt.ArrayLike,
    counterfactual_predictions: npt.ArrayLike | None = None,
    *,
    probabilities: npt.ArrayLike | None = None,
    counterfactual_probabilities: npt.ArrayLike | None = None,
    labels: Sequence[object] | None = None,
    confidence: float = 0.95,
    n_replicates: int = 10_000,
    seed: int = 0,
    min_cell: int = 5,
    changed: npt.ArrayLike | None = None,
    ids: npt.ArrayLike | None = None,
    clusters: npt.ArrayLike | None = None,
) -> Scores:
    """Score predictions held in arrays, without MLflow.

    Parameters
    ----------
    occupations : array of shape (n,)
        True occupation of each bio.
    genders : array of shape (n,)
        "male" or "female" (also M/F and 0/1, any case).
    predictions : array of shape (n,)
        Predicted occupation of each bio.
    counterfactual_predictions : array of shape (n,), optional
        Predicted occupation of its gender-swapped copy.
    probabilities, counterfactual_probabilities : arrays of shape (n, K), optional
        Class probabilities of both, columns in the order of ``labels``; ``ctf`` needs both.
    labels : sequence, optional
        The K occupations. Default: all that occur, sorted. Predictions outside count as wrong.
    confidence : float
        Level of the intervals.
    n_replicates, seed : int
        Number and seed of `Scores.replicates`; the intervals need no resampling.
    min_cell : int
        Bios that each gender needs for an occupation to be scored.
    changed : bool array of shape (n,), optional
        Whether the swap changed the bio; needed for ``swap_coverage`` and the metrics over changed
        bios only.
    ids : array of shape (n,), optional
        What identifies each bio; `compare` checks them.
    clusters : array of shape (n,), optional
        What bios of one kind have in common, such as their texts: equal ones are no independent
        evidence, and widen the intervals. By default ``ids``.

    Returns
    -------
    Scores

    Raises
    ------
    mlflow.exceptions.MlflowException
        For arrays of different lengths, missing values, unknown genders, probabilities that are not
        numbers in [0, 1], and options out of range.

    Examples
    --------
    >>> scores = score(
    ...     occupations=["nurse", "nurse", "poet", "poet"],
    ...     genders=["male", "female", "male", "female"],
    ...     predictions=["poet", "nurse", "poet", "poet"],
    ...     counterfactual_predictions=["nurse", "nurse", "poet", "poet"],
    ...     min_cell=1,
    ... )
    >>> scores.metrics["prediction_consistency"], scores.metrics["tpr_gap/nurse"]
    (0.75, -1.0)
    """
    outcomes = Outcomes.from_labels(
        occupations,
        genders,
        predictions,
        counterfactual_predictions,
        probabilities=probabilities,
        counterfactual_probabilities=counterfactual_probabilities,
        changed=changed,
        ids=ids,
        labels=labels,
    )
    groups = outcomes.ids if clusters is None else np.asarray(clusters)
    effects = None
    if groups is not None:
        if len(groups) != len(outcomes):
            raise invalid(
                "clusters",
                found=f"{len(groups)} rows",
                expected=f"{len(outcomes)}, one a bio",
                fix="hand in arrays of the same length and order",
            )
        n_labels = len(outcomes.labels)
        cells = outcomes.genders * n_labels + outcomes.occupations
        effects = design_effects(groups, cells, 2 * n_labels).reshape(2, -1)
    scores = scores_from_outcomes(
        outcomes,
        confidence=confidence,
        n_replicates=n_replicates,
        seed=seed,
        min_cell=min_cell,
        design_effects=effects,
    )
    alike = 0 if clusters is not None else _rows_before(probabilities, outcomes)
    if alike > _FEW_ALIKE * len(outcomes):
        said = (
            f"{alike} of {len(outcomes)} bios have occupation, gender and probabilities of a bio "
            "before: if they are the same texts, the intervals are too narrow; pass "
            "clusters=texts, or leave them out"
        )
        scores = replace(scores, warnings=(*scores.warnings, said))
    return scores


_FEW_ALIKE = 0.01


def _rows_before(probabilities: npt.ArrayLike | None, outcomes: Outcomes) -> int:
    """Count the bios that a bio before them equals in all that a model says in numbers.

    Probabilities of only a few values say nothing: their rows repeat by chance.
    """
    if probabilities is None or outcomes.ids is not None:
        return 0
    matrix = np.asarray(probabilities, dtype=np.float64)
    if len(np.unique(matrix)) < len(matrix) / 10:
        return 0
    rows = np.column_stack([outcomes.genders, outcomes.occupations, matrix])
    return len(rows) - len(np.unique(rows, axis=0))


def scores_from_outcomes(outcomes: Outcomes, **options: Any) -> Scores:
    """Score rows: `scores_from_counts` of their counts, with the rows kept for `compare`."""
    scores = scores_from_counts(Counts.from_outcomes(outcomes), **options)
    return replace(scores, outcomes=outcomes)


def check_options(
    *, confidence: float, n_replicates: int, seed: int, min_cell: int
) -> dict[str, Any]:
    """Check the options that all ways to scores share, and return them."""
    if not 0 < confidence < 1:
        raise invalid(
            "confidence", found=confidence, expected="a number between 0 and 1", fix="use 0.95"
        )
    for name, value, least in (
        ("n_replicates", n_replicates, 100),
        ("seed", seed, 0),
        ("min_cell", min_cell, 1),
    ):
        if value != int(value) or value < least:
            raise invalid(
                name,
                found=value,
                expected=f"a whole number of at least {least}",
                fix=f"use {max(least, {'n_replicates': 10_000}.get(name, least))}",
            )
    return {
        "confidence": float(confidence),
        "n_replicates": int(n_replicates),
        "seed": int(seed),
        "min_cell": int(min_cell),
    }


def point_metrics(counts: Counts, *, min_cell: int) -> tuple[dict[str, float], dict[str, Reason]]:
    """Compute every metric, without intervals, and the reasons of the absent ones."""
    return estimate(Evidence.of(counts, min_cell=min_cell))


def estimate(evidence: Evidence) -> tuple[dict[str, float], dict[str, Reason]]:
    """Compute every declared metric, or the reason why it is absent.

    Returns
    -------
    dict of str to float
        All finite.
    dict of str to Reason
        Of all others.
    """
    estimates: dict[str, float] = {}
    absences: dict[str, Reason] = {}
    for spec in specs.METRICS.values():
        why = spec.reason(evidence)
        values = None
        if why is None:
            values = np.atleast_1d(np.asarray(spec.formula(evidence), dtype=np.float64))
        for name, k in spec.names(evidence.counts.labels):
            absent = why
            if absent is None and k is not None and spec.each_needs is not None:
                absent = spec.each_needs(evidence, k)
            value = math.nan if values is None else float(values[k or 0])
            if absent is None and not math.isfinite(value):
                absent = Reason(Absence.UNDEFINED)
            if absent is None:
                estimates[name] = value
            else:
                absences[name] = absent
    return estimates, absences


def interval_bounds(evidence: Evidence, names: Container[str]) -> dict[str, tuple[float, float]]:
    """Compute the interval of every metric among ``names`` that is declared with one."""
    bounds: dict[str, tuple[float, float]] = {}
    for spec in specs.METRICS.values():
        named = [(n, k) for n, k in spec.names(evidence.counts.labels) if n in names]
        if spec.interval is None or not named:
            continue
        low, high = map(np.atleast_1d, spec.interval.bounds(evidence))
        for name, k in named:
            bound = float(low[k or 0]), float(high[k or 0])
            if all(map(math.isfinite, bound)):
                bounds[name] = bound
    return bounds


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Turn rows into dicts, with None for NaN."""
    return [
        {
            str(key): None if isinstance(value, float) and math.isnan(value) else value
            for key, value in row.items()
        }
        for row in frame.to_dict("records")
    ]


def _report(scores: Scores) -> list[str]:
    """Lines of at most 80 characters."""
    m = scores.estimates
    percent = f"{100 * scores.options['confidence']:g} % interval"
    lines = [
        f"{int(m['bios']):,} bios, {int(m['occupations_scored'])} occupations scored, "
        f"{int(m['occupations_excluded'])} not scored",
        "",
        f"{'metric':<31} {'value':>9}  {percent}",
    ]
    for name in specs.declared_names(m):
        if specs.spec_of(name).whole:
            continue
        bounds = scores.intervals.get(name)
        shown = "" if bounds is None else f"  {bounds[0]:.4f} to {bounds[1]:.4f}"
        lines.append(f"{name:<31} {m[name]:>9.4f}{shown}")
    if scores.gap_share_correlation is not None:
        lines.append(
            f"{'correlation of gap, women share':<31} {scores.gap_share_correlation:>9.4f}"
        )
    rows = scores.occupations[scores.occupations["scored"]].head(5)
    if len(rows):
        lines += [
            "",
            "Largest TPR gaps (male minus female)",
            f"{'occupation':<24} {'men':>7} {'women':>7} {'gap':>8}  {percent:<18} adj. p",
        ]
        for row in rows.to_dict("records"):
            span = f"{row['tpr_gap_ci_low']:.3f} to {row['tpr_gap_ci_high']:.3f}"
            lines.append(
                f"{row['occupation'][:24]:<24} {row['n_male']:>7} {row['n_female']:>7} "
                f"{row['tpr_gap']:>8.4f}  {span:<18} {row['p_adjusted']:.2g}"
            )
    if scores.flips["bios"].iloc[-1]:
        lines += [
            "",
            f"{'Changed predictions':<24} {'bios':>8} {'flipped':>8} {'towards':>8} {'away':>8}  p",
        ]
        lines += [
            f"{row['direction']:<24} {row['bios']:>8} {row['flipped']:>8} {row['towards']:>8} "
            f"{row['away']:>8}  {row['p_value']:.2g}"
            for row in scores.flips.to_dict("records")
        ]
    for warning in scores.warnings:
        lines += ["", *textwrap.wrap(f"Doubtful: {warning}", 80, subsequent_indent="  ")]
    absent = {k: v for k, v in scores.reasons.items() if not specs.is_of_each(k)}
    if absent:
        lines += ["", "Absent"]
        for reason in dict.fromkeys(absent.values()):
            names = ", ".join(name for name, why in absent.items() if why == reason)
            lines += textwrap.wrap(f"{names}: {reason}", 80, subsequent_indent="  ")
    return lines
