"""Models behind an OpenAI-compatible address: a real server over HTTP, with faults."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import uvicorn
from click.testing import CliRunner
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, StreamingResponse
from mlflow.exceptions import MlflowException

pytest.importorskip("openai")

from biasbios_mlflow.api import language_model_uri
from biasbios_mlflow.bios.occupations import OCCUPATIONS
from biasbios_mlflow.cli import main
from biasbios_mlflow.cost import count_questions
from biasbios_mlflow.report.files import summary
from tests.prediction.conftest import run

KEY = "sk-secret-0123456789"


class Chat:
    """Answers by what the bio says, and fails as it is told."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()
        self.faults: list[str] = []
        self.draws: list[str] = []
        self.keys: set[str | None] = set()
        self.at_once = self.most_at_once = 0
        self.seconds = 0.0
        self.app = FastAPI()
        self.app.post("/v1/chat/completions")(self.complete)

    async def complete(self, request: Request) -> Any:
        import asyncio

        body = await request.json()
        question = body["messages"][0]["content"]
        self.asked[question] += 1
        self.keys.add(request.headers.get("authorization"))
        fault = self.faults.pop(0) if self.faults else None
        if fault == "429":
            error = {"error": {"message": "slow down"}}
            return JSONResponse(error, 429, headers={"retry-after-ms": "20", "retry-after": "1"})
        if fault == "500":
            return JSONResponse({"error": {"message": "broken"}}, 500)
        if fault == "401":
            return JSONResponse({"error": {"message": f"wrong key {KEY}"}}, 401)
        if fault == "hang":
            await asyncio.sleep(3)
        if fault == "cut":
            return StreamingResponse(self.half(), media_type="application/json")
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await asyncio.sleep(self.seconds)
        self.at_once -= 1
        self.answered[question] += 1
        said = "A nurse." if "heals" in question else "I cannot tell."
        if self.draws:
            said = self.draws[(self.asked[question] - 1) % len(self.draws)]
        message = {"role": "assistant", "content": said}
        return {
            "id": "1",
            "object": "chat.completion",
            "created": 0,
            "model": body["model"],
            "choices": [{"index": 0, "finish_reason": "stop", "message": message}],
            "usage": {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9},
        }

    async def half(self) -> Any:
        yield b'{"choices": ['
        raise ConnectionError("cut")


@pytest.fixture
def chat(monkeypatch: pytest.MonkeyPatch) -> Iterator[Chat]:
    chat = Chat()
    server = uvicorn.Server(uvicorn.Config(chat.app, port=0, log_level="critical"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{port}/v1")
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    yield chat
    server.should_exit = True
    server.force_exit = True
    thread.join(timeout=30)


@pytest.fixture(scope="module")
def few() -> pd.DataFrame:
    texts = [
        f"{'She' if i % 2 else 'He'} {'heals' if i % 4 < 2 else 'writes'} {i}." for i in range(16)
    ]
    rows = {"hard_text": texts, "profession": ["nurse", "nurse", "poet", "poet"] * 4}
    return pd.DataFrame(rows).assign(gender=["M", "F"] * 8)


def ask(few: pd.DataFrame, **options: Any) -> Any:
    return run(print, few, model_uri="openai:/tiny", prompt="{bio}?", **options)


def test_every_question_once(chat: Chat, few: pd.DataFrame) -> None:
    chat.seconds = 0.05
    evaluation = ask(few, concurrency=4)
    assert len(chat.asked) == 32
    assert set(chat.asked.values()) == {1}
    assert {text + "?" for text in few["hard_text"]} < set(chat.asked)
    assert chat.most_at_once == 4
    assert chat.keys == {f"Bearer {KEY}"}
    assert evaluation.scores.metrics["answers_unreadable"] == 0.5
    assert evaluation.scores.reasons["ctf"] == "no probabilities: the model answers in words"
    assert evaluation.path.startswith("openai:/tiny at 127.0.0.1:")
    written = summary(evaluation, model={}, data={})
    assert {k: written["answers"][k] for k in ("requests", "tokens_in", "tokens_out")} == {
        "requests": 32, "tokens_in": 32 * 7, "tokens_out": 32 * 2,
    }  # fmt: skip
    assert KEY not in json.dumps(written)


def test_faults_are_tried_again(chat: Chat, few: pd.DataFrame) -> None:
    chat.faults = ["429", "429", "500", "cut", "hang", "429"]
    evaluation = ask(few, request_timeout=1)
    assert set(chat.answered) == set(chat.asked)
    assert len(chat.answered) == 32
    assert sum(chat.asked.values()) == 32 + 6
    assert evaluation.answers["requests"] == 32


def test_nothing_is_lost_when_it_fails_and_no_key_is_told(
    chat: Chat, few: pd.DataFrame, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    chat.faults = [""] * 10 + ["401"]
    with pytest.raises(MlflowException, match=r"AuthenticationError from openai:/tiny.*…") as found:
        ask(few, concurrency=1, resume_dir=str(tmp_path))
    assert KEY not in f"{found.getrepr(chain=True)}{caplog.text}"
    assert sum(chat.answered.values()) == 10
    evaluation = ask(few, resume_dir=str(tmp_path))
    assert set(chat.answered.values()) == {1}
    assert len(chat.answered) == 32
    assert evaluation.answers["taken_over"] == 10
    assert evaluation.answers["requests"] == 22
    assert evaluation.answers["tokens_in"] == 32 * 7
    assert KEY not in "".join(str(file.read_bytes()) for file in tmp_path.iterdir())


def test_kept_answers_are_no_texts_without_log_texts(
    chat: Chat, few: pd.DataFrame, tmp_path: Path
) -> None:
    chat.faults = [""] * 20 + ["401"]
    options = {"resume_dir": str(tmp_path), "log_texts": False, "concurrency": 1}
    with pytest.raises(MlflowException, match="AuthenticationError"):
        ask(few, **options)
    kept = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert b"nurse" in kept
    assert b"A nurse" not in kept
    assert b"cannot tell" not in kept
    again = ask(few, **options)
    assert again.answers["taken_over"] == 20
    assert again.result.unknown == ask(few).result.unknown


SCRIPT = """
import sys
import pandas as pd
from tests.prediction.conftest import run
run(print, pd.read_csv(sys.argv[1]), model_uri="openai:/tiny", prompt="{bio}?",
    resume_dir=sys.argv[2], concurrency=2)
"""


def test_killed_at_half(chat: Chat, few: pd.DataFrame, tmp_path: Path) -> None:
    few.to_csv(tmp_path / "few.csv", index=False)
    chat.seconds = 0.1
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "few.csv"), str(tmp_path / "kept")],
        cwd=Path(__file__).parents[2],
        start_new_session=True,
    )
    deadline = time.monotonic() + 120
    while sum(chat.answered.values()) < 16 and time.monotonic() < deadline:
        assert process.poll() is None
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    before = sum(chat.answered.values())
    chat.seconds = 0
    evaluation = ask(few, resume_dir=str(tmp_path / "kept"))
    assert len(chat.answered) == 32
    # Those under way when it was killed were asked again, no others.
    assert sum(chat.answered.values()) - 32 <= 3
    assert evaluation.answers["taken_over"] >= before - 3
    assert evaluation.scores.metrics["answers_unreadable"] == 0.5


