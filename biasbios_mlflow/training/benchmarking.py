"""The comparison of the paper: each method by several seeds, as nested runs of one run."""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from mlflow.environment_variables import MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR
from tqdm.auto import tqdm

from biasbios_mlflow.bios.checked import check_bios, find_columns
from biasbios_mlflow.bios.options import READING_OPTIONS
from biasbios_mlflow.bios.readers import load_bios
from biasbios_mlflow.config import EvaluationConfig
from biasbios_mlflow.counterfactual import swap_with_directions
from biasbios_mlflow.errors import invalid
from biasbios_mlflow.fingerprint import Fingerprint, Identity, json_hash
from biasbios_mlflow.redaction import logger, redacted, redacted_uri
from biasbios_mlflow.rows import ROWS_FILE
from biasbios_mlflow.runs import outcomes_at, summary_at
from biasbios_mlflow.scoring import HEADLINE, compare
from biasbios_mlflow.temporary import temporary_folder
from biasbios_mlflow.training.classifiers import (
    Classifier,
    LossCurve,
    TrainingSet,
    encode_pairs,
    find_encoder,
    fit,
    log_classifier,
    log_parameters,
)
from biasbios_mlflow.training.encoding import CachedEncoder, FloatArray
from biasbios_mlflow.training.methods import METHODS, TFIDF, Settings, check_methods
from biasbios_mlflow.training.tables import (
    FURTHER,
    comparison_table,
    markdown,
    method_table,
    text_table,
)

if TYPE_CHECKING:
    from mlflow.entities import Run

__all__ = ["BenchmarkResult", "benchmark"]

_logger = logger(__name__)

_KEY = "biasbios.benchmark.key"
_FOLDER = "benchmark"
# What the figures depend on: distributions, and what they are imported as.
_PACKAGES = {
    "biasbios-mlflow": "biasbios_mlflow",
    "concept-erasure": "concept_erasure",
    "inFairness": "inFairness",
    "numpy": "numpy",
    "scikit-learn": "sklearn",
    "scipy": "scipy",
    "torch": "torch",
}


