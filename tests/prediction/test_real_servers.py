"""Language models behind servers that other people wrote, asked as their users deploy them."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mlflow
import pandas as pd
import pytest

openai = pytest.importorskip("openai")
transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")
pytest.importorskip("accelerate")  # transformers serve loads models with it

from biasbios_mlflow.bios.occupations import OCCUPATIONS  # noqa: E402
from biasbios_mlflow.counterfactual import swap_gender  # noqa: E402
from biasbios_mlflow.prediction.answers import AnswerReader  # noqa: E402
from biasbios_mlflow.scoring import score  # noqa: E402
from tests.prediction.conftest import run  # noqa: E402
from tests.prediction.test_language import TEMPLATE, make_causal  # noqa: E402

FIVE = ("balanced_accuracy", "prediction_consistency", "gap_rms", "gap_abs", "answers_unreadable")
PROMPT = "{bio} is a"


@pytest.fixture(scope="module")
def some() -> pd.DataFrame:
    texts = [f"{who} {does} {what} ." for who in ("she", "he") for does in ("heals", "writes")
             for what in ("the", "a", "nurse", "poet", "her", "his")]  # fmt: skip
    rows = {"hard_text": texts, "profession": ["nurse", "poet"] * 12}
    return pd.DataFrame(rows).assign(gender=["F"] * 12 + ["M"] * 12)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny language model whose every word is an occupation, or one of a few."""
    known = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "she", "he", "her", "his", "nurse", "poet"]
    known += ["surgeon", "model", "dj", "writes", "heals", "the", "a", "is", "."]
    ids = {token: code for code, token in enumerate(known)}
    backend = tokenizers.Tokenizer(tokenizers.models.WordPiece(ids, unk_token="[UNK]"))
    backend.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="[PAD]", unk_token="[UNK]", eos_token="[SEP]"
    )
    tokenizer.chat_template = TEMPLATE
    path = tmp_path_factory.mktemp("served") / "tiny"
    make_causal("llama", len(known)).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    """The model behind ``transformers serve``."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = folder.parent / "server.log"
    program = "import sys; from transformers.cli.transformers import main; sys.exit(main())"
    options = ["--port", str(port), "--device", "cpu", "--log-level", "error"]
    with log.open("wb") as out:
        server = subprocess.Popen(
            [sys.executable, "-c", program, "serve", *options, str(folder)],
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
            start_new_session=True,
        )
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline:
        if server.poll() is not None:
            said = log.read_text("utf-8")
            if "transformers[serving]" in said:
                pytest.skip("transformers[serving] is not installed")
            raise RuntimeError(said[-2000:])
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.2)
    yield f"http://127.0.0.1:{port}/v1"
    os.killpg(server.pid, signal.SIGKILL)
    server.wait(timeout=30)


@pytest.fixture
def client(address: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("OPENAI_BASE_URL", address)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-nobody")
    return openai.OpenAI()


def by_hand(say: Callable[[str], str], bios: pd.DataFrame) -> dict[str, float]:
    """Ask one bio after the other, read the answers, score them."""
    reader = AnswerReader(OCCUPATIONS)

    def read(texts: list[str]) -> list[str]:
        readings = [reader.read(say(text)) for text in texts]
        return [str(r.why) if r.code is None else OCCUPATIONS[r.code] for r in readings]

    texts = bios["hard_text"].tolist()
    first = read(texts)
    scores = score(
        bios["profession"], bios["gender"], first, read(swap_gender(texts)), n_replicates=100
    )
    unreadable = sum(answer not in OCCUPATIONS for answer in first) / len(first)
    return {**scores.metrics, "answers_unreadable": unreadable}


def assert_equal(evaluation: Any, expected: dict[str, float]) -> None:
    assert 0 < expected["answers_unreadable"] < 1
    for name in FIVE:
        assert evaluation.scores.metrics[name] == pytest.approx(expected[name], abs=1e-12), name


def test_by_its_address(client: Any, folder: Path, some: pd.DataFrame) -> None:
    def say(text: str) -> str:
        answer = client.chat.completions.create(
            model=str(folder),
            messages=[{"role": "user", "content": PROMPT.replace("{bio}", text)}],
            temperature=0,
            max_tokens=1,
        )
        return str(answer.choices[0].message.content)

    evaluation = run(
        print, some, model_uri=f"openai:/{folder}", prompt=PROMPT, max_answer_tokens=1, min_cell=1
    )
    assert_equal(evaluation, by_hand(say, some))
    assert evaluation.answers["tokens_out"] > 0


@pytest.mark.parametrize("own", [True, False], ids=["its own messages", "our prompt"])
def test_registered_with_the_openai_flavor(
    own: bool, client: Any, folder: Path, some: pd.DataFrame, tmp_path: Path
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # MLflow tells what it thinks of the model
        mlflow.openai.save_model(
            str(folder),
            task="chat.completions",
            path=tmp_path / "model",
            pip_requirements=[],
            max_tokens=1,
            temperature=0,
            **({"messages": [{"role": "user", "content": PROMPT}]} if own else {}),
        )
        model = mlflow.pyfunc.load_model(str(tmp_path / "model"))

    def say(text: str) -> str:
        asked = text if own else PROMPT.replace("{bio}", text)
        return str(model.predict(pd.DataFrame({"bio": [asked]}))[0])

    options = {} if own else {"prompt": PROMPT}
    evaluation = run(model, some, min_cell=1, **options)
    assert_equal(evaluation, by_hand(say, some))


CHAIN = """
import mlflow
from langchain_core.runnables import RunnableLambda

def answer(data):
    text = data if isinstance(data, str) else next(iter(data.values()))
    if "heals" in text:
        return "The person is a nurse."
    return "I cannot tell." if "she" in text else '{"occupation": "poet"}'

mlflow.models.set_model(RunnableLambda(answer))
"""


def test_registered_with_the_langchain_flavor(some: pd.DataFrame, tmp_path: Path) -> None:
    pytest.importorskip("langchain")
    chain = tmp_path / "chain.py"
    chain.write_text(CHAIN, "utf-8")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mlflow.langchain.save_model(str(chain), path=tmp_path / "model", pip_requirements=[])
        model = mlflow.pyfunc.load_model(str(tmp_path / "model"))
    evaluation = run(model, some, min_cell=1)
    assert_equal(evaluation, by_hand(lambda text: model.predict([{"bio": text}])[0], some))
