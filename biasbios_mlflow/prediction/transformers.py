"""Text-classification pipelines of transformers: past the pipeline, straight to the model."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import numpy.typing as npt

from biasbios_mlflow.config import EvaluationConfig
from biasbios_mlflow.errors import invalid
from biasbios_mlflow.mlflow_private import loaded_configuration
from biasbios_mlflow.prediction.base import Predictor
from biasbios_mlflow.prediction.features import TOKEN_OPTIONS
from biasbios_mlflow.prediction.forms import raw_model
from biasbios_mlflow.prediction.inputs import ModelInputs
from biasbios_mlflow.prediction.outputs import Output, Returns, Rows

__all__ = ["TransformersPredictor", "WherePipelineIs", "known_returns", "settings_of"]

# What a pipeline may be told without leaving the ground that is known here. The first group goes to
# the tokenizer, the second to the scores, the third has no bearing on the probabilities.
_TOKENIZING = frozenset({"max_length", "truncation"})
_SCORING = frozenset({"function_to_apply"})
_WITHOUT_BEARING = frozenset(
    {"_legacy", "batch_size", "device", "num_workers", "padding", "return_all_scores", "top_k"}
)


class TransformersPredictor(Predictor):
    """Calls the model behind a text-classification pipeline, in batches by length.

    Texts are tokenized, and cut, as the pipeline would; one that is too long for the model, at
    which the pipeline would fail, is cut to what the model takes and counted. Logits become
    probabilities by the function that the pipeline itself would apply: its ``function_to_apply``
    where set; a sigmoid for multi-label heads and heads with one class; a softmax for others. All
    class probabilities are returned, whatever ``top_k`` says.

    Parameters
    ----------
    pipeline : transformers.TextClassificationPipeline
    config : EvaluationConfig
    settings : mapping
        Those of the pipeline.
    reference : Predictor, optional
        The model's own ``predict``.
    """

    options = TOKEN_OPTIONS

    def __init__(
        self,
        pipeline: Any,
        config: EvaluationConfig,
        settings: Mapping[str, Any],
        *,
        reference: Predictor | None = None,
    ) -> None:
        from biasbios_mlflow.prediction.tokens import TokenModel

        self.reference = None if reference is None else WherePipelineIs(pipeline, reference)
        self.returns = _returns(pipeline, settings)
        self._function = _function(pipeline.model.config, settings.get("function_to_apply"))
        tokenizing = {name: settings[name] for name in _TOKENIZING & set(settings)}
        self.cuts_alone = not settings.get("truncation")
        self._model = TokenModel(
            pipeline.model,
            pipeline.tokenizer,
            tokenizing=tokenizing,
            token_budget=config.token_budget,
            device=config.device,
            dtype=config.dtype,
        )
        dtype = str(self._model.dtype).removeprefix("torch.")
        self.path = f"transformers ({self._function}) on {self._model.device}, {dtype}"

    @classmethod
    def of(
        cls, model: Any, config: EvaluationConfig, *, reference: Predictor | None = None
    ) -> TransformersPredictor | None:
        """Unwrap a pyfunc model of the transformers flavor; None where only ``predict`` will do.

        That is: for other tasks, for subclasses of the pipeline, for pipelines with settings that
        change what reaches the model, for text pairs, for a tokenizer or model that cannot pad.
        """
        pipeline = _raw(model)
        if pipeline is None:
            return None
        schema = model.metadata.get_input_schema()
        if schema is not None and "text_pair" in schema.input_names():
            return None
        settings = settings_of(model, pipeline)
        if not set(settings) <= _TOKENIZING | _SCORING | _WITHOUT_BEARING:
            return None
        if pipeline._forward_params:
            return None
        tokenizer: Any = pipeline.tokenizer
        if None in (tokenizer.pad_token_id, pipeline.model.config.pad_token_id):
            return None
        return cls(pipeline, config, settings, reference=reference)

    def session(self) -> AbstractContextManager[None]:
        """Keep the model on its device until the block ends."""
        return self._model.session()

    def predict(self, inputs: ModelInputs) -> Iterator[tuple[npt.NDArray[np.int64], object]]:
        """Yield matrices of shape (batch, classes)."""
        tokens = self._model.tokenize(inputs.texts)
        inputs.cut = tokens.cut
        for rows, scores in self._model.run(tokens, self._scores):
            yield rows, Output(scores=scores)

    def _scores(self, output: Any, mask: Any) -> Any:
        logits = output.logits.float()
        if self._function == "softmax":
            return logits.softmax(dim=-1)
        return logits.sigmoid() if self._function == "sigmoid" else logits


class WherePipelineIs(Predictor):
    """The pipeline's own ``predict``, while its model may be on another device than it had."""

    def __init__(self, pipeline: Any, model: Predictor) -> None:
        self.path = model.path
        self.returns = model.returns
        self.options = model.options
        self.identity = model.identity
        self._pipeline = pipeline
        self._model = model

    def predict(self, inputs: ModelInputs) -> Iterator[tuple[Rows, object]]:
        """Yield the pipeline's outputs."""
        home = self._pipeline.device
        self._pipeline.device = self._pipeline.model.device
        try:
            yield from self._model.predict(inputs)
        finally:
            self._pipeline.device = home


def known_returns(model: Any) -> Returns:
    """Return what the own ``predict`` of a text-classification pipeline returns.

    Parameters
    ----------
    model : mlflow.pyfunc.PyFuncModel
        Of any flavor; of others nothing is known.
    """
    pipeline = _raw(model)
    return Returns() if pipeline is None else _returns(pipeline, settings_of(model, pipeline))


def _raw(model: Any) -> Any:
    """Return the text-classification pipeline in a pyfunc model, None where there is none."""
    pipeline = raw_model(model, "mlflow.transformers")
    if pipeline is None or importlib.util.find_spec("torch") is None:
        return None
    from transformers import TextClassificationPipeline

    return pipeline if type(pipeline) is TextClassificationPipeline else None


def settings_of(model: Any, pipeline: Any) -> dict[str, Any]:
    """Return all that the pipeline is told when the model's own ``predict`` calls it."""
    # What was given when the model was loaded is known to the flavor's own wrapper only.
    loaded = dict(loaded_configuration(model) or {})
    schema = model.metadata.get_params_schema()
    defaults = {} if schema is None else {param.name: param.default for param in schema.params}
    return {
        **pipeline._preprocess_params,
        **pipeline._postprocess_params,
        **loaded,
        **defaults,
    }


def _returns(pipeline: Any, settings: Mapping[str, Any]) -> Returns:
    names = pipeline.model.config.id2label
    if sorted(names) != list(range(len(names))):
        raise invalid(
            "id2label of the model",
            found=f"the ids {sorted(names)[:30]}",
            expected=f"0 to {len(names) - 1}: the columns of its scores, at which its own predict "
            "looks them up",
            fix="mend config.id2label and register the model again",
        )
    function = _function(pipeline.model.config, settings.get("function_to_apply"))
    return Returns(
        kind="logits" if function == "none" else "probabilities",
        classes=[names[i] for i in range(len(names))],
    )


def _function(config: Any, chosen: Any) -> str:
    """Return the function that a text-classification pipeline applies to logits."""
    if chosen is not None:
        return str(getattr(chosen, "name", chosen)).lower()
    if config.problem_type == "regression":
        return "none"
    if config.problem_type == "multi_label_classification" or config.num_labels == 1:
        return "sigmoid"
    return "softmax"
