"""Confidence intervals of the metrics from counts, without resampling; bootstrap replicates.

Every interval is for the value in the population, given the numbers of bios. The choice of methods
was made by simulation (``benchmarks/coverage.py``); ``docs/intervals.md`` has its table.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from biasbios_mlflow.scoring import metrics
from biasbios_mlflow.scoring.counts import Counts
from biasbios_mlflow.scoring.gaps import (
    Differences,
    GapIntervals,
    independent_differences,
    variance_shares,
)
from biasbios_mlflow.scoring.outcomes import CTF_READINGS
from biasbios_mlflow.scoring.shares import (
    Interval,
    fay_feuer_interval,
    mean_share_interval,
    newcombe_interval,
    wilson_interval,
)

__all__ = ["DecidingCell", "deciding_cell", "intervals", "replicates"]

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64] | FloatArray

_DECIDES = 0.5
"""A cell with more than this share of the uncertainty of ``gap_rms`` decides it."""


def intervals(
    counts: Counts,
    *,
    confidence: float = 0.95,
    min_cell: int = 5,
    design_effects: FloatArray | None = None,
) -> dict[str, tuple[float, float]]:
    """Compute the interval of every metric of ``counts`` that has one.

    Shares have Wilson's interval, ``accuracy_gap`` and ``tpr_gap/<occupation>`` Newcombe's, the
    balanced accuracies `mean_share_interval`, the CTF readings `fay_feuer_interval`, and the gap
    metrics those of `GapIntervals`. ``gap_rms`` and ``gap_rms_debiased`` estimate the same
    population value and share an interval.

    Parameters
    ----------
    counts : Counts
    confidence : float
        Level of the intervals.
    min_cell : int
        Bios that each gender needs for an occupation to be scored.
    design_effects : float array of shape (2, K), optional
        By gender and occupation, how many times as large variances are as those of as many
        independent bios; see `design_effects`.

    Returns
    -------
    dict of str to (float, float)
        Bounds by metric; what cannot be computed is left out.
    """
    t, n = counts.tables, counts.total
    effects = np.ones(t.bios.shape) if design_effects is None else design_effects
    n_occupation, right = t.bios.sum(axis=0), t.hits.sum(axis=0)
    rest = np.where(n_occupation > 0, n - n_occupation, 0)
    true_negatives = np.where(rest > 0, rest - (t.predicted.sum(axis=0) - right), 0)
    whole = _joint_effect(effects, t.bios, axis=(0, 1))
    by_gender = _joint_effect(effects, t.bios, axis=1)
    by_occupation = _joint_effect(effects, t.bios, axis=0)
    bounds: dict[str, Interval] = {
        "balanced_accuracy": mean_share_interval(
            right / by_occupation, n_occupation / by_occupation, confidence
        ),
        "balanced_accuracy_ovr": mean_share_interval(
            np.append(right / by_occupation, true_negatives / whole),
            np.append(n_occupation / by_occupation, rest / whole),
            confidence,
        ),
        "accuracy": wilson_interval(t.hits.sum() / whole, n / whole, confidence),
        "accuracy_gap": newcombe_interval(
            t.hits.sum(axis=-1) / by_gender, t.bios.sum(axis=-1) / by_gender, confidence
        ),
        "prediction_consistency": wilson_interval(
            t.consistent / whole, counts.paired / whole, confidence
        ),
        "swap_coverage": wilson_interval(t.changed / whole, n / whole, confidence),
        "prediction_consistency_changed": wilson_interval(
            t.changed_consistent / whole, t.changed / whole, confidence
        ),
    }
    for gender, name in enumerate(("accuracy_male", "accuracy_female")):
        effect = by_gender[gender]
        bounds[name] = wilson_interval(
            t.hits[gender].sum() / effect, t.bios[gender].sum() / effect, confidence
        )
    for name, reading, changed_only in (
        *((reading, reading, False) for reading in CTF_READINGS),
        ("ctf_changed", "ctf", True),
    ):
        size, mean, square = counts.ctf_moments(reading, changed_only=changed_only)
        bounds[name] = fay_feuer_interval(
            size / whole, mean, square, largest=_LARGEST_CTF[reading], confidence=confidence
        )
    scored = metrics.scored_occupations(t.bios, min_cell)
    false_positives, negatives = metrics.false_positives(t.hits, t.predicted, t.bios)
    of_negatives = _effect_of_negatives(effects, t.bios)
    for prefix, events, cells, effect in (
        ("", t.hits, t.bios, effects),
        ("fpr_", false_positives, negatives, of_negatives),
    ):
        chosen = scored & (cells > 0).all(axis=0)
        if chosen.any():
            gaps = GapIntervals.of(_gaps(events, cells, effect, chosen, confidence))
            bounds.update({f"{prefix}gap_rms": gaps.rms, f"{prefix}gap_abs": gaps.abs})
    debiased = metrics.debiased_occupations(t.bios, scored)
    if debiased.any():
        bounds["gap_rms_debiased"] = bounds["gap_rms"]
        if (debiased != scored).any():
            gaps = GapIntervals.of(_gaps(t.hits, t.bios, effects, debiased, confidence))
            bounds["gap_rms_debiased"] = gaps.rms
    low, high = newcombe_interval(t.hits / effects, t.bios / effects, confidence)
    for k in np.flatnonzero(scored):
        bounds[f"tpr_gap/{counts.labels[k]}"] = low[k], high[k]
    return {
        name: (float(low), float(high))
        for name, (low, high) in bounds.items()
        if np.isfinite(low) and np.isfinite(high)
    }


def _gaps(
    events: Numbers, cells: Numbers, effects: FloatArray, chosen: BoolArray, confidence: float
) -> Differences:
    effect = effects[:, chosen]
    return independent_differences(
        events[:, chosen] / effect, cells[:, chosen] / effect, confidence
    )


def _joint_effect(effects: FloatArray, bios: Numbers, axis: int | tuple[int, int]) -> FloatArray:
    """Design effect of cells taken together: that of a mean over all of their bios."""
    n = bios.sum(axis=axis)
    return np.asarray(np.where(n > 0, (effects * bios).sum(axis=axis) / np.maximum(n, 1), 1.0))


def _effect_of_negatives(effects: FloatArray, bios: Numbers) -> FloatArray:
    weighted = effects * bios
    n = bios.sum(axis=-1, keepdims=True) - bios
    rest = weighted.sum(axis=-1, keepdims=True) - weighted
    return np.where(n > 0, rest / np.maximum(n, 1), 1.0)


@dataclass(frozen=True)
class DecidingCell:
    """The cell that most of the uncertainty of ``gap_rms`` comes from.

    Attributes
    ----------
    occupation, gender : str
        ``gender`` is "men" or "women".
    bios : int
    share : float
        Of the variance of the mean square gap.
    """

    occupation: str
    gender: str
    bios: int
    share: float

    def __str__(self) -> str:
        share = f"{100 * self.share:.0f} % of the uncertainty"
        return f"{self.occupation}, {self.bios} {self.gender}: {share}"


def deciding_cell(
    counts: Counts, *, min_cell: int = 5, design_effects: FloatArray | None = None
) -> DecidingCell | None:
    """Find the one cell that holds more than half of the uncertainty of ``gap_rms``, if any.

    Where there is one, interval and verdict hang on a few bios. With a single scored occupation
    that goes without saying: None.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> cells = [(0, 0, 400), (1, 0, 7), (0, 1, 300), (1, 1, 500), (0, 2, 400), (1, 2, 400)]
    >>> g, y = (np.repeat([c[i] for c in cells], [c[2] for c in cells]) for i in (0, 1))
    >>> p = np.where(rng.random(len(y)) < 0.8, y, 3)
    >>> counts = Counts.from_codes(
    ...     genders=g, occupations=y, predictions=p, labels=["surgeon", "poet", "nurse"]
    ... )
    >>> str(deciding_cell(counts))
    'surgeon, 7 women: 98 % of the uncertainty'
    """
    t = counts.tables
    scored = metrics.scored_occupations(t.bios, min_cell)
    if scored.sum() < 2:
        return None
    effects = np.ones(t.bios.shape) if design_effects is None else design_effects
    hits, bios = (x[:, scored] / effects[:, scored] for x in (t.hits, t.bios))
    shares = variance_shares(independent_differences(hits, bios))
    shrunken = (hits + 0.5) / (bios + 1)
    noise = shrunken * (1 - shrunken) / bios
    k = int(np.argmax(shares))
    gender = int(noise[1, k] >= noise[0, k])
    share = float(shares[k] * noise[gender, k] / noise[:, k].sum())
    if share <= _DECIDES:
        return None
    place = np.flatnonzero(scored)[k]
    return DecidingCell(
        counts.labels[place], ("men", "women")[gender], int(t.bios[gender, place]), share
    )


def replicates(
    counts: Counts, *, n_replicates: int = 10_000, seed: int = 0, min_cell: int = 5
) -> dict[str, FloatArray]:
    """Draw bootstrap replicates of every metric that counts alone determine.

    Resampling bios with replacement is the same as drawing counts from a multinomial, so the time
    does not depend on the number of bios. Bios and hits are drawn by gender and occupation; false
    positives by gender and predicted occupation, and changed and consistent bios by right or wrong,
    given the number of wrong or right bios. Each metric has its exact bootstrap distribution, but
    for FPR gaps, whose denominators are drawn apart from the false positives.

    Parameters
    ----------
    counts : Counts
        What to resample.
    n_replicates, seed : int
        Number of replicates R, and seed of the generator.
    min_cell : int
        Bios that each gender needs in a replicate for an occupation to be scored in it.

    Returns
    -------
    dict of str to float array of shape (R,)
        NaN where a replicate has no value. ``tpr_gap`` has shape (R, K).

    Examples
    --------
    >>> counts = Counts.from_codes(
    ...     genders=[0, 1] * 50,
    ...     occupations=[0] * 100,
    ...     predictions=[0, 1, 0, 0] * 25,
    ...     labels=["nurse", "poet"],
    ... )
    >>> drawn = replicates(counts, n_replicates=1000)
    >>> drawn["accuracy"].shape, bool(abs(drawn["accuracy"].mean() - 0.75) < 0.01)
    ((1000,), True)
    """
    rng = np.random.default_rng(seed)
    t, n = counts.tables, counts.total
    c, n_labels = counts.columns, len(counts.labels)
    if n == 0:
        raise ValueError("no bios to resample")
    bios = rng.multinomial(n, t.bios.ravel() / n, size=n_replicates).reshape(-1, *t.bios.shape)
    hits = rng.binomial(bios, metrics.share(t.hits, np.maximum(t.bios, 1)))
    right = c["predictions"] == c["occupations"]
    predicted = hits.copy()
    for gender in (0, 1):
        wrong = ~right & (c["genders"] == gender)
        mistakes = np.bincount(
            c["predictions"][wrong], weights=counts.bios[wrong], minlength=n_labels + 1
        )
        if mistakes.any():
            n_wrong = (bios - hits)[:, gender].sum(axis=-1)
            drawn = rng.multinomial(n_wrong, mistakes / mistakes.sum())
            predicted[:, gender] += drawn[:, :n_labels]
    # 0 neither, 1 consistent, 2 changed, 3 both
    kind = (c["predictions"] == c["counterfactuals"]) + 2 * (c["changed"] == 1)
    kinds = np.zeros((n_replicates, 4), dtype=np.int64)
    n_right = hits.sum(axis=(1, 2))
    for chosen, size in ((right, n_right), (~right, n - n_right)):
        weight = np.bincount(kind[chosen], weights=counts.bios[chosen], minlength=4)
        if weight.any():
            kinds += rng.multinomial(size, weight / weight.sum())
    tables = metrics.Tables(
        bios=bios,
        hits=hits,
        predicted=predicted,
        consistent=kinds[:, 1] + kinds[:, 3],
        changed=kinds[:, 2] + kinds[:, 3],
        changed_consistent=kinds[:, 3],
    )
    return metrics.count_metrics(tables, min_cell=min_cell)


_LARGEST_CTF = {"ctf": 0.25, "ctf_true_class": 0.25, "ctf_all_classes": 0.5, "ctf_gap": 1.0}
