"""Which cell the uncertainty of a gap comes from; bootstrap replicates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from biasbios_mlflow.scoring import metrics
from biasbios_mlflow.scoring.counts import Counts
from biasbios_mlflow.scoring.evidence import Evidence
from biasbios_mlflow.scoring.gaps import independent_differences, variance_shares
from biasbios_mlflow.scoring.specs import resampled_metrics

__all__ = ["DecidingCell", "deciding_cell", "replicates"]

FloatArray = npt.NDArray[np.float64]

_DECIDES = 0.5
"""A cell with more than this share of the uncertainty of ``gap_rms`` decides it."""


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
    """Draw bootstrap replicates of the metrics that are declared as ``resampled``.

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
        By name, NaN where a replicate has no value; what these bios lack is left out. ``tpr_gap``,
        and what else each occupation has, is of shape (R, K).

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
    # 0 neither, 1 consistent, 2 changed, 3 both; 4 to 7 the same without a counterfactual
    kind = (c["predictions"] == c["counterfactuals"]) + 2 * (c["changed"] == 1)
    kind = kind + 4 * (c["counterfactuals"] == n_labels + 2)
    kinds = np.zeros((n_replicates, 8), dtype=np.int64)
    n_right = hits.sum(axis=(1, 2))
    for chosen, size in ((right, n_right), (~right, n - n_right)):
        weight = np.bincount(kind[chosen], weights=counts.bios[chosen], minlength=8)
        if weight.any():
            kinds += rng.multinomial(size, weight / weight.sum())
    by_gender, whole = bios.sum(axis=-1), t.bios.sum(axis=-1)
    marks = {}
    for name, mark in t.marks.items():
        asked = rng.binomial(by_gender, metrics.share(mark[:, 0], np.maximum(whole, 1)))
        marked = rng.binomial(asked, metrics.share(mark[:, 1], np.maximum(mark[:, 0], 1)))
        marks[name] = np.stack([asked, marked], axis=-1)
    tables = metrics.Tables(
        bios=bios,
        hits=hits,
        predicted=predicted,
        paired=kinds[:, :4].sum(axis=-1),
        consistent=kinds[:, 1] + kinds[:, 3],
        changed=kinds[:, [2, 3, 6, 7]].sum(axis=-1),
        changed_consistent=kinds[:, 3],
        marks=marks,
    )
    found = resampled_metrics(Evidence(tables, min_cell), Evidence.of(counts, min_cell=min_cell))
    return {spec.name.partition("/")[0]: values for spec, values in found}
