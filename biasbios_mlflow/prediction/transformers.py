"""Text-classification pipelines of transformers: past the pipeline, straight to the model."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import numpy.typing as npt

from biasbios_mlflow.config import EvaluationConfig
from biasbios_mlflow.fingerprint import Identity
from biasbios_mlflow.prediction.inputs import ModelInputs

__all__ = ["TransformersPredictor"]

# What a pipeline may be told without leaving the ground that is known here. The first group is
# heeded, the second has no bearing on the probabilities of all classes.
_HEEDED = frozenset({"function_to_apply", "max_length", "truncation"})
_WITHOUT_BEARING = frozenset({"batch_size", "device", "num_workers", "padding", "top_k"})


class TransformersPredictor:
    """Calls the model behind a text-classification pipeline, in batches by length.

    Logits become probabilities by the function the pipeline itself would apply: its
    ``function_to_apply`` where set; a sigmoid for multi-label heads and heads with one class; a
    softmax for others. All class probabilities are returned, whatever ``top_k`` says.

    Parameters
    ----------
    pipeline : transformers.TextClassificationPipeline
    config : EvaluationConfig
    settings : mapping, optional
        MLflow's ``model_config``.
    """

    identity: Identity | None = None

    def __init__(
        self, pipeline: Any, config: EvaluationConfig, settings: Mapping[str, Any] | None = None
    ) -> None:
        from biasbios_mlflow.prediction.tokens import TokenModel

        settings = {
            **pipeline._preprocess_params,
            **pipeline._postprocess_params,
            **(settings or {}),
        }
        labels = pipeline.model.config.id2label
        self.classes: Sequence[Any] | None = [labels[i] for i in range(len(labels))]
        self._function = _function(pipeline.model.config, settings.get("function_to_apply"))
        self._model = TokenModel(
            pipeline.model,
            pipeline.tokenizer,
            max_length=config.max_length or settings.get("max_length"),
            token_budget=config.token_budget,
            device=config.device,
            dtype=config.dtype,
        )
        dtype = str(self._model.dtype).removeprefix("torch.")
        self.path = f"transformers ({self._function}) on {self._model.device}, {dtype}"

    @classmethod
    def of(cls, model: Any, config: EvaluationConfig) -> TransformersPredictor | None:
        """Unwrap a pyfunc model of the transformers flavor; None where only ``predict`` will do.

        That is: for other tasks, for subclasses of the pipeline, for pipelines with settings that
        change what reaches the model, for text pairs, for a tokenizer or model that cannot pad.
        """
        if getattr(model, "loader_module", None) != "mlflow.transformers":
            return None
        try:
            pipeline: Any = model.get_raw_model()
        except NotImplementedError:  # a model served in its own environment
            return None
        if importlib.util.find_spec("torch") is None:
            return None
        from transformers import TextClassificationPipeline

        if type(pipeline) is not TextClassificationPipeline:
            return None
        schema = model.metadata.get_input_schema()
        if schema is not None and "text_pair" in schema.input_names():
            return None
        # What was given when the model was loaded is known to the flavor's own wrapper only.
        settings = dict(getattr(model._model_impl, "model_config", None) or {})
        known = _HEEDED | _WITHOUT_BEARING
        if (
            not set(settings) | set(pipeline._preprocess_params) <= known
            or pipeline._forward_params
        ):
            return None
        tokenizer: Any = pipeline.tokenizer
        if None in (tokenizer.pad_token_id, pipeline.model.config.pad_token_id):
            return None
        return cls(pipeline, config, settings)

    def session(self) -> AbstractContextManager[None]:
        """Keep the model on its device until the block ends."""
        return self._model.session()

    def predict(self, inputs: ModelInputs) -> Iterator[tuple[npt.NDArray[np.int64], object]]:
        """Yield matrices of shape (batch, classes)."""
        return self._model.run(inputs.texts, self._probabilities)

    def _probabilities(self, output: Any, mask: Any) -> Any:
        logits = output.logits.float()
        if self._function == "softmax":
            return logits.softmax(dim=-1)
        return logits.sigmoid() if self._function == "sigmoid" else logits


def _function(config: Any, chosen: Any) -> str:
    """Return the function that a text-classification pipeline applies to logits."""
    if chosen is not None:
        return str(getattr(chosen, "name", chosen)).lower()
    if config.problem_type == "regression":
        return "none"
    if config.problem_type == "multi_label_classification" or config.num_labels == 1:
        return "sigmoid"
    return "softmax"