@dataclass(frozen=True, eq=False)
class BenchmarkResult:
    """A finished benchmark.

    Attributes
    ----------
    run_id : str
        The run that holds the tables; the runs of each method and seed are nested in it.
    runs : DataFrame
        One row for each method and seed: ``method``, ``seed``, ``run_id``, ``reused`` (from an
        earlier benchmark), ``error`` (empty where it went well), the five metrics, and those of
        `biasbios_mlflow.training.tables.FURTHER`.
    comparisons : DataFrame
        One row for each method but the baseline, seed and metric: ``baseline``, ``value``,
        ``difference``, ``ci_low``, ``ci_high`` (paired, on the same test bios and with the same
        seed) and ``better`` (which way is better). Empty without a baseline.
    confidence : float
        Of the intervals.
    """

    run_id: str
    runs: pd.DataFrame
    comparisons: pd.DataFrame
    confidence: float = 0.95

    @property
    def failed(self) -> pd.DataFrame:
        """The rows of ``runs`` that failed."""
        return self.runs[self.runs["error"] != ""]

    def markdown(self) -> str:
        """Return both tables as Markdown."""
        return markdown(self.runs, self.comparisons, confidence=self.confidence)

    def __str__(self) -> str:
        return text_table(self.runs, self.comparisons, confidence=self.confidence)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain JSON values."""
        return {
            "run_id": self.run_id,
            "runs": _records(self.runs),
            "methods": _records(method_table(self.runs)),
            "comparisons": _records(comparison_table(self.comparisons)),
        }


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    loaded: list[dict[str, Any]] = json.loads(frame.to_json(orient="records", double_precision=15))
    return loaded


def benchmark(
    data: Any = "sample",
    *,
    test_data: Any = None,
    split: str | None = "train",
    test_split: str | None = "test",
    methods: Sequence[str] | None = None,
    seeds: int = 5,
    features: str = TFIDF,
    scope: str = "pronouns",
    cache: str | Path | None = None,
    device: str = "auto",
    log_models: bool = False,
    evaluation: Mapping[str, Any] | None = None,
    **settings: Any,
) -> BenchmarkResult:
    """Train and evaluate each method by several seeds, and compare them with the baseline.

    Features are computed once. Each method and seed is a run nested in one run, which gets the
    tables and the figure. A method and seed that an earlier benchmark has finished on the same
    bios, features, settings, options and package versions is not run again. One that fails is
    reported and does not keep the others from running.

    Parameters
    ----------
    data, split
        What is trained on, see `biasbios_mlflow.load_bios`.
    test_data, test_split
        What is evaluated on; by default the test split of ``data``.
    methods : sequence of str, optional
        Of `METHODS`; by default ``baseline`` and ``cda`` on words, and ``clp`` and ``sensei`` too
        on an encoder's features.
    seeds : int, default=5
        How many; they are 0, 1, 2, …
    features, scope, cache, device, **settings
        See `biasbios_mlflow.training.train`, the names of columns too. ``scope`` holds for the
        evaluation too.
    log_models : bool, default=False
        Log each model, with a copy of the encoder, as `train` does.
    evaluation : mapping, optional
        Further options of the evaluator, see `biasbios_mlflow.config.EvaluationConfig`.

    Returns
    -------
    BenchmarkResult

    Raises
    ------
    MlflowException
        At whatever concerns all runs alike: unknown methods or settings, an extra that is not
        installed, data that cannot be read.
    """
    import mlflow

    chosen = tuple(dict.fromkeys(methods or _default_methods(features)))
    check_methods(chosen, features)
    if seeds < 1:
        raise invalid("seeds", found=seeds, expected="at least 1", fix="leave it at 5")
    reading = {name: settings.pop(name) for name in READING_OPTIONS if name in settings}
    method_settings = {method: Settings.of(method, settings) for method in chosen}
    config = EvaluationConfig.parse({**(evaluation or {}), "scope": scope, "device": device})
    encoder = find_encoder(features, cache=cache, config=config)
    training = TrainingSet.read(data, split=split, scope=scope, encoder=encoder, reading=reading)
    test = _TestSet.read(
        data if test_data is None else test_data,
        split=test_split,
        config=config,
        encoder=encoder,
        reading=reading,
    )
    active = mlflow.active_run()
    with mlflow.start_run(run_name="biasbios benchmark", nested=active is not None) as parent:
        rows = []
        progress = _Progress(seeds * len(chosen))
        for seed in range(seeds):
            for method in chosen:
                one = _Job(
                    method=method,
                    seed=seed,
                    features=features,
                    scope=scope,
                    settings=method_settings[method],
                    log_models=log_models,
                )
                rows.append(one.run(training, test, config, parent=parent.info.run_id))
                progress.add(rows[-1])
        progress.close()
        runs = pd.DataFrame(rows)
        runs = runs.sort_values(
            ["method", "seed"], key=lambda c: c.map(chosen.index) if c.name == "method" else c
        ).reset_index(drop=True)
        result = BenchmarkResult(
            run_id=parent.info.run_id,
            runs=runs,
            comparisons=_compare(runs, config),
            confidence=config.confidence,
        )
        about = {
            "features": redacted_uri(features),
            "scope": scope,
            "training_data_sha256": training.sha256,
            "test_data_sha256": test.sha256,
            "settings": {m: s.relevant(m) for m, s in method_settings.items()},
            "versions": _versions(),
        }
        _log(result, about)
    return result


def _default_methods(features: str) -> tuple[str, ...]:
    return ("baseline", "cda") if features == TFIDF else ("baseline", "cda", "clp", "sensei")


class _Progress:
    """Tells how far a benchmark is: a bar on a terminal, else a line a run, with its figures.

    Parameters
    ----------
    total : int
        Runs there are to be.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._start = time.monotonic()
        self._done = 0
        off = None if MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR.get() else True
        self._told = off is None
        self._bar = tqdm(total=total, desc="benchmark", unit=" runs", disable=off)

    def add(self, row: Mapping[str, Any]) -> None:
        """Take a finished run: a row of the table."""
        self._done += 1
        self._bar.update()
        if not (self._told and self._bar.disable):
            return
        spent = time.monotonic() - self._start
        left = spent / self._done * (self._total - self._done)
        figures = row["error"] or ", ".join(
            f"{name} {row[name]:.4f}" for name in HEADLINE if pd.notna(row.get(name))
        )
        print(
            f"benchmark: {self._done} of {self._total} runs, {row['method']} with seed "
            f"{row['seed']}: {figures}; about {left / 60:.0f} min left",
            file=sys.stderr,
            flush=True,
        )

    def close(self) -> None:
        """End the bar."""
        self._bar.close()


def _versions() -> dict[str, str]:
    there = (name for name in _PACKAGES if importlib.util.find_spec(_PACKAGES[name]) is not None)
    return {name: metadata.version(name) for name in there}


