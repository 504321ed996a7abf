"""The one flow: bios, counterfactuals, predictions, counts, scores; window by window."""

from __future__ import annotations

import logging
import shutil
import tempfile
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from mlflow.environment_variables import MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR
from tqdm.auto import tqdm

from biasbios_mlflow.bios.checked import Bios, RowHash
from biasbios_mlflow.bios.occupations import Labels
from biasbios_mlflow.bios.stream import BiosStream
from biasbios_mlflow.config import EvaluationConfig
from biasbios_mlflow.counterfactual import swap_with_directions
from biasbios_mlflow.findings import Findings
from biasbios_mlflow.flips import Flips
from biasbios_mlflow.prediction.inputs import ModelInputs, differ
from biasbios_mlflow.prediction.label_order import suspect_label_order
from biasbios_mlflow.prediction.outputs import OutputReader
from biasbios_mlflow.prediction.predictor import (
    PredictedPair,
    Predictor,
    Recorded,
    Rows,
    predict_pair,
)
from biasbios_mlflow.prediction.sklearn import SklearnPredictor
from biasbios_mlflow.prediction.static import StaticPredictions
from biasbios_mlflow.prediction.store import WindowStore
from biasbios_mlflow.rows import RowsSink, RowsWriter
from biasbios_mlflow.scoring import Counts, Scores, scores_from_counts
from biasbios_mlflow.scoring.outcomes import Outcomes

__all__ = [
    "Evaluation",
    "Stopwatch",
    "WindowResult",
    "conclude",
    "evaluate_bios",
    "evaluate_window",
    "output_reader",
    "window_store",
]

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Swapped:
    """The swapped texts of n bios, and which way each went where the swap made them."""

    texts: Sequence[str]
    directions: npt.NDArray[np.int8] | None

    @classmethod
    def of(cls, bios: Bios, scope: str) -> Swapped:
        """Take the user's own texts, or swap the bios."""
        own = bios.counterfactuals()
        return cls(*swap_with_directions(bios.texts, scope)) if own is None else cls(own, None)


@dataclass(frozen=True, eq=False)
class WindowResult:
    """What one window of bios comes down to; results add up in any order."""

    counts: Counts
    flips: Flips
    rows: RowHash
    unknown: Counter[str]
    findings: Findings

    def __add__(self, other: WindowResult) -> WindowResult:
        return WindowResult(
            counts=self.counts + other.counts,
            flips=self.flips + other.flips,
            rows=self.rows + other.rows,
            unknown=self.unknown + other.unknown,
            findings=self.findings + other.findings,
        )


