"""To the run: one point a metric, linked to model and dataset, artifacts before metrics."""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import re
import time
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import LoggedModelInput, Metric, Run
from mlflow.entities.model_registry import ModelVersion
from mlflow.exceptions import MlflowException
from mlflow.models.evaluation.base import EvaluationArtifact, EvaluationResult
from mlflow.utils.mlflow_tags import MLFLOW_LOGGED_ARTIFACTS, MLFLOW_RUN_NOTE

from biasbios_mlflow.mlflow_private import (
    METRIC_LENGTH,
    METRICS_A_REQUEST,
    check_metric_name,
    delete_artifacts,
    load_artifact,
)
from biasbios_mlflow.pipeline import Evaluation
from biasbios_mlflow.report.description import describe, is_ours
from biasbios_mlflow.rows import SUMMARY_FILE
from biasbios_mlflow.scoring.specs import BOUNDS
from biasbios_mlflow.temporary import temporary_folder

__all__ = ["check_names", "describe_model", "describe_run", "log_evaluation", "metric_names"]

_FOLDER = "biasbios"
_TAG_LIMIT = 5000  # of MLflow's older stores; newer ones take 8,000
# What MLflow refuses in a name, letters of other scripts than the Latin one not among it.
_ILLEGAL = re.compile(r"[^\w\-./: ]")


def metric_names(metrics: Mapping[str, float], *, prefix: str = "") -> dict[str, float]:
    """Put the metrics under the names they have in the run.

    Letters of any script stay. Characters that MLflow does not take become underscores, and so do
    parts between slashes that are empty or dots, which would name another folder; a name that is
    too long is cut and gets a hash of the whole. Where two names would become one, the later gets a
    number.

    Examples
    --------
    >>> metric_names({"ctf": 0.1, "tpr_gap/R&D": 0.2, "tpr_gap/医師": 0.3}, prefix="dev_")
    {'dev_biasbios/ctf': 0.1, 'dev_biasbios/tpr_gap/R_D': 0.2, 'dev_biasbios/tpr_gap/医師': 0.3}
    >>> list(metric_names({"tpr_gap/Care // nursing": 0.1, "tpr_gap/IT/": 0.2}))
    ['biasbios/tpr_gap/Care /_/ nursing', 'biasbios/tpr_gap/IT/_']
    """
    named: dict[str, float] = {}
    taken: dict[str, str] = {}  # the legal name of each name without what tells a bound
    for name, value in metrics.items():
        bound = next((end for end in BOUNDS if name.endswith(end)), "")
        base = name.removesuffix(bound)
        if base not in taken:
            legal = _legal(f"{prefix}biasbios/{base}")
            unique, number = legal, 2
            while unique in taken.values():
                unique, number = f"{legal}_{number}", number + 1
            taken[base] = unique
        named[taken[base] + bound] = value
    return named


def _legal(name: str) -> str:
    parts = _ILLEGAL.sub("_", unicodedata.normalize("NFC", name)).split("/")
    legal = "/".join("_" * max(len(part), 1) if part in ("", ".", "..") else part for part in parts)
    # Room for a number and what tells a bound.
    most = METRIC_LENGTH - 20
    if len(legal) <= most:
        return legal
    return f"{legal[: most - 9]}_{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def check_names(metrics: Mapping[str, float]) -> None:
    """Raise where MLflow would refuse a metric, before anything is logged.

    Raises
    ------
    MlflowException
    """
    for name, value in metrics.items():
        check_metric_name(name)
        if not math.isfinite(value):
            raise MlflowException(f"The metric {name!r} is {value}, which is never logged.")


def describe_model(model: Any, *, model_id: str | None, uri: str | None) -> dict[str, Any]:
    """Return what the registry knows of a model: URI, id, registered versions.

    Parameters
    ----------
    model : object or None
        The pyfunc model; None for static predictions.
    model_id : str or None
        Id of the LoggedModel.
    uri : str or None
        The URI it was loaded from, where that is known. The version that it names comes first: a
        model may be registered under several names.
    """
    described: dict[str, Any] = {"uri": uri, "model_id": model_id, "versions": []}
    if model_id is not None:
        found = MlflowClient().search_model_versions(f"source_path='models:/{model_id}'")
        described["versions"] = [
            {"name": version.name, "version": str(version.version)}
            for version in sorted(found, key=lambda each: uri != _uri_of(each))
        ]
    described["flavor"] = getattr(model, "loader_module", None)
    return described


def _uri_of(version: ModelVersion) -> str:
    return f"models:/{version.name}/{version.version}"


def describe_run(client: MlflowClient, run_id: str, text: str) -> None:
    """Describe a run in Markdown, unless somebody else has."""
    there = client.get_run(run_id).data.tags.get(MLFLOW_RUN_NOTE, "")
    if not there or is_ours(there):
        client.set_tag(run_id, MLFLOW_RUN_NOTE, text)


