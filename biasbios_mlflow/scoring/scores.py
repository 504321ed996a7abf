"""Scores: every metric with its interval, or the reason why it is absent."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy.typing as npt
import pandas as pd

from biasbios_mlflow.errors import invalid
from biasbios_mlflow.scoring import metrics as formulas
from biasbios_mlflow.scoring import tables
from biasbios_mlflow.scoring.counts import Counts
from biasbios_mlflow.scoring.outcomes import CTF_READINGS, Outcomes

__all__ = ["HEADLINE", "Scores", "score", "scores_from_counts"]

HEADLINE = ("balanced_accuracy", "ctf", "prediction_consistency", "gap_rms", "gap_abs")
"""The five metrics of the benchmark, the primary one first."""

_NO_COUNTERFACTUAL = "no counterfactual predictions"


@dataclass(frozen=True)
class Scores:
    """What a model scored.

    Attributes
    ----------
    metrics : dict of str to float
        Every metric that could be computed, all finite; the five of the benchmark, the debiased gap
        and the per-occupation gaps also with ``_ci_low`` and ``_ci_high``.
    intervals : dict of str to (float, float)
        Confidence interval of every metric that has one.
    reasons : dict of str to str
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
    outcomes : Outcomes or None
        The rows, where the scores were made from rows; `compare` needs them.
    """

    metrics: dict[str, float]
    intervals: dict[str, tuple[float, float]]
    reasons: dict[str, str]
    occupations: pd.DataFrame
    flips: pd.DataFrame
    flip_labels: pd.DataFrame
    gap_share_correlation: float | None
    unknown_predictions: int
    unknown_counterfactual_predictions: int
    options: dict[str, Any]
    outcomes: Outcomes | None = field(default=None, repr=False, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the rows as dicts, lists, strings and numbers, fit for JSON."""
        return {
            "metrics": dict(self.metrics),
            "intervals": {name: list(bounds) for name, bounds in self.intervals.items()},
            "reasons": dict(self.reasons),
            "occupations": _records(self.occupations),
            "flips": _records(self.flips),
            "flip_labels": _records(self.flip_labels),
            "gap_share_correlation": self.gap_share_correlation,
            "unknown_predictions": self.unknown_predictions,
            "unknown_counterfactual_predictions": self.unknown_counterfactual_predictions,
            "options": dict(self.options),
        }

    def __str__(self) -> str:
        return "\n".join(_report(self))


def scores_from_counts(
    counts: Counts,
    *,
    confidence: float = 0.95,
    n_replicates: int = 10_000,
    seed: int = 0,
    min_cell: int = 1,
    intervals: bool = True,
) -> Scores:
    """Compute every metric, interval and table from counts.

    Parameters
    ----------
    counts : Counts
        Counts of all bios.
    confidence : float
        Level of the intervals, between 0 and 1.
    n_replicates : int
        Replicates for the intervals that need resampling.
    seed : int
        Seed of the replicates; the same seed gives the same intervals.
    min_cell : int
        Bios that each gender needs for an occupation to be scored.
    intervals : bool
        Whether to compute intervals; the metrics themselves never depend on it.

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
    >>> scores = scores_from_counts(counts)
    >>> scores.metrics["balanced_accuracy"], scores.metrics["gap_abs"]
    (0.75, 0.5)
    >>> scores.reasons["prediction_consistency"]
    'no counterfactual predictions'
    """
    options = check_options(
        confidence=confidence, n_replicates=n_replicates, seed=seed, min_cell=min_cell
    )
    metrics, reasons = point_metrics(counts, min_cell=min_cell)
    bounds: dict[str, tuple[float, float]] = {}
    correlation = tables.gap_share_correlation(counts, min_cell=min_cell)
    n_labels = len(counts.labels)
    return Scores(
        metrics=metrics,
        intervals=bounds,
        reasons=reasons,
        occupations=tables.occupations_table(counts, confidence=confidence, min_cell=min_cell),
        flips=tables.flips(counts),
        flip_labels=tables.flip_labels(counts),
        gap_share_correlation=None if math.isnan(correlation) else correlation,
        unknown_predictions=counts.where(predictions=n_labels),
        unknown_counterfactual_predictions=counts.where(counterfactuals=n_labels)
        + counts.where(counterfactuals=n_labels + 1),
        options=options,
    )


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
    min_cell: int = 1,
    changed: npt.ArrayLike | None = None,
    ids: npt.ArrayLike | None = None,
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
        Replicates for the intervals that need resampling, and their seed.
    min_cell : int
        Bios that each gender needs for an occupation to be scored.
    changed : bool array of shape (n,), optional
        Whether the swap changed the bio; needed for ``swap_coverage`` and the metrics over changed
        bios only.
    ids : array of shape (n,), optional
        What identifies each bio; `compare` checks them.

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
    return scores_from_outcomes(
        outcomes, confidence=confidence, n_replicates=n_replicates, seed=seed, min_cell=min_cell
    )


