"""One call: load the bios, evaluate the model through the plugin, log to the run."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from biasbios_mlflow.bios.checked import check_column, find_columns
from biasbios_mlflow.bios.dataset import BiosDataset
from biasbios_mlflow.bios.readers import as_dataset
from biasbios_mlflow.bios.sources import open_source
from biasbios_mlflow.bios.stream import sample_rows
from biasbios_mlflow.calls import public_call
from biasbios_mlflow.config import EvaluationConfig
from biasbios_mlflow.errors import invalid
from biasbios_mlflow.mlflow_private import parse_models_uri

LANGUAGE_MODELS = ("openai:/", "transformers:/")
"""How the URIs of language models begin that are in no registry."""

if TYPE_CHECKING:
    from mlflow.models import EvaluationResult

__all__ = ["evaluate", "load_dataset", "resolve_model_uri"]


@public_call
def evaluate(
    model: Any,
    data: Any = None,
    *,
    split: str | None = None,
    sample: int | None = None,
    env_manager: str = "local",
    model_config: dict[str, Any] | None = None,
    **config: Any,
) -> EvaluationResult:
    """Evaluate a registered model on bios and log the result to the active run, or a new one.

    The same as `mlflow.models.evaluate` with this plugin, but for the memory: files are read and
    evaluated window by window, whatever their size.

    Parameters
    ----------
    model : str, mlflow.pyfunc.PyFuncModel, callable or None
        A model URI (``models:/name/1``, ``models:/name@alias``, ``models:/m-…``, ``runs:/…``), a
        loaded model, a function from a DataFrame to predictions, a language model in no registry
        (``openai:/<model>`` at ``OPENAI_BASE_URL``, ``transformers:/<name or path>``, or its
        folder), or None for predictions that stand in the data (``predictions="column"``).
    data : optional
        What `load_bios` takes. By default the test split of the embedded sample, whose bios are
        invented; a warning says so.
    split : str, optional
        Which part of ``data``.
    sample : int, optional
        Draw so many bios, every gender and occupation by its share; the option ``seed`` says which.
    env_manager : {"local", "virtualenv", "uv", "conda"}, default="local"
        The environment in which the model predicts.
    model_config : dict, optional
        Passed on when the model is loaded.
    **config
        The evaluator's options, see `biasbios_mlflow.config.EvaluationConfig`.

    Returns
    -------
    mlflow.models.EvaluationResult
        ``metrics`` as logged (``biasbios/…``), ``artifacts`` by name, ``run_id``.

    Raises
    ------
    MlflowException
        At every error a user can mend.

    Examples
    --------
    >>> import biasbios_mlflow
    >>> result = biasbios_mlflow.evaluate(
    ...     "models:/occupations@champion", "test.csv"
    ... )  # doctest: +SKIP
    >>> result.metrics["biasbios/gap_rms"]  # doctest: +SKIP
    0.131
    """
    import mlflow.models

    checked = EvaluationConfig.parse(config)
    config["loaded_with"] = {"env_manager": env_manager, "model_config": model_config}
    if isinstance(model, str) and (place := language_model_uri(model)) is not None:
        config["model_uri"], model = place, _not_called
    elif isinstance(model, str):
        uri, version = resolve_model_uri(model)
        config.setdefault("model_uri", uri if version is not None else model)
        model = uri
    if data is None:
        warnings.warn(
            "biasbios: no data given, so the model is evaluated on the embedded sample. Its bios "
            "are invented: the figures say nothing about the benchmark.",
            stacklevel=3,
        )
        data, split = "sample", split or "test"
    dataset = load_dataset(data, split=split, sample=sample, config=config)
    if model is None:
        dataset = _with_predictions(dataset, checked.predictions)
    return mlflow.models.evaluate(
        model,
        dataset,
        model_type="biasbios",
        evaluators="biasbios",
        evaluator_config=config,
        env_manager=env_manager,
        model_config=model_config,
    )


def language_model_uri(model: str) -> str | None:
    """Return the URI of a language model that is in no registry; None for any other model.

    ``openai:/<model>``, ``transformers:/<name or path>``, or a folder of ``save_pretrained``.

    Examples
    --------
    >>> language_model_uri("transformers:/models/tiny")
    'transformers:/models/tiny'
    >>> language_model_uri("models:/occupations/1") is None
    True
    """
    if model.startswith(LANGUAGE_MODELS):
        return model
    folder = Path(model)
    if (folder / "config.json").is_file() and not (folder / "MLmodel").exists():
        return f"transformers:/{model}"
    return None


def _not_called(data: Any) -> Any:
    """Stand for a language model where MLflow wants a function."""
    raise NotImplementedError("the model is asked by way of its URI")


def load_dataset(
    data: Any, *, split: str | None = None, sample: int | None = None, config: Mapping[str, Any]
) -> Any:
    """Return bios as an MLflow dataset with the occupation as its targets, nothing renamed.

    Parameters
    ----------
    data, split, sample
        See `evaluate`.
    config : mapping
        The evaluator's options, for the names of the columns.

    Returns
    -------
    mlflow.data.pandas_dataset.PandasDataset or BiosDataset
        The latter for bios that need not be in memory.
    """
    own = getattr(data, "targets", None)
    as_it_is = own is not None and split is None and sample is None
    if as_it_is and type(data).__name__ != "HuggingFaceDataset":  # whose classes have names
        return data
    checked = EvaluationConfig.parse(config)
    source = open_source(data, split)
    occupation = own if isinstance(own, str) else None
    columns = find_columns(source.columns, **checked.named_columns(occupation=occupation))
    values = checked.gender_values
    if sample is not None:
        source = sample_rows(source, columns, sample, seed=checked.seed, gender_values=values)
    if not source.in_memory:
        return BiosDataset(source, columns, gender_values=values)
    return as_dataset(
        source.read(), targets=columns.occupation, name=source.name, source=source.where
    )


def resolve_model_uri(uri: str) -> tuple[str, str | None]:
    """Pin an alias to the version it points at now, so that one evaluation sees one version.

    Returns
    -------
    uri : str
        ``models:/name/version`` for registered models, else the URI as given.
    version : str or None
        The version of a registered model.

    Raises
    ------
    MlflowException
        When the registry has no such model, version or alias.
    """
    from mlflow import MlflowClient

    if not uri.startswith("models:/"):
        return uri, None
    parsed = parse_models_uri(uri)
    if parsed.name is None:  # models:/m-…, a logged model
        return uri, None
    client = MlflowClient()
    if parsed.alias is not None:
        version = client.get_model_version_by_alias(parsed.name, parsed.alias)
    elif parsed.version is not None:
        version = client.get_model_version(parsed.name, parsed.version)
    else:
        found = client.get_latest_versions(parsed.name, [parsed.stage] if parsed.stage else None)
        if not found:
            raise invalid(
                "model URI",
                found=f"{uri!r}, under which no version is registered",
                expected="a registered version",
                fix="name a version or an alias",
            )
        version = max(found, key=lambda v: int(v.version))
    return f"models:/{version.name}/{version.version}", str(version.version)


def _with_predictions(dataset: Any, column: str | None) -> Any:
    """Tell MLflow which column holds the predictions; it takes them from the dataset alone."""
    from mlflow.data.pandas_dataset import from_pandas

    if column is None or getattr(dataset, "predictions", None) is not None:
        return dataset
    if isinstance(dataset, BiosDataset):  # read from their column, like any other
        return dataset
    check_column("predictions", column, dataset.df.columns)
    return from_pandas(dataset.df, targets=dataset.targets, predictions=column, name=dataset.name)
