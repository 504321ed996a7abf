"""Drawing bios by hashes of their texts: the same bios whatever the order and the other bios."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["draw", "draw_splits", "keyed_hashes"]

_SHARES = {"test": 0.25, "dev": 0.10}
"""De-Arteaga et al. 2019, section 3: 65 % to train, 10 % to tune, 25 % to test."""


def keyed_hashes(texts: Iterable[Any], key: str) -> npt.NDArray[np.uint64]:
    """Return a number for each of n texts that looks random and depends on the key.

    Parameters
    ----------
    texts : iterable of n str
        Anything else counts as its ``str``.
    key : str
        At most 64 bytes.

    Returns
    -------
    ndarray of uint64 of shape (n,)
    """
    secret = key.encode()
    digests = b"".join(
        blake2b(str(text).encode("utf-8", "surrogatepass"), digest_size=8, key=secret).digest()
        for text in texts
    )
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64)


def draw(
    strata: npt.NDArray[np.int64], hashes: npt.NDArray[np.uint64], size: int
) -> npt.NDArray[np.bool_]:
    """Draw rows so that every stratum keeps its share.

    Parameters
    ----------
    strata : ndarray of int64 of shape (n,)
        The stratum of each row, 0 to S - 1.
    hashes : ndarray of uint64 of shape (n,)
        From `keyed_hashes`; those with the smallest are drawn.
    size : int
        How many rows; all, where there are no more.

    Returns
    -------
    ndarray of bool of shape (n,)

    Notes
    -----
    The rows of a stratum are its share of ``size``, rounded down, and what is then left goes to the
    strata with the largest remainders (Hamilton's method).

    Examples
    --------
    >>> strata = np.array([0, 0, 0, 0, 1, 1])
    >>> drawn = draw(strata, keyed_hashes("abcdef", "0"), 3)
    >>> np.bincount(strata[drawn]).tolist()
    [2, 1]
    """
    counts = np.bincount(strata)
    if size >= len(strata):
        return np.ones(len(strata), dtype=bool)
    shares = counts * (size / len(strata))
    wanted = np.floor(shares).astype(np.int64)
    rest = np.argsort(wanted - shares, kind="stable")[: size - wanted.sum()]
    wanted[rest] += 1
    return _ranks(strata, hashes) < wanted[strata]


def draw_splits(texts: Sequence[Any], occupations: Sequence[Any]) -> npt.NDArray[np.object_]:
    """Split bios as the authors of the benchmark did, 65/10/25, stratified by occupation.

    Their own assignment was never published, so this is one of the same kind. It depends on the
    texts alone: a bio hardly ever changes its split when others are lost or added, as happens to
    everybody who collects the bios anew, and copies of a bio are not torn apart.

    Parameters
    ----------
    texts, occupations : sequences of length n

    Returns
    -------
    ndarray of str of shape (n,)
        ``"train"``, ``"dev"`` or ``"test"``.
    """
    _, strata = np.unique([str(name) for name in occupations], return_inverse=True)
    counts = np.bincount(strata)
    ranks = _ranks(strata, keyed_hashes(texts, "biasbios split"))
    splits = np.full(len(strata), "train", dtype=object)
    end = np.zeros(len(counts), dtype=np.int64)
    for split, share in _SHARES.items():
        start, end = end, end + np.rint(share * counts).astype(np.int64)
        splits[(ranks >= start[strata]) & (ranks < end[strata])] = split
    return splits


def _ranks(strata: npt.NDArray[np.int64], hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """Return the rank of each row among those of its stratum, smallest hash first."""
    order = np.lexsort((hashes, strata))
    starts = np.concatenate([[0], np.cumsum(np.bincount(strata))[:-1]])
    ranks = np.empty(len(strata), dtype=np.int64)
    ranks[order] = np.arange(len(strata)) - starts[strata[order]]
    return ranks
