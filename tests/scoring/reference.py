"""Every metric once more, slowly and without numpy: what the tests compare with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True)
class Rows:
    labels: Sequence[str]
    occupations: Sequence[str]
    genders: Sequence[str]
    predictions: Sequence[str]
    counterfactual_predictions: Sequence[str] | None = None
    probabilities: Sequence[Sequence[float]] | None = None
    counterfactual_probabilities: Sequence[Sequence[float]] | None = None
    changed: Sequence[bool] | None = None


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def reference_metrics(rows: Rows, min_cell: int = 1) -> dict[str, float]:
    n = len(rows.occupations)
    out: dict[str, float] = {"bios": n}
    if n == 0:
        return out | {"occupations_scored": 0, "occupations_excluded": len(rows.labels)}
    bios = list(zip(rows.occupations, rows.genders, rows.predictions, strict=True))
    right = [y == p for y, _, p in bios]
    out["accuracy"] = sum(right) / n
    by_gender = {}
    for gender in ("male", "female"):
        hits = [r for r, (_, g, _) in zip(right, bios, strict=True) if g == gender]
        if hits:
            by_gender[gender] = out[f"accuracy_{gender}"] = sum(hits) / len(hits)
    if len(by_gender) == 2:
        out["accuracy_gap"] = by_gender["male"] - by_gender["female"]

    present = sorted(set(rows.occupations))
    recalls, balanced = [], []
    for occupation in present:
        own = [p == occupation for y, _, p in bios if y == occupation]
        others = [p != occupation for y, _, p in bios if y != occupation]
        recalls.append(sum(own) / len(own))
        if others:
            balanced.append((sum(own) / len(own) + sum(others) / len(others)) / 2)
    out["balanced_accuracy"] = mean(recalls)
    if len(present) > 1:
        out["balanced_accuracy_ovr"] = mean(balanced)

    gaps, varied, variances, fpr_gaps = [], [], [], []
    for occupation in rows.labels:
        cells = {
            gender: [p == occupation for y, g, p in bios if y == occupation and g == gender]
            for gender in ("male", "female")
        }
        if min(map(len, cells.values())) < min_cell:
            continue
        # Exactly: the debiased mean square is a difference, and its root makes much of rounding.
        male, female = (Fraction(sum(cell), len(cell)) for cell in cells.values())
        out[f"tpr_gap/{occupation}"] = float(male - female)
        gaps.append(male - female)
        if min(map(len, cells.values())) > 1:
            variances.append(
                sum(
                    p * (1 - p) / (len(cell) - 1)
                    for p, cell in zip((male, female), cells.values(), strict=True)
                )
            )
            varied.append(male - female)
        negatives = {
            gender: [p == occupation for y, g, p in bios if y != occupation and g == gender]
            for gender in ("male", "female")
        }
        if all(negatives.values()):
            male, female = (sum(cell) / len(cell) for cell in negatives.values())
            fpr_gaps.append(male - female)
    out["occupations_scored"] = len(gaps)
    out["occupations_excluded"] = len(rows.labels) - len(gaps)
    if gaps:
        out["gap_rms"] = math.sqrt(mean([gap**2 for gap in gaps]))
        out["gap_abs"] = mean([abs(gap) for gap in gaps])
    if varied:
        square = sum(gap**2 - v for gap, v in zip(varied, variances, strict=True)) / len(varied)
        out["gap_rms_debiased"] = math.sqrt(max(0, square))
    if fpr_gaps:
        out["fpr_gap_rms"] = math.sqrt(mean([gap**2 for gap in fpr_gaps]))
        out["fpr_gap_abs"] = mean([abs(gap) for gap in fpr_gaps])

    swapped = rows.counterfactual_predictions
    if swapped is not None and not (rows.changed is not None and not any(rows.changed)):
        out.update(reference_parts(rows, swapped, min_cell))
    # Copies that are all the same show nothing.
    nothing = rows.changed is not None and not any(rows.changed)
    if rows.changed is not None:
        out["swap_coverage"] = sum(rows.changed) / n
    if swapped is not None:
        same = [p == q for p, q in zip(rows.predictions, swapped, strict=True)]
        if not nothing:
            out["prediction_consistency"] = sum(same) / n
        if rows.changed is not None and any(rows.changed):
            kept = [s for s, c in zip(same, rows.changed, strict=True) if c]
            out["prediction_consistency_changed"] = sum(kept) / len(kept)
    if rows.probabilities is not None and rows.counterfactual_probabilities is not None:
        place = {label: k for k, label in enumerate(rows.labels)}
        values: dict[str, list[float]] = {
            name: [] for name in ("ctf", "ctf_true_class", "ctf_all_classes", "ctf_gap")
        }
        changed = []
        for i, (y, _, p) in enumerate(bios):
            if p not in place:
                continue
            pairs = list(
                zip(rows.probabilities[i], rows.counterfactual_probabilities[i], strict=True)
            )
            variance = [mean([(x - mean(pair)) ** 2 for x in pair]) for pair in pairs]
            values["ctf"].append(variance[place[p]])
            values["ctf_true_class"].append(variance[place[y]])
            values["ctf_all_classes"].append(math.fsum(variance))
            values["ctf_gap"].append(abs(pairs[place[p]][0] - pairs[place[p]][1]))
            if rows.changed is not None and rows.changed[i]:
                changed.append(variance[place[p]])
        if values["ctf"] and not nothing:
            out.update({name: mean(value) for name, value in values.items()})
        if changed:
            out["ctf_changed"] = mean(changed)
    return out


def reference_parts(rows: Rows, swapped: Sequence[str], min_cell: int) -> dict[str, float]:
    """TPRs of each gender in the words of each, and Kitagawa's two parts of their difference."""
    out: dict[str, float] = {}
    bios = list(zip(rows.occupations, rows.genders, rows.predictions, swapped, strict=True))
    other = {"male": "female", "female": "male"}
    gaps: dict[str, list[Fraction]] = {"words": [], "rest": []}
    variances: dict[str, list[Fraction]] = {"words": [], "rest": []}
    fpr: dict[str, list[Fraction]] = {"words": [], "rest": []}
    for occupation in rows.labels:
        if min(sum((y, g) == (occupation, h) for y, g, _, _ in bios) for h in other) < min_cell:
            continue
        for rate in ("tpr", "fpr"):
            # By gender of the bio, in whose words: whether the occupation is predicted.
            said: dict[tuple[str, str], list[bool]] = {}
            for gender in other:
                kept = [
                    (p, q)
                    for y, g, p, q in bios
                    if g == gender and (y == occupation) == (rate == "tpr")
                ]
                said[gender, gender] = [p == occupation for p, _ in kept]
                said[gender, other[gender]] = [q == occupation for _, q in kept]
            if not all(said.values()):
                continue
            t = {key: Fraction(sum(values), len(values)) for key, values in said.items()}
            mm, mf = t["male", "male"], t["male", "female"]
            fm, ff = t["female", "male"], t["female", "female"]
            found = {"words": ((mm - mf) + (fm - ff)) / 2, "rest": ((mm - fm) + (mf - ff)) / 2}
            if rate == "fpr":
                for part, value in found.items():
                    fpr[part].append(value)
                continue
            for part, sign in (("words", -1), ("rest", 1)):
                out[f"tpr_gap_{part}/{occupation}"] = float(found[part])
                gaps[part].append(found[part])
                variance = Fraction(0)
                for gender in other:
                    each = [
                        Fraction(int(a) + sign * int(b), 2)
                        for a, b in zip(
                            said[gender, gender], said[gender, other[gender]], strict=True
                        )
                    ]
                    if len(each) < 2:
                        break
                    middle = sum(each) / len(each)
                    squares = sum((x - middle) ** 2 for x in each)
                    variance += squares / (len(each) - 1) / len(each)
                else:
                    variances[part].append(found[part] ** 2 - variance)
    for part in ("words", "rest"):
        if gaps[part]:
            out[f"gap_rms_{part}"] = math.sqrt(mean([x**2 for x in gaps[part]]))
            out[f"gap_abs_{part}"] = mean([abs(x) for x in gaps[part]])
        if variances[part]:
            debiased = sum(variances[part]) / len(variances[part])
            out[f"gap_rms_{part}_debiased"] = math.sqrt(max(0, debiased))
        if fpr[part]:
            out[f"fpr_gap_rms_{part}"] = math.sqrt(mean([x**2 for x in fpr[part]]))
            out[f"fpr_gap_abs_{part}"] = mean([abs(x) for x in fpr[part]])
    return out
