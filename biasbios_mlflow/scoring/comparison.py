"""Two models on the same bios: paired counts, and differences with paired intervals."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import special

from biasbios_mlflow.errors import invalid
from biasbios_mlflow.scoring import metrics as formulas
from biasbios_mlflow.scoring import uncertainty
from biasbios_mlflow.scoring.counts import Counts, carry, exact_sums, from_limbs
from biasbios_mlflow.scoring.outcomes import CTF_READINGS, Outcomes
from biasbios_mlflow.scoring.paired import PairedGaps
from biasbios_mlflow.scoring.scores import Scores, check_options, point_metrics, records
from biasbios_mlflow.scoring.shares import z_value

__all__ = ["Comparison", "JointCounts", "better", "compare", "compare_counts", "paired_interval"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
Estimate = tuple[npt.ArrayLike, ...]

_HIGHER_IS_BETTER = (
    "balanced_accuracy",
    "balanced_accuracy_ovr",
    "accuracy",
    "accuracy_male",
    "accuracy_female",
    "prediction_consistency",
    "prediction_consistency_changed",
)
_NOT_COMPARED = (
    "bios",
    "occupations_scored",
    "occupations_excluded",
    "swap_coverage",
    "gap_rms_noise_floor",
    "gap_abs_noise_floor",
)


def better(metric: str) -> str:
    """Say which way a metric is better: ``higher``, ``lower`` or ``nearer zero``.

    Examples
    --------
    >>> better("accuracy"), better("ctf"), better("tpr_gap/nurse")
    ('higher', 'lower', 'nearer zero')
    """
    if metric in _HIGHER_IS_BETTER:
        return "higher"
    return "nearer zero" if metric.startswith(("tpr_gap/", "accuracy_gap")) else "lower"


@dataclass(frozen=True, eq=False)
class JointCounts:
    """Counts of two models on the same bios, and what both have in common; parts add up.

    Attributes
    ----------
    a, b : Counts
        Counts of each model, with one label set.
    hits_both : int array of shape (2, K)
        Bios by gender and occupation that both models predict right.
    mistakes_both : int array of shape (2, K)
        Bios by gender and predicted occupation for which both models make this wrong prediction.
    consistent_both : int array of shape (2,)
        Bios, all and changed ones, whose prediction neither model changes under the swap.
    ctf_sums : int array of shape (2, 4, 2)
        Over all and over changed bios, by reading, the exact sum of the product of the two models'
        CTF values, as (high, low) limb.
    ctf_bios : int array of shape (2,)
        Bios in these sums.
    """

    a: Counts
    b: Counts
    hits_both: IntArray
    mistakes_both: IntArray
    consistent_both: IntArray
    ctf_sums: IntArray
    ctf_bios: IntArray

    @classmethod
    def from_outcomes(cls, a: Outcomes, b: Outcomes) -> JointCounts:
        """Count two models' rows.

        Raises
        ------
        mlflow.exceptions.MlflowException
            When the rows are not of the same bios.
        """
        a, b = _same_labels(a, b)
        _check_same_bios(a, b)
        n_labels = len(a.labels)
        hit = (a.predictions == a.occupations) & (b.predictions == a.occupations)
        mistake = (a.predictions == b.predictions) & (a.predictions != a.occupations)
        mistake &= (a.predictions >= 0) & (a.predictions < n_labels)
        changed = np.zeros(len(a), dtype=np.bool_)
        if a.changed is not None and b.changed is not None:
            changed = a.changed
        same = np.zeros(len(a), dtype=np.bool_)
        if a.counterfactual_predictions is not None and b.counterfactual_predictions is not None:
            same = (a.counterfactual_predictions == a.predictions) & (
                b.counterfactual_predictions == b.predictions
            )
        ctf_sums = np.zeros((2, len(CTF_READINGS), 2), dtype=np.int64)
        ctf_bios = np.zeros(2, dtype=np.int64)
        if a.ctf is not None and b.ctf is not None:
            product = a.ctf * b.ctf
            valued = ~np.isnan(product[:, 0])
            by_changed = exact_sums(product[valued], changed[valued].astype(np.int64), 2)
            ctf_sums = carry(np.stack([by_changed.sum(axis=0), by_changed[1]]))
            ctf_bios = np.array([valued.sum(), (valued & changed).sum()], dtype=np.int64)
        return cls(
            a=Counts.from_outcomes(a),
            b=Counts.from_outcomes(b),
            hits_both=_table(a.genders[hit], a.occupations[hit], n_labels),
            mistakes_both=_table(a.genders[mistake], a.predictions[mistake], n_labels),
            consistent_both=np.array([same.sum(), (same & changed).sum()], dtype=np.int64),
            ctf_sums=ctf_sums,
            ctf_bios=ctf_bios,
        )

    def __add__(self, other: JointCounts) -> JointCounts:
        return JointCounts(
            a=self.a + other.a,
            b=self.b + other.b,
            hits_both=self.hits_both + other.hits_both,
            mistakes_both=self.mistakes_both + other.mistakes_both,
            consistent_both=self.consistent_both + other.consistent_both,
            ctf_sums=carry(self.ctf_sums + other.ctf_sums),
            ctf_bios=self.ctf_bios + other.ctf_bios,
        )


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
    _rises: dict[str, _Rise] = field(repr=False)

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
            if str(name).startswith("tpr_gap/"):
                continue
            span = f"{row['ci_low']:.4f} to {row['ci_high']:.4f}"
            lines.append(
                f"{name!s:<30} {row['a']:>7.4f} {row['b']:>7.4f} {row['difference']:>8.4f}  "
                f"{span:<18} {row['probability_worse']:>6.3f}"
            )
        return "\n".join(lines)


def compare(
    a: Scores | Outcomes,
    b: Scores | Outcomes,
    *,
    margin: float | Mapping[str, float] = 0.0,
    confidence: float = 0.95,
    n_replicates: int = 10_000,
    seed: int = 0,
    min_cell: int | None = None,
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
    return compare_counts(joint, margin=margin, **options)


def compare_counts(
    joint: JointCounts,
    *,
    margin: float | Mapping[str, float] = 0.0,
    confidence: float = 0.95,
    n_replicates: int = 10_000,
    seed: int = 0,
    min_cell: int = 5,
) -> Comparison:
    """Compare two models from their joint counts; the rest is as for `compare`."""
    values, reasons, estimates = [], {}, []
    for name, counts in (("a", joint.a), ("b", joint.b)):
        metrics, absent = point_metrics(counts, min_cell=min_cell)
        values.append(metrics)
        bounds = uncertainty.intervals(counts, confidence=confidence, min_cell=min_cell)
        estimates.append({m: (metrics[m], *bounds[m]) for m in metrics if m in bounds})
        reasons.update({metric: f"{name}: {why}" for metric, why in absent.items()})
    drawn = _joint_replicates(joint, n_replicates=n_replicates, seed=seed, min_cell=min_cell)
    if not drawn:
        raise invalid("a", found="no bios", expected="at least one", fix="compare on some data")
    correlations = {name: _correlation(*pair) for name, pair in drawn.items()}
    of_ctf = _ctf_correlations(joint)
    correlations.update({name: 1.0 if rho is None else rho for name, rho in of_ctf.items()})
    rises = dict(_rises(joint, min_cell=min_cell))
    alike = _alike(joint)
    rows: dict[str, dict[str, Any]] = {}
    for metric, value in values[0].items():
        if metric not in values[1] or metric in _NOT_COMPARED:
            continue
        if metric in rises:
            low, high = rises[metric].interval(confidence)
        elif metric in alike:
            low, high = 0.0, 0.0
        else:
            estimate_a, estimate_b = (e[metric] for e in estimates)
            bound = paired_interval(estimate_a, estimate_b, correlations[metric])
            low, high = map(float, bound)
        rows[metric] = {
            "a": value,
            "b": values[1][metric],
            "difference": values[1][metric] - value,
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
        _rises={metric: rises[metric] for metric in rows if metric in rises},
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


@dataclass(frozen=True, eq=False)
class _Rise:
    """By how much one gap metric is larger in b than in a; ``kind`` is rms, abs or each."""

    gaps: PairedGaps
    kind: str
    occupation: int | None = None
    _known: dict[tuple[str, float], Any] = field(default_factory=dict, repr=False)

    def bound(self, tail: float | FloatArray) -> FloatArray:
        """Upper bound, exceeded with probability ``tail``."""
        if self.kind == "rms":
            return self.gaps.rms_rise(tail)
        if self.kind == "abs":
            return self.gaps.abs_rise(tail)
        return np.asarray(self.gaps.each_rise(tail)[..., self.occupation])

    def interval(self, confidence: float) -> tuple[float, float]:
        """Of the metric's difference: for a single gap of the signed difference."""
        if ("interval", confidence) not in self._known:
            self._known["interval", confidence] = self._interval(confidence)
        found: tuple[float, float] = self._known["interval", confidence]
        return found

    def _interval(self, confidence: float) -> tuple[float, float]:
        tail = (1 - confidence) / 2
        if self.kind == "each":
            change = self.gaps.change
            at = float(change.estimate[self.occupation])
            half = z_value(confidence) * math.sqrt(float(change.scale[self.occupation]))
            return at - half, at + half
        low, high = -float(self.reversed().bound(tail)), float(self.bound(tail))
        return min(low, high), max(low, high)

    def reversed(self) -> _Rise:
        return _Rise(self.gaps.reversed(), self.kind, self.occupation)

    def probability_above(self, margin: float) -> float:
        """Return the probability that the rise exceeds ``margin``."""
        if ("above", margin) not in self._known:
            self._known["above", margin] = self._probability_above(margin)
        return float(self._known["above", margin])

    def _probability_above(self, margin: float) -> float:
        above = self._excluding(margin)
        if above < 0.5:
            return above
        # Is less than that excluded, seen from b?
        return 1.0 - self.reversed()._excluding(-margin)

    def _excluding(self, margin: float) -> float:
        """Smallest tail probability whose bound is within the margin; 0.5 if none is."""
        low, high = 0.0, _FURTHEST
        if float(self.bound(float(special.ndtr(-high)))) <= margin:
            return 0.0
        if float(self.bound(0.5)) > margin:
            return 0.5
        for _ in range(3):
            z = np.linspace(low, high, 16)
            within = self.bound(special.ndtr(-z)) <= margin
            last = int(np.flatnonzero(within)[-1]) if within.any() else 0
            low, high = z[last], z[min(last + 1, 15)]
        return float(special.ndtr(-low))


