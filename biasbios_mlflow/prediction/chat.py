"""Registered models that answer in words, asked through their own ``predict``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pandas as pd

from biasbios_mlflow.config import EvaluationConfig
from biasbios_mlflow.mlflow_private import prompt_template
from biasbios_mlflow.prediction.base import Predictor
from biasbios_mlflow.prediction.forms import input_schema, raw_model
from biasbios_mlflow.prediction.inputs import ModelInputs
from biasbios_mlflow.prediction.outputs import Rows
from biasbios_mlflow.prediction.prompts import Prompt

__all__ = ["ChatPredictor", "generation_pipeline"]

Asked = Literal["messages", "input", "text"]
"""What a model takes: a chat's ``messages``, a response's ``input``, or a text."""

_TEXT_FLAVORS = frozenset({"mlflow.openai", "mlflow.langchain", "mlflow.llama_index"})


class ChatPredictor(Predictor):
    """Asks a model that answers in words: in the form it takes, one bio a question.

    A model that takes messages, and a bare text-generation pipeline, have no question of their own:
    they get a prompt, the built-in one unless there is another. Other models (a text column, a
    template of their own) get the bio alone, unless there is a prompt.

    Parameters
    ----------
    own : Predictor
        The model's own ``predict``.
    asked : {"messages", "input", "text"}
    prompt : Prompt or None
        None: the bio alone.
    call : callable or None
        The model, for ``"messages"`` and ``"input"``.
    """

    options = frozenset({"answers", "predictions", "prompt"})

    def __init__(
        self,
        own: Predictor,
        asked: Asked,
        prompt: Prompt | None,
        call: Callable[[Any], Any] | None = None,
    ) -> None:
        self.path = f"{own.path}, answers in words"
        template = None if prompt is None else prompt.template
        self.returns = replace(own.returns, text=True, prompt=template)
        self.own = own
        self._asked = asked
        self._prompt = prompt
        self._call = call

    @classmethod
    def of(cls, model: Any, config: EvaluationConfig, *, own: Predictor) -> ChatPredictor | None:
        """Return it for a model that is known to answer in words, or that a prompt is for."""
        asked = _asked(model)
        wanted = None if config.prompt is None else Prompt(config.prompt)
        if asked != "text":
            return cls(own, asked, wanted or Prompt(), _one_call(model))
        bare = generation_pipeline(model) is not None or _is_bare_openai(model)
        if bare:
            return cls(own, "text", wanted or Prompt())
        if getattr(model, "loader_module", None) in _TEXT_FLAVORS or wanted is not None:
            return cls(own, "text", wanted)
        return None

    def through(self, own: Predictor) -> ChatPredictor:
        """Return the same with another way to the model's own ``predict``."""
        return ChatPredictor(own, self._asked, self._prompt, self._call)

    def session(self) -> AbstractContextManager[None]:
        """Keep the model ready until the block ends."""
        return self.own.session()

    def predict(self, inputs: ModelInputs) -> Iterator[tuple[Rows, object]]:
        """Yield the answers."""
        questions = inputs.texts
        if self._prompt is not None:
            names = inputs.bios.labels.names
            questions = [self._prompt.fill(text, names) for text in inputs.texts]
        if self._call is not None:
            for i, question in enumerate(questions):
                yield slice(i, i + 1), [self._ask(question)]
            return
        asked = ModelInputs(inputs.bios, inputs.source, questions, inputs.features)
        for rows, output in self.own.predict(asked):
            of_these = [questions[i] for i in np.arange(len(questions))[rows].tolist()]
            yield rows, _without_question(output, of_these)

    def _ask(self, question: str) -> object:
        message = {"role": "user", "content": question}
        assert self._call is not None
        answer = self._call({self._asked: [message]})
        # A pipeline with MLflow's task llm/v1/chat gives a list of one.
        return answer[0] if isinstance(answer, list) and len(answer) == 1 else answer


def _without_question(output: object, questions: list[str]) -> object:
    """Leave out the question where an answer repeats it first, as generated text can."""
    if not isinstance(output, list) or len(output) != len(questions):
        return output
    return [
        answer[len(question) :]
        if isinstance(answer, str) and question and answer.startswith(question)
        else answer
        for answer, question in zip(output, questions, strict=True)
    ]


def _asked(model: Any) -> Asked:
    schema = input_schema(model)
    if schema is None or not schema.has_input_names():
        return "text"
    names = schema.input_names()
    kinds: tuple[Literal["messages", "input"], ...] = ("messages", "input")
    for name in kinds:
        if name in names and _is_structured(schema.input_dict()[name]):
            return name
    return "text"


def _is_structured(column: Any) -> bool:
    """Tell a list of messages from a text column that only has its name."""
    return type(getattr(column, "type", None)).__name__ in ("Array", "AnyType", "Object")


def _one_call(model: Any) -> Callable[[Any], Any]:
    client = getattr(model, "_client", None)
    if client is None:
        return lambda request: model.predict(request)

    def over_http(request: Any) -> Any:
        # As a frame: MLflow's client fails at a dict.
        response = client.invoke(pd.DataFrame({key: [value] for key, value in request.items()}))
        # A chat's answer is the whole response; of an input that was wrapped it is a part.
        return response.get("predictions", response) if isinstance(response, Mapping) else response

    return over_http


def _is_bare_openai(model: Any) -> bool:
    """Tell whether a model of the openai flavor has neither messages nor a prompt of its own."""
    logged = raw_model(model, "mlflow.openai")
    if not isinstance(logged, Mapping):
        return False
    return not (logged.get("messages") or logged.get("prompt"))


def generation_pipeline(model: Any) -> Any:
    """Return the text-generation pipeline in a pyfunc model; None where there is none.

    A prompt template that was logged with it makes the question itself: None there too.
    """
    pipeline = raw_model(model, "mlflow.transformers")
    if type(pipeline).__name__ != "TextGenerationPipeline":
        return None
    return None if prompt_template(model) else pipeline