@dataclass(frozen=True, eq=False)
class Evaluation:
    """A finished evaluation: the scores and what is needed to trust and repeat them.

    Attributes
    ----------
    path : str
        What was called to predict, and where it ran.
    predictions_path : Path or None
        A predictions.parquet (see `biasbios_mlflow.rows`), which lives as long as this object; None
        with ``log_predictions=False``.
    warnings : tuple of str
        What makes the figures doubtful.
    seconds : mapping of str to float
        Time spent in each phase.
    """

    scores: Scores
    result: WindowResult
    bios: int
    missing: Mapping[str, int]
    labels: tuple[str, ...]
    path: str
    config: EvaluationConfig
    predictions_path: Path | None = None
    warnings: tuple[str, ...] = ()
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
    *,
    store: WindowStore | None = None,
    writer: RowsSink | None = None,
    progress: Callable[[int], object] | None = None,
    swapped: Swapped | None = None,
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
    store : WindowStore, optional
        Where finished windows are kept.
    writer : RowsSink, optional
        Takes one row a bio.
    progress : callable, optional
        Told the number of bios predicted since it was last told.
    swapped : Swapped, optional
        Where the texts have been swapped already.

    Returns
    -------
    WindowResult
    """
    if isinstance(predictor, StaticPredictions):
        texts: Sequence[str] | None = bios.counterfactuals()
        directions = None
        with watch("prediction"):
            pair = PredictedPair(*predictor.read(reader, bios), None)
    else:
        with watch("swap"):
            swapped = swapped or Swapped.of(bios, config.scope)
            texts, directions = swapped.texts, swapped.directions
        with watch("prediction"):
            pair = _predict(predictor, reader, bios, swapped.texts, store, progress)
    with watch("counting"):
        outcomes = _outcomes(bios, pair, reader.labels.names)
        counts = Counts.from_outcomes(outcomes)
        flips = Flips.of(bios, texts, pair, names=reader.names, limit=config.max_flips)
    if writer is not None:
        with watch("writing"):
            writer.write(bios, pair, outcomes, reader.names)
    with watch("hashing"):
        rows = bios.hash()
    with watch("findings"):
        findings = Findings.of(bios, directions)
    return WindowResult(
        counts=counts,
        flips=flips,
        rows=rows,
        unknown=reader.unknown(pair.original),
        findings=findings,
    )


def _predict(
    predictor: Predictor,
    reader: OutputReader,
    bios: Bios,
    counterfactuals: Sequence[str],
    store: WindowStore | None,
    progress: Callable[[int], object] | None,
) -> PredictedPair:
    if store is None:
        return predict_pair(predictor, reader, bios, counterfactuals, progress=progress)
    key = store.key(bios, counterfactuals)
    pair = store.load(key, reader, len(bios))
    if pair is None:
        pair = predict_pair(predictor, reader, bios, counterfactuals, progress=progress)
        store.save(key, reader, pair)
    return pair


def _outcomes(bios: Bios, pair: PredictedPair, labels: Sequence[str]) -> Outcomes:
    swapped = pair.counterfactual
    return Outcomes.from_codes(
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
    bios: Bios | BiosStream, predictor: Predictor | StaticPredictions, config: EvaluationConfig
) -> Evaluation:
    """Evaluate a model on bios, window by window.

    Parameters
    ----------
    bios : Bios or BiosStream
        From `check_bios`, or read as they are needed.
    predictor : Predictor
        From `find_predictor`.
    config : EvaluationConfig

    Returns
    -------
    Evaluation

    Raises
    ------
    MlflowException
        At an output that cannot be read, or that has no label in common with the data.
    """
    reader = output_reader(
        bios.labels,
        config,
        classes=predictor.classes,
        static=isinstance(predictor, StaticPredictions),
        occupation_ids=bios.occupation_ids,
    )
    watch = Stopwatch()
    total: WindowResult | None = None
    folder = Path(tempfile.mkdtemp(prefix="biasbios-")) if config.log_predictions else None
    try:
        writer = None if folder is None else RowsWriter(folder / "predictions.parquet")
        with ExitStack() as stack:
            if writer is not None:
                stack.callback(writer.close)
            progress = stack.enter_context(_progress_bar(len(bios)))
            if not isinstance(predictor, StaticPredictions):
                stack.enter_context(predictor.session())
            store = window_store(predictor, config)
            done = 0
            for window, ready, swapped in _windows(bios, predictor, config, store):
                result = evaluate_window(
                    window,
                    ready,
                    reader,
                    config,
                    watch,
                    store=store,
                    writer=writer,
                    progress=progress.update,
                    swapped=swapped,
                )
                total = result if total is None else total + result
                done += len(window)
                progress.update(done - progress.n)  # those that were not predicted
        assert total is not None
        evaluation = conclude(
            total,
            reader,
            config,
            watch,
            path=predictor.path,
            missing=bios.missing,
            predictions_path=None if writer is None else writer.path,
        )
    except BaseException:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    if folder is not None:
        weakref.finalize(evaluation, shutil.rmtree, folder, ignore_errors=True)
    return evaluation


def conclude(
    result: WindowResult,
    reader: OutputReader,
    config: EvaluationConfig,
    watch: Stopwatch,
    *,
    path: str,
    missing: Mapping[str, int],
    predictions_path: Path | None = None,
) -> Evaluation:
    """Turn the sum of all windows into scores, with what makes them doubtful.

    Parameters
    ----------
    result : WindowResult
        Of all bios.
    reader : OutputReader
        That read them, or that learned what those learned that did.
    config : EvaluationConfig
    watch : Stopwatch
        With the time that the windows took.
    path : str
        What was called to predict.
    missing : mapping of str to int
        How many bios were left out for want of which part.
    predictions_path : Path, optional
        See `Evaluation`.

    Raises
    ------
    MlflowException
        When no prediction is a label of the data.
    """
    confusion = _confusion(result.counts)
    if not confusion.any():
        reader.check_any_known(reader.encode(result.unknown).tolist())
    with watch("scoring"):
        scores = scores_from_counts(
            result.counts,
            confidence=config.confidence,
            n_replicates=config.n_replicates,
            seed=config.seed,
            min_cell=config.min_cell,
            design_effects=result.findings.design_effects(result.counts.labels),
        )
    doubts = [suspect_label_order(confusion, result.counts.labels), *scores.warnings]
    warnings = tuple(doubt for doubt in doubts if doubt is not None)
    for warning in warnings:
        _logger.warning("biasbios: %s", warning)
    _logger.info(
        "biasbios: %d bios through %s in %.1f s (%s)",
        result.counts.total,
        path,
        sum(watch.seconds.values()),
        ", ".join(f"{phase} {seconds:.2f} s" for phase, seconds in watch.seconds.items()),
    )
    return Evaluation(
        scores=_with_reason(scores, reader.no_probabilities),
        result=result,
        bios=result.counts.total,
        missing=missing,
        labels=reader.labels.names,
        path=path,
        config=config,
        predictions_path=predictions_path,
        warnings=warnings,
        seconds=watch.seconds,
    )


def output_reader(
    labels: Labels,
    config: EvaluationConfig,
    *,
    classes: Sequence[Any] | None,
    static: bool,
    occupation_ids: bool,
) -> OutputReader:
    """Return what reads the outputs of one model for bios with these labels.

    Parameters
    ----------
    labels : Labels
        Of the data.
    config : EvaluationConfig
    classes : sequence or None
        Those of the predictor.
    static : bool
        Whether predictions stand in the data: they are picked by their column there, not from a
        model's output.
    occupation_ids : bool
        Whether the data gives occupations as numbers.
    """
    return OutputReader(
        labels,
        classes=classes,
        column=None if static else config.predictions,
        ids_known=config.label_names is not None or occupation_ids,
    )


def window_store(
    predictor: Predictor | StaticPredictions, config: EvaluationConfig
) -> WindowStore | None:
    """Return where finished windows are kept; None without ``resume_dir`` or a model to know by."""
    if config.resume_dir is None or isinstance(predictor, StaticPredictions):
        return None
    if predictor.identity is None:
        _logger.warning(
            "biasbios: nothing tells this model from another (it is not logged and cannot be "
            "pickled), so resume_dir is not used."
        )
        return None
    return WindowStore(
        Path(config.resume_dir), model=predictor.identity, config=config.prediction_options()
    )


def _windows(
    bios: Bios | BiosStream,
    predictor: Predictor | StaticPredictions,
    config: EvaluationConfig,
    store: WindowStore | None,
) -> Iterator[tuple[Bios, Predictor | StaticPredictions, Swapped | None]]:
    """Yield the windows; those of a scikit-learn model swapped and predicted by other processes."""
    windows = bios.windows(config.window_size)
    shared = isinstance(predictor, SklearnPredictor) and store is None and len(bios) > 0
    if config.n_jobs == 1 or not shared:
        for window in windows:
            yield window, predictor, None
        return
    from joblib import Parallel, delayed  # type: ignore[import-untyped]

    assert not isinstance(predictor, StaticPredictions)
    work = delayed(_swap_and_predict)
    sent: deque[Bios] = deque()

    def tasks() -> Iterator[Any]:
        for window in windows:
            sent.append(window)
            yield work(window, predictor, config.scope)

    for swapped, outputs in Parallel(n_jobs=config.n_jobs, return_as="generator")(tasks()):
        yield sent.popleft(), Recorded(predictor, outputs), swapped


def _swap_and_predict(
    bios: Bios, predictor: Predictor, scope: str
) -> tuple[Swapped, list[tuple[Rows, object]]]:
    swapped = Swapped.of(bios, scope)
    inputs = ModelInputs.of(bios, swapped.texts, differ(bios.texts, swapped.texts))
    return swapped, list(predictor.predict(inputs))


def _progress_bar(bios: int) -> tqdm[Any]:
    # None: no bar where the output is not a terminal.
    disable = None if MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR.get() else True
    return tqdm(total=bios, desc="biasbios", unit=" bios", disable=disable)


def _confusion(counts: Counts) -> npt.NDArray[np.int64]:
    """Count bios by true label and prediction, shape (K, K)."""
    n_labels, columns = len(counts.labels), counts.columns
    known = columns["predictions"] < n_labels
    confusion = np.zeros((n_labels, n_labels), dtype=np.int64)
    at = (columns["occupations"][known], columns["predictions"][known])
    np.add.at(confusion, at, counts.bios[known])
    return confusion


def _with_reason(scores: Scores, no_probabilities: str | None) -> Scores:
    """Say why there are no probabilities, where that is why a metric is absent."""
    if no_probabilities is None:
        return scores
    reasons = {
        name: why.replace("no probabilities", f"no probabilities: {no_probabilities}")
        for name, why in scores.reasons.items()
    }
    return replace(scores, reasons=reasons)
