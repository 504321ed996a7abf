"""All that this package takes from MLflow beyond its documented API, in one place.

Each has a contract test in ``tests/test_mlflow_private.py`` that fails where another version of
MLflow changes it, and says what would break. MLflow is imported when a function is called: modules
that need no MLflow can import this one.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from mlflow.models.evaluation.base import EvaluationArtifact

__all__ = [
    "DIGEST_ROWS",
    "METRICS_A_REQUEST",
    "METRIC_LENGTH",
    "ModelsUri",
    "caller_locals",
    "check_alias_name",
    "check_metric_name",
    "delete_artifacts",
    "digest_of",
    "inner_model",
    "is_served",
    "load_artifact",
    "loaded_configuration",
    "parse_models_uri",
    "prompt_template",
    "served_client",
    "switch_off_autologging",
]

DIGEST_ROWS = 10_000
"""MLflow makes the digest of a DataFrame from so many first rows (``digest_utils.MAX_ROWS``)."""
METRIC_LENGTH = 250
"""A metric's name has at most so many characters (``validation.MAX_ENTITY_KEY_LENGTH``)."""
METRICS_A_REQUEST = 1_000
"""A request takes so many metrics (``validation.MAX_METRICS_PER_BATCH``)."""


class ModelsUri(NamedTuple):
    """What a URI ``models:/…`` names; all None for ``models:/m-…``, a logged model."""

    name: str | None
    version: str | None
    alias: str | None
    stage: str | None


def parse_models_uri(uri: str) -> ModelsUri:
    """Return what a URI ``models:/…`` names, as MLflow reads it.

    Raises
    ------
    MlflowException
        Where it is none.

    Examples
    --------
    >>> parse_models_uri("models:/occupations@champion").alias
    'champion'
    """
    from mlflow.store.artifact.utils.models import _parse_model_uri

    parsed = _parse_model_uri(uri)
    return ModelsUri(parsed.name, parsed.version, parsed.alias, parsed.stage)


def check_alias_name(name: str) -> None:
    """Raise where the registry would refuse an alias of this name.

    Raises
    ------
    MlflowException

    Examples
    --------
    >>> check_alias_name("champion")
    """
    from mlflow.utils.validation import (
        _validate_model_alias_name,
        _validate_model_alias_name_reserved,
    )

    _validate_model_alias_name(name)
    _validate_model_alias_name_reserved(name)


def check_metric_name(name: str) -> None:
    """Raise where the store would refuse a metric of this name.

    Raises
    ------
    MlflowException

    Examples
    --------
    >>> check_metric_name("biasbios/gap_rms")
    """
    from mlflow.utils.validation import (
        _validate_length_limit,
        _validate_metric_name,
    )

    _validate_metric_name(name)
    _validate_length_limit("Metric name", METRIC_LENGTH, name)


def digest_of(parts: list[Any]) -> str:
    """Return the digest that MLflow makes of a dataset's parts (arrays, numbers, bytes)."""
    from mlflow.data.digest_utils import get_normalized_md5_digest

    return str(get_normalized_md5_digest(parts))


def delete_artifacts(root: str, folder: str) -> None:
    """Delete a folder of a run's artifacts.

    Parameters
    ----------
    root : str
        The run's ``artifact_uri``.
    folder : str
    """
    from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

    get_artifact_repository(root).delete_artifacts(folder)


def load_artifact(artifact: EvaluationArtifact, path: Path) -> None:
    """Give an artifact of an evaluation its content from a local file, without fetching it."""
    artifact._load(str(path))


def inner_model(model: Any) -> Any:
    """Return the flavor's own wrapper inside of a pyfunc model; None where there is none."""
    return getattr(model, "_model_impl", None)


def prompt_template(model: Any) -> str | None:
    """Return the prompt template that was logged with a transformers model."""
    return getattr(inner_model(model), "prompt_template", None) or None


def loaded_configuration(model: Any) -> Mapping[str, Any] | None:
    """Return the ``model_config`` a pyfunc model was loaded with, where its flavor keeps it.

    The public ``model.model_config`` is that with which it was logged.
    """
    inner = inner_model(model)
    for holder in (inner, getattr(inner, "context", None)):
        found = getattr(holder, "model_config", None)
        if isinstance(found, Mapping):
            return found
    return None


def is_served(model: Any) -> bool:
    """Tell whether MLflow serves a model from an environment of its own."""
    return type(model).__name__ == "_ServedPyFuncModel"


def served_client(model: Any) -> Any:
    """Return the client of a served model, which hands on all columns; None where it has none.

    The model's own ``predict`` keeps the first column only.
    """
    return getattr(model, "_client", None)


def caller_locals(name: str) -> Iterator[Any]:
    """Yield what MLflow's own functions, further up, have under a name: it does not hand it on.

    The plugin is told neither which evaluators the user named, nor what the dataset was before
    MLflow made a frame of it. Where a later version has other names, nothing is yielded: mistakes
    are then told in the log and not raised, and a Hugging Face dataset's ids need ``label_names``.

    Examples
    --------
    >>> list(caller_locals("evaluator_name_list"))
    []
    """
    frame = inspect.currentframe()
    while frame is not None:
        value = frame.f_locals.get(name)
        if value is not None and frame.f_globals.get("__name__", "").startswith("mlflow.models"):
            yield value
        frame = frame.f_back


def switch_off_autologging() -> Callable[[], None]:
    """Mark the autologging that nobody switched on as switched off; returns what undoes it.

    MLflow reconfigures each flavor's autologging at the start of an evaluation, and imports while
    it holds the lock of its import hooks; another thread that imports takes Python's lock first and
    that one second, so that both wait for ever. What is switched off is not reconfigured.
    """
    try:
        from mlflow.ml_package_versions import FLAVOR_TO_MODULE_NAME
        from mlflow.utils.autologging_utils import AUTOLOGGING_INTEGRATIONS
    except ImportError:  # another version, which is left as it is
        return lambda: None
    off = {"disable": True}
    before = {
        flavor: AUTOLOGGING_INTEGRATIONS.get(flavor)
        for flavor in FLAVOR_TO_MODULE_NAME
        if not AUTOLOGGING_INTEGRATIONS.get(flavor)
    }
    AUTOLOGGING_INTEGRATIONS.update(dict.fromkeys(before, off))

    def undo() -> None:
        for flavor, was in before.items():
            if AUTOLOGGING_INTEGRATIONS.get(flavor) is not off:
                continue  # somebody else's by now
            if was is None:
                del AUTOLOGGING_INTEGRATIONS[flavor]
            else:
                AUTOLOGGING_INTEGRATIONS[flavor] = was

    return undo