_FURTHEST = 6.0
"""Normal quantile beyond which a probability counts as 0."""


def _rises(joint: JointCounts, *, min_cell: int) -> Iterator[tuple[str, _Rise]]:
    """Yield what compares each gap metric, by its name."""
    a, b = joint.a.tables, joint.b.tables
    scored = formulas.scored_occupations(a.bios, min_cell)
    false_a, negatives = formulas.false_positives(a.hits, a.predicted, a.bios)
    false_b, _ = formulas.false_positives(b.hits, b.predicted, b.bios)
    for prefix, events, cells in (
        ("", (a.hits, b.hits, joint.hits_both), a.bios),
        ("fpr_", (false_a, false_b, joint.mistakes_both), negatives),
    ):
        chosen = scored & (cells > 0).all(axis=0)
        if not chosen.any():
            continue
        first, second, both = (x[:, chosen] for x in events)
        gaps = PairedGaps.from_hits(first, second, both, cells[:, chosen])
        rms = _Rise(gaps, "rms")
        yield f"{prefix}gap_rms", rms
        yield f"{prefix}gap_abs", _Rise(gaps, "abs")
        if prefix:
            continue
        for place, k in enumerate(np.flatnonzero(chosen)):
            yield f"tpr_gap/{joint.a.labels[k]}", _Rise(gaps, "each", place)
        debiased = formulas.debiased_occupations(cells, chosen)
        if debiased.any():
            if (debiased != chosen).any():
                first, second, both = (x[:, debiased] for x in events)
                gaps = PairedGaps.from_hits(first, second, both, cells[:, debiased])
                rms = _Rise(gaps, "rms")
            yield "gap_rms_debiased", rms
    everyone = a.bios.sum(axis=1, keepdims=True)
    if (everyone > 0).all():
        first, second, both = (
            x.sum(axis=1, keepdims=True) for x in (a.hits, b.hits, joint.hits_both)
        )
        gaps = PairedGaps.from_hits(first, second, both, everyone)
        yield "accuracy_gap", _Rise(gaps, "each", 0)


