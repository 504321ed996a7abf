"""One call: bios in Spark, evaluated by the executors, logged by the driver."""

from __future__ import annotations

import functools
import operator
import pickle
import uuid
import warnings
from collections import Counter
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import mlflow
import pyarrow as pa  # type: ignore[import-untyped]
from mlflow.data.code_dataset_source import CodeDatasetSource
from mlflow.data.spark_dataset import SparkDataset
from mlflow.data.spark_dataset_source import SparkDatasetSource
from mlflow.entities import Dataset, DatasetInput
from mlflow.tracking.context import registry

from biasbios_mlflow.api import resolve_model_uri
from biasbios_mlflow.bios.checked import Columns, find_columns
from biasbios_mlflow.config import EvaluationConfig
from biasbios_mlflow.errors import invalid
from biasbios_mlflow.pipeline import Evaluation, Stopwatch, conclude
from biasbios_mlflow.prediction.predictor import find_predictor
from biasbios_mlflow.redaction import redacted_uri
from biasbios_mlflow.spark.frames import (
    choose_split,
    complete_bios,
    count_duplicates,
    cut_windows,
    read_frame,
    survey,
)
from biasbios_mlflow.spark.sessions import (
    arrow_map,
    errors_told,
    find_session,
    is_spark_frame,
    prepare_folder,
    require_pyspark,
)
from biasbios_mlflow.spark.shipping import ShippedModel, ship_model
from biasbios_mlflow.spark.worker import (
    FLIP_TYPES,
    POSITION,
    PREDICTION_TYPES,
    ROW,
    Part,
    Task,
    add_up,
)
from biasbios_mlflow.tracking import log_evaluation

if TYPE_CHECKING:
    from mlflow.models import EvaluationResult
    from pyspark.sql import DataFrame

__all__ = ["evaluate"]

_HEAD = 32
"""So many bios tell how a model's output is to be read."""

_MOST_TASKS = 1_000
"""A task a window, up to this number: many small ones keep all cores busy to the end."""

_DIGEST_LENGTH = 32  # MLflow takes 36 characters at most

_FAN_IN = 64
"""So many parts at most reach the driver; of more, executors add some up before."""


@dataclass(frozen=True, eq=False)
class _Bios:
    """A frame, and where it is from."""

    frame: DataFrame
    name: str
    path: str | None
    columns: tuple[str, ...]


def evaluate(
    model: str | None,
    data: Any,
    *,
    split: str | None = None,
    model_config: Mapping[str, Any] | None = None,
    output: str | None = None,
    **config: Any,
) -> EvaluationResult:
    """Evaluate a registered model on bios in Spark and log to the active run, or a new one.

    The same metrics, artifacts and links as `biasbios_mlflow.evaluate`, for any number of bios:
    executors take windows of bios through swap, prediction and counting and return counts, which
    the driver adds up. Results come back as what a Spark action returns, so that a task that is
    tried again, or an executor that is lost, never makes a bio count twice.

    Parameters
    ----------
    model : str or None
        URI of the model; None for predictions that stand in the data (``predictions="column"``).
    data : pyspark.sql.DataFrame or str
        The bios, classic or Spark Connect; or what Spark reads them from: the path or URL of a
        parquet, csv, tsv or jsonl file or folder. It is read four times (cache what is costly to
        compute) and must give the same rows each time.
    split : str, optional
        Which part of ``data``: the rows whose column ``split`` says so.
    model_config : mapping, optional
        Passed on when the model is loaded.
    output : str, optional
        Folder or URL under which the executors write ``<run id>/predictions`` and
        ``<run id>/flips`` as parquet: one row a bio, and one row a flip. Without it,
        ``predictions.parquet`` is left out; ``flips.csv`` holds a sample either way.
    **config
        The evaluator's options, see `biasbios_mlflow.config.EvaluationConfig`. ``n_jobs`` has no
        use here.

    Returns
    -------
    mlflow.models.EvaluationResult

    Raises
    ------
    MlflowException
        At every error a user can mend.

    Examples
    --------
    >>> import biasbios_mlflow.spark
    >>> result = biasbios_mlflow.spark.evaluate(
    ...     "models:/occupations@champion", spark.read.parquet("s3a://bios/test")
    ... )  # doctest: +SKIP
    >>> result.metrics["biasbios/gap_rms"]  # doctest: +SKIP
    0.131
    """
    checked = EvaluationConfig.parse(config)
    require_pyspark()
    with warnings.catch_warnings():
        # Of pyspark's conversions of pandas frames, of which none is used here.
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas")
        return _evaluate(model, _read(data, split), checked, model_config, output)