def log_evaluation(
    evaluation: Evaluation,
    *,
    run_id: str,
    dataset: Any,
    model: Any = None,
    model_id: str | None = None,
) -> EvaluationResult:
    """Log an evaluation to a run.

    Artifacts go first and the metrics last, in one request: a run that shows a metric has all the
    rest.

    Parameters
    ----------
    evaluation : Evaluation
    run_id : str
    dataset : mlflow.models.EvaluationDataset
    model : mlflow.pyfunc.PyFuncModel, optional
    model_id : str, optional
        What MLflow passed. Where it passed one, MLflow itself logs the returned metrics, and
        logging them here as well would leave two points.

    Returns
    -------
    mlflow.models.EvaluationResult
        Metrics under their names in the run, artifacts by file name without suffix.
    """
    client = MlflowClient()
    own_id = model_id or getattr(model, "model_id", None)
    metrics = metric_names(evaluation.scores.metrics, prefix=evaluation.config.metric_prefix)
    check_names(metrics)
    described = describe_model(model, model_id=own_id, uri=evaluation.config.model_uri)
    folder = _free_folder(client, run_id, _folder_prefix(evaluation))
    try:
        artifacts = _log_files(
            evaluation,
            client=client,
            run_id=run_id,
            folder=folder,
            model=described,
            data={"name": str(dataset.name), "digest": str(dataset.digest)},
        )
        if model_id is None:
            _log_metrics(client, metrics, run_id=run_id, dataset=dataset, model_id=own_id)
    except BaseException:
        _remove_files(client, run_id, folder)
        raise
    return EvaluationResult(metrics=metrics, artifacts=artifacts, run_id=run_id)


def _log_metrics(
    client: MlflowClient,
    metrics: Mapping[str, float],
    *,
    run_id: str,
    dataset: Any,
    model_id: str | None,
) -> None:
    if model_id is not None:
        client.log_inputs(run_id, models=[LoggedModelInput(model_id)])
    now = int(time.time() * 1000)
    points = [
        Metric(
            name,
            value,
            now,
            0,
            model_id=model_id,
            dataset_name=dataset.name,
            dataset_digest=dataset.digest,
            run_id=run_id,
        )
        for name, value in metrics.items()
    ]
    # Those that the scores begin with, the benchmark's five among them, go with the last request: a
    # run that shows them has all the rest.
    points.reverse()
    for start in range(0, len(points), METRICS_A_REQUEST):
        client.log_batch(run_id, metrics=points[start : start + METRICS_A_REQUEST])


def _remove_files(client: MlflowClient, run_id: str, folder: str) -> None:
    """Remove the files of an evaluation that failed while it was logged, if the store lets us."""
    with contextlib.suppress(Exception):
        delete_artifacts(client.get_run(run_id).info.artifact_uri, folder)
        tables = json.loads(client.get_run(run_id).data.tags.get(MLFLOW_LOGGED_ARTIFACTS, "[]"))
        kept = [table for table in tables if not table["path"].startswith(f"{folder}/")]
        if len(kept) < len(tables):
            client.set_tag(run_id, MLFLOW_LOGGED_ARTIFACTS, json.dumps(kept))


def _folder_prefix(evaluation: Evaluation) -> str:
    return _ILLEGAL.sub("_", evaluation.config.metric_prefix).strip("/")


def _log_files(
    evaluation: Evaluation,
    *,
    client: MlflowClient,
    run_id: str,
    folder: str,
    model: Mapping[str, Any],
    data: Mapping[str, Any],
) -> dict[str, EvaluationArtifact]:
    # Imported late: it brings matplotlib.
    from mlflow.models.evaluation.artifacts import (
        CsvEvaluationArtifact,
        ImageEvaluationArtifact,
        JsonEvaluationArtifact,
    )

    from biasbios_mlflow.report.artifacts import HtmlArtifact, PredictionsArtifact
    from biasbios_mlflow.report.files import TABLE_FILE, write_files

    kinds: dict[str, type[EvaluationArtifact]] = {
        ".csv": CsvEvaluationArtifact,
        ".html": HtmlArtifact,
        ".json": JsonEvaluationArtifact,
        ".parquet": PredictionsArtifact,
        ".png": ImageEvaluationArtifact,
    }
    prefix = _folder_prefix(evaluation)
    run = client.get_run(run_id)
    root = run.info.artifact_uri
    artifacts = {}
    with temporary_folder() as temporary:
        paths = write_files(evaluation, Path(temporary), model=model, data=data)
        client.log_artifacts(run_id, temporary, folder)
        _tag_table(client, run, f"{folder}/{TABLE_FILE}")
        for name, path in paths.items():
            artifact = kinds[path.suffix](uri=f"{root}/{folder}/{path.name}")
            if path.suffix != ".parquet":  # large: loaded when asked for
                load_artifact(artifact, path)
            artifacts[f"{prefix}{_FOLDER}/{name}"] = artifact
        text = describe(
            json.loads(paths["summary"].read_text("utf-8")),
            run_id=run_id,
            experiment_id=run.info.experiment_id,
            folder=folder,
        )
        describe_run(client, run_id, text)
    return artifacts


def _free_folder(client: MlflowClient, run_id: str, prefix: str) -> str:
    """Return a folder of the run in which no evaluation lies yet.

    ``biasbios``, with a prefix ``biasbios/<prefix>``; for further evaluations into the same run
    ``…-2``, ``…-3``.
    """
    wanted = f"{_FOLDER}/{prefix}" if prefix else _FOLDER
    folder, number = wanted, 2
    while any(
        Path(item.path).name == SUMMARY_FILE for item in client.list_artifacts(run_id, folder)
    ):
        folder, number = f"{wanted}-{number}", number + 1
    return folder


def _tag_table(client: MlflowClient, run: Run, path: str) -> None:
    """Let MLflow show a file as a table, as `mlflow.log_table` does."""
    tables = json.loads(run.data.tags.get(MLFLOW_LOGGED_ARTIFACTS, "[]"))
    tables.append({"path": path, "type": "table"})
    tag = json.dumps(tables)
    if len(tag) <= _TAG_LIMIT:
        client.set_tag(run.info.run_id, MLFLOW_LOGGED_ARTIFACTS, tag)