def _alike(joint: JointCounts) -> set[str]:
    """Name the metrics for which no bio tells one model from the other."""
    a, b = joint.a.tables, joint.b.tables
    names = set()
    if (a.hits == joint.hits_both).all() and (b.hits == joint.hits_both).all():
        names |= {"accuracy", "accuracy_male", "accuracy_female", "balanced_accuracy"}
        if all(((x.predicted - x.hits) == joint.mistakes_both).all() for x in (a, b)):
            names.add("balanced_accuracy_ovr")
    for name, place, pair in (
        ("prediction_consistency", 0, (a.consistent, b.consistent)),
        ("prediction_consistency_changed", 1, (a.changed_consistent, b.changed_consistent)),
    ):
        if all(part == joint.consistent_both[place] for part in pair):
            names.add(name)
    return names | {name for name, rho in _ctf_correlations(joint).items() if rho is None}


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


def _same_labels(a: Outcomes, b: Outcomes) -> tuple[Outcomes, Outcomes]:
    """Recode b so that both have one label set: a's labels, then b's other ones."""
    if a.labels == b.labels:
        return a, b
    labels = a.labels + tuple(label for label in b.labels if label not in set(a.labels))
    place = {label: code for code, label in enumerate(labels)}
    known = np.array([place[label] for label in b.labels], dtype=np.int64)

    def recode(codes: IntArray, old: Sequence[str], new: IntArray) -> IntArray:
        inside = (codes >= 0) & (codes < len(old))
        # Labels outside the set stay outside, and apart from each other.
        return np.where(inside, new[np.where(inside, codes, 0)], np.abs(codes) + len(labels))

    def recoded(outcomes: Outcomes, new: IntArray) -> Outcomes:
        swapped = outcomes.counterfactual_predictions
        return replace(
            outcomes,
            labels=labels,
            occupations=recode(outcomes.occupations, outcomes.labels, new),
            predictions=recode(outcomes.predictions, outcomes.labels, new),
            counterfactual_predictions=None
            if swapped is None
            else recode(swapped, outcomes.labels, new),
        )

    return recoded(a, np.arange(len(a.labels))), recoded(b, known)


