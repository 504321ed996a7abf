"""Counts of two models on the same bios, and what tells one from the other."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt
from scipy import special

from biasbios_mlflow.errors import invalid
from biasbios_mlflow.scoring import metrics as formulas
from biasbios_mlflow.scoring.counts import (
    Counts,
    add_marks,
    carry,
    count_marks,
    exact_sums,
    from_limbs,
)
from biasbios_mlflow.scoring.evidence import RATES, Evidence
from biasbios_mlflow.scoring.gaps import moment_differences
from biasbios_mlflow.scoring.outcomes import CTF_READINGS, NO_COUNTERFACTUAL, Outcomes
from biasbios_mlflow.scoring.paired import PairedGaps
from biasbios_mlflow.scoring.parts import PARTS, part_differences, part_moments
from biasbios_mlflow.scoring.shares import z_value
from biasbios_mlflow.scoring.specs import resampled_metrics

__all__ = ["JointCounts", "Link", "Pair", "Rise"]

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]


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
    variant_products : int array of shape (2, 2, 2, K)
        By rate (hits, false positives), part (words, rest), gender and occupation: the sum over
        bios of the product of both models' own ∓ swapped (see `parts`).
    marks : mapping of str to int array of shape (2, 2)
        Of each mark (see `Outcomes`) by gender, the bios of which it is recorded for both models,
        and those that have it under both.
    """

    a: Counts
    b: Counts
    hits_both: IntArray
    mistakes_both: IntArray
    consistent_both: IntArray
    ctf_sums: IntArray
    ctf_bios: IntArray
    variant_products: IntArray
    marks: Mapping[str, IntArray] = field(default_factory=dict)

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
            variant_products=_variant_products(a, b),
            marks={
                name: count_marks(a.genders, a.marks[name] & b.marks[name])
                for name in sorted(set(a.marks) & set(b.marks))
            },
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
            variant_products=self.variant_products + other.variant_products,
            marks=add_marks([self.marks, other.marks]),
        )


@dataclass(frozen=True, eq=False)
class Rise:
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

    def reversed(self) -> Rise:
        """Return the rise from b to a."""
        return Rise(self.gaps.reversed(), self.kind, self.occupation)

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
        for round_ in range(3):
            z = np.linspace(low, high, 16)
            within = self.bound(special.ndtr(-z)) <= margin
            if round_ == 0 and within[-1]:
                return 0.0
            if round_ == 0 and not within[0]:
                return 0.5
            last = int(np.flatnonzero(within)[-1]) if within.any() else 0
            low, high = z[last], z[min(last + 1, 15)]
        return float(special.ndtr(-low))


_FURTHEST = 6.0
"""Normal quantile beyond which a probability counts as 0."""


Link = Rise | float | None
"""What compares two models by a metric; see `specs.Pairing`."""