def _evaluate(
    model: str | None,
    bios: _Bios,
    config: EvaluationConfig,
    model_config: Mapping[str, Any] | None,
    output: str | None,
) -> EvaluationResult:
    columns = find_columns(bios.columns, **config.named_columns())
    uri = None
    if model is not None:
        uri = _pinned(model)
        loaded = {"model_config": model_config}
        config = config.model_copy(
            update={"model_uri": config.model_uri or uri, "loaded_with": loaded}
        )
    else:
        find_predictor(None, config)  # is there a column of predictions?
    active = mlflow.active_run()
    with mlflow.start_run() if active is None else nullcontext(active) as run:
        run_id = run.info.run_id
        folder = None if output is None else f"{output.rstrip('/')}/{run_id}"
        if folder is not None:
            prepare_folder(folder, bios.frame.sparkSession, config)
        shipped = None if uri is None else ship_model(uri, bios.frame.sparkSession)
        with errors_told("data"):
            evaluation = evaluate_frame(
                bios.frame, columns, config, shipped, model_config=model_config, folder=folder
            )
        dataset = _dataset(bios, columns, evaluation)
        client = mlflow.MlflowClient()
        client.log_inputs(run_id, [DatasetInput(Dataset(**dataset.to_dict()), tags=[])])
        if folder is not None:
            client.set_tag(run_id, "biasbios.output", redacted_uri(folder))
        return log_evaluation(evaluation, run_id=run_id, dataset=dataset, model=shipped)


def evaluate_frame(
    frame: DataFrame,
    columns: Columns,
    config: EvaluationConfig,
    model: ShippedModel | None,
    *,
    model_config: Mapping[str, Any] | None = None,
    folder: str | None = None,
) -> Evaluation:
    """Evaluate a model on the bios of a frame, without a run.

    Parameters
    ----------
    frame : pyspark.sql.DataFrame
    columns : Columns
    config : EvaluationConfig
    model : ShippedModel or None
    model_config : mapping, optional
    folder : str, optional
        Where executors write predictions and flips.

    Raises
    ------
    MlflowException
        As `biasbios_mlflow.pipeline.evaluate_bios`; also when the frame does not give the same rows
        each time.
    """
    watch = Stopwatch()
    with watch("survey"):
        surveyed = survey(frame, columns, gender_values=config.gender_values)
        surveyed.survey.check(allow_missing=config.allow_missing)
        head = complete_bios(frame, columns, surveyed.left_out).limit(_HEAD).toArrow()
        whole = surveyed.survey
        labels = whole.labels(config.label_names)
        repeated = count_duplicates(frame, columns, surveyed, labels)
    task = Task(
        config=config,
        columns=columns,
        labels=labels,
        occupation_ids=whole.occupation_ids,
        head=_as_stream(head),
        archive=None if model is None else model.archive,
        model_config=model_config,
        tracking_uri=mlflow.get_tracking_uri(),
        keep=folder is not None,
        nonce=uuid.uuid4().hex if callable(config.encoder) else "",
    )
    sizes = _window_sizes(whole.complete, config.window_size)
    tasks = min(len(sizes), _MOST_TASKS)
    windows = cut_windows(frame, columns, surveyed, config.window_size, partitions=tasks)
    parts = _run(windows, tasks, task, folder)
    total = functools.reduce(operator.add, parts) if parts else None
    if total is None or total.windows != sizes:
        raise invalid(
            "data",
            found="other rows when Spark read them again",
            expected="a DataFrame that gives the same rows in the same partitions each time",
            fix="write it as parquet and read that, or cache() it",
        )
    total = total.with_one_spelling()
    for phase, seconds in total.seconds.items():
        watch.seconds[phase] = seconds
    reader = task.reader()
    reader.learn(total.learned)
    findings = replace(total.result.findings, repeated=repeated)
    result = replace(total.result, findings=findings)
    return conclude(
        result,
        reader,
        config,
        watch,
        path=f"{total.path} on Spark",
        identity=total.identity,
        missing=whole.missing,
        told=(*total.told, *_told_of_repeated(repeated)),
    )


