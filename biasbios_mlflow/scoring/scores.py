"""Scores: every metric with its interval, or the reason why it is absent."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from biasbios_mlflow.errors import invalid
from biasbios_mlflow.scoring import metrics as formulas
from biasbios_mlflow.scoring import tables, uncertainty
from biasbios_mlflow.scoring.counts import Counts
from biasbios_mlflow.scoring.outcomes import CTF_READINGS, Outcomes
from biasbios_mlflow.scoring.shares import design_effects

__all__ = ["HEADLINE", "Scores", "score", "scores_from_counts"]

HEADLINE = ("balanced_accuracy", "ctf", "prediction_consistency", "gap_rms", "gap_abs")
"""The five metrics of the benchmark, the primary one first."""

ONE_CELL = "one cell decides"
"""How the warning begins that the uncertainty of a gap metric comes from one cell."""

_LOGGED_BOUNDS = (*HEADLINE, "gap_rms_debiased")

_GAP_METRICS = (
    "gap_rms",
    "gap_abs",
    "gap_rms_debiased",
    "gap_rms_noise_floor",
    "gap_abs_noise_floor",
)


_REPEATED = 1.05
"""Design effect of all bios from which equal texts are told."""

_NO_VARIANCE = "every scored occupation has a single bio of one gender, which has no variance"


@dataclass(frozen=True, eq=False)
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
    warnings : tuple of str
        What makes these numbers doubtful.
    counts : Counts
        What everything was computed from.
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
    warnings: tuple[str, ...]
    counts: Counts = field(repr=False)
    outcomes: Outcomes | None = field(default=None, repr=False)

    def replicates(self) -> dict[str, npt.NDArray[np.float64]]:
        """Draw bootstrap replicates of every metric that counts alone determine.

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
            "metrics": dict(self.metrics),
            "intervals": {name: list(bounds) for name, bounds in self.intervals.items()},
            "reasons": dict(self.reasons),
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
    metrics, reasons = point_metrics(counts, min_cell=min_cell)
    bounds: dict[str, tuple[float, float]] = {}
    if intervals and counts.total:
        every = uncertainty.intervals(
            counts, confidence=confidence, min_cell=min_cell, design_effects=design_effects
        )
        bounds = {name: every[name] for name in metrics if name in every}
        for name, (low, high) in bounds.items():
            if name in _LOGGED_BOUNDS or name.startswith("tpr_gap/"):
                metrics[f"{name}_ci_low"], metrics[f"{name}_ci_high"] = low, high
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


def point_metrics(counts: Counts, *, min_cell: int) -> tuple[dict[str, float], dict[str, str]]:
    """Compute every metric, without intervals, and the reasons of the absent ones."""
    t, n = counts.tables, counts.total
    scored = formulas.scored_occupations(t.bios, min_cell)
    computed = formulas.count_metrics(t, min_cell=min_cell)
    gaps = computed.pop("tpr_gap")
    values = {name: float(value) for name, value in computed.items()}
    values.update(
        prediction_consistency=float(formulas.share(t.consistent, counts.paired)),
        gap_rms_noise_floor=formulas.gap_rms_noise_floor(t.hits, t.bios, scored),
        gap_abs_noise_floor=formulas.gap_abs_noise_floor(t.hits, t.bios, scored),
        bios=float(n),
        occupations_scored=float(scored.sum()),
        occupations_excluded=float((~scored).sum()),
        ctf_changed=counts.ctf_moments("ctf", changed_only=True)[1],
        **{reading: counts.ctf_moments(reading)[1] for reading in CTF_READINGS},
    )
    reasons = _reasons(counts, scored, min_cell)
    for label, gap, male, female in zip(counts.labels, gaps, *t.bios, strict=True):
        values[f"tpr_gap/{label}"] = float(gap)
        if math.isnan(gap):
            reasons[f"tpr_gap/{label}"] = (
                f"{male} bios of men and {female} of women; min_cell is {min_cell}"
            )
    return {name: value for name, value in values.items() if name not in reasons}, reasons


def _reasons(counts: Counts, scored: npt.NDArray[np.bool_], min_cell: int) -> dict[str, str]:
    """Say of each metric that cannot be computed why."""
    t, n, n_labels = counts.tables, counts.total, len(counts.labels)
    male, female = t.bios.sum(axis=-1)
    n_occupations = int((t.bios.sum(axis=0) > 0).sum())
    debiased = formulas.debiased_occupations(t.bios, scored)
    no_gap = "" if scored.any() else f"no occupation has at least {min_cell} bios of each gender"
    no_gender = "" if male and female else f"no bios of {'women' if male else 'men'}"

    negatives = t.bios.sum(axis=-1, keepdims=True) - t.bios
    no_fpr = ""
    if not (scored & (negatives > 0).all(axis=0)).any():
        no_fpr = "no scored occupation has bios of other occupations of each gender"

    no_pair = "" if counts.paired else "no counterfactual predictions"
    no_flag = "not known which bios the swap changed" if counts.where(changed=2) else ""
    # Copies that are all the same show nothing, not perfect consistency.
    all_same = "" if no_flag or t.changed else "the swap changed no bio"
    no_change = no_flag or all_same

    expected = n - counts.where(predictions=n_labels)
    if counts.paired:  # those without a counterfactual are left out
        expected = counts.paired - counts.where(predictions=n_labels)
        expected += counts.where(predictions=n_labels, counterfactuals=n_labels + 2)
    n_ctf = int(counts.ctf_bios.sum())
    no_ctf = ""
    if n_ctf != expected:
        no_ctf = f"only {n_ctf} of {expected} bios have probabilities"
    if not n_ctf:
        no_ctf = "no probabilities" if expected else "no prediction lies in the label set"
        no_ctf = no_pair or no_ctf
    no_ctf = no_ctf or all_same
    no_changed_ctf = no_ctf or no_change
    if not no_changed_ctf and not counts.ctf_moments("ctf", changed_only=True)[0]:
        no_changed_ctf = "no changed bio has probabilities"

    reasons = {
        "balanced_accuracy": "",
        "balanced_accuracy_ovr": "" if n_occupations > 1 else "only one occupation is present",
        "accuracy": "",
        "accuracy_male": "" if male else "no bios of men",
        "accuracy_female": "" if female else "no bios of women",
        "accuracy_gap": no_gender,
        **dict.fromkeys(_GAP_METRICS, no_gap),
        "gap_rms_debiased": no_gap or ("" if debiased.any() else _NO_VARIANCE),
        **dict.fromkeys(("fpr_gap_rms", "fpr_gap_abs"), no_gap or no_fpr),
        "prediction_consistency": no_pair or all_same,
        "swap_coverage": no_flag,
        "prediction_consistency_changed": no_pair or no_change,
        **dict.fromkeys(CTF_READINGS, no_ctf),
        "ctf_changed": no_changed_ctf,
    }
    if n == 0:
        reasons = dict.fromkeys(reasons, "no bios")
    return {name: why for name, why in reasons.items() if why}


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
    for warning in scores.warnings:
        lines += ["", *textwrap.wrap(f"Doubtful: {warning}", 80, subsequent_indent="  ")]
    absent = {k: v for k, v in scores.reasons.items() if not k.startswith("tpr_gap/")}
    if absent:
        lines += ["", "Absent"]
        for reason in dict.fromkeys(absent.values()):
            names = ", ".join(name for name, why in absent.items() if why == reason)
            lines += textwrap.wrap(f"{names}: {reason}", 80, subsequent_indent="  ")
    return lines
