"""Every metric, declared once.

What a metric is called, how it is computed, what its interval is, which way it is better, what it
needs, how two models are compared by it and what it says: `METRICS`. Scores, reasons, comparisons,
the gate, reports and the table of the docs are made from these declarations; nothing else knows the
name of a metric. To add one, write its formula in ``metrics.py`` and declare it here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from biasbios_mlflow.errors import invalid, nearest
from biasbios_mlflow.scoring import metrics
from biasbios_mlflow.scoring.evidence import Evidence, Rate
from biasbios_mlflow.scoring.outcomes import CTF_READINGS, MARK_UNREADABLE
from biasbios_mlflow.scoring.parts import (
    PARTS,
    Part,
    part_abs_noise_floor,
    part_rms_debiased,
    part_rms_noise_floor,
)
from biasbios_mlflow.scoring.reasons import Absence, Reason
from biasbios_mlflow.scoring.shares import (
    Interval,
    fay_feuer_interval,
    mean_share_interval,
    newcombe_interval,
    wilson_interval,
)

if TYPE_CHECKING:
    from biasbios_mlflow.scoring.joint import Link, Pair

__all__ = [
    "BOUNDS",
    "BY_CORRELATION",
    "EACH",
    "HEADLINE",
    "METRICS",
    "IntervalMethod",
    "MetricSpec",
    "Need",
    "Pairing",
    "better",
    "by_mark",
    "declare",
    "declared_names",
    "is_of_each",
    "logged_bounds",
    "recorded",
    "resampled_metrics",
    "share_of_mark",
    "spec_of",
    "table_of_metrics",
]

FloatArray = npt.NDArray[np.float64]
Better = Literal["higher", "lower", "nearer zero", "neither"]
Need = Callable[[Evidence], Reason | None]

EACH = "<occupation>"
"""Stands for the occupation in the name of a metric that each has."""

BOUNDS = ("_ci_low", "_ci_high")
"""How the logged bounds of a metric's interval are told from it by name."""


@dataclass(frozen=True)
class IntervalMethod:
    """How an interval is made: what the docs call it, and its bounds of shape () or (K,)."""

    name: str
    bounds: Callable[[Evidence], Interval]


@dataclass(frozen=True)
class Pairing:
    """How two models on the same bios are compared by a metric.

    Attributes
    ----------
    name : str
        What the docs call it.
    link : callable
        From a `Pair`, the declaration and the code of the occupation (None for a metric of all
        bios) to what `compare` goes by: a `Rise`, the correlation of the two models' estimates, or
        None where no bio tells one model from the other.
    """

    name: str
    link: Callable[[Pair, MetricSpec, int | None], Link]


BY_CORRELATION = Pairing(
    "both intervals and the correlation of replicates",
    lambda pair, spec, k: None if pair.alike else pair.correlation(spec.name, k),
)
"""For any metric: no difference where the models have the same counts in every cell."""


@dataclass(frozen=True, kw_only=True)
class MetricSpec:
    """The declaration of a metric.

    Attributes
    ----------
    name : str
        As in `Scores.metrics`; ends in ``/<occupation>`` where each occupation has one.
    meaning : str
        What it is, in one sentence, as the tables of docs and report have it.
    formula : callable
        From `Evidence` to a number, or to an array of shape (K,) where each occupation has one; NaN
        where there is none. With ``resampled`` also from replicates, with leading axes.
    better : str
        "higher", "lower" or "nearer zero"; "neither" for what describes the bios.
    needs : sequence of callable
        Each says why the metric cannot be computed, or None; the first reason counts.
    each_needs : callable, optional
        The same for one occupation, by its code.
    interval : IntervalMethod, optional
    compared : Pairing, optional
        None for what is not compared.
    resampled : bool
        Whether the formula takes replicates: whether counts by cell alone determine it.
    headline : bool
        One of the benchmark's five.
    bounds_logged : bool
        Whether ``<name>_ci_low`` and ``<name>_ci_high`` are metrics too.
    reading : str
        How to read it, for the cards of the report.
    hangs_on_cells : bool
        Whether one small cell can decide it; the gate then says so.
    whole : bool
        Whether it is a number of bios or occupations.
    """

    name: str
    meaning: str
    formula: Callable[[Evidence], npt.ArrayLike]
    better: Better
    needs: Sequence[Need] = ()
    each_needs: Callable[[Evidence, int], Reason | None] | None = None
    interval: IntervalMethod | None = None
    compared: Pairing | None = BY_CORRELATION
    resampled: bool = True
    headline: bool = False
    bounds_logged: bool = False
    reading: str = ""
    hangs_on_cells: bool = False
    whole: bool = False

    @property
    def of_each(self) -> bool:
        """Whether each occupation has one."""
        return self.name.endswith(f"/{EACH}")

    def names(self, labels: Sequence[str]) -> list[tuple[str, int | None]]:
        """Return the metric's name with None, or its name for each occupation with the code."""
        if not self.of_each:
            return [(self.name, None)]
        return [(self.name.replace(EACH, label), k) for k, label in enumerate(labels)]

    def reason(self, evidence: Evidence) -> Reason | None:
        """Say why there is no such metric at all, if there is none."""
        return next((why for need in self.needs if (why := need(evidence)) is not None), None)


