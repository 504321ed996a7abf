"""The one flow: bios, counterfactuals, predictions, counts, scores; window by window."""

from __future__ import annotations

import shutil
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
from biasbios_mlflow.fingerprint import Fingerprint, Identity
from biasbios_mlflow.flips import Flips
from biasbios_mlflow.prediction.base import FastPathError, Predictor
from biasbios_mlflow.prediction.label_order import suspect_label_order
from biasbios_mlflow.prediction.outputs import OutputReader, ReadOtherwise, Returns
from biasbios_mlflow.prediction.predictor import (
    Outputs,
    PredictedPair,
    Recorded,
    predict_pair,
    record,
)
from biasbios_mlflow.prediction.probe import Probe
from biasbios_mlflow.prediction.store import WindowStore, cell_bytes
from biasbios_mlflow.redaction import logger
from biasbios_mlflow.rows import RowsSink, RowsWriter
from biasbios_mlflow.scoring import Counts, Scores, scores_from_counts
from biasbios_mlflow.scoring.outcomes import MARK_UNREADABLE, NO_COUNTERFACTUAL, Outcomes
from biasbios_mlflow.scoring.reasons import Absence
from biasbios_mlflow.temporary import make_folder

__all__ = [
    "Evaluation",
    "Stopwatch",
    "Swapped",
    "WindowResult",
    "conclude",
    "data_hash",
    "evaluate_bios",
    "evaluate_window",
    "output_reader",
    "window_store",
]

_logger = logger(__name__)


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
    """What one window of bios comes down to; results add up in any order.

    ``rows`` is the hash over the bios themselves, ``inputs`` that over their order and all other
    columns.

    Attributes
    ----------
    cut : int
        Bios that are longer than the model can take.
    """

    counts: Counts
    flips: Flips
    rows: RowHash
    inputs: RowHash
    unknown: Counter[str]
    findings: Findings
    cut: int = 0

    def __add__(self, other: WindowResult) -> WindowResult:
        return WindowResult(
            counts=self.counts + other.counts,
            flips=self.flips + other.flips,
            rows=self.rows + other.rows,
            inputs=self.inputs + other.inputs,
            unknown=self.unknown + other.unknown,
            findings=self.findings + other.findings,
            cut=self.cut + other.cut,
        )


@dataclass(frozen=True, eq=False)
class Evaluation:
    """A finished evaluation: the scores and what is needed to trust and repeat them.

    Attributes
    ----------
    path : str
        What was called to predict, and where it ran.
    identity : Identity
        Of the model.
    predictions_path : Path or None
        A predictions.parquet (see `biasbios_mlflow.rows`), which lives as long as this object; None
        with ``log_predictions=False``.
    warnings : tuple of str
        What makes the figures doubtful.
    answers : mapping or None
        How answers in words were asked for and read (see `OutputReader.about_answers`); None where
        the model returns labels or numbers.
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
    identity: Identity
    predictions_path: Path | None = None
    warnings: tuple[str, ...] = ()
    answers: Mapping[str, Any] | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def data_sha256(self) -> str:
        """Hash over all rows."""
        return self.result.rows.hexdigest()

    @property
    def fingerprint(self) -> Fingerprint:
        """What the result depends on."""
        inputs = self.result.inputs.hexdigest()
        return Fingerprint.of(self.identity, self.config, data=self.data_sha256, inputs=inputs)


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
    predictor: Predictor,
    reader: OutputReader,
    config: EvaluationConfig,
    watch: Stopwatch,
    *,
    probe: Probe | None = None,
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
    probe : Probe, optional
        Compares a fast path with the model's own ``predict``.
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
    texts: Sequence[str] | None
    if predictor.swaps:
        with watch("swap"):
            swapped = swapped or Swapped.of(bios, config.scope)
        texts, directions = swapped.texts, swapped.directions
    else:
        texts, directions = bios.counterfactuals(), None
    with watch("prediction"):
        pair = _predict(
            predictor, reader, bios, bios.texts if texts is None else texts, probe, store, progress
        )
    with watch("counting"):
        outcomes = _outcomes(bios, pair, reader)
        counts = Counts.from_outcomes(outcomes)
        flips = Flips.of(bios, texts, pair, names=reader.names, limit=config.max_flips)
    if writer is not None:
        with watch("writing"):
            writer.write(bios, pair, outcomes, reader.names)
    with watch("findings"):
        findings = Findings.of(bios, directions)
    with watch("hashing"):
        rows, inputs = bios.hash(), _hash_inputs(bios, findings.prints[0])
    return WindowResult(
        counts=counts,
        flips=flips,
        rows=rows,
        inputs=inputs,
        unknown=reader.unknown(pair.original),
        findings=findings,
        cut=pair.cut,
    )


def _hash_inputs(bios: Bios, prints: npt.NDArray[np.uint64]) -> RowHash:
    """Hash which bio stands in which row, and the cells of the columns that are no part of a bio.

    ``prints`` are hashes of the texts.
    """
    known = {c for c in vars(bios.columns).values() if c is not None and c != bios.columns.id}
    names = [name for name in bios.inputs.columns if name not in known]
    columns = [
        [cell_bytes(cell).decode("latin-1") for cell in bios.inputs[name].tolist()]
        for name in names
    ]
    rows, texts = map(str, bios.rows.tolist()), map(str, prints.tolist())
    heads = [repr(names)] * len(bios)
    return RowHash.of(zip(rows, texts, heads, *columns, strict=True))


def _predict(
    predictor: Predictor,
    reader: OutputReader,
    bios: Bios,
    counterfactuals: Sequence[str],
    probe: Probe | None,
    store: WindowStore | None,
    progress: Callable[[int], object] | None,
) -> PredictedPair:
    key = "" if store is None else store.key(bios, counterfactuals)
    pair = None if store is None else store.load(key, reader, len(bios))
    if pair is None:
        pair = predict_pair(
            predictor, reader, bios, counterfactuals, probe=probe, progress=progress
        )
        if store is not None:
            store.save(key, reader, pair)
    return pair


def _outcomes(bios: Bios, pair: PredictedPair, reader: OutputReader) -> Outcomes:
    swapped = pair.counterfactual
    codes = None if swapped is None else swapped.codes
    matrix = None if swapped is None else swapped.probabilities
    lacking = bios.without_counterfactual()
    if codes is not None and lacking is not None and lacking.any():
        codes = np.where(lacking, NO_COUNTERFACTUAL, codes)
        matrix = None if matrix is None else np.where(lacking[:, None], np.nan, matrix)
    return Outcomes.from_codes(
        genders=bios.genders,
        occupations=bios.occupations,
        predictions=pair.original.codes,
        counterfactual_predictions=codes,
        probabilities=pair.original.probabilities,
        counterfactual_probabilities=matrix,
        changed=pair.changed,
        marks={MARK_UNREADABLE: reader.is_unreadable(pair.original)} if reader.text else None,
        draws=reader.returns.draws,
        labels=reader.labels.names,
    )


def evaluate_bios(
    bios: Bios | BiosStream, predictor: Predictor, config: EvaluationConfig
) -> Evaluation:
    """Evaluate a model on bios, window by window.

    A fast path that fails, or that does not give what the model's own ``predict`` gives, is dropped
    for the whole evaluation, with a warning.

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
    return _evaluate_anew(bios, predictor, predictor.returns, config, ())


