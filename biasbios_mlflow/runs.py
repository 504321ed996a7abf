"""From the run: evaluations read back, and two of them compared bio by bio."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from biasbios_mlflow.errors import invalid
from biasbios_mlflow.fingerprint import Fingerprint
from biasbios_mlflow.redaction import logger
from biasbios_mlflow.rows import ROWS_FILE, SUMMARY_FILE, file_digest, read_outcomes
from biasbios_mlflow.scoring import Scores, compare
from biasbios_mlflow.scoring.comparison import Comparison
from biasbios_mlflow.scoring.outcomes import Outcomes
from biasbios_mlflow.temporary import temporary_folder

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from mlflow import MlflowClient
    from mlflow.models import EvaluationResult
    from mlflow.models.evaluation import EvaluationArtifact

__all__ = [
    "RunComparison",
    "artifact_bytes",
    "compare_runs",
    "outcomes_at",
    "outcomes_of",
    "plot_comparison",
    "summary_artifact",
    "summary_at",
    "summary_of",
]

_logger = logger(__name__)


@dataclass(frozen=True, eq=False)
class RunComparison:
    """Two evaluations of the same bios.

    Attributes
    ----------
    names : (str, str)
        What the models are called.
    scores : (mapping, mapping)
        What `Scores.to_dict` returns of each.
    comparison : Comparison
        How the second differs from the first.
    """

    names: tuple[str, str]
    scores: tuple[Mapping[str, Any], Mapping[str, Any]]
    comparison: Comparison

    def figure(self) -> Figure:
        """Draw both side by side."""
        from biasbios_mlflow.report.figures import comparison_figure

        differences = self.comparison.to_dict()["differences"]
        return comparison_figure(*self.scores, differences, names=self.names)


def compare_runs(
    a: str | EvaluationResult | Scores,
    b: str | EvaluationResult | Scores,
    *,
    names: tuple[str, str] | None = None,
    confidence: float = 0.95,
    n_replicates: int = 10_000,
    seed: int = 0,
    min_cell: int | None = None,
    allow_different: bool = False,
) -> RunComparison:
    """Compare two evaluations of the same bios.

    They must depend on the same in all but the model under test: bios, swap, scope, labels, package
    versions (see `biasbios_mlflow.fingerprint.Fingerprint`).

    Parameters
    ----------
    a, b : str, EvaluationResult or Scores
        The id of a run (``<id>/<folder>`` for one of several evaluations in it, as they lie under
        ``biasbios/``), what an evaluation returned, or what `score` returned.
    names : (str, str), optional
        What to call them; by default the URI of each model.
    confidence, n_replicates, seed, min_cell
        See `compare`; ``min_cell`` is by default that of both evaluations.
    allow_different : bool, default=False
        Compare all the same where they depend on other things too, and warn.

    Returns
    -------
    RunComparison

    Raises
    ------
    MlflowException
        When there is no evaluation, or no predictions in it, or the rows are not those that were
        logged, or the evaluations differ in more than the model.
    """
    read = [_read(one) for one in (a, b)]
    _check_comparable(read[0][3], read[1][3], allow=allow_different)
    if min_cell is None:
        chosen = {scores["options"]["min_cell"] for _, scores, _, _ in read}
        if len(chosen) > 1:
            raise invalid(
                "min_cell",
                found=f"evaluations made with {' and '.join(map(str, sorted(chosen)))}",
                expected="the same for both",
                fix="pass min_cell",
            )
        min_cell = chosen.pop()
    comparison = compare(
        read[0][2],
        read[1][2],
        confidence=confidence,
        n_replicates=n_replicates,
        seed=seed,
        min_cell=min_cell,
    )
    found = (read[0][0], read[1][0])
    if found[0] == found[1]:
        found = ("a", "b")
    return RunComparison(names or found, (read[0][1], read[1][1]), comparison)


def _check_comparable(
    a: Mapping[str, Any] | None, b: Mapping[str, Any] | None, *, allow: bool
) -> None:
    """Raise, or warn, where two evaluations depend on other things than the model."""
    if a is None or b is None:
        return  # scores of arrays say nothing of where they come from
    ours, theirs = Fingerprint.read(a), Fingerprint.read(b)
    but = ("model", "inputs", "asking", "scoring")
    found = ours.differences(theirs, but=but, unknown=False)
    if found and not allow:
        raise invalid(
            "runs",
            found=f"evaluations that differ in more than the model ({'; '.join(found)})",
            expected="the same bios, swap, options and packages for both",
            fix="evaluate one of them again, or set allow_different",
        )
    if None in (ours.swap, theirs.swap):
        found.append("one of them does not say by which swap its copies were made")
    for difference in found:
        _logger.warning("biasbios: the runs differ in more than the model: %s", difference)


def plot_comparison(
    a: str | EvaluationResult | Scores, b: str | EvaluationResult | Scores, **options: Any
) -> Figure:
    """Draw two evaluations of the same bios side by side.

    The five metrics with their intervals and the paired difference of each, and the TPR gap of each
    occupation under both models.

    Parameters
    ----------
    a, b, **options
        See `compare_runs`.

    Returns
    -------
    matplotlib.figure.Figure
        Save it with ``savefig``; log it with ``mlflow.log_figure``.

    Raises
    ------
    MlflowException
        As `compare_runs`.

    Examples
    --------
    >>> from biasbios_mlflow import score
    >>> occupations, genders = ["nurse", "poet"] * 100, ["male", "male", "female", "female"] * 50
    >>> a = score(occupations, genders, ["nurse"] * 200)
    >>> b = score(occupations, genders, ["nurse", "poet", "nurse", "nurse"] * 50)
    >>> plot_comparison(a, b, names=("first", "second")).axes[0].get_title(loc="left")[:17]
    'balanced_accuracy'
    """
    return compare_runs(a, b, **options).figure()


def outcomes_of(result: EvaluationResult) -> Outcomes:
    """Return the rows of an evaluation as they were counted.

    Raises
    ------
    MlflowException
        When the evaluation kept no rows.
    """
    for artifact_name, artifact in result.artifacts.items():
        if artifact_name.endswith("biasbios/predictions"):
            return outcomes_at(artifact.uri, summary_of(result))
    raise invalid(
        "log_predictions",
        found="false",
        expected="true: two models are compared bio by bio",
        fix="leave log_predictions at its default",
    )


def summary_of(result: EvaluationResult) -> Mapping[str, Any]:
    """Return the summary of an evaluation by this evaluator.

    Raises
    ------
    MlflowException
        When the result is another evaluator's.
    """
    content: Mapping[str, Any] = summary_artifact(result).content
    return content


def summary_artifact(result: EvaluationResult) -> EvaluationArtifact:
    """Return the artifact that holds the summary; raises as `summary_of` does."""
    for name, artifact in result.artifacts.items():
        if name.endswith("biasbios/summary"):
            return artifact
    raise invalid(
        "result",
        found=f"the artifacts {sorted(result.artifacts)}",
        expected="the result of an evaluation by biasbios",
        fix="evaluate with evaluators=['biasbios']",
    )


def outcomes_at(uri: str, summary: Mapping[str, Any] | None = None) -> Outcomes:
    """Return the rows of the predictions.parquet under an artifact URI.

    Parameters
    ----------
    uri : str
    summary : mapping, optional
        The ``summary.json`` beside it, whose hash of the file must be the file's (evaluations of
        earlier versions of this package have none).

    Raises
    ------
    MlflowException
        When it is not the file that the evaluation wrote.
    """
    import mlflow

    with temporary_folder() as folder:
        path = mlflow.artifacts.download_artifacts(artifact_uri=uri, dst_path=folder)
        expected = (summary or {}).get("files", {}).get(ROWS_FILE)
        if expected is not None and file_digest(path) != expected:
            raise invalid(
                uri,
                found="other content than the evaluation wrote (its SHA-256 is another)",
                expected=f"the file whose hash stands in {SUMMARY_FILE}",
                fix="evaluate the model again",
            )
        return read_outcomes(path)


def artifact_bytes(client: MlflowClient, run_id: str, path: str) -> bytes | None:
    """Return the content of an artifact of a run, None where there is none.

    Raises
    ------
    MlflowException
        When the run cannot be read.
    """
    # Looked for first: older clients try for minutes to download what is not there.
    if path not in {file.path for file in client.list_artifacts(run_id, str(Path(path).parent))}:
        return None
    with temporary_folder() as folder:
        return Path(client.download_artifacts(run_id, path, folder)).read_bytes()


def summary_at(run_id: str, folder: str = "biasbios") -> Mapping[str, Any]:
    """Return the summary.json of an evaluation.

    Raises
    ------
    FileNotFoundError
        When the run holds none there.
    MlflowException
        When the run cannot be read.
    """
    from mlflow import MlflowClient

    path = f"{folder}/{SUMMARY_FILE}"
    content = artifact_bytes(MlflowClient(), run_id, path)
    if content is None:
        raise FileNotFoundError(f"runs:/{run_id}/{path}")
    summary: Mapping[str, Any] = json.loads(content)
    return summary


def _read(
    one: str | EvaluationResult | Scores,
) -> tuple[str, Mapping[str, Any], Outcomes | Scores, Mapping[str, Any] | None]:
    """Return the name of a model, its scores, its rows and its summary."""
    if isinstance(one, Scores):
        return "", one.to_dict(), one, None
    if not isinstance(one, str):
        summary = summary_of(one)
        return _name(summary), summary["scores"], outcomes_of(one), summary
    return _read_run(one)


def _read_run(run: str) -> tuple[str, Mapping[str, Any], Outcomes, Mapping[str, Any]]:
    from mlflow.exceptions import MlflowException

    run_id, _, rest = run.strip("/").partition("/")
    folder = (rest if rest.startswith("biasbios") else f"biasbios/{rest}").rstrip("/")
    try:
        summary = summary_at(run_id, folder)
    except (MlflowException, OSError, ValueError) as error:
        raise invalid(
            f"run {run!r}",
            found="no evaluation by biasbios in it",
            expected="the id of a run that biasbios has logged to",
            fix="look up the run's id with: mlflow runs list --experiment-id …",
        ) from error
    if not summary["config"]["log_predictions"]:
        raise invalid(
            f"run {run!r}",
            found="an evaluation with log_predictions=False",
            expected="one that kept its predictions: models are compared bio by bio",
            fix="evaluate again with log_predictions at its default",
        )
    rows = outcomes_at(f"runs:/{run_id}/{folder}/{ROWS_FILE}", summary)
    return _name(summary), summary["scores"], rows, summary


def _name(summary: Mapping[str, Any]) -> str:
    model = summary["model"]
    return str(model["uri"] or model["model_id"] or "")