METRICS: dict[str, MetricSpec] = {}
"""The declared metrics by name, in the order in which they are listed."""


def declare(*specs: MetricSpec) -> None:
    """Add metrics to `METRICS`.

    Raises
    ------
    ValueError
        When a name is taken.
    """
    for spec in specs:
        if spec.name in METRICS:
            raise ValueError(f"the metric {spec.name} is declared twice")
        METRICS[spec.name] = spec


def spec_of(metric: str) -> MetricSpec:
    """Return the declaration of a metric, whichever occupation it is of, or of a bound of one.

    Raises
    ------
    MlflowException
        When no such metric is declared.

    Examples
    --------
    >>> spec_of("tpr_gap/yoga_teacher").name, spec_of("ctf_ci_low").name
    ('tpr_gap/<occupation>', 'ctf')
    """
    spec = METRICS.get(metric) or METRICS.get(f"{metric.partition('/')[0]}/{EACH}")
    for end in BOUNDS:
        bounded = METRICS.get(metric.removesuffix(end))
        if spec is None and metric.endswith(end) and bounded is not None and bounded.bounds_logged:
            spec = bounded
    if spec is None:
        near = nearest(metric, METRICS)
        raise invalid(
            "metric",
            found=metric,
            expected="a metric that is declared",
            fix=f"did you mean {near}?" if near else "see docs/metrics.md",
        )
    return spec


def better(metric: str) -> Better:
    """Say which way a metric is better: ``higher``, ``lower``, ``nearer zero`` or ``neither``.

    Examples
    --------
    >>> better("accuracy"), better("ctf"), better("tpr_gap/nurse"), better("bios")
    ('higher', 'lower', 'nearer zero', 'neither')
    """
    return spec_of(metric).better


def is_of_each(metric: str) -> bool:
    """Tell whether a metric is one that each occupation has."""
    return spec_of(metric).of_each


def declared_names(names: Iterable[str]) -> list[str]:
    """Return those of some names that are metrics of all bios, in the order of the declarations.

    Bounds of intervals and metrics of single occupations are left out.

    Examples
    --------
    >>> declared_names(["gap_rms_ci_low", "ctf", "tpr_gap/poet", "gap_rms", "balanced_accuracy"])
    ['balanced_accuracy', 'ctf', 'gap_rms']
    """
    there = set(names)
    return [name for name, spec in METRICS.items() if not spec.of_each and name in there]


def logged_bounds(metric: str) -> tuple[str, str] | None:
    """Return the names under which both ends of an interval are logged; None if they are not.

    Examples
    --------
    >>> logged_bounds("ctf"), logged_bounds("accuracy")
    (('ctf_ci_low', 'ctf_ci_high'), None)
    """
    if not spec_of(metric).bounds_logged:
        return None
    low, high = BOUNDS
    return metric + low, metric + high


def resampled_metrics(
    evidence: Evidence, needed: Evidence | None = None
) -> Iterator[tuple[MetricSpec, FloatArray]]:
    """Yield every metric that counts by cell alone determine, with its values.

    Parameters
    ----------
    evidence : Evidence
        Replicates with leading axes (...).
    needed : Evidence, optional
        What the replicates were drawn from: metrics that these lack are left out.
    """
    for spec in METRICS.values():
        if spec.resampled and (needed is None or spec.reason(needed) is None):
            yield spec, np.asarray(spec.formula(evidence), dtype=np.float64)


