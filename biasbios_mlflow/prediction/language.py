"""Local causal language models: what they answer, and how likely each occupation is."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from biasbios_mlflow.bios.occupations import as_objects
from biasbios_mlflow.config import EvaluationConfig
from biasbios_mlflow.errors import invalid, missing_extra
from biasbios_mlflow.fingerprint import Identity
from biasbios_mlflow.prediction.base import Predictor
from biasbios_mlflow.prediction.chat import ChatPredictor, generation_pipeline
from biasbios_mlflow.prediction.features import TOKEN_OPTIONS
from biasbios_mlflow.prediction.inputs import ModelInputs
from biasbios_mlflow.prediction.outputs import Output, Returns
from biasbios_mlflow.prediction.prompts import Prompt
from biasbios_mlflow.prediction.transformers import WherePipelineIs

__all__ = ["SCHEME", "LikelihoodPredictor"]

SCHEME = "transformers:/"
"""Before the name or the path of a language model that is in no registry."""

_DRAWN = (
    "the model draws its answers (do_sample in its generation_config): another evaluation gives "
    "other labels, and flips are by chance too"
)


class LikelihoodPredictor(Predictor):
    """Gives the probability of each occupation by its likelihood after the prompt.

    What is counted as the label is what is deployed: what the registered pipeline's own ``predict``
    answers, read as words. A model without a ``predict`` of its own (a path), or one of which
    ``label_from="likelihood"`` says so, is a classifier by likelihood.

    Parameters
    ----------
    model : transformers.PreTrainedModel
    tokenizer : transformers.PreTrainedTokenizerBase
    config : EvaluationConfig
    answers : Predictor, optional
        The model's own ``predict``.
    """

    options = TOKEN_OPTIONS | {"label_score", "prompt"}

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        config: EvaluationConfig,
        *,
        answers: ChatPredictor | None = None,
    ) -> None:
        from biasbios_mlflow.prediction.causal import CausalModel

        self._prompt = Prompt() if config.prompt is None else Prompt(config.prompt)
        self._model = CausalModel(
            model,
            tokenizer,
            score=config.label_score,
            token_budget=config.token_budget,
            device=config.device,
            dtype=config.dtype,
        )
        self._answers = None if config.label_from == "likelihood" else answers
        if answers is not None:
            self.options = self.options | {"answers", "label_from"}
        self.returns = Returns(
            kind="probabilities",
            text=self._answers is not None,
            prompt=self._prompt.template,
        )
        self.told = self._what_is_counted(answers)

    @classmethod
    def of(
        cls, model: Any, config: EvaluationConfig, *, answers: ChatPredictor
    ) -> LikelihoodPredictor | None:
        """Unwrap a text-generation pipeline; None for any other model."""
        pipeline = generation_pipeline(model)
        if pipeline is None or importlib.util.find_spec("torch") is None:
            return None
        # The model may be on another device than it had when it is asked.
        answers = answers.through(WherePipelineIs(pipeline, answers.own))
        found = cls(pipeline.model, pipeline.tokenizer, config, answers=answers)
        drawn = getattr(pipeline.model.generation_config, "do_sample", False)
        if drawn and config.label_from == "answer":
            found.told = (*found.told, _DRAWN)
        return found

    @classmethod
    def load(cls, uri: str, config: EvaluationConfig) -> LikelihoodPredictor:
        """Load a language model by its name or path.

        Parameters
        ----------
        uri : str
            ``transformers:/`` and the name or path.
        config : EvaluationConfig
        """
        name = uri.removeprefix(SCHEME)
        if importlib.util.find_spec("transformers") is None:
            raise missing_extra("transformers", "transformers", needed_for=uri)
        from transformers import AutoModelForCausalLM, AutoTokenizer

        try:
            tokenizer = AutoTokenizer.from_pretrained(name)
            model = AutoModelForCausalLM.from_pretrained(name).eval()
        except (OSError, ValueError) as error:
            raise invalid(
                "model",
                found=f"{uri!r}, which transformers cannot load ({error!s:.200})",
                expected="the name or the path of a causal language model",
                fix="name a folder that save_pretrained wrote",
            ) from error
        found = cls(model, tokenizer, config)
        found.identity = _identity(name, model)
        return found

    @property
    def path(self) -> str:  # type: ignore[override]
        """What is called, and where."""
        model = self._model
        dtype = str(model.dtype).removeprefix("torch.")
        template = ", chat template" if model.templated else ""
        how = "one prompt for all occupations" if model.shared else "each occupation by itself"
        label = "" if self._answers is None else f"{self._answers.path}; beside it "
        return f"{label}likelihood after the prompt ({how}{template}) on {model.device}, {dtype}"

    def session(self) -> AbstractContextManager[None]:
        """Keep the model on its device until the block ends."""
        return self._model.session()

    def predict(self, inputs: ModelInputs) -> Iterator[tuple[npt.NDArray[np.int64], object]]:
        """Yield answers and probabilities, of shape (batch, occupations)."""
        questions = self._model.ask(inputs.texts, inputs.bios.labels.names, self._prompt)
        inputs.cut = questions.cut
        answers = None if self._answers is None else self._answered(inputs)
        for rows, probabilities in self._model.probabilities(questions):
            labels = None if answers is None else answers[rows]
            yield rows, Output(labels=labels, scores=probabilities)

    def _answered(self, inputs: ModelInputs) -> npt.NDArray[np.object_]:
        assert self._answers is not None
        found = as_objects([None] * len(inputs))
        for rows, output in self._answers.predict(inputs):
            found[rows] = as_objects(list(output))  # type: ignore[call-overload]
        return found

    def _what_is_counted(self, answers: ChatPredictor | None) -> tuple[str, ...]:
        if answers is None:
            return ()
        if self._answers is None:
            return (
                "the label of a bio is the occupation of the largest likelihood after the prompt "
                "(label_from='likelihood'); the deployed predict writes an answer instead, which "
                "was not asked for",
            )
        return ()


def _identity(name: str, model: Any) -> Identity:
    """Tell a model by its weights where it lies here, else by its name."""
    import hashlib

    from biasbios_mlflow.prediction.identity import update_with_weights

    digest = hashlib.sha256(b"" if Path(name).exists() else name.encode())
    update_with_weights(digest, model)
    return Identity(f"{SCHEME}{digest.hexdigest()}")
