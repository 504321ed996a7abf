"""The MLflow plugin: the front door of ``mlflow.models.evaluate``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from mlflow.exceptions import MlflowException
from mlflow.models.evaluation.base import EvaluationResult, ModelEvaluator

from biasbios_mlflow.bios.checked import Bios, check_bios, check_distinct, find_columns
from biasbios_mlflow.bios.dataset import StreamedDataset
from biasbios_mlflow.bios.occupations import OCCUPATIONS, as_objects
from biasbios_mlflow.bios.sources.class_labels import ClassNames, named, names_in_features
from biasbios_mlflow.bios.stream import BiosStream
from biasbios_mlflow.calls import import_all
from biasbios_mlflow.config import EvaluationConfig
from biasbios_mlflow.errors import invalid
from biasbios_mlflow.mlflow_private import caller_locals
from biasbios_mlflow.redaction import logger

__all__ = ["BiasBiosEvaluator", "read_bios"]

_logger = logger(__name__)

MODEL_TYPE = "biasbios"
"""With this ``model_type`` the evaluator was certainly meant, and no targets are needed."""


class BiasBiosEvaluator(ModelEvaluator):
    """Evaluates accuracy and gender fairness of an occupation classifier on biographies.

    MLflow finds it under the name ``biasbios``. Its options are those of
    `biasbios_mlflow.config.EvaluationConfig`.
    """

    @classmethod
    def can_evaluate(
        cls, *, model_type: str | None, evaluator_config: Mapping[str, Any] | None, **kwargs: Any
    ) -> bool:
        """Tell whether the type of model can be an occupation classifier."""
        return model_type in (MODEL_TYPE, "classifier")

    def evaluate(
        self,
        *,
        model_type: str | None,
        dataset: Any,
        run_id: str,
        evaluator_config: Mapping[str, Any] | None,
        model: Any = None,
        extra_metrics: Any = None,
        custom_artifacts: Any = None,
        predictions: str | None = None,
        model_id: str | None = None,
        **kwargs: Any,
    ) -> EvaluationResult | None:
        """Evaluate, log to the run and return the result.

        Returns
        -------
        EvaluationResult or None
            None where the data is not bios and the evaluator was not asked for by name: it then
            steps aside for the others.

        Raises
        ------
        MlflowException
            At every error a user can mend.
        """
        alone = _is_only_evaluator()
        asked_for = (
            model_type == MODEL_TYPE or EvaluationConfig.names_own_option(evaluator_config) or alone
        )
        if alone:
            _refuse_for_others(
                {
                    "extra_metrics": extra_metrics,
                    "custom_artifacts": custom_artifacts,
                    **{
                        f"evaluator_config.{name}": (evaluator_config or {})[name]
                        for name in EvaluationConfig.options_of_mlflow(evaluator_config)
                    },
                }
            )
        mistake: MlflowException | None = None
        try:
            config = EvaluationConfig.parse(evaluator_config)
        except MlflowException as error:
            if asked_for:
                raise
            # Perhaps another evaluator's options: a mistake only if the data is bios.
            config, mistake = EvaluationConfig(), error
        if predictions is not None and config.predictions is None:
            config = config.model_copy(update={"predictions": predictions})
        try:
            bios, config = read_bios(dataset, config, strict=not asked_for)
        except MlflowException as error:
            if asked_for:
                raise
            _logger.warning("biasbios steps aside, the data is not bios. %s", error.message)
            return None
        if mistake is not None:
            raise mistake
        # Imported late: MLflow imports every evaluator together with its registry.
        import_all()
        from biasbios_mlflow.pipeline import evaluate_bios
        from biasbios_mlflow.prediction.predictor import find_predictor
        from biasbios_mlflow.tracking import log_evaluation

        evaluation = evaluate_bios(bios, find_predictor(model, config), config)
        return log_evaluation(
            evaluation, run_id=run_id, dataset=dataset, model=model, model_id=model_id
        )


def read_bios(
    dataset: Any, config: EvaluationConfig, *, strict: bool
) -> tuple[Bios | BiosStream, EvaluationConfig]:
    """Put MLflow's pieces of a dataset together again and check them.

    Parameters
    ----------
    dataset : mlflow.models.EvaluationDataset
    config : EvaluationConfig
    strict : bool
        Take the data for bios only if its occupations are the benchmark's.

    Returns
    -------
    bios : Bios or BiosStream
    config : EvaluationConfig
        With the column of static predictions filled in where MLflow knows it.
    """
    if isinstance(dataset, StreamedDataset):
        names = config.named_columns(occupation=dataset.bios.targets)
        columns = find_columns(dataset.bios.rows.columns, **names)
        return dataset.bios.stream(columns, **_checks(config)), config
    features = dataset.features_data
    if not isinstance(features, pd.DataFrame):
        raise invalid(
            "data",
            found=f"an object of type {type(features).__name__}",
            expected="a pandas DataFrame with the columns text, occupation and gender",
            fix="pass a DataFrame or the dataset that biasbios_mlflow.load_bios returns",
        )
    known: dict[str, Any] = {}
    occupation = config.occupation_column
    if dataset.has_targets:
        occupation = occupation or dataset.targets_name or "profession"
        known[dataset.targets_name or occupation] = dataset.labels_data
    if dataset.predictions_data is not None:
        name = dataset.predictions_name or "predictions"
        known[name] = dataset.predictions_data
        config = config.model_copy(update={"predictions": config.predictions or name})
    check_distinct(features.columns)
    frame = features.assign(**{name: _as_column(values) for name, values in known.items()})
    frame = named(frame, _class_names())
    columns = find_columns(list(frame.columns), **config.named_columns(occupation=occupation))
    bios = check_bios(frame, columns, **_checks(config))
    if strict and bios.labels.names != OCCUPATIONS:
        raise invalid(
            f"column {columns.occupation!r}",
            found=f"the occupations {list(bios.labels.names)[:5]}",
            expected="those of Bias in Bios",
            fix="name the evaluator alone, or set model_type='biasbios'",
        )
    return bios, config


def _checks(config: EvaluationConfig) -> dict[str, Any]:
    return {
        "label_names": config.label_names,
        "gender_values": config.gender_values,
        "allow_missing": config.allow_missing,
    }


def _as_column(values: Any) -> Any:
    """Return values as something a frame takes for one column, whatever the cells hold."""
    return as_objects(values) if np.ndim(values) != 1 or values.dtype == object else values


def _refuse_for_others(options: Mapping[str, Any]) -> None:
    """Raise at an option of MLflow's own evaluators, of which none is there to heed it."""
    for name, value in options.items():
        if value is not None:
            raise invalid(
                name,
                found="an option of MLflow's own evaluators, and biasbios as the only evaluator",
                expected="no such option, which would change nothing",
                fix=f"leave it out, or add MLflow's: evaluators=['default', 'biasbios'] ({name} "
                "is heeded by 'default')",
            )


def _is_only_evaluator() -> bool:
    """Tell whether the caller named this evaluator and no other.

    MLflow does not say whether it asks every installed evaluator or the one the user named. It
    makes a difference to the user: a clear error instead of "could not be evaluated". Where a later
    version keeps the list of evaluators elsewhere, the answer is no, and the mistake is told in the
    log.
    """
    return any(list(names) == ["biasbios"] for names in caller_locals("evaluator_name_list"))


def _class_names() -> ClassNames:
    """Return what the ids mean where the caller passed a Hugging Face dataset.

    MLflow turns it into a frame of ids before it asks an evaluator; what they stand for is known
    to the dataset alone.
    """
    for data in caller_locals("data"):
        if type(data).__name__ == "HuggingFaceDataset":
            return names_in_features(data.ds.features)
    return {}