def table_of_metrics() -> str:
    """Return all metrics as the Markdown table of ``docs/metrics.md``."""
    lines = [
        "| metric | definition | better | interval | two models are compared by |",
        "| --- | --- | --- | --- | --- |",
    ]
    for spec in METRICS.values():
        cells = (
            f"`{spec.name}`",
            spec.meaning.replace("|", "\\|"),
            "–" if spec.better == "neither" else spec.better,
            "–" if spec.interval is None else spec.interval.name,
            "–" if spec.compared is None else spec.compared.name,
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


# What metrics need.


def _bios(e: Evidence) -> Reason | None:
    return None if e.counts.total else Reason(Absence.NO_BIOS)


def _men(e: Evidence) -> Reason | None:
    return None if e.tables.bios[0].sum() else Reason(Absence.NO_MEN)


def _women(e: Evidence) -> Reason | None:
    return None if e.tables.bios[1].sum() else Reason(Absence.NO_WOMEN)


def _genders(e: Evidence) -> Reason | None:
    return _women(e) if e.tables.bios[0].sum() else Reason(Absence.NO_MEN)


def _two_occupations(e: Evidence) -> Reason | None:
    several = (e.tables.bios.sum(axis=0) > 0).sum() > 1
    return None if several else Reason(Absence.ONE_OCCUPATION)


def _scored(e: Evidence) -> Reason | None:
    some = e.scored.any()
    return None if some else Reason(Absence.NO_SCORED_OCCUPATION, {"min_cell": e.min_cell})


def _variance(e: Evidence) -> Reason | None:
    return None if e.debiased.any() else Reason(Absence.NO_VARIANCE)


def _negatives(e: Evidence) -> Reason | None:
    return None if e.fpr_scored.any() else Reason(Absence.NO_NEGATIVES)


def _counterfactuals(e: Evidence) -> Reason | None:
    return None if e.counts.paired else Reason(Absence.NO_COUNTERFACTUALS)


def _swapped_scored(e: Evidence) -> Reason | None:
    some = e.swapped_scored.any()
    return None if some else Reason(Absence.NO_SCORED_PAIRS, {"min_cell": e.min_cell})


def _swapped_negatives(e: Evidence) -> Reason | None:
    return None if e.part_chosen("fpr").any() else Reason(Absence.NO_NEGATIVES)


def _swapped_variance(e: Evidence) -> Reason | None:
    cells = e.variants("tpr").cells
    some = (e.swapped_scored & (cells >= 2).all(axis=0)).any()
    return None if some else Reason(Absence.NO_VARIANCE)


def _changes_known(e: Evidence) -> Reason | None:
    return Reason(Absence.CHANGES_UNKNOWN) if e.counts.where(changed=2) else None


def _some_change(e: Evidence) -> Reason | None:
    # Copies that are all the same show nothing, not perfect consistency.
    same = _changes_known(e) is None and not e.tables.changed
    return Reason(Absence.NO_CHANGE) if same else None


def _probabilities(e: Evidence) -> Reason | None:
    counts, n_labels = e.counts, len(e.counts.labels)
    outside = counts.where(predictions=n_labels)
    expected = counts.total - outside
    if counts.paired:  # those without a counterfactual are left out
        expected = counts.paired - outside
        expected += counts.where(predictions=n_labels, counterfactuals=n_labels + 2)
    found = int(counts.ctf_bios.sum())
    if not found:
        none = Absence.NO_PROBABILITIES if expected else Absence.NO_KNOWN_PREDICTION
        return _counterfactuals(e) or Reason(none)
    if found != expected:
        return Reason(Absence.SOME_PROBABILITIES, {"found": found, "expected": expected})
    return None


def _changed_probabilities(e: Evidence) -> Reason | None:
    some = e.counts.ctf_moments("ctf", changed_only=True)[0]
    return None if some else Reason(Absence.NO_CHANGED_PROBABILITIES)


def _enough_bios(e: Evidence, k: int) -> Reason | None:
    if e.scored[k]:
        return None
    men, women = e.tables.bios[:, k].tolist()
    return Reason(Absence.FEW_BIOS, {"men": men, "women": women, "min_cell": e.min_cell})


def _enough_pairs(e: Evidence, k: int) -> Reason | None:
    if e.swapped_scored[k]:
        return None
    men, women = e.variants("tpr").cells[:, k].tolist()
    return Reason(Absence.FEW_PAIRS, {"men": men, "women": women, "min_cell": e.min_cell})


def recorded(mark: str, what: str) -> Need:
    """Need that it was recorded of the bios whether they have a mark (`Outcomes.marks`).

    Parameters
    ----------
    mark : str
    what : str
        What the mark says, for the reason.
    """

    def need(e: Evidence) -> Reason | None:
        asked = e.tables.marks[mark][..., 0] if mark in e.tables.marks else np.zeros(2)
        if not asked.any():
            return Reason(Absence.NOT_RECORDED, {"what": what})
        return None

    return need


# Intervals.


def _shares(part: Callable[[Evidence], tuple[npt.ArrayLike, npt.ArrayLike]]) -> IntervalMethod:
    return IntervalMethod("Wilson", lambda e: e.wilson(*part(e)))


def _of_gender(gender: int) -> IntervalMethod:
    def bounds(e: Evidence) -> Interval:
        effect = e.gender_effects[gender]
        hits, bios = e.tables.hits[gender].sum(), e.tables.bios[gender].sum()
        return wilson_interval(hits / effect, bios / effect, e.confidence)

    return IntervalMethod("Wilson", bounds)


def _balanced(e: Evidence) -> Interval:
    effect, t = e.occupation_effects, e.tables
    return mean_share_interval(
        t.hits.sum(axis=0) / effect, t.bios.sum(axis=0) / effect, e.confidence
    )


def _balanced_ovr(e: Evidence) -> Interval:
    t, effect = e.tables, e.occupation_effects
    bios, right = t.bios.sum(axis=0), t.hits.sum(axis=0)
    rest = np.where(bios > 0, e.counts.total - bios, 0)
    true_negatives = np.where(rest > 0, rest - (t.predicted.sum(axis=0) - right), 0)
    return mean_share_interval(
        np.append(right / effect, true_negatives / e.whole_effect),
        np.append(bios / effect, rest / e.whole_effect),
        e.confidence,
    )


def _accuracy_gap(e: Evidence) -> Interval:
    effect, t = e.gender_effects, e.tables
    return newcombe_interval(
        t.hits.sum(axis=-1) / effect, t.bios.sum(axis=-1) / effect, e.confidence
    )


_EFFECTIVE_WILSON = "Wilson with the effective number of bios"
_GAP_METHOD = "[inverted test](intervals.md)"
_LARGEST_CTF = {"ctf": 0.25, "ctf_true_class": 0.25, "ctf_all_classes": 0.5, "ctf_gap": 1.0}


def _of_ctf(reading: str, *, changed_only: bool = False) -> IntervalMethod:
    def bounds(e: Evidence) -> Interval:
        size, mean, square = e.counts.ctf_moments(reading, changed_only=changed_only)
        return fay_feuer_interval(
            size / e.whole_effect,
            np.maximum(mean, 0.0),
            square,
            largest=_LARGEST_CTF[reading],
            confidence=e.confidence,
        )

    return IntervalMethod("Fay & Feuer", bounds)


def _ctf_mean(e: Evidence, reading: str, *, changed_only: bool = False) -> FloatArray:
    # Freed from the noise of drawn answers, a mean of what is hardly there can come out below 0.
    mean = e.counts.ctf_moments(reading, changed_only=changed_only)[1]
    return np.maximum(mean, 0.0)


def share_of_mark(mark: str) -> IntervalMethod:
    """Wilson's interval of the share of all bios that have a mark."""
    return _shares(
        lambda e: (e.tables.marks[mark][..., 1].sum(), e.tables.marks[mark][..., 0].sum())
    )


# How two models are compared.

_CORRELATED = "both intervals and the correlation of the two models"


def _correlated(alike: Callable[[Pair], bool]) -> Pairing:
    return Pairing(
        _CORRELATED,
        lambda pair, spec, k: None if alike(pair) else pair.correlation(spec.name, k),
    )


def _by_ctf(reading: str, *, changed_only: bool = False) -> Pairing:
    return Pairing(
        _CORRELATED, lambda pair, spec, k: pair.ctf_correlation(reading, changed_only=changed_only)
    )


def _by_gaps(kind: Literal["rms", "abs", "each"], which: str) -> Pairing:
    return Pairing(
        "[discordant bios](intervals.md)", lambda pair, spec, k: pair.rise(kind, which, k)
    )


def by_mark(mark: str) -> Pairing:
    """Compare two models by the bios that have a mark under one of them only."""
    return _correlated(lambda pair: pair.same_marks(mark))


_SAME_HITS = _correlated(lambda pair: pair.same_hits)

# The metrics.

_GAP_NEEDS = (_bios, _scored)
_CTF_NEEDS = (_bios, _probabilities, _some_change)


def _ctf(
    reading: str, meaning: str, *, headline: bool = False, reading_text: str = ""
) -> MetricSpec:
    return MetricSpec(
        name=reading,
        meaning=meaning,
        formula=lambda e: _ctf_mean(e, reading),
        better="lower",
        needs=_CTF_NEEDS,
        interval=_of_ctf(reading),
        compared=_by_ctf(reading),
        resampled=False,
        headline=headline,
        bounds_logged=headline,
        reading=reading_text,
    )


_PART_NEEDS = (*_GAP_NEEDS, _counterfactuals, _some_change, _swapped_scored)
_PARTS_SAY = {
    "words": "the part of it that the words which carry gender cause",
    "rest": "the rest of it, which stays where all bios are written in the same words",
}


def _of_part(part: Part) -> Iterator[MetricSpec]:
    """Yield the metrics of one part of the gap; ``docs/why.md``."""

    def over(
        rate: Rate,
        kind: Literal["rms", "abs"],
        formula: Callable[..., FloatArray],
        needs: Sequence[Need],
    ) -> MetricSpec:
        gap = f"{'fpr_' if rate == 'fpr' else ''}gap_{kind}"
        return MetricSpec(
            name=f"{gap}_{part}",
            meaning=f"as `{gap}`, of {_PARTS_SAY[part]}",
            formula=lambda e: formula(e.part_gap(rate, part), e.part_chosen(rate)),
            better="lower",
            needs=needs,
            interval=IntervalMethod(
                _GAP_METHOD, lambda e: getattr(e.part_intervals[rate][part], kind)
            ),
            compared=_by_gaps(kind, f"{rate} {part}"),
            resampled=False,
            bounds_logged=rate == "tpr",
        )

    def floor(kind: Literal["rms", "abs"], formula: Callable[..., float]) -> MetricSpec:
        return MetricSpec(
            name=f"gap_{kind}_{part}_noise_floor",
            meaning=f"`gap_{kind}_{part}` expected if that part were 0 everywhere",
            formula=lambda e: formula(e.variants("tpr"), part, e.swapped_scored),
            better="neither",
            needs=_PART_NEEDS,
            compared=None,
            resampled=False,
        )

    yield over("tpr", "rms", metrics.gap_rms, _PART_NEEDS)
    yield over("tpr", "abs", metrics.gap_abs, _PART_NEEDS)
    yield MetricSpec(
        name=f"gap_rms_{part}_debiased",
        meaning=f"`gap_rms_{part}` less what chance adds, as `gap_rms_debiased`",
        formula=lambda e: part_rms_debiased(e.variants("tpr"), part, e.swapped_scored),
        better="lower",
        needs=(*_PART_NEEDS, _swapped_variance),
        interval=IntervalMethod(_GAP_METHOD, lambda e: e.part_intervals["tpr"][part].rms),
        compared=_by_gaps("rms", f"tpr {part}"),
        resampled=False,
    )
    yield floor("rms", part_rms_noise_floor)
    yield floor("abs", part_abs_noise_floor)
    yield MetricSpec(
        name=f"tpr_gap_{part}/{EACH}",
        meaning=f"of `tpr_gap/{EACH}`, {_PARTS_SAY[part]}".replace(" of it", ""),
        formula=lambda e: e.part_gap("tpr", part),
        better="nearer zero",
        needs=(_counterfactuals, _some_change),
        each_needs=_enough_pairs,
        interval=IntervalMethod(
            "[moments](why.md)" if part == "words" else "[effective Newcombe](why.md)",
            lambda e: e.part_bounds("tpr", part),
        ),
        compared=_by_gaps("each", f"tpr {part}"),
        resampled=False,
    )
    yield over("fpr", "rms", metrics.gap_rms, (*_PART_NEEDS, _swapped_negatives))
    yield over("fpr", "abs", metrics.gap_abs, (*_PART_NEEDS, _swapped_negatives))


_answers = recorded(MARK_UNREADABLE, "answers in words, which this model does not give")


def _unreadable_counts(e: Evidence) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Unreadable answers and all answers by gender; shapes (..., 2)."""
    marks = np.asarray(e.tables.marks[MARK_UNREADABLE])
    return marks[..., 1], marks[..., 0]


def _unreadable_share(e: Evidence, gender: int) -> FloatArray:
    unreadable, answers = _unreadable_counts(e)
    return metrics.share(unreadable[..., gender], answers[..., gender])


def _unreadable_gap(e: Evidence) -> Interval:
    unreadable, answers = _unreadable_counts(e)
    effect = e.gender_effects
    return newcombe_interval(unreadable / effect, answers / effect, e.confidence)


def _unreadable(gender: int, name: str, whose: str, there: Need) -> MetricSpec:
    def bounds(e: Evidence) -> Interval:
        unreadable, answers = _unreadable_counts(e)
        effect = e.gender_effects[gender]
        return wilson_interval(unreadable[gender] / effect, answers[gender] / effect, e.confidence)

    return MetricSpec(
        name=f"answers_unreadable_{name}",
        meaning=f"the same share of {whose} bios",
        formula=lambda e: _unreadable_share(e, gender),
        better="lower",
        needs=(_bios, there, _answers),
        interval=IntervalMethod("Wilson", bounds),
        compared=by_mark(MARK_UNREADABLE),
    )


declare(
    MetricSpec(
        name="balanced_accuracy",
        meaning="unweighted mean of recall over the occupations present; equals scikit-learn's",
        formula=lambda e: metrics.balanced_accuracy(e.tables.hits, e.tables.bios),
        better="higher",
        needs=(_bios,),
        interval=IntervalMethod(_EFFECTIVE_WILSON, _balanced),
        compared=_SAME_HITS,
        headline=True,
        bounds_logged=True,
        reading=(
            "How often the occupation is recognized, as the mean over the occupations: each "
            "counts the same, however few bios it has. Higher is better."
        ),
    ),
    _ctf(
        "ctf",
        "mean over bios of the variance (ddof 0) over the variants of the probability of ŷ_0, "
        "which is ((p_1 − p_0)/2)²",
        headline=True,
        reading_text=(
            "How far the probability of the predicted occupation moves when only the words that "
            "carry gender change (variance over the two variants). Lower is better, 0 is "
            "indifference."
        ),
    ),
    MetricSpec(
        name="prediction_consistency",
        meaning="share of bios with ŷ_0 = ŷ_1",
        formula=lambda e: metrics.share(e.tables.consistent, e.tables.paired),
        better="higher",
        needs=(_bios, _counterfactuals, _some_change),
        interval=_shares(lambda e: (e.tables.consistent, e.tables.paired)),
        compared=_correlated(lambda pair: pair.same_consistency(0)),
        headline=True,
        bounds_logged=True,
        reading=(
            "Share of bios whose prediction stays the same when the words that carry gender "
            "change. Higher is better, 1 is individual fairness in this sense."
        ),
    ),
    MetricSpec(
        name="gap_rms",
        meaning="√ mean over scored occupations of (TPR_male − TPR_female)²",
        formula=lambda e: metrics.gap_rms(e.tpr_gap, e.scored),
        better="lower",
        needs=_GAP_NEEDS,
        interval=IntervalMethod(_GAP_METHOD, lambda e: e.tpr_intervals.rms),
        compared=_by_gaps("rms", "tpr"),
        headline=True,
        bounds_logged=True,
        hangs_on_cells=True,
        reading=(
            "Typical difference between men and women of one occupation in how often they are "
            "recognized; large gaps weigh more. Lower is better. Judge it by the noise floor and "
            "the debiased value: with few bios a cell, chance alone makes gaps."
        ),
    ),
    MetricSpec(
        name="gap_abs",
        meaning="mean over scored occupations of |TPR_male − TPR_female|",
        formula=lambda e: metrics.gap_abs(e.tpr_gap, e.scored),
        better="lower",
        needs=_GAP_NEEDS,
        interval=IntervalMethod(_GAP_METHOD, lambda e: e.tpr_intervals.abs),
        compared=_by_gaps("abs", "tpr"),
        headline=True,
        bounds_logged=True,
        hangs_on_cells=True,
        reading=(
            "The same with every gap weighing alike. Lower is better; it too must be held against "
            "its noise floor."
        ),
    ),
    MetricSpec(
        name="gap_rms_debiased",
        meaning=(
            "√ max(0, mean(d² − v)): d the gap, v its estimated variance, p(1 − p)/(n − 1) summed "
            "over the genders"
        ),
        formula=lambda e: metrics.gap_rms_debiased(e.tables.hits, e.tables.bios, e.scored),
        better="lower",
        needs=(*_GAP_NEEDS, _variance),
        interval=IntervalMethod(_GAP_METHOD, lambda e: e.debiased_intervals.rms),
        compared=_by_gaps("rms", "debiased"),
        bounds_logged=True,
        hangs_on_cells=True,
    ),
    MetricSpec(
        name="gap_rms_noise_floor",
        meaning="`gap_rms` expected of a model that has no gap at all, given these cell sizes",
        formula=lambda e: metrics.gap_rms_noise_floor(e.tables.hits, e.tables.bios, e.scored),
        better="neither",
        needs=_GAP_NEEDS,
        compared=None,
        resampled=False,
        hangs_on_cells=True,
    ),
    MetricSpec(
        name="gap_abs_noise_floor",
        meaning="`gap_abs` expected of a model that has no gap at all, given these cell sizes",
        formula=lambda e: metrics.gap_abs_noise_floor(e.tables.hits, e.tables.bios, e.scored),
        better="neither",
        needs=_GAP_NEEDS,
        compared=None,
        resampled=False,
        hangs_on_cells=True,
    ),
    MetricSpec(
        name=f"tpr_gap/{EACH}",
        meaning="TPR_male − TPR_female of one occupation",
        formula=lambda e: e.tpr_gap,
        better="nearer zero",
        each_needs=_enough_bios,
        interval=IntervalMethod(
            "Newcombe",
            lambda e: newcombe_interval(
                e.tables.hits / e.effects, e.tables.bios / e.effects, e.confidence
            ),
        ),
        compared=_by_gaps("each", "tpr"),
        bounds_logged=True,
    ),
    *(spec for part in PARTS for spec in _of_part(part)),
    MetricSpec(
        name="fpr_gap_rms",
        meaning=(
            "as `gap_rms` with false positive rates; the negatives of an occupation are the bios "
            "of all others"
        ),
        formula=lambda e: metrics.gap_rms(e.fpr_gap, e.fpr_scored),
        better="lower",
        needs=(*_GAP_NEEDS, _negatives),
        interval=IntervalMethod(_GAP_METHOD, lambda e: e.fpr_intervals.rms),
        compared=_by_gaps("rms", "fpr"),
    ),
    MetricSpec(
        name="fpr_gap_abs",
        meaning="as `gap_abs` with false positive rates",
        formula=lambda e: metrics.gap_abs(e.fpr_gap, e.fpr_scored),
        better="lower",
        needs=(*_GAP_NEEDS, _negatives),
        interval=IntervalMethod(_GAP_METHOD, lambda e: e.fpr_intervals.abs),
        compared=_by_gaps("abs", "fpr"),
    ),
    MetricSpec(
        name="accuracy",
        meaning="share of bios predicted right",
        formula=lambda e: metrics.accuracy(e.tables.hits, e.tables.bios),
        better="higher",
        needs=(_bios,),
        interval=_shares(lambda e: (e.tables.hits.sum(), e.tables.bios.sum())),
        compared=_SAME_HITS,
    ),
    MetricSpec(
        name="accuracy_male",
        meaning="share of men's bios predicted right",
        formula=lambda e: metrics.accuracy_by_gender(e.tables.hits, e.tables.bios)[..., 0],
        better="higher",
        needs=(_bios, _men),
        interval=_of_gender(0),
        compared=_SAME_HITS,
    ),
    MetricSpec(
        name="accuracy_female",
        meaning="share of women's bios predicted right",
        formula=lambda e: metrics.accuracy_by_gender(e.tables.hits, e.tables.bios)[..., 1],
        better="higher",
        needs=(_bios, _women),
        interval=_of_gender(1),
        compared=_SAME_HITS,
    ),
    MetricSpec(
        name="accuracy_gap",
        meaning="`accuracy_male` − `accuracy_female`",
        formula=lambda e: metrics.accuracy_gap(e.tables.hits, e.tables.bios),
        better="nearer zero",
        needs=(_bios, _genders),
        interval=IntervalMethod("Newcombe", _accuracy_gap),
        compared=_by_gaps("each", "accuracy"),
    ),
    MetricSpec(
        name="balanced_accuracy_ovr",
        meaning=(
            "mean over the occupations present of (sensitivity + specificity)/2, each against the "
            "rest"
        ),
        formula=lambda e: metrics.balanced_accuracy_ovr(
            e.tables.hits, e.tables.predicted, e.tables.bios
        ),
        better="higher",
        needs=(_bios, _two_occupations),
        interval=IntervalMethod(_EFFECTIVE_WILSON, _balanced_ovr),
        compared=_correlated(lambda pair: pair.same_hits and pair.same_mistakes),
    ),
    MetricSpec(
        name="swap_coverage",
        meaning="share of bios that the swap changed",
        formula=lambda e: metrics.share(e.tables.changed, e.tables.bios.sum(axis=(-2, -1))),
        better="neither",
        needs=(_bios, _changes_known),
        interval=_shares(lambda e: (e.tables.changed, e.tables.bios.sum())),
        compared=None,
    ),
    MetricSpec(
        name="prediction_consistency_changed",
        meaning=(
            "`prediction_consistency` over the changed bios only: the others cannot flip and "
            "dilute the plain figure"
        ),
        formula=lambda e: metrics.share(e.tables.changed_consistent, e.tables.changed),
        better="higher",
        needs=(_bios, _counterfactuals, _changes_known, _some_change),
        interval=_shares(lambda e: (e.tables.changed_consistent, e.tables.changed)),
        compared=_correlated(lambda pair: pair.same_consistency(1)),
    ),
    MetricSpec(
        name="ctf_changed",
        meaning="`ctf` over the changed bios only",
        formula=lambda e: _ctf_mean(e, "ctf", changed_only=True),
        better="lower",
        needs=(*_CTF_NEEDS, _changes_known, _changed_probabilities),
        interval=_of_ctf("ctf", changed_only=True),
        compared=_by_ctf("ctf", changed_only=True),
        resampled=False,
    ),
    _ctf("ctf_true_class", "as `ctf` with the probability of the true occupation"),
    _ctf("ctf_all_classes", "as `ctf`, the variance summed over all occupations"),
    _ctf(
        "ctf_gap",
        "mean absolute difference of the probability of ŷ_0 (the CTF gap of Garg et al. 2018)",
    ),
    MetricSpec(
        name="answers_unreadable",
        meaning=(
            "share of bios on which a model that answers in words names no occupation, or several"
        ),
        formula=lambda e: metrics.marked_share(e.tables.marks[MARK_UNREADABLE]),
        better="lower",
        needs=(_bios, _answers),
        interval=share_of_mark(MARK_UNREADABLE),
        compared=by_mark(MARK_UNREADABLE),
    ),
    _unreadable(0, "male", "men's", _men),
    _unreadable(1, "female", "women's", _women),
    MetricSpec(
        name="answers_unreadable_gap",
        meaning=(
            "`answers_unreadable_male` − `answers_unreadable_female`: below 0, it is women to whom "
            "the model more often gives no answer"
        ),
        formula=lambda e: _unreadable_share(e, 0) - _unreadable_share(e, 1),
        better="nearer zero",
        needs=(_bios, _genders, _answers),
        interval=IntervalMethod("Newcombe", _unreadable_gap),
        compared=by_mark(MARK_UNREADABLE),
    ),
    MetricSpec(
        name="bios",
        meaning="bios that everything rests on",
        formula=lambda e: e.tables.bios.sum(axis=(-2, -1)),
        better="neither",
        compared=None,
        resampled=False,
        whole=True,
    ),
    MetricSpec(
        name="occupations_scored",
        meaning="occupations with at least `min_cell` bios of each gender",
        formula=lambda e: e.scored.sum(axis=-1),
        better="neither",
        compared=None,
        resampled=False,
        whole=True,
    ),
    MetricSpec(
        name="occupations_excluded",
        meaning="the other occupations of the label set",
        formula=lambda e: (~e.scored).sum(axis=-1),
        better="neither",
        compared=None,
        resampled=False,
        whole=True,
    ),
)

HEADLINE = tuple(name for name, spec in METRICS.items() if spec.headline)
"""The five metrics of the benchmark, the primary one first."""

assert set(CTF_READINGS) <= set(METRICS)
