"""What every kind of model offers to the pipeline."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from biasbios_mlflow.bios.checked import Bios
from biasbios_mlflow.fingerprint import Identity
from biasbios_mlflow.prediction.inputs import ModelInputs, differ
from biasbios_mlflow.prediction.outputs import Returns, Rows

__all__ = ["FastPathError", "Predictor", "Variants", "copies_of", "text_variants"]


class FastPathError(Exception):
    """A fast path failed, or does not give what the model's own ``predict`` gives.

    Parameters
    ----------
    message : str
        What was found.
    instead : Predictor, optional
        What to use, where the model's own ``predict`` is not needed.
    """

    def __init__(self, message: str, *, instead: Predictor | None = None) -> None:
        super().__init__(message)
        self.instead = instead

    def told(self) -> str:
        """Return what stays in the summary."""
        if self.instead is not None:
            return f"{self}."
        return f"{self}: what is deployed is predict, so that all bios were predicted by it."


@dataclass(frozen=True, eq=False)
class Variants:
    """What has to be predicted for a window of n bios.

    Attributes
    ----------
    inputs : ModelInputs
        The n originals first, then what else differs from them.
    copies : ndarray of int64 of shape (n,) or None
        For each bio the row of the inputs that holds its counterfactual; None without any.
    changed : ndarray of bool of shape (n,) or None
        Which bios have a counterfactual that differs, where that is known.
    """

    inputs: ModelInputs
    copies: npt.NDArray[np.int64] | None
    changed: npt.NDArray[np.bool_] | None


def text_variants(bios: Bios, counterfactuals: Sequence[str]) -> Variants:
    """Return the variants for a model that reads texts: a text left unchanged comes once.

    Parameters
    ----------
    bios : Bios
        A window of n bios.
    counterfactuals : sequence of str of length n
    """
    changed = differ(bios.texts, counterfactuals)
    inputs = ModelInputs.of(bios, counterfactuals, changed)
    return Variants(inputs, copies_of(changed), changed)


def copies_of(changed: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Return the row of each copy: its own behind the n originals, or that of the original."""
    n = len(changed)
    copies = np.arange(n)
    copies[changed] = n + np.arange(int(changed.sum()))
    return copies


class Predictor(ABC):
    """A kind of model: from inputs to the model's own outputs.

    A new kind is a subclass with ``path``, ``returns`` and `predict`; the rest has defaults that
    fit a model that reads texts in this process.

    Attributes
    ----------
    path : str
        What is called, and where, for the log and the summary.
    returns : Returns
        What is known of its outputs.
    identity : Identity or None
        What tells the model from others (see `identify`).
    options : frozenset of str
        The options of the evaluation that it heeds, of those that not every model does.
    swaps : bool
        Whether it needs the bios swapped; False where predictions for both variants are given.
    reads_vectors : bool
        Whether vectors come with the bios; False where an encoder makes them of texts.
    parallel : bool
        Whether other processes can call it (``n_jobs``).
    reference : Predictor or None
        The model's own ``predict``, if this is a faster way to the same; None where this is it.
    cuts_alone : bool
        Whether its own ``predict`` fails at texts that this one cuts.
    asks_once : bool
        Whether it costs to ask about a text again: the probe then asks nothing.
    told : tuple of str
        What of it makes figures doubtful, or is counted otherwise than one may think.
    """

    path: str
    returns: Returns
    identity: Identity | None = None
    options: frozenset[str] = frozenset()
    swaps: bool = True
    reads_vectors: bool = True
    parallel: bool = False
    reference: Predictor | None = None
    cuts_alone: bool = False
    asks_once: bool = False
    told: tuple[str, ...] = ()

    def about(self) -> dict[str, Any]:
        """Return what else is known of how the model was asked, as plain JSON values."""
        return {}

    def session(self) -> AbstractContextManager[None]:
        """Keep the model ready, where it pays, until the block ends."""
        return nullcontext()

    def variants(self, bios: Bios, counterfactuals: Sequence[str]) -> Variants:
        """Return what has to be predicted for a window of n bios."""
        return text_variants(bios, counterfactuals)

    @abstractmethod
    def predict(self, inputs: ModelInputs) -> Iterator[tuple[Rows, object]]:
        """Yield the model's outputs, in any form, each with the rows that it belongs to.

        Every row comes once, in any order. A predictor that knows labels and scores apart yields
        `biasbios_mlflow.prediction.outputs.Output`; one that has to cut texts marks them in
        ``inputs.cut``.
        """