def test_what_is_missing_is_told(few: pd.DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(MlflowException, match="environment: found no variable OPENAI_API_KEY"):
        ask(few)
    assert language_model_uri("openai:/tiny") == "openai:/tiny"
    with pytest.raises(MlflowException, match="concurrency: found 2 for a model that is called by"):
        run(None, few.assign(said="nurse"), predictions="said", concurrency=2)
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    with pytest.raises(MlflowException, match="APIConnectionError from openai:/tiny at 127"):
        ask(few, max_retries=0)


def test_what_it_costs_is_known_before(chat: Chat, few: pd.DataFrame, tmp_path: Path) -> None:
    path = tmp_path / "few.csv"
    few.to_csv(path, index=False)
    arguments = ["evaluate", "openai:/tiny", "--data", str(path), "--dry-run", "--prompt", "{bio}?"]
    done = CliRunner().invoke(main, [*arguments, "--json"], catch_exceptions=False)
    counted = json.loads(done.stdout)
    assert not chat.asked
    ask(few)
    assert counted["bios"] == 16
    assert counted["questions"] == sum(chat.asked.values()) == 32
    assert counted["tokens_in"] == sum(-(-len(question) // 4) for question in chat.asked)
    assert "32 questions about 16 bios" in CliRunner().invoke(main, arguments).stdout
    with pytest.raises(MlflowException, match="dry run: found the model 'models:/a/1'"):
        count_questions("models:/a/1", few)


def test_samples(chat: Chat, few: pd.DataFrame, tmp_path: Path) -> None:
    """The first answer is the label, the others' shares are probabilities; all are kept."""
    chat.draws = ["A nurse.", "A poet.", "A nurse.", "Who knows?", "A nurse."]
    options = {"samples": 5, "temperature": 0.7, "concurrency": 1, "resume_dir": str(tmp_path)}
    few = few.head(6)
    evaluation = ask(few, **options)
    assert set(chat.asked.values()) == {5}
    asked = {"samples": 5, "temperature": 0.7, "prompt": "{bio}?"}
    counted = count_questions("openai:/tiny", few, **asked)
    assert counted["questions"] == sum(chat.asked.values())
    assert counted["tokens_in"] == 5 * sum(-(-len(question) // 4) for question in chat.asked)
    rows = pd.read_parquet(evaluation.predictions_path)
    assert set(rows["prediction"]) == {"nurse"}
    np.testing.assert_allclose(rows["probability"], 0.5)
    matrix = np.stack(rows["probabilities"])
    np.testing.assert_allclose(matrix[:, OCCUPATIONS.index("poet")], 0.25)
    np.testing.assert_allclose(matrix.sum(axis=1), 0.75)
    # All differences are 0, and what is taken from them is what 4 draws vary by.
    np.testing.assert_allclose(rows["ctf"], -2 * 0.5 * 0.5 / 3 / 4)
    assert evaluation.scores.metrics["ctf"] == 0
    assert evaluation.scores.intervals["ctf"][0] == 0
    assert "ctf is freed from that chance" in evaluation.warnings[0]
    assert ask(few, **options).answers is not None
    assert set(chat.asked.values()) == {5}
    with pytest.raises(MlflowException, match="temperature: found 0, with samples=5"):
        ask(few, samples=5)
    with pytest.raises(MlflowException, match="samples: found 2, expected 1, or 3"):
        ask(few, samples=2)


def test_drawn_answers_are_told(chat: Chat, few: pd.DataFrame) -> None:
    assert "temperature 0.7" in ask(few, temperature=0.7).warnings[0]
