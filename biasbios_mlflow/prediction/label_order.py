"""Finds out a model whose labels are permuted, which would pass for a bad model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.optimize import linear_sum_assignment

__all__ = ["suspect_label_order"]

_ENOUGH = 100
_GAIN = 0.25
_FAR_BELOW = -4.0
"""In standard deviations of the agreement expected by chance."""


def suspect_label_order(confusion: npt.NDArray[np.int64], names: Sequence[str]) -> str | None:
    """Return why the order of a model's labels is likely wrong, None where it is not.

    Agreement is compared with what chance gives, the sum over the labels of the product of their
    shares among true and predicted labels (as in Cohen's kappa). A model that falls far below it,
    or that would be right twice as often under other names, is not bad: it is misread.

    Parameters
    ----------
    confusion : int array of shape (K, K)
        Bios by true label and prediction, predictions outside the label set left out.
    names : sequence of str
        The K labels.

    Examples
    --------
    >>> suspect_label_order(np.array([[60, 0], [0, 60]]), ["nurse", "poet"]) is None
    True
    >>> print(suspect_label_order(np.array([[0, 60], [60, 0]]), ["nurse", "poet"]))
    0.0 % of the predictions agree with the data where chance alone gives 50.0 %, but 100.0 % \
would if 'nurse' was read as 'poet', 'poet' as 'nurse': the label order of the model is probably \
not that of the data. Fix: set label_names to the occupations in the order of the model's ids.
    """
    total = int(confusion.sum())
    if total < _ENOUGH:
        return None
    shares = confusion / total
    agreement = float(np.trace(shares))
    chance = float(shares.sum(axis=0) @ shares.sum(axis=1))
    deviation = (agreement - chance) / np.sqrt(max(chance * (1 - chance) / total, 1e-12))
    # Names are matched on one half of the bios and tried on the other: the best of all matchings
    # agrees with anything on the bios it was made for.
    half = np.random.default_rng(0).binomial(confusion, 0.5)
    truth, predicted = linear_sum_assignment(half, maximize=True)
    rest = confusion - half
    best = float(rest[truth, predicted].sum() / max(rest.sum(), 1))
    far_below = deviation < _FAR_BELOW
    majority = float(shares.sum(axis=1).max())  # what a constant model could reach
    misread = best > 2 * agreement and best > majority + _GAIN * (1 - majority)
    if not (far_below or misread):
        return None
    found = (
        f"{agreement:.1%} of the predictions agree with the data where chance alone gives "
        f"{chance:.1%}"
    ).replace("%", " %")
    if misread:
        moved = [(int(p), int(t)) for t, p in zip(truth, predicted, strict=True) if t != p]
        moved.sort(key=lambda pair: (-confusion[pair[1], pair[0]], pair))
        (p, t), *others = moved
        examples = f"if {names[p]!r} was read as {names[t]!r}" + "".join(
            f", {names[p]!r} as {names[t]!r}" for p, t in others[:2]
        )
        found += f", but {best:.1%} would ".replace("%", " %") + examples
    return (
        f"{found}: the label order of the model is probably not that of the data. Fix: set "
        "label_names to the occupations in the order of the model's ids."
    )