def _evaluate_anew(
    bios: Bios | BiosStream,
    predictor: Predictor,
    returns: Returns,
    config: EvaluationConfig,
    told: tuple[str, ...],
) -> Evaluation:
    """Evaluate; from the start again where the first windows were predicted or read wrongly."""
    try:
        return _evaluate(bios, predictor, returns, config, told)
    except FastPathError as dropped:
        own, cause = dropped.instead or predictor.reference, dropped.__cause__
        assert own is not None
        told = (*told, dropped.told())
        _logger.warning("biasbios: %s Starting anew.", told[-1])
    except ReadOtherwise as found:
        own, cause, returns = None, None, replace(returns, kind=found.kind)
        _logger.warning("biasbios: %s Starting anew, as %s.", found.message, found.kind)
    if own is None:
        return _evaluate_anew(bios, predictor, returns, config, told)
    try:
        return _evaluate_anew(bios, own, own.returns, config, told)
    except Exception:
        if cause is None:
            raise
        # Both paths fail: the model's own error says more than that it was met twice.
        raise cause from None


def _evaluate(
    bios: Bios | BiosStream,
    predictor: Predictor,
    returns: Returns,
    config: EvaluationConfig,
    told: Sequence[str],
) -> Evaluation:
    reader = output_reader(bios.labels, config, returns=returns, occupation_ids=bios.occupation_ids)
    asked_again = predictor.swaps and not predictor.asks_once
    probe = Probe(predictor, reader) if asked_again else None
    watch = Stopwatch()
    total: WindowResult | None = None
    folder = make_folder() if config.log_predictions else None
    try:
        writer = None if folder is None else RowsWriter(folder / "predictions.parquet")
        with ExitStack() as stack:
            if writer is not None:
                stack.callback(writer.close)
            progress = stack.enter_context(_progress_bar(len(bios)))
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
                    probe=probe,
                    store=store,
                    writer=writer,
                    progress=progress.update,
                    swapped=swapped,
                )
                total = result if total is None else total + result
                done += len(window)
                progress.update(done - progress.n)  # those that were not predicted
            if probe is not None:
                with watch("prediction"):
                    probe.finish()
        assert total is not None
        evaluation = conclude(
            total,
            reader,
            config,
            watch,
            path=predictor.path,
            identity=predictor.identity,
            missing=bios.missing,
            asked=predictor.about(),
            predictions_path=None if writer is None else writer.path,
            told=[*told, *predictor.told, *(probe.warnings if probe is not None else ())],
        )
    except BaseException:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        raise
    if folder is not None:
        weakref.finalize(evaluation, shutil.rmtree, folder, ignore_errors=True)
    return evaluation