@dataclass(frozen=True, eq=False)
class _TestSet:
    """The bios that all classifiers are evaluated on, and their vectors."""

    dataset: Any
    sha256: str
    vectors: _KnownVectors | None

    @classmethod
    def read(
        cls,
        data: Any,
        *,
        split: str | None,
        config: EvaluationConfig,
        encoder: CachedEncoder | None,
        reading: Mapping[str, Any] | None = None,
    ) -> _TestSet:
        dataset = load_bios(data, split, **(reading or {}))
        bios = check_bios(
            dataset.df, find_columns(list(dataset.df.columns)), allow_missing=config.allow_missing
        )
        vectors = None
        if encoder is not None:
            swapped, _ = swap_with_directions(bios.texts, config.scope)
            vectors = _KnownVectors(bios.texts, swapped, encode_pairs(encoder, bios.texts, swapped))
        return cls(dataset, bios.hash().hexdigest(), vectors)


class _KnownVectors:
    """An encoder for the evaluator that looks up what has been encoded already."""

    def __init__(
        self,
        texts: Sequence[str],
        swapped: Sequence[str],
        vectors: tuple[FloatArray, FloatArray],
    ) -> None:
        self._matrix = np.concatenate(vectors)
        self._rows = {text: row for row, text in enumerate([*texts, *swapped])}

    def __call__(self, texts: Sequence[str]) -> FloatArray:
        found: FloatArray = self._matrix[[self._rows[text] for text in texts]]
        return found


@dataclass(frozen=True)
class _Job:
    """One method and seed."""

    method: str
    seed: int
    features: str
    scope: str
    settings: Settings
    log_models: bool

    def run(
        self, training: TrainingSet, test: _TestSet, config: EvaluationConfig, *, parent: str
    ) -> dict[str, Any]:
        """Train and evaluate, unless that has been done; return a row of the table."""
        row: dict[str, Any] = {"method": self.method, "seed": self.seed}
        key = self._key(training, test, config)
        done = _find(key, parent)
        if done is None:
            try:
                run_id = self._train_and_evaluate(training, test, config, key)
            except Exception as error:
                _logger.exception("%s, seed %d failed.", self.method, self.seed)
                return {**row, "run_id": "", "reused": False, "error": _one_line(error)}
            import mlflow

            return {**row, **_describe(mlflow.get_run(run_id)), "reused": False}
        _logger.info("%s, seed %d is taken from run %s.", self.method, self.seed, done.info.run_id)
        return {**row, **_describe(done), "reused": True}

    def _key(self, training: TrainingSet, test: _TestSet, config: EvaluationConfig) -> str:
        """Return a hash of all that the figures depend on."""
        encoder = training.encoder
        about = {
            "method": self.method,
            "seed": self.seed,
            "settings": None if encoder is None else self.settings.relevant(self.method),
            "features": self.features if encoder is None else encoder.identity,
            "data": [training.sha256, test.sha256],
            # Of all but the classifier, which what is above makes.
            "evaluation": Fingerprint.of(Identity(None), config, data=test.sha256).to_dict(),
            "log_models": self.log_models,
            "versions": _versions(),
        }
        return json_hash(about)

    def _train_and_evaluate(
        self, training: TrainingSet, test: _TestSet, config: EvaluationConfig, key: str
    ) -> str:
        import mlflow

        name = f"{self.method}, seed {self.seed}"
        with mlflow.start_run(run_name=name, nested=True) as run:
            mlflow.set_tag(_KEY, key)
            try:
                log_parameters(
                    training,
                    method=self.method,
                    features=self.features,
                    scope=self.scope,
                    seed=self.seed,
                    settings=self.settings,
                )
                before = time.perf_counter()
                with LossCurve.of(run.info.run_id) as curve:
                    classifier = fit(
                        training,
                        method=self.method,
                        settings=self.settings,
                        seed=self.seed,
                        curve=curve,
                    )
                mlflow.log_metric("training/seconds", time.perf_counter() - before)
                _evaluate(classifier, test, config, log_model=self.log_models)
            except Exception as error:
                mlflow.set_tag("biasbios.error", _one_line(error))
                raise
        return str(run.info.run_id)


def _evaluate(
    classifier: Classifier, test: _TestSet, config: EvaluationConfig, *, log_model: bool
) -> None:
    """Evaluate through the plugin, on the vectors that are there, into the active run."""
    import mlflow

    model_id = None
    options = config.model_dump(exclude_unset=True)
    if log_model:
        info = log_classifier(classifier, register=None)
        model_id = info.model_id
        options["model_uri"] = info.model_uri
    if test.vectors is not None:
        options["encoder"] = test.vectors
    mlflow.models.evaluate(
        classifier.predict,
        test.dataset,
        model_type="classifier",
        evaluators="biasbios",
        evaluator_config=options,
        model_id=model_id,
    )


