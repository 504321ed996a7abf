"""Chat-shaped models of MLflow, served and not: asked in their form, read as words."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import mlflow
import pandas as pd
import pytest
import uvicorn
from mlflow.exceptions import MlflowException

with warnings.catch_warnings():  # MLflow warns of its own type hints when these are imported
    warnings.simplefilter("ignore")
    import mlflow.pyfunc
    from mlflow.pyfunc import ChatModel, ResponsesAgent, scoring_server
    from mlflow.types.agent import ChatAgentMessage, ChatAgentResponse
    from mlflow.types.llm import ChatChoice, ChatCompletionResponse, ChatMessage
    from mlflow.types.responses import ResponsesAgentResponse

from biasbios_mlflow.bios.occupations import OCCUPATIONS
from biasbios_mlflow.prediction.answers import NOT_NAMED
from biasbios_mlflow.prediction.prompts import BUILT_IN, Prompt
from biasbios_mlflow.report.files import summary
from biasbios_mlflow.rows import read_outcomes
from tests.prediction.conftest import run

QUESTIONS: list[str] = []


def answer(question: str) -> str:
    """Knows nurses and poets by their words, and refuses women who write."""
    QUESTIONS.append(question)
    bio = question.partition("Biography: ")[2] or question
    if "heals" in bio:
        return "The person is a **nurse**."
    return "I cannot tell." if "She" in bio else '{"occupation": "Poet"}'


@pytest.fixture(autouse=True)
def _no_questions() -> None:
    QUESTIONS.clear()


@pytest.fixture(scope="module")
def few() -> pd.DataFrame:
    rows = [
        ("She heals. {occupations} {bio} {0} %s", "nurse", "F"),
        ("He heals.", "nurse", "M"),
        ("She writes verse.", "poet", "F"),
        ("He writes verse.", "poet", "M"),
    ]
    return pd.DataFrame(rows * 3, columns=["hard_text", "profession", "gender"])


class Chat(ChatModel):
    def predict(self, context: Any, messages: Any, params: Any) -> ChatCompletionResponse:
        assert [message.role for message in messages] == ["user"]
        message = ChatMessage(role="assistant", content=answer(messages[0].content))
        return ChatCompletionResponse(choices=[ChatChoice(index=0, message=message)])


class Agent(mlflow.pyfunc.ChatAgent):
    def predict(self, messages: Any, context: Any = None, custom_inputs: Any = None) -> Any:
        said = ChatAgentMessage(role="assistant", content=answer(messages[0].content), id="1")
        return ChatAgentResponse(messages=[said])


class Responses(ResponsesAgent):
    def predict(self, request: Any) -> ResponsesAgentResponse:
        text = answer(request.input[0].content)
        item = self.create_text_output_item(text=text, id="1")
        return ResponsesAgentResponse(output=[item])


MODELS: dict[str, Callable[[], Any]] = {"chat": Chat, "agent": Agent, "responses": Responses}


@pytest.fixture(scope="module", params=MODELS)
def chat_model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("chat") / request.param
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mlflow.pyfunc.save_model(path, python_model=MODELS[request.param](), pip_requirements=[])
        return mlflow.pyfunc.load_model(str(path))


def check(evaluation: Any, bios: pd.DataFrame) -> None:
    counted = pd.read_parquet(evaluation.predictions_path)
    wanted = ["nurse", "nurse", NOT_NAMED, "poet"] * 3
    assert counted["prediction"].tolist() == wanted
    assert (
        counted["counterfactual_prediction"].tolist() == ["nurse", "nurse", "poet", NOT_NAMED] * 3
    )
    assert evaluation.path.endswith("answers in words")
    assert evaluation.scores.reasons["ctf"] == "no probabilities: the model answers in words"
    metrics = evaluation.scores.metrics
    ends = ("", "_male", "_female", "_gap")
    assert [metrics[f"answers_unreadable{end}"] for end in ends] == [0.25, 0.0, 0.5, -0.5]
    low, high = evaluation.scores.intervals["answers_unreadable_gap"]
    assert low < -0.5 < high
    assert read_outcomes(evaluation.predictions_path).marks["unreadable"].sum() == 3
    assert QUESTIONS[0] == Prompt().fill(bios["hard_text"][0], OCCUPATIONS)
    about = summary(evaluation, model={}, data={})["answers"]
    assert about["prompt"] == BUILT_IN
    assert about["prompt_sha256"] == Prompt().sha256
    assert about["unreadable"][0] == {"row": 2, "answer": "I cannot tell.", "why": NOT_NAMED}


def test_unserved(chat_model: Any, few: pd.DataFrame) -> None:
    check(run(chat_model, few), few)
    once = 2 * len(few)
    assert set(QUESTIONS[once:]) <= set(QUESTIONS[:once])  # some are asked again, by the probe
    assert len(QUESTIONS) <= once + 12


@pytest.fixture
def served(chat_model: Any) -> Iterator[Any]:
    """The same behind MLflow's scoring server, over HTTP."""
    config = uvicorn.Config(scoring_server.init(chat_model), port=0, log_level="error")
    server = uvicorn.Server(config)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        while not server.started:
            time.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        from mlflow.pyfunc.scoring_server.client import ScoringServerClient

        client = ScoringServerClient("127.0.0.1", port)
        yield mlflow.pyfunc._ServedPyFuncModel(chat_model.metadata, client, None, "uv")
        server.should_exit = True
        thread.join(timeout=30)


