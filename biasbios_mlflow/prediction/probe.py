"""Asks a model about a few bios again, and its own ``predict`` beside a fast path."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
from mlflow.exceptions import MlflowException

from biasbios_mlflow.bios.checked import Bios
from biasbios_mlflow.bios.occupations import canonical
from biasbios_mlflow.prediction.base import FastPathError, Predictor
from biasbios_mlflow.prediction.inputs import ModelInputs
from biasbios_mlflow.prediction.outputs import OutputReader, Predictions
from biasbios_mlflow.redaction import logger

__all__ = ["Probe"]

_logger = logger(__name__)

_EXTREMES = 2
"""So many of the longest and of the shortest texts are asked about."""

_RANDOM = 8
"""So many others."""

_TIE = 1e-4
"""Where the two largest scores are closer, either label may come out: sums differ in the last digit
between batches of another shape."""

_NOISE = 0.01
"""Scores of one text may differ so much between batches, in half precision."""

_HASH = 0x9E3779B97F4A7C15
"""Knuth's multiplicative hash: spreads row numbers evenly, the same in every evaluation."""


@dataclass(frozen=True, eq=False)
class _Candidate:
    """One text that may be asked about, its bio's columns, and what the fast path said."""

    rank: float
    row: int
    copy: bool
    text: str
    bio: Bios
    features: npt.NDArray[np.float64] | None
    label: str
    scores: npt.NDArray[np.float64] | None

    @property
    def key(self) -> tuple[int, bool]:
        return self.row, self.copy

    @property
    def is_tie(self) -> bool:
        """Whether the two largest scores are too close to tell which label is right."""
        if self.scores is None or len(self.scores) < 2:
            return False
        second, first = np.partition(self.scores, -2)[-2:]
        return bool(first - second <= _TIE)


