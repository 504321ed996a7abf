"""Tables beside the metrics: one row an occupation, one row a direction of the swap, one a flip."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import special

from biasbios_mlflow.scoring import metrics
from biasbios_mlflow.scoring.counts import Counts
from biasbios_mlflow.scoring.evidence import Evidence
from biasbios_mlflow.scoring.parts import PARTS
from biasbios_mlflow.scoring.shares import newcombe_interval
from biasbios_mlflow.scoring.specs import EACH, spec_of

__all__ = [
    "fisher_mid_p",
    "flip_labels",
    "flips",
    "gap_share_correlation",
    "occupations_table",
]

FloatArray = npt.NDArray[np.float64]

UNKNOWN_LABEL = "(unknown label)"


def fisher_mid_p(hits: npt.ArrayLike, n: npt.ArrayLike) -> float:
    """Two-sided mid-p value of Fisher's test that two proportions are equal; inputs of length 2.

    The probability of all tables less probable than the observed one plus half that of the equally
    probable ones. In small cells its size stays close to the nominal level, where Fisher's test
    itself is far below it (Lydersen, Fagerland & Laake, Statistics in Medicine 2009).

    Examples
    --------
    >>> round(fisher_mid_p([3, 0], [3, 4]), 4)
    0.0143
    """
    (a, b), (n_a, n_b) = np.asarray(hits).tolist(), np.asarray(n).tolist()
    hit = a + b
    x = np.arange(max(0, hit - n_b), min(hit, n_a) + 1)
    log_pmf = (
        _log_choose(n_a, x) + _log_choose(n_b, hit - x) - _log_choose(n_a + n_b, np.array(hit))
    )
    observed = log_pmf[a - x[0]]
    tied = np.isclose(log_pmf, observed, rtol=0, atol=1e-7)
    pmf = np.exp(log_pmf)
    p = pmf[(log_pmf < observed) & ~tied].sum() + pmf[tied].sum() / 2
    return float(min(p, 1.0))


def occupations_table(evidence: Evidence) -> pd.DataFrame:
    """One row an occupation of the label set: the scored ones by absolute gap, then the others.

    Parameters
    ----------
    evidence : Evidence
        What to tabulate.

    Returns
    -------
    pandas.DataFrame
        Columns ``occupation``, ``scored``, ``n_male``, ``n_female``, ``women_share``, ``recall``,
        ``tpr_male``, ``tpr_female``, ``tpr_gap`` (male minus female), ``tpr_gap_ci_low``,
        ``tpr_gap_ci_high`` (`newcombe_interval`), ``p_value`` (`fisher_mid_p`), ``p_adjusted``
        (Benjamini & Hochberg 1995, over the scored occupations), ``fpr_male``, ``fpr_female``,
        ``fpr_gap``, ``precision``; ``tpr_gap_words`` and ``tpr_gap_rest`` (see `parts`), each with
        ``_ci_low`` and ``_ci_high``. What cannot be computed is NaN; the columns from ``tpr_gap``
        to ``p_adjusted`` are NaN for an occupation that is not scored.
    """
    counts, t, scored = evidence.counts, evidence.tables, evidence.scored
    tpr = metrics.rates(t.hits, t.bios)
    fpr = metrics.rates(*metrics.false_positives(t.hits, t.predicted, t.bios))
    effects = evidence.effects
    low, high = newcombe_interval(t.hits / effects, t.bios / effects, evidence.confidence)
    p_value = np.full(len(scored), np.nan)
    for k in np.flatnonzero(scored):
        p_value[k] = fisher_mid_p(t.hits[:, k], t.bios[:, k])
    p_adjusted = p_value.copy()
    if scored.any():
        p_adjusted[scored] = _benjamini_hochberg(p_value[scored])
    gap = tpr[0] - tpr[1]
    table = pd.DataFrame(
        {
            "occupation": list(counts.labels),
            "scored": scored,
            "n_male": t.bios[0],
            "n_female": t.bios[1],
            "women_share": metrics.share(t.bios[1], t.bios.sum(axis=0)),
            "recall": metrics.share(t.hits.sum(axis=0), t.bios.sum(axis=0)),
            "tpr_male": tpr[0],
            "tpr_female": tpr[1],
            "tpr_gap": np.where(scored, gap, np.nan),
            "tpr_gap_ci_low": np.where(scored, low, np.nan),
            "tpr_gap_ci_high": np.where(scored, high, np.nan),
            "p_value": p_value,
            "p_adjusted": p_adjusted,
            "fpr_male": fpr[0],
            "fpr_female": fpr[1],
            "fpr_gap": np.where(scored, fpr[0] - fpr[1], np.nan),
            "precision": metrics.share(t.hits.sum(axis=0), t.predicted.sum(axis=0)),
        }
    )
    for part in PARTS:
        name = f"tpr_gap_{part}"
        # What the declaration lacks for all occupations is lacking here.
        there = spec_of(f"{name}/{EACH}").reason(evidence) is None
        bounds = evidence.part_bounds("tpr", part) if there else (np.nan, np.nan)
        table[name] = evidence.part_gap("tpr", part) if there else np.nan
        table[f"{name}_ci_low"], table[f"{name}_ci_high"] = bounds
    order = np.lexsort((np.arange(len(table)), -np.where(scored, np.abs(gap), -1.0)))
    return table.iloc[order].reset_index(drop=True)


def gap_share_correlation(counts: Counts, *, min_cell: int) -> float:
    """Pearson correlation of the TPR gap with the share of women over the scored occupations.

    The compounding imbalance of De-Arteaga et al. 2019: with gaps as male minus female, a negative
    value says that the gender in the majority of an occupation is also recognized better in it. NaN
    with fewer than three scored occupations or no variation.
    """
    t = counts.tables
    scored = metrics.scored_occupations(t.bios, min_cell)
    if scored.sum() < 3:
        return float("nan")
    gap = metrics.rate_gap(t.hits, t.bios)[scored]
    women = metrics.share(t.bios[1], t.bios.sum(axis=0))[scored]
    if np.ptp(gap) == 0 or np.ptp(women) == 0:
        return float("nan")
    return float(np.corrcoef(gap, women)[0, 1])


def flips(counts: Counts) -> pd.DataFrame:
    """Count how predictions change under the swap, by direction of the swap.

    Returns
    -------
    pandas.DataFrame
        Rows ``male_to_female`` (bios of men, read as women), ``female_to_male`` and ``all``;
        columns ``direction``, ``bios`` (with a counterfactual prediction), ``flipped``,
        ``towards`` (wrong to right), ``away`` (right to wrong), ``between`` (wrong to wrong),
        ``p_value``: McNemar's exact two-sided test that towards and away are equally likely.

    Examples
    --------
    >>> counts = Counts.from_codes(
    ...     genders=[0, 0, 1],
    ...     occupations=[0, 0, 1],
    ...     predictions=[0, 0, 0],
    ...     counterfactual_predictions=[1, 0, 1],
    ...     labels=["nurse", "poet"],
    ... )
    >>> flips(counts)[["direction", "bios", "towards", "away"]].values.tolist()
    [['male_to_female', 2, 0, 1], ['female_to_male', 1, 1, 0], ['all', 3, 1, 1]]
    """
    c, n_labels = counts.columns, len(counts.labels)
    paired = c["counterfactuals"] != n_labels + 2
    before, after = c["predictions"], c["counterfactuals"]
    flipped = paired & (before != after)
    right_before, right_after = before == c["occupations"], after == c["occupations"]
    rows: list[dict[str, Any]] = []
    for direction, genders in (("male_to_female", (0,)), ("female_to_male", (1,)), ("all", (0, 1))):
        here = np.isin(c["genders"], genders)
        kinds = {
            "bios": paired,
            "flipped": flipped,
            "towards": flipped & right_after,
            "away": flipped & right_before,
            "between": flipped & ~right_before & ~right_after,
        }
        row = {kind: int(counts.bios[here & where].sum()) for kind, where in kinds.items()}
        discordant = row["towards"] + row["away"]
        p = 1.0
        if discordant:
            fewer = min(row["towards"], row["away"])
            p = float(min(1.0, 2 * special.bdtr(fewer, discordant, 0.5)))
        rows.append({"direction": direction, **row, "p_value": p})
    return pd.DataFrame(rows)


def flip_labels(counts: Counts) -> pd.DataFrame:
    """Count the flips from one label to another, most frequent first.

    Returns
    -------
    pandas.DataFrame
        Columns ``direction`` (as in `flips`), ``prediction``, ``counterfactual_prediction``,
        ``bios``, ``towards``, ``away``.
    """
    c, n_labels = counts.columns, len(counts.labels)
    flipped = (c["counterfactuals"] != n_labels + 2) & (c["predictions"] != c["counterfactuals"])
    names = np.array([*counts.labels, UNKNOWN_LABEL, UNKNOWN_LABEL], dtype=object)
    bios = counts.bios[flipped]
    before, after, truth = (
        c[name][flipped] for name in ("predictions", "counterfactuals", "occupations")
    )
    rows = pd.DataFrame(
        {
            "direction": np.where(c["genders"][flipped] == 0, "male_to_female", "female_to_male"),
            "prediction": names[before],
            "counterfactual_prediction": names[after],
            "bios": bios,
            "towards": np.where(after == truth, bios, 0),
            "away": np.where(before == truth, bios, 0),
        }
    )
    keys = ["direction", "prediction", "counterfactual_prediction"]
    summed = rows.groupby(keys, as_index=False, sort=True).sum()
    return summed.sort_values("bios", ascending=False, kind="stable", ignore_index=True)


def _log_choose(n: int, k: npt.NDArray[np.int64]) -> FloatArray:
    return np.asarray(
        special.gammaln(n + 1) - special.gammaln(k + 1) - special.gammaln(n - k + 1),
        dtype=np.float64,
    )


def _benjamini_hochberg(p: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return p-values of shape (n,), n >= 1, adjusted for the false discovery rate.

    `scipy.stats.false_discovery_control` gives the same; its module takes longer to load than all
    else that scoring needs.

    References
    ----------
    Benjamini and Hochberg (1995), Journal of the Royal Statistical Society B 57(1), 289-300.
    """
    order = np.argsort(p)[::-1]
    scaled = p[order] * len(p) / np.arange(len(p), 0, -1)
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(np.minimum.accumulate(scaled), 1.0)
    return adjusted