def _check_same_bios(a: Outcomes, b: Outcomes) -> None:
    if len(a) != len(b):
        raise invalid(
            "b",
            found=f"{len(b)} bios",
            expected=f"the {len(a)} bios of a",
            fix="evaluate both models on the same data",
        )
    columns: dict[str, tuple[Any, Any]] = {
        "genders": (a.genders, b.genders),
        "occupations": (a.occupations, b.occupations),
        "ids": (a.ids, b.ids),
        "changed": (a.changed, b.changed),
    }
    for name, (first, second) in columns.items():
        if first is None or second is None:
            continue
        differ = np.asarray(first != second)
        if differ.any():
            raise invalid(
                "b",
                found=f"other {name} than a in {int(differ.sum())} rows, first in row "
                f"{int(differ.argmax())}",
                expected="the same bios in the same order",
                fix="evaluate both models on the same data",
            )


def _table(genders: IntArray, codes: IntArray, n_labels: int) -> IntArray:
    flat = np.bincount(genders * n_labels + codes, minlength=2 * n_labels)
    return flat.astype(np.int64).reshape(2, n_labels)


def _joint_replicates(
    joint: JointCounts, *, n_replicates: int, seed: int, min_cell: int
) -> dict[str, tuple[FloatArray, FloatArray]]:
    """Draw replicates of both models' metrics from the joint cells."""
    rng = np.random.default_rng(seed)
    a, b = joint.a.tables, joint.b.tables
    n = joint.a.total
    if n == 0:
        return {}
    bios = rng.multinomial(n, a.bios.ravel() / n, size=n_replicates).reshape(-1, *a.bios.shape)
    hits = _draw_pairs(rng, bios, a.hits, b.hits, joint.hits_both, a.bios)
    false_a, negatives = formulas.false_positives(a.hits, a.predicted, a.bios)
    false_b, _ = formulas.false_positives(b.hits, b.predicted, b.bios)
    drawn_negatives = bios.sum(axis=-1, keepdims=True) - bios
    false = _draw_pairs(rng, drawn_negatives, false_a, false_b, joint.mistakes_both, negatives)
    whole = np.full(n_replicates, n)
    changed = rng.binomial(whole, a.changed / n)
    consistent = _draw_pairs(
        rng, whole, a.consistent, b.consistent, joint.consistent_both[0], np.asarray(n)
    )
    changed_consistent = _draw_pairs(
        rng,
        changed,
        a.changed_consistent,
        b.changed_consistent,
        joint.consistent_both[1],
        a.changed,
    )
    metrics = [
        formulas.count_metrics(
            formulas.Tables(
                bios=bios,
                hits=hits[model],
                predicted=hits[model] + false[model],
                consistent=consistent[model],
                changed=changed,
                changed_consistent=changed_consistent[model],
            ),
            min_cell=min_cell,
        )
        for model in (0, 1)
    ]
    gaps = [drawn.pop("tpr_gap") for drawn in metrics]
    pairs = {name: (metrics[0][name], metrics[1][name]) for name in metrics[0]}
    for k, label in enumerate(joint.a.labels):
        pairs[f"tpr_gap/{label}"] = gaps[0][:, k], gaps[1][:, k]
    return pairs