class Probe:
    """Asks about a few texts again: who is asked twice should say the same.

    It looks at the longest, the shortest and some random texts, bios and their copies alike. Where
    there is a fast path, the model's own ``predict`` is asked about those of the first window at
    once, and of all windows at the end: with windows of 2,048 bios at most 50 texts an evaluation.
    At the end the model is asked once more, as it was asked before, about at most 12 texts.

    Parameters
    ----------
    predictor : Predictor
        Its ``reference`` is the model's own ``predict``, where it is a fast path.
    reader : OutputReader
        That reads its outputs.

    Attributes
    ----------
    warnings : list of str
        What could not be compared, and whether the model said something else.
    """

    def __init__(self, predictor: Predictor, reader: OutputReader) -> None:
        self.warnings: list[str] = []
        self._predictor = predictor
        self._reference = predictor.reference
        self._names = reader
        returns = (predictor if self._reference is None else self._reference).returns
        self._reader = reader.another(returns)
        self._asked: set[tuple[int, bool]] | None = None
        self._longest: list[_Candidate] = []
        self._shortest: list[_Candidate] = []
        self._random: list[_Candidate] = []

    def see(self, inputs: ModelInputs, predictions: Predictions) -> None:
        """Take note of a window's texts and what was said of them.

        Raises
        ------
        FastPathError
            When the first window's are not what the model's own ``predict`` says.
        """
        if len(inputs) == 0:
            return
        lengths = np.fromiter(map(len, inputs.texts), dtype=np.int64, count=len(inputs))
        usable = np.arange(len(inputs))
        if inputs.cut is not None and self._predictor.cuts_alone:
            usable = usable[~inputs.cut]
        if len(usable) == 0:
            return
        order = usable[np.argsort(lengths[usable], kind="stable")]
        spread = ((inputs.rows.astype(np.uint64) * np.uint64(_HASH)) >> np.uint64(32)).astype(float)
        drawn = usable[np.argsort(-spread[usable], kind="stable")][:_RANDOM]
        for kept, positions, ranks, most in (
            (self._longest, order[::-1][:_EXTREMES], lengths, _EXTREMES),
            (self._shortest, order[:_EXTREMES], -lengths, _EXTREMES),
            (self._random, drawn, spread, _RANDOM),
        ):
            for i in positions.tolist():
                if len(kept) == most and kept[-1].rank >= ranks[i]:
                    break  # the others rank lower still
                kept.append(self._candidate(inputs, predictions, i, float(ranks[i])))
                kept.sort(key=lambda candidate: -candidate.rank)
                del kept[most:]
        if self._asked is None:
            self._asked = set()
            self._ask()

    def finish(self) -> None:
        """Compare the most telling texts of all windows.

        Raises
        ------
        FastPathError
            When the fast path is not what the model's own ``predict`` says.
        """
        if self._asked is not None and not self.warnings:
            self._ask()
        self._ask_again()

    def _ask_again(self) -> None:
        """Ask the same model about the same texts: a model that draws lots is told."""
        kept = {c.key: c for c in (*self._longest, *self._shortest, *self._random)}
        candidates = list(kept.values())
        if not candidates:
            return
        inputs = _inputs(candidates, vectors=self._predictor.reads_vectors)
        reader = self._names.another(self._predictor.returns)
        reader.learn(self._names.state())  # a few texts are read as all were
        try:
            asked = reader.read_window(list(self._predictor.predict(inputs)), inputs.rows)
        except Exception as error:
            text = error.message if isinstance(error, MlflowException) else str(error)
            _logger.debug("The model failed when it was asked again.", exc_info=True)
            self.warnings.append(
                f"the model failed when it was asked about {len(candidates)} texts again "
                f"({type(error).__name__}: {text:.300})"
            )
            return
        others = []
        for position, candidate in enumerate(candidates):
            label = reader.names[asked.codes[position]]
            scores = None if asked.probabilities is None else asked.probabilities[position]
            same = canonical(label) == canonical(candidate.label) or candidate.is_tie
            if same and scores is not None and candidate.scores is not None:
                same = bool(np.abs(scores - candidate.scores).max() <= _NOISE)
            if not same:
                first = _shown(candidate.label, candidate.scores)
                others.append(f"row {candidate.row}: {first}, then {_shown(label, scores)}")
        if others:
            self.warnings.append(
                f"the model says something else when it is asked again: {len(others)} of "
                f"{len(candidates)} texts got another label or other scores ({others[0]}). The "
                "figures are those of one time; another would give others."
            )

    def _candidate(
        self, inputs: ModelInputs, predictions: Predictions, i: int, rank: float
    ) -> _Candidate:
        scores, source = predictions.probabilities, int(inputs.source[i])
        return _Candidate(
            rank=rank,
            row=int(inputs.rows[i]),
            copy=i >= len(inputs.bios),
            text=inputs.texts[i],
            bio=inputs.bios.part(slice(source, source + 1)),  # the others may go
            features=None if inputs.features is None else inputs.features[i],
            label=self._names.names[predictions.codes[i]],
            scores=None if scores is None else scores[i],
        )

    def _ask(self) -> None:
        if self._reference is None:
            return
        assert self._asked is not None
        found: dict[tuple[int, bool], _Candidate] = {
            candidate.key: candidate
            for candidate in (*self._longest, *self._shortest, *self._random)
            if candidate.key not in self._asked
        }
        if not found:
            return
        self._asked.update(found)
        candidates = list(found.values())
        inputs = _inputs(candidates)
        try:
            parts = list(self._reference.predict(inputs))
            asked = self._reader.read_window(parts, inputs.rows)
        except Exception as error:
            text = error.message if isinstance(error, MlflowException) else str(error)
            kind = type(error).__name__
            _logger.debug("The model's own predict failed.", exc_info=True)
            self.warnings.append(
                f"the model's own predict could not be asked for comparison ({kind}: {text:.300}); "
                f"the figures are those of {self._predictor.path}"
            )
            return
        for position, candidate in enumerate(candidates):
            label = self._reader.names[asked.codes[position]]
            if canonical(label) == canonical(candidate.label) or candidate.is_tie:
                continue
            scores = None if asked.probabilities is None else asked.probabilities[position]
            raise FastPathError(
                f"{self._predictor.path} gives {_shown(candidate.label, candidate.scores)} for "
                f"{'the swapped copy of ' * candidate.copy}the bio of row {candidate.row}, the "
                f"model's own predict {_shown(label, scores)}"
            )


def _shown(label: str, scores: npt.NDArray[np.float64] | None) -> str:
    return repr(label) if scores is None else f"{label!r} (largest score {scores.max():.4f})"


def _inputs(candidates: Sequence[_Candidate], *, vectors: bool = True) -> ModelInputs:
    """Put texts of several windows together, each with its bio's other columns.

    Without ``vectors`` an encoder makes them anew.
    """
    bios = [candidate.bio for candidate in candidates]
    together = Bios(
        columns=bios[0].columns,
        labels=bios[0].labels,
        rows=np.concatenate([bio.rows for bio in bios]),
        texts=[text for bio in bios for text in bio.texts],
        genders=np.concatenate([bio.genders for bio in bios]),
        occupations=np.concatenate([bio.occupations for bio in bios]),
        inputs=pd.concat([bio.inputs for bio in bios], ignore_index=True),
    )
    known = [c.features for c in candidates if c.features is not None]
    texts = [candidate.text for candidate in candidates]
    features = np.stack(known) if known and vectors else None
    return ModelInputs(together, np.arange(len(candidates)), texts, features)