def test_served(served: Any, few: pd.DataFrame) -> None:
    check(run(served, few), few)


def test_a_prompt_of_ones_own(chat_model: Any, few: pd.DataFrame) -> None:
    evaluation = run(chat_model, few, prompt="{bio} {x} Biography: {bio}", log_texts=False)
    assert QUESTIONS[0] == "{bio} {{x}} Biography: {bio}".replace("{{x}}", "{x}").replace(
        "{bio}", few["hard_text"][0]
    )
    assert evaluation.answers["prompt"] == "{bio} {x} Biography: {bio}"
    assert [one["answer"] for one in evaluation.answers["unreadable"]] == [None]
    with pytest.raises(MlflowException, match=r"prompt: found 'Who\?', expected a text with {bio}"):
        run(chat_model, few, prompt="Who?")


class TestFunctions:
    """Plain functions: nothing but what they return says what they are."""

    @staticmethod
    def says(form: str, few: pd.DataFrame, **options: Any) -> Any:
        def predict(data: pd.DataFrame) -> list[str]:
            known = {"heals": "nurse", "verse": "poet"}
            return [
                form % next(v for k, v in known.items() if k in text) for text in data.iloc[:, 0]
            ]

        return run(type("Model", (), {"predict": staticmethod(predict)})(), few, **options)

    @pytest.mark.parametrize("form", ["The person is a %s.", '"%s"', '{"occupation": "%s"}'])
    def test_written_answers_are_read_and_it_is_told(self, form: str, few: pd.DataFrame) -> None:
        evaluation = self.says(form, few)
        assert evaluation.scores.metrics["accuracy"] == 1
        assert "were read as words" in evaluation.warnings[0]
        assert evaluation.answers["guessed"]
        told = self.says(form, few, answers="text")
        assert told.scores.metrics["accuracy"] == 1
        assert not told.answers["guessed"]
        with pytest.raises(MlflowException, match="label set of the model"):
            self.says(form, few, answers="labels")

    def test_a_prompt_reaches_them(self, few: pd.DataFrame) -> None:
        evaluation = self.says("%s", few, prompt="Who heals? {bio}")
        assert evaluation.answers["prompt"] == "Who heals? {bio}"
        assert evaluation.scores.metrics["accuracy"] == 0.5

    def test_unknown_labels_stay_unknown(self, few: pd.DataFrame) -> None:
        """As 'nurse practitioner' of a classifier with more classes than the data."""

        def predict(data: pd.DataFrame) -> list[str]:
            return ["nurse practitioner" if "She" in text else "nurse" for text in data.iloc[:, 0]]

        model = type("Model", (), {"predict": staticmethod(predict)})()
        evaluation = run(model, few)
        assert evaluation.answers is None
        reason = str(evaluation.scores.reasons["answers_unreadable_gap"])
        assert reason == "not recorded: answers in words, which this model does not give"
        assert evaluation.result.unknown == {"nurse practitioner": 6}
        assert run(model, few, answers="text").result.unknown == {NOT_NAMED: 6}

    def test_some_written_labels_are_told(self, few: pd.DataFrame) -> None:
        def predict(data: pd.DataFrame) -> list[str]:
            return ["A nurse." if "She heals" in text else "nurse" for text in data.iloc[:, 0]]

        evaluation = run(type("Model", (), {"predict": staticmethod(predict)})(), few)
        assert "unknown but written" in evaluation.warnings[0]
        assert evaluation.answers is None

    def test_numbers_are_no_words(self, few: pd.DataFrame) -> None:
        def predict(data: pd.DataFrame) -> Any:
            return [[1 / 28] * 28] * len(data)

        model = type("Model", (), {"predict": staticmethod(predict)})()
        with pytest.raises(MlflowException, match="answers: found 'text' for a model that returns"):
            run(model, few, answers="text")

    def test_no_answer_can_be_read(self, few: pd.DataFrame) -> None:
        with pytest.raises(MlflowException, match=r"no answer that names.*\(no occupation named\)"):
            self.says("not %s", few, answers="text")


def test_answers_that_stand_in_the_data(few: pd.DataFrame) -> None:
    data = few.assign(said=[f"It is a {name}." for name in few["profession"]])
    evaluation = run(None, data, predictions="said", answers="text")
    assert evaluation.scores.metrics["accuracy"] == 1