def data_hash(bios: Bios | BiosStream, config: EvaluationConfig) -> str:
    """Return the hash over all rows as an evaluation states it, without predicting any."""
    total = RowHash()
    for window in bios.windows(config.window_size):
        total += window.hash()
    return total.hexdigest()


def conclude(
    result: WindowResult,
    reader: OutputReader,
    config: EvaluationConfig,
    watch: Stopwatch,
    *,
    path: str,
    identity: Identity | None,
    missing: Mapping[str, int],
    asked: Mapping[str, Any] | None = None,
    predictions_path: Path | None = None,
    told: Sequence[str] = (),
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
    identity : Identity or None
        Of the model; None where nothing tells it from others.
    missing : mapping of str to int
        How many bios were left out for want of which part.
    asked : mapping, optional
        What else is known of how the model was asked, see `Predictor.about`.
    predictions_path : Path, optional
        See `Evaluation`.
    told : sequence of str
        What else makes the figures doubtful, or was not done as asked.

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
    doubts = [
        *told,
        reader.note(),
        suspect_label_order(confusion, result.counts.labels),
        _low_coverage(scores),
        _without_counterfactual(missing),
        *scores.warnings,
        _broken_characters(result.findings),
        _told_of_cut(result.cut, result.counts.total),
    ]
    answers = reader.about_answers(quote=config.log_texts)
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
        identity=identity or Identity(None),
        predictions_path=predictions_path,
        warnings=warnings,
        answers=None if answers is None else {**answers, **(asked or {})},
        seconds=watch.seconds,
    )


def _told_of_cut(cut: int, bios: int) -> str | None:
    if cut == 0:
        return None
    return (
        f"{cut} of {bios} bios are longer than the model can take: the model saw their first part "
        "only (bios_cut)."
    )


_LOW_COVERAGE = 0.5


def _low_coverage(scores: Scores) -> str | None:
    """Doubt counterfactual metrics of bios that the swap hardly touches."""
    coverage = scores.metrics.get("swap_coverage")
    if coverage is None or coverage >= _LOW_COVERAGE:
        return None
    if coverage == 0:
        return (
            "the swap changed no bio, so nothing is known of how the model reacts to gendered "
            "words: are the bios in English, and are their pronouns still there?"
        )
    return (
        f"the swap changed only {coverage:.1%} of the bios. All others count as consistent; look "
        "at the metrics over changed bios (prediction_consistency_changed, ctf_changed)."
    )


def _without_counterfactual(missing: Mapping[str, int]) -> str | None:
    lacking = missing.get("counterfactual", 0)
    if not lacking:
        return None
    return f"{lacking} bios have no counterfactual: the counterfactual metrics leave them out."


def _broken_characters(findings: Findings) -> str | None:
    if not findings.broken:
        return None
    return (
        f"{findings.broken} bios hold U+FFFD, which stands for what was no character: was the file "
        "in another encoding?"
    )


def output_reader(
    labels: Labels, config: EvaluationConfig, *, returns: Returns, occupation_ids: bool
) -> OutputReader:
    """Return what reads the outputs of one model for bios with these labels.

    Parameters
    ----------
    labels : Labels
        Of the data.
    config : EvaluationConfig
    returns : Returns
        Those of the predictor.
    occupation_ids : bool
        Whether the data gives occupations as numbers.
    """
    ids_known = config.label_names is not None or occupation_ids
    return OutputReader(labels, returns=returns, ids_known=ids_known, answers=config.answers)


def window_store(predictor: Predictor, config: EvaluationConfig) -> WindowStore | None:
    """Return where finished windows are kept; None without ``resume_dir`` or a model to know by."""
    if config.resume_dir is None or not predictor.swaps:
        return None
    identity = predictor.identity
    if identity is None or not identity.known:
        _logger.warning(
            "biasbios: nothing tells this model or its encoder from others (it is not logged and "
            "cannot be pickled), so resume_dir is not used."
        )
        return None
    # What a fast path that was dropped has left there is not taken for the model's own predictions.
    path = "" if predictor.reference is None else " on the fast path"
    identity = replace(identity, model=f"{identity.model}{path}")
    return WindowStore(Path(config.resume_dir), Fingerprint.of(identity, config))


def _windows(
    bios: Bios | BiosStream,
    predictor: Predictor,
    config: EvaluationConfig,
    store: WindowStore | None,
) -> Iterator[tuple[Bios, Predictor, Swapped | None]]:
    """Yield the windows, with ``n_jobs`` swapped and predicted by other processes."""
    windows = bios.windows(config.window_size)
    shared = predictor.parallel and store is None and len(bios) > 0
    if config.n_jobs == 1 or not shared:
        for window in windows:
            yield window, predictor, None
        return
    from joblib import Parallel, delayed  # type: ignore[import-untyped]

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
) -> tuple[Swapped, Outputs | FastPathError]:
    swapped = Swapped.of(bios, scope)
    return swapped, record(predictor, predictor.variants(bios, swapped.texts).inputs)


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
    absences = {
        name: replace(why, note=no_probabilities)
        if why.absence is Absence.NO_PROBABILITIES
        else why
        for name, why in scores.absences.items()
    }
    return replace(scores, absences=absences)