def scores_from_outcomes(outcomes: Outcomes, **options: Any) -> Scores:
    """Score rows: `scores_from_counts` of their counts, with the rows kept for `compare`."""
    scores = scores_from_counts(Counts.from_outcomes(outcomes), **options)
    object.__setattr__(scores, "outcomes", outcomes)
    return scores


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


def point_metrics(counts: Counts, *, min_cell: int) -> tuple[dict[str, float], dict[str, str]]:
    """Compute every metric, without intervals, and the reasons of the absent ones."""
    t, n = counts.tables, counts.total
    n_labels = len(counts.labels)
    scored = formulas.scored_occupations(t.bios, min_cell)
    gap = formulas.rate_gap(t.hits, t.bios)
    false_positives, negatives = formulas.false_positives(t.hits, t.predicted, t.bios)
    fpr_gap = formulas.rate_gap(false_positives, negatives)
    fpr_scored = scored & (negatives > 0).all(axis=0)
    male, female = formulas.accuracy_by_gender(t.hits, t.bios)

    no_bios = "no bios"
    no_scored = f"no occupation has at least {min_cell} bios of each gender"
    no_male, no_female = ("no bios of men", "no bios of women") if n else (no_bios, no_bios)
    values: dict[str, tuple[float, str]] = {
        "balanced_accuracy": (float(formulas.balanced_accuracy(t.hits, t.bios)), no_bios),
        "balanced_accuracy_ovr": (
            float(formulas.balanced_accuracy_ovr(t.hits, t.predicted, t.bios)),
            "fewer than two occupations are present",
        ),
        "accuracy": (float(formulas.accuracy(t.hits, t.bios)), no_bios),
        "accuracy_male": (float(male), no_male),
        "accuracy_female": (float(female), no_female),
        "accuracy_gap": (float(male - female), no_female if male == male else no_male),
        "gap_rms": (float(formulas.gap_rms(gap, scored)), no_scored),
        "gap_abs": (float(formulas.gap_abs(gap, scored)), no_scored),
        "gap_rms_debiased": (
            float(formulas.gap_rms_debiased(t.hits, t.bios, scored)),
            no_scored,
        ),
        "gap_rms_noise_floor": (formulas.gap_rms_noise_floor(t.hits, t.bios, scored), no_scored),
        "gap_abs_noise_floor": (formulas.gap_abs_noise_floor(t.hits, t.bios, scored), no_scored),
        "fpr_gap_rms": (
            float(formulas.gap_rms(fpr_gap, fpr_scored)),
            no_scored if not scored.any() else "no scored occupation has negatives of each gender",
        ),
        "fpr_gap_abs": (
            float(formulas.gap_abs(fpr_gap, fpr_scored)),
            no_scored if not scored.any() else "no scored occupation has negatives of each gender",
        ),
        "bios": (float(n), ""),
        "occupations_scored": (float(scored.sum()), ""),
        "occupations_excluded": (float(n_labels - scored.sum()), ""),
    }
    values.update(_counterfactual_metrics(counts))
    for k, label in enumerate(counts.labels):
        few = (
            f"{int(t.bios[0, k])} bios of men and {int(t.bios[1, k])} of women, "
            f"and min_cell is {min_cell}"
        )
        values[f"tpr_gap/{label}"] = (float(gap[k]) if scored[k] else math.nan, few)
    metrics = {name: value for name, (value, _) in values.items() if math.isfinite(value)}
    reasons = {name: why for name, (value, why) in values.items() if not math.isfinite(value)}
    return metrics, reasons