@dataclass(frozen=True, eq=False)
class Pair:
    """Two models on the same bios, and how their differences are judged.

    Attributes
    ----------
    joint : JointCounts
    min_cell : int
        Bios that each gender needs for an occupation to be scored.
    n_replicates, seed : int
        Number and seed of the replicates that correlations are taken from.
    """

    joint: JointCounts
    min_cell: int = 5
    n_replicates: int = 10_000
    seed: int = 0

    @cached_property
    def evidence(self) -> tuple[Evidence, Evidence]:
        """What the metrics of a and of b are computed from."""
        a, b = (Evidence.of(c, min_cell=self.min_cell) for c in (self.joint.a, self.joint.b))
        return a, b

    @cached_property
    def same_hits(self) -> bool:
        """Whether both models have the same bios right."""
        both = self.joint.hits_both
        return all((counts.tables.hits == both).all() for counts in (self.joint.a, self.joint.b))

    @cached_property
    def same_mistakes(self) -> bool:
        """Whether both models make the same mistakes."""
        tables = (self.joint.a.tables, self.joint.b.tables)
        return all((t.predicted - t.hits == self.joint.mistakes_both).all() for t in tables)

    def same_consistency(self, which: Literal[0, 1]) -> bool:
        """Whether the swap changes the same predictions: of all (0) or of the changed bios (1)."""
        name = ("consistent", "changed_consistent")[which]
        tables = (self.joint.a.tables, self.joint.b.tables)
        return all(getattr(t, name) == self.joint.consistent_both[which] for t in tables)

    def same_marks(self, mark: str) -> bool:
        """Whether the same bios have a mark under both models."""
        both = self.joint.marks.get(mark)
        marks = [t.marks.get(mark) for t in (self.joint.a.tables, self.joint.b.tables)]
        return both is not None and all(m is not None and (m == both).all() for m in marks)

    @cached_property
    def alike(self) -> bool:
        """Whether no count tells one model from the other."""
        names = {*self.joint.a.marks, *self.joint.b.marks}
        return (
            self.joint.a == self.joint.b
            and self.same_hits
            and self.same_mistakes
            and self.same_consistency(0)
            and all(map(self.same_marks, names))
            and all(
                self.ctf_correlation(reading) is None
                for reading in CTF_READINGS
                if self.joint.ctf_bios[0]
            )
        )

    def correlation(self, metric: str, k: int | None = None) -> float:
        """Correlation of the two models' estimates, from replicates of the joint cells.

        0, which makes the interval of the difference wider, for what has no replicates.

        Parameters
        ----------
        metric : str
            Name of the declaration.
        k : int, optional
            Code of the occupation, where each has one.
        """
        if metric not in self.replicates:
            return 0.0
        a, b = self.replicates[metric]
        return _correlation(a, b) if k is None else _correlation(a[..., k], b[..., k])

    def ctf_correlation(self, reading: str, *, changed_only: bool = False) -> float | None:
        """Correlation of the two models' CTF values over the bios; None where no value differs."""
        which = int(changed_only)
        n = int(self.joint.ctf_bios[which])
        if not n:
            return 0.0
        _, mean_a, square_a = self.joint.a.ctf_moments(reading, changed_only=changed_only)
        _, mean_b, square_b = self.joint.b.ctf_moments(reading, changed_only=changed_only)
        product = from_limbs(self.joint.ctf_sums[which, CTF_READINGS.index(reading)], n)
        spread = (square_a - mean_a**2) * (square_b - mean_b**2)
        if square_a + square_b == 2 * product:
            return None
        if spread <= 0:
            return 0.0
        return float(np.clip((product - mean_a * mean_b) / math.sqrt(spread), -1, 1))

    def rise(self, kind: str, which: str, k: int | None = None) -> Rise | float:
        """Return what bounds the rise of a gap metric from a to b.

        Parameters
        ----------
        kind : str
            "rms" or "abs" over the occupations, or "each" of them.
        which : str
            "tpr", "debiased" (where there is a variance), "fpr", "accuracy", or a part, such as
            "tpr words".
        k : int, optional
            Code of the occupation.

        Returns
        -------
        Rise, or 0.0
            0, for no known correlation, where other bios have copies for a than for b.
        """
        if which not in self._gaps:
            return 0.0
        gaps, chosen = self._gaps[which]
        place = None
        if kind == "each":
            place = 0 if k is None else int(chosen[:k].sum())
        return Rise(gaps, kind, place)

    @cached_property
    def _gaps(self) -> dict[str, tuple[PairedGaps, BoolArray]]:
        """Gaps of both models, and in which occupations; what has no bios is left out."""
        first, second = self.evidence
        a, b = first.tables, second.tables
        rates = {
            "tpr": ((a.hits, b.hits, self.joint.hits_both), a.bios, first.scored),
            "fpr": (
                (first.false_positives[0], second.false_positives[0], self.joint.mistakes_both),
                first.false_positives[1],
                first.fpr_scored,
            ),
            "debiased": ((a.hits, b.hits, self.joint.hits_both), a.bios, first.debiased),
            "accuracy": (
                tuple(x.sum(axis=1, keepdims=True) for x in (a.hits, b.hits, self.joint.hits_both)),
                a.bios.sum(axis=1, keepdims=True),
                (a.bios.sum(axis=1) > 0).all(keepdims=True),
            ),
        }
        found = {
            name: (
                PairedGaps.from_hits(
                    events[0][:, chosen],
                    events[1][:, chosen],
                    events[2][:, chosen],
                    cells[:, chosen],
                ),
                chosen,
            )
            for name, (events, cells, chosen) in rates.items()
            if chosen.any()
        }
        for rate, of_rate in zip(RATES, self.joint.variant_products, strict=True):
            pair = first.variants(rate), second.variants(rate)
            chosen = first.part_chosen(rate)
            if not chosen.any() or (pair[0].cells != pair[1].cells).any():
                continue
            for part, products in zip(PARTS, of_rate, strict=True):
                taken = [one.take(chosen) for one in pair]
                (sums_a, squares_a), (sums_b, squares_b) = (part_moments(v, part) for v in taken)
                change = moment_differences(
                    sums_b - sums_a,
                    squares_a + squares_b - 2 * products[:, chosen],
                    taken[0].cells,
                )
                a_part, b_part = (part_differences(v, part) for v in taken)
                found[f"{rate} {part}"] = PairedGaps(a_part, b_part, change), chosen
        return found

    @cached_property
    def replicates(self) -> dict[str, tuple[FloatArray, FloatArray]]:
        """Replicates of both models' metrics, drawn from the joint cells, by declared name."""
        rng = np.random.default_rng(self.seed)
        joint, size = self.joint, self.n_replicates
        a, b = joint.a.tables, joint.b.tables
        n = joint.a.total
        bios = rng.multinomial(n, a.bios.ravel() / n, size=size).reshape(-1, *a.bios.shape)
        hits = _draw_pairs(rng, bios, a.hits, b.hits, joint.hits_both, a.bios)
        false_a, negatives = formulas.false_positives(a.hits, a.predicted, a.bios)
        false_b, _ = formulas.false_positives(b.hits, b.predicted, b.bios)
        drawn_negatives = bios.sum(axis=-1, keepdims=True) - bios
        false = _draw_pairs(rng, drawn_negatives, false_a, false_b, joint.mistakes_both, negatives)
        changed = rng.binomial(np.full(size, n), a.changed / n)
        paired = np.full(size, max(int(a.paired), int(b.paired)))
        consistent = _draw_pairs(
            rng,
            paired,
            a.consistent,
            b.consistent,
            joint.consistent_both[0],
            paired[0],
        )
        changed_consistent = _draw_pairs(
            rng,
            changed,
            a.changed_consistent,
            b.changed_consistent,
            joint.consistent_both[1],
            a.changed,
        )
        marks: tuple[dict[str, IntArray], dict[str, IntArray]] = ({}, {})
        by_gender = bios.sum(axis=-1)
        for mark, both in joint.marks.items():
            share = formulas.share(both[:, 0], a.bios.sum(axis=-1))
            asked = rng.binomial(by_gender, np.clip(np.nan_to_num(share), 0.0, 1.0))
            counted = _draw_pairs(
                rng, asked, a.marks[mark][:, 1], b.marks[mark][:, 1], both[:, 1], both[:, 0]
            )
            for of_model, one in zip(marks, counted, strict=True):
                of_model[mark] = np.stack([asked, one], axis=-1)
        drawn: list[dict[str, FloatArray]] = []
        for model in (0, 1):
            tables = formulas.Tables(
                bios=bios,
                hits=hits[model],
                predicted=hits[model] + false[model],
                paired=paired,
                consistent=consistent[model],
                changed=changed,
                changed_consistent=changed_consistent[model],
                marks=marks[model],
            )
            evidence = Evidence(tables, self.min_cell)
            found = resampled_metrics(evidence, self.evidence[model])
            drawn.append({spec.name: values for spec, values in found})
        return {name: (drawn[0][name], drawn[1][name]) for name in drawn[0] if name in drawn[1]}


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


def _variant_products(a: Outcomes, b: Outcomes) -> IntArray:
    n_labels = len(a.labels)
    products = np.zeros((2, 2, 2, n_labels), dtype=np.int64)
    if a.counterfactual_predictions is None or b.counterfactual_predictions is None:
        return products
    paired = a.counterfactual_predictions != NO_COUNTERFACTUAL
    paired &= b.counterfactual_predictions != NO_COUNTERFACTUAL
    genders, truth = a.genders[paired], a.occupations[paired]
    own_a, copy_a, own_b, copy_b = (
        codes[paired]
        for one in (a, b)
        for codes in (one.predictions, cast(IntArray, one.counterfactual_predictions))
    )
    # (own ∓ swapped of a) × (own ∓ swapped of b): four products of one event under each model.
    for first, second, sign in (
        (own_a, own_b, 1),
        (own_a, copy_b, -1),
        (copy_a, own_b, -1),
        (copy_a, copy_b, 1),
    ):
        same = (first == second) & (first >= 0) & (first < n_labels)
        for rate, where in enumerate((same & (first == truth), same & (first != truth))):
            counted = _table(genders[where], first[where], n_labels)
            products[rate, 0] += sign * counted
            products[rate, 1] += counted
    return products


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