def _told_of_repeated(repeated: tuple[int, int]) -> list[str]:
    if repeated[0] == 0:
        return []
    return [
        f"{repeated[0]} bios repeat the text of another one: on Spark the intervals do not allow "
        "for it and are too narrow."
    ]


def _read(data: Any, split: str | None) -> _Bios:
    path = None
    with errors_told("data"):
        if isinstance(data, str):
            frame, name = read_frame(data, find_session(), split)
            path = None if data == "sample" else data
        elif is_spark_frame(data):
            frame, name = data, "bios"
            if split is not None:
                frame, name = choose_split(frame, split), f"{name}-{split}"
        else:
            raise invalid(
                "data",
                found=f"an object of type {type(data).__name__}",
                expected="a Spark DataFrame, or the path of what Spark reads",
                fix="use biasbios_mlflow.evaluate, which takes it, or spark.createDataFrame",
            )
        return _Bios(frame, name, path, tuple(frame.columns))


def _pinned(model: Any) -> str:
    if not isinstance(model, str):
        raise invalid(
            "model",
            found=f"an object of type {type(model).__name__}",
            expected="the URI of a logged model, which executors can load",
            fix="log it and pass its URI",
        )
    return resolve_model_uri(model)[0]


class _BiosDataset(SparkDataset):
    """A Spark dataset whose number of rows is known: MLflow would count them once more."""

    rows: int

    @property
    def profile(self) -> dict[str, int]:
        return {"num_rows": self.rows}

    @property
    def schema(self) -> Any:
        with warnings.catch_warnings():  # hints on signatures of models
            warnings.simplefilter("ignore")
            return super().schema


def _dataset(bios: _Bios, columns: Columns, evaluation: Evaluation) -> _BiosDataset:
    """Return the bios as MLflow lists them with the run, by the hash over all rows."""
    if bios.path is None:
        source: Any = CodeDatasetSource(tags=registry.resolve_tags())
    else:
        source = SparkDatasetSource(path=redacted_uri(bios.path))
    dataset = _BiosDataset(
        bios.frame,
        source=source,
        targets=columns.occupation,
        name=bios.name,
        digest=evaluation.data_sha256[:_DIGEST_LENGTH],
    )
    dataset.rows = evaluation.bios
    return dataset


def _window_sizes(bios: int, size: int) -> Counter[int]:
    """Return how many bios there are in each window."""
    whole, rest = divmod(bios, size)
    sizes = Counter(dict.fromkeys(range(whole), size))
    if rest:
        sizes[whole] = rest
    return sizes


def _run(windows: DataFrame, tasks: int, task: Task, folder: str | None) -> list[Part]:
    """Let the executors work; returns at most `_FAN_IN` parts."""
    from pyspark import StorageLevel
    from pyspark.sql import functions as F  # noqa: N812

    schema = "part binary"
    if task.keep:
        schema += f", prediction {_ddl(PREDICTION_TYPES)}, flip {_ddl(FLIP_TYPES)}"
    done = arrow_map(windows, task, schema)
    if folder is not None:
        done = done.persist(StorageLevel.DISK_ONLY)
    try:
        if folder is not None:
            rows = done.where("prediction is not null").select("prediction.*")
            rows.write.parquet(f"{folder}/predictions")
            texts = ["text", "counterfactual_text"]
            unknown = ["changed_words"] if task.config.log_texts else texts
            flips = done.where("flip is not null").select("flip.*").drop(*unknown)
            flips.write.parquet(f"{folder}/flips")
        parts = done.where("part is not null").select("part")
        # By the number of the task: the same at every attempt.
        group = F.spark_partition_id() % _FAN_IN
        if tasks > _FAN_IN:
            grouped = parts.withColumn("group", group).repartition(_FAN_IN, "group").drop("group")
            parts = arrow_map(grouped, add_up, "part binary")
        return [pickle.loads(row["part"]) for row in parts.collect()]
    finally:
        if folder is not None:
            done.unpersist()


def _ddl(types: Mapping[str, str]) -> str:
    return f"struct<{', '.join(f'{name}: {type}' for name, type in types.items())}>"


def _as_stream(table: Any) -> bytes:
    """Return bios, numbered like a window, as an Arrow stream."""
    numbers = pa.array(range(len(table)), pa.int64())
    table = table.append_column(ROW, numbers).append_column(POSITION, numbers)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return sink.getvalue().to_pybytes()
