"""How much each bio weighs in training."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["balanced_weights"]


def balanced_weights(
    genders: npt.NDArray[Any], occupations: npt.NDArray[np.int64]
) -> npt.NDArray[np.float32]:
    """Return the weights of n bios with which women and men of an occupation weigh the same.

    An occupation keeps its weight, and one that has bios of one gender only is as it was (Han,
    Baldwin & Cohn 2022, conditional balance).

    Examples
    --------
    >>> balanced_weights(np.array([0, 0, 0, 1, 1]), np.array([0, 0, 0, 0, 1]))
    array([0.6666667, 0.6666667, 0.6666667, 2.       , 1.       ],
          dtype=float32)
    """
    cells = np.zeros((int(occupations.max()) + 1, 2))
    np.add.at(cells, (occupations, genders), 1)
    present = (cells > 0).sum(axis=1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        weights = cells.sum(axis=1, keepdims=True) / (present * cells)
    found: npt.NDArray[np.float32] = weights[occupations, genders].astype(np.float32)
    return found