def _counterfactual_metrics(counts: Counts) -> Mapping[str, tuple[float, str]]:
    t, n = counts.tables, counts.total
    n_labels = len(counts.labels)
    values: dict[str, tuple[float, str]] = {}

    unpaired = counts.where(counterfactuals=n_labels + 2)
    why_unpaired = ""
    if n == 0:
        why_unpaired = "no bios"
    elif unpaired == n:
        why_unpaired = _NO_COUNTERFACTUAL
    elif unpaired:
        why_unpaired = f"{unpaired} of {n} bios have no counterfactual prediction"
    consistency = math.nan if why_unpaired else int(t.consistent.sum()) / n
    values["prediction_consistency"] = (consistency, why_unpaired)

    n_changed = int(t.changed.sum())
    why_unchanged = ""
    if n == 0:
        why_unchanged = "no bios"
    elif counts.where(changed=2):
        why_unchanged = "not known which bios the swap changed"
    values["swap_coverage"] = (math.nan if why_unchanged else n_changed / n, why_unchanged)
    if not why_unchanged and not n_changed:
        why_unchanged = "the swap changed no bio"
    why = why_unpaired or why_unchanged
    values["prediction_consistency_changed"] = (
        math.nan if why else int(t.changed_consistent.sum()) / n_changed,
        why,
    )

    expected = n - counts.where(predictions=n_labels)
    n_ctf = int(counts.ctf_bios.sum())
    why_ctf = ""
    if n == 0:
        why_ctf = "no bios"
    elif n_ctf == 0 and unpaired == n:
        why_ctf = _NO_COUNTERFACTUAL
    elif n_ctf == 0:
        why_ctf = "no probabilities" if expected else "all predictions lie outside the label set"
    elif n_ctf != expected:
        why_ctf = f"only {n_ctf} of {expected} bios have probabilities"
    for reading in CTF_READINGS:
        values[reading] = (math.nan if why_ctf else counts.ctf_moments(reading)[1], why_ctf)
    why = why_ctf or why_unchanged
    _, changed_mean, _ = counts.ctf_moments("ctf", changed_only=True)
    if not why and math.isnan(changed_mean):
        why = "no changed bio has probabilities"
    values["ctf_changed"] = (math.nan if why else changed_mean, why)
    return values


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as dicts with None for NaN."""
    return [
        {
            key: None if isinstance(value, float) and math.isnan(value) else value
            for key, value in row.items()
        }
        for row in frame.to_dict("records")
    ]


def _report(scores: Scores) -> list[str]:
    """Lines of at most 80 characters."""
    m = scores.metrics
    percent = f"{100 * scores.options['confidence']:g} % interval"
    lines = [
        f"{int(m['bios']):,} bios, {int(m['occupations_scored'])} occupations scored, "
        f"{int(m['occupations_excluded'])} not scored",
        "",
        f"{'metric':<31} {'value':>9}  {percent}",
    ]
    listed = [*HEADLINE, *(name for name in m if name not in HEADLINE)]
    for name in listed:
        if (
            name not in m
            or name.startswith(("tpr_gap/", "occupations_"))
            or name.endswith(("_ci_low", "_ci_high"))
            or name == "bios"
        ):
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
    absent = {k: v for k, v in scores.reasons.items() if not k.startswith("tpr_gap/")}
    if absent:
        lines += ["", "Absent"]
        for reason in dict.fromkeys(absent.values()):
            names = ", ".join(name for name, why in absent.items() if why == reason)
            lines += textwrap.wrap(f"{names}: {reason}", 80, subsequent_indent="  ")
    return lines
