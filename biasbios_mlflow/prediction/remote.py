"""Chat models behind an OpenAI-compatible address, asked many at a time and each thing once."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED as ANY
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from biasbios_mlflow.bios.occupations import as_objects
from biasbios_mlflow.config import EvaluationConfig
from biasbios_mlflow.errors import invalid, missing_extra
from biasbios_mlflow.fingerprint import Identity
from biasbios_mlflow.prediction.answers import AnswerReader, answer_text
from biasbios_mlflow.prediction.base import Predictor
from biasbios_mlflow.prediction.inputs import ModelInputs
from biasbios_mlflow.prediction.outputs import Output, Returns
from biasbios_mlflow.prediction.prompts import Prompt

__all__ = ["OPTIONS", "SCHEME", "AnswerStore", "RemotePredictor"]

SCHEME = "openai:/"
"""Before the name of a model at an OpenAI-compatible address."""

OPTIONS = (
    "concurrency",
    "max_answer_tokens",
    "max_retries",
    "request_timeout",
    "samples",
    "temperature",
)
"""Options that only such a model heeds."""

_KEY = "OPENAI_API_KEY"
_ADDRESS = "OPENAI_BASE_URL"
_SHOWN = 300


@dataclass(frozen=True)
class _Answer:
    """What came back: the words, and the tokens that were read and written for it."""

    text: str | None
    tokens_in: int
    tokens_out: int


class AnswerStore:
    """Answers on disk, each under a hash of all that it depends on, kept as soon as it is there.

    Parameters
    ----------
    folder : Path or None
        Made where it does not exist; None keeps nothing.
    """

    def __init__(self, folder: Path | None) -> None:
        self._path = None if folder is None else folder / "answers.sqlite"
        if self._path is None or folder is None:
            return
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with closing(self._open()) as db, db:
                db.execute("PRAGMA journal_mode = WAL")
                db.execute(
                    "CREATE TABLE IF NOT EXISTS answers "
                    "(key TEXT PRIMARY KEY, text TEXT, tokens_in INTEGER, tokens_out INTEGER)"
                )
        except (OSError, sqlite3.Error) as error:
            raise invalid(
                "resume_dir",
                found=f"{str(folder)!r} ({error})",
                expected="a folder that can be written to",
                fix="name another folder",
            ) from error

    def _open(self) -> sqlite3.Connection:
        assert self._path is not None
        db = sqlite3.connect(self._path, timeout=60)
        # A kill loses nothing of what was written; waiting for the disk would take longer than
        # some answers.
        db.execute("PRAGMA synchronous = NORMAL")
        return db

    def load(self, keys: list[str]) -> dict[str, _Answer]:
        """Return the answers that are there, by key."""
        if self._path is None:
            return {}
        found = {}
        with closing(self._open()) as db:
            for key in keys:
                row = db.execute(
                    "SELECT text, tokens_in, tokens_out FROM answers WHERE key = ?", (key,)
                ).fetchone()
                if row is not None:
                    found[key] = _Answer(*row)
        return found

    def save(self, answers: dict[str, _Answer]) -> None:
        """Keep answers; once this returns, no kill loses them."""
        if self._path is None or not answers:
            return
        rows = [(key, a.text, a.tokens_in, a.tokens_out) for key, a in answers.items()]
        with closing(self._open()) as db, db:
            db.executemany("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?)", rows)


class RemotePredictor(Predictor):
    """Asks a chat model through OpenAI's own client.

    The client tries again what failed: 429 after the time that the server names, 5xx, time-outs,
    connections that were cut. The same question is asked once in a window, and with ``resume_dir``
    once at all.

    Parameters
    ----------
    uri : str
        ``openai:/`` and the name of the model. The address is ``OPENAI_BASE_URL``, the key
        ``OPENAI_API_KEY``; a server of one's own may need none.
    config : EvaluationConfig

    Raises
    ------
    MlflowException
        Without the package openai; without a key for OpenAI's own address.
    """

    options = frozenset({"answers", "prompt", *OPTIONS})
    asks_once = True

    def __init__(self, uri: str, config: EvaluationConfig) -> None:
        try:
            import openai
        except ImportError as error:
            raise missing_extra("openai", "llm", needed_for=uri) from error
        self._name = uri.removeprefix(SCHEME)
        self._key = os.environ.get(_KEY, "")
        if not self._key and not os.environ.get(_ADDRESS):
            raise invalid(
                "environment",
                found=f"no variable {_KEY}",
                expected=f"the key for OpenAI's own address, or another one in {_ADDRESS}",
                fix=f"set {_KEY} or {_ADDRESS}",
            )
        self._new_client = partial(
            openai.OpenAI,
            api_key=self._key or "none",
            max_retries=config.max_retries,
            timeout=config.request_timeout,
        )
        self._failures: tuple[type[Exception], ...] = (openai.OpenAIError,)
        with self._new_client() as client:
            address = str(client.base_url).partition("?")[0]
        self._prompt = Prompt() if config.prompt is None else Prompt(config.prompt)
        self._settings: dict[str, Any] = {"temperature": config.temperature}
        if config.max_answer_tokens is not None:
            self._settings["max_tokens"] = config.max_answer_tokens
        self._concurrency = config.concurrency
        self._samples = config.samples
        if config.samples > 1 and config.temperature == 0:
            raise invalid(
                "temperature",
                found="0, with samples=" + str(config.samples),
                expected="answers that are drawn: a temperature above 0",
                fix="set the temperature that the model is deployed with",
            )
        self._quotes = config.log_texts
        self._store = AnswerStore(None if config.resume_dir is None else Path(config.resume_dir))
        self._counted = {"requests": 0, "taken_over": 0, "tokens_in": 0, "tokens_out": 0}
        host = address.partition("://")[2].rpartition("@")[2].rstrip("/")
        self.path = f"{uri} at {host}, answers in words"
        self.identity = Identity(f"{uri}@{host}")
        drawn = config.samples > 1
        self.returns = Returns(
            kind="probabilities" if drawn else None,
            text=True,
            prompt=self._prompt.template,
            draws=config.samples - 1 if drawn else None,
        )
        if config.temperature > 0:
            beside = "; ctf is freed from that chance, ctf_gap is not" if drawn else ""
            self.told = (
                f"answers are drawn (temperature {config.temperature:g}): another evaluation gives "
                f"others, and flips are by chance too{beside}",
            )

    def about(self) -> dict[str, Any]:
        """Return the requests that were made and taken over, and the tokens of all answers."""
        return dict(self._counted)

    def predict(self, inputs: ModelInputs) -> Iterator[tuple[npt.NDArray[np.int64], object]]:
        """Yield the answers as they come."""
        names = inputs.bios.labels.names
        reader = AnswerReader(names)
        rows: dict[str, list[int]] = {}
        for row, text in enumerate(inputs.texts):
            rows.setdefault(self._prompt.fill(text, names), []).append(row)
        asked = {
            self._key_of(question, sample): (question, sample)
            for question in rows
            for sample in range(self._samples)
        }
        whole: dict[str, dict[int, str | None]] = {question: {} for question in rows}
        for key, answer in self._answers(asked, reader, names):
            question, sample = asked[key]
            whole[question][sample] = answer.text
            if len(whole[question]) == self._samples:
                answers = whole.pop(question)
                drawn = [answers[sample] for sample in range(self._samples)]
                yield np.array(rows[question]), self._output(drawn, len(rows[question]), reader)

    def _output(self, drawn: list[str | None], n: int, reader: AnswerReader) -> object:
        """Return the first answer, and the shares of the others, for n equal texts.

        The label is none of the answers that are shared out: it would be right too often by them.
        """
        if self._samples == 1:
            return drawn * n
        shares = np.zeros(reader.size)
        for text in drawn[1:]:
            code = reader.read(text).code
            if code is not None:
                shares[code] += 1 / (self._samples - 1)
        return Output(labels=as_objects(drawn[:1] * n), scores=np.tile(shares, (n, 1)))

    def _answers(
        self, asked: dict[str, tuple[str, int]], reader: AnswerReader, names: Sequence[str]
    ) -> Iterator[tuple[str, _Answer]]:
        there = self._store.load(list(asked))
        for key, answer in there.items():
            self._count(answer, "taken_over")
            yield key, answer
        wanted = {key: question for key, (question, _) in asked.items() if key not in there}
        for key, answer in self._ask_all(wanted):
            kept = answer
            if not self._quotes and answer.text is not None:  # it may repeat the bio
                found = reader.read(answer.text)
                label = found.why if found.code is None else names[found.code]
                kept = _Answer(label, answer.tokens_in, answer.tokens_out)
            self._store.save({key: kept})
            self._count(answer, "requests")
            yield key, answer

    def _ask_all(self, questions: dict[str, str]) -> Iterator[tuple[str, _Answer]]:
        waiting = iter(questions.items())
        running: dict[Future[_Answer], str] = {}
        client = self._new_client()
        pool = ThreadPoolExecutor(self._concurrency, thread_name_prefix="biasbios-ask")
        try:
            while True:
                # No more than can run are handed over: after a failure nothing is asked in vain.
                while len(running) < self._concurrency:
                    key, question = next(waiting, ("", ""))
                    if not key:
                        break
                    running[pool.submit(self._ask, client, question)] = key
                if not running:
                    return
                done, _ = wait(running, return_when=ANY)
                failed: BaseException | None = None
                for future in done:
                    key = running.pop(future)
                    failed = future.exception() or failed
                    if future.exception() is None:
                        yield key, future.result()
                if failed is not None:
                    # What is under way is paid for: it is kept.
                    for future, key in running.items():
                        if future.exception() is None:
                            yield key, future.result()
                    raise self._told(failed)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
            client.close()

    def _ask(self, client: Any, question: str) -> _Answer:
        response = client.chat.completions.create(
            model=self._name,
            messages=[{"role": "user", "content": question}],
            **self._settings,
        ).model_dump()
        usage = response.get("usage") or {}
        return _Answer(
            answer_text({"choices": response.get("choices") or []}),
            int(usage.get("prompt_tokens") or 0),
            int(usage.get("completion_tokens") or 0),
        )

    def _told(self, error: BaseException) -> BaseException:
        """Return what a user is told: never the key, which a server may repeat."""
        if not isinstance(error, self._failures):
            return error
        message = str(error)
        if self._key:
            message = message.replace(self._key, "…")
        told = invalid(
            "model",
            found=f"{type(error).__name__} from {self.path}: {message[:_SHOWN]}",
            expected="an answer to each question",
            fix="see to the server, the model's name and the key, and start again; with resume_dir "
            "only what has no answer yet is asked",
        )
        told.__suppress_context__ = True
        return told

    def _count(self, answer: _Answer, kind: str) -> None:
        self._counted[kind] += 1
        self._counted["tokens_in"] += answer.tokens_in
        self._counted["tokens_out"] += answer.tokens_out

    def _key_of(self, question: str, sample: int) -> str:
        assert self.identity is not None
        content = [self.identity.model, self._settings, question, sample, self._quotes]
        encoded = json.dumps(content, sort_keys=True, ensure_ascii=True)
        return hashlib.sha256(encoded.encode()).hexdigest()