def _find(key: str, parent: str) -> Run | None:
    """Return a finished run of this key; one that an unfinished benchmark left joins this one."""
    from mlflow import MlflowClient
    from mlflow.exceptions import MlflowException
    from mlflow.utils.mlflow_tags import MLFLOW_PARENT_RUN_ID

    client = MlflowClient()
    found = client.search_runs(
        [client.get_run(parent).info.experiment_id],
        f"tags.`{_KEY}` = '{key}' and attributes.status = 'FINISHED'",
        max_results=1,
    )
    if not found:
        return None
    run = found[0]
    try:
        _rows_of(run.info.run_id)
    except (MlflowException, OSError, ValueError) as error:
        _logger.warning("Run %s is not taken over: %s", run.info.run_id, error)
        return None
    try:
        was = client.get_run(run.data.tags[MLFLOW_PARENT_RUN_ID])
        orphan = was.info.status != "FINISHED"
    except (KeyError, MlflowException):
        orphan = True
    if orphan:
        client.set_tag(run.info.run_id, MLFLOW_PARENT_RUN_ID, parent)
    return run


def _describe(run: Run) -> dict[str, Any]:
    known = run.data.metrics
    metrics = {name: known.get(f"biasbios/{name}", np.nan) for name in (*HEADLINE, *FURTHER)}
    return {"run_id": run.info.run_id, "error": "", **metrics}


def _one_line(error: Exception) -> str:
    return redacted(f"{type(error).__name__}: {error}").splitlines()[0][:500]


def _compare(runs: pd.DataFrame, config: EvaluationConfig) -> pd.DataFrame:
    """Compare each method with the baseline of the same seed, bio by bio."""
    columns = ["method", "seed", "metric", "baseline", "value", "difference", "ci_low", "ci_high"]
    rows: list[dict[str, Any]] = []
    done = runs[runs["error"] == ""]
    for seed, group in done.groupby("seed"):
        run_ids = dict(zip(group["method"], group["run_id"], strict=True))
        if "baseline" not in run_ids:
            continue
        ours = _rows_of(run_ids.pop("baseline"))
        for method, run_id in run_ids.items():
            differences = compare(
                ours,
                _rows_of(run_id),
                confidence=config.confidence,
                n_replicates=config.n_replicates,
                seed=config.seed,
                min_cell=config.min_cell,
                metrics=HEADLINE,
            ).differences
            for metric in HEADLINE:
                if metric in differences.index:
                    found = differences.loc[metric]
                    rows.append(
                        {
                            "method": method,
                            "seed": seed,
                            "metric": metric,
                            "baseline": found["a"],
                            "value": found["b"],
                            **{c: found[c] for c in ("difference", "ci_low", "ci_high", "better")},
                        }
                    )
    table = pd.DataFrame(rows, columns=[*columns, "better"])
    order = {method: i for i, method in enumerate(METHODS)}
    return table.sort_values("method", key=lambda c: c.map(order), kind="stable", ignore_index=True)


def _rows_of(run_id: str) -> Any:
    return outcomes_at(f"runs:/{run_id}/biasbios/{ROWS_FILE}", summary_at(run_id))


def _log(result: BenchmarkResult, about: Mapping[str, Any]) -> None:
    """Log the tables and the figure to the active run."""
    import mlflow

    from biasbios_mlflow.report.figures import save_png
    from biasbios_mlflow.training.figures import tradeoff_figure

    methods = method_table(result.runs)
    with temporary_folder() as name:
        folder = Path(name)
        result.runs.to_csv(folder / "runs.csv", index=False)
        methods.to_csv(folder / "methods.csv", index=False)
        result.comparisons.to_csv(folder / "comparisons.csv", index=False)
        (folder / "table.md").write_text(result.markdown(), "utf-8")
        (folder / "benchmark.json").write_text(json.dumps(about, indent=2), "utf-8")
        if len(result.runs) > len(result.failed):
            save_png(tradeoff_figure(result.runs), folder / "tradeoff.png")
        mlflow.log_artifacts(name, _FOLDER)
    means = methods.dropna(subset="mean")
    mlflow.log_metrics(
        {
            f"{_FOLDER}/{method}/{metric}": mean
            for method, metric, mean in zip(
                means["method"], means["metric"], means["mean"], strict=True
            )
        }
    )