def _draw_pairs(
    rng: np.random.Generator,
    n: npt.NDArray[np.int64],
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    both: npt.ArrayLike,
    whole: npt.ArrayLike,
) -> tuple[IntArray, IntArray]:
    """Draw how many of n an event hits for model a and for b, given joint counts."""
    first, second, common = (np.asarray(x, dtype=np.float64) for x in (a, b, both))
    drawn_both = rng.binomial(n, formulas.share(common, np.maximum(whole, 1)))
    rest = np.maximum(np.asarray(whole) - common, 1)
    only_a = rng.binomial(n - drawn_both, formulas.share(first - common, rest))
    rest = np.maximum(np.asarray(whole) - first, 1)
    only_b = rng.binomial(n - drawn_both - only_a, formulas.share(second - common, rest))
    return drawn_both + only_a, drawn_both + only_b


def _correlation(a: FloatArray, b: FloatArray) -> float:
    """Correlation of replicates; 0 where one does not vary."""
    kept = np.isfinite(a) & np.isfinite(b)
    if kept.sum() < 2 or np.ptp(a[kept]) == 0 or np.ptp(b[kept]) == 0:
        return 0.0
    return float(np.corrcoef(a[kept], b[kept])[0, 1])


def _ctf_correlations(joint: JointCounts) -> dict[str, float | None]:
    """Correlation of the two models' CTF values over the bios; None where no value differs."""
    correlations: dict[str, float | None] = {}
    for which, readings in ((False, CTF_READINGS), (True, ("ctf",))):
        n = int(joint.ctf_bios[int(which)])
        for reading in readings:
            rho: float | None = 0.0
            if n:
                _, mean_a, square_a = joint.a.ctf_moments(reading, changed_only=which)
                _, mean_b, square_b = joint.b.ctf_moments(reading, changed_only=which)
                product = from_limbs(joint.ctf_sums[int(which), CTF_READINGS.index(reading)], n)
                spread = (square_a - mean_a**2) * (square_b - mean_b**2)
                if square_a + square_b == 2 * product:
                    rho = None
                elif spread > 0:
                    rho = float(np.clip((product - mean_a * mean_b) / math.sqrt(spread), -1, 1))
            correlations["ctf_changed" if which else reading] = rho
    return correlations
