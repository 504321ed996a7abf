"""The one flow: bios, counterfactuals, predictions, counts, scores; window by window."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from tqdm.auto import tqdm

from biasbios_mlflow.bios.checked import Bios, RowHash
from biasbios_mlflow.config import EvaluationConfig
from biasbios_mlflow.counterfactual import swap_with_directions
from biasbios_mlflow.flips import Flips
from biasbios_mlflow.prediction.outputs import OutputReader
from biasbios_mlflow.prediction.predictor import PredictedPair, Predictor, predict_pair
from biasbios_mlflow.prediction.static import StaticPredictions
from biasbios_mlflow.scoring import Counts, Scores, scores_from_counts

__all__ = ["Evaluation", "Stopwatch", "WindowResult", "evaluate_bios", "evaluate_window"]

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class WindowResult:
    """What one window of bios comes down to; results add up in any order."""

    counts: Counts
    flips: Flips
    rows: RowHash
    unknown: Counter[str]

    def __add__(self, other: WindowResult) -> WindowResult:
        return WindowResult(
            counts=self.counts + other.counts,
            flips=self.flips + other.flips,
            rows=self.rows + other.rows,
            unknown=self.unknown + other.unknown,
        )


@dataclass(frozen=True, eq=False)
class Evaluation:
    """A finished evaluation: the scores and what is needed to trust and repeat them."""

    scores: Scores
    result: WindowResult
    bios: int
    missing: Mapping[str, int]
    labels: tuple[str, ...]
    path: str
    config: EvaluationConfig
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def data_sha256(self) -> str:
        """Hash over all rows."""
        return self.result.rows.hexdigest()


class Stopwatch:
    """Adds up the seconds of each phase."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        """Take the time of the block under the name of its phase."""
        start = time.perf_counter()
        try:
            yield
        finally:
            spent = time.perf_counter() - start
            self.seconds[phase] = self.seconds.get(phase, 0.0) + spent


def evaluate_window(
    bios: Bios,
    predictor: Predictor | StaticPredictions,
    reader: OutputReader,
    config: EvaluationConfig,
    watch: Stopwatch,
) -> WindowResult:
    """Take one window of bios through swap, prediction and counting.

    Parameters
    ----------
    bios : Bios
        The window.
    predictor : Predictor
        The model.
    reader : OutputReader
        Shared by all windows of an evaluation.
    config : EvaluationConfig
    watch : Stopwatch
        Takes the time of each phase.

    Returns
    -------
    WindowResult
    """
    counterfactuals = bios.counterfactuals()
    if isinstance(predictor, StaticPredictions):
        with watch("prediction"):
            original, swapped = predictor.read(reader, bios)
            pair = PredictedPair(original, swapped, None)
    else:
        with watch("swap"):
            if counterfactuals is None:
                counterfactuals, _ = swap_with_directions(bios.texts, config.scope)
        with watch("prediction"):
            pair = predict_pair(predictor, reader, bios, counterfactuals)
    with watch("counting"):
        counts = _count(bios, pair, reader.labels.names)
        flips = Flips.of(bios, counterfactuals, pair, names=reader.names, limit=config.max_flips)
    with watch("hashing"):
        rows = bios.hash()
    return WindowResult(
        counts=counts, flips=flips, rows=rows, unknown=reader.unknown(pair.original)
    )


def _count(bios: Bios, pair: PredictedPair, labels: Sequence[str]) -> Counts:
    swapped = pair.counterfactual
    return Counts.from_codes(
        genders=bios.genders,
        occupations=bios.occupations,
        predictions=pair.original.codes,
        counterfactual_predictions=None if swapped is None else swapped.codes,
        probabilities=pair.original.probabilities,
        counterfactual_probabilities=None if swapped is None else swapped.probabilities,
        changed=pair.changed,
        labels=labels,
    )


def evaluate_bios(
    bios: Bios, predictor: Predictor | StaticPredictions, config: EvaluationConfig
) -> Evaluation:
    """Evaluate a model on bios, window by window.

    Parameters
    ----------
    bios : Bios
        From `check_bios`.
    predictor : Predictor
        From `find_predictor`.
    config : EvaluationConfig

    Returns
    -------
    Evaluation
    """
    # Static predictions are picked from the data by their column, not from a model's output.
    column = None if isinstance(predictor, StaticPredictions) else config.predictions
    reader = OutputReader(bios.labels, classes=predictor.classes, column=column)
    watch = Stopwatch()
    total: WindowResult | None = None
    # disable=None: no bar where the output is not a terminal.
    with tqdm(total=len(bios), desc="biasbios", unit=" bios", disable=None) as progress:
        for window in bios.windows(config.window_size):
            result = evaluate_window(window, predictor, reader, config, watch)
            total = result if total is None else total + result
            progress.update(len(window))
    assert total is not None
    with watch("scoring"):
        scores = scores_from_counts(
            total.counts,
            confidence=config.confidence,
            n_replicates=config.n_replicates,
            seed=config.seed,
            min_cell=config.min_cell,
        )
    _logger.info(
        "biasbios: %d bios through %s in %.1f s (%s)",
        len(bios),
        predictor.path,
        sum(watch.seconds.values()),
        ", ".join(f"{phase} {seconds:.2f} s" for phase, seconds in watch.seconds.items()),
    )
    return Evaluation(
        scores=scores,
        result=total,
        bios=len(bios),
        missing=bios.missing,
        labels=reader.labels.names,
        path=predictor.path,
        config=config,
        seconds=watch.seconds,
    )
