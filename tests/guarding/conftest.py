"""A real MLflow server that sends real webhooks, guards to receive them, and models to guard."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import mlflow
import pandas as pd
import pytest
import uvicorn
import yaml
from cryptography.fernet import Fernet
from mlflow import MlflowClient
from sklearn.pipeline import Pipeline

import biasbios_mlflow
from biasbios_mlflow.guarding.app import create_app
from biasbios_mlflow.guarding.config import DEFAULT_SECRET_ENV, GuardConfig
from biasbios_mlflow.guarding.process import GATE_COMMAND
from biasbios_mlflow.guarding.service import Guard
from tests.conftest import Server, register

SECRET = "not a word of any dictionary"

WEBHOOKS = {
    "MLFLOW_WEBHOOK_ALLOWED_SCHEMES": "http,https",
    "MLFLOW_WEBHOOK_ALLOW_PRIVATE_IPS": "true",
    "MLFLOW_WEBHOOK_CACHE_TTL": "1",
}

# A second or two where the machine has time: tests share theirs with others.
SOON = 20.0

EASY = {"rules": [{"metric": "bios", "min": 1, "bound": "point"}], "promote": "champion"}
HARD = {"rules": [{"metric": "bios", "min": 10**9, "bound": "point"}], "promote": "champion"}


@pytest.fixture(scope="package")
def hooked_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """An MLflow server whose webhooks reach this machine."""
    server = Server(tmp_path_factory.mktemp("hooked"))
    key = {"MLFLOW_WEBHOOK_SECRET_ENCRYPTION_KEY": Fernet.generate_key().decode()}
    with patch.dict(os.environ, {**WEBHOOKS, **key}):
        try:
            server.start()
            yield server
        finally:
            server.stop()


@pytest.fixture
def tracking(hooked_server: Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[MlflowClient]:
    """Client of that server, which is the tracking server during the test."""
    for name, value in {
        **WEBHOOKS,
        "MLFLOW_TRACKING_URI": hooked_server.url,
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
        DEFAULT_SECRET_ENV: SECRET,
    }.items():
        monkeypatch.setenv(name, value)
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(hooked_server.url)
    yield MlflowClient()
    mlflow.set_tracking_uri(before)


@pytest.fixture(scope="package")
def port() -> int:
    """Where every guard of the tests listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="package")
def model_source(hooked_server: Server, classifier: Pipeline) -> str:
    """The URI of a logged model, of which a new version takes no time."""
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(hooked_server.url)
    try:
        first = register(classifier, "source")
    finally:
        mlflow.set_tracking_uri(before)
    return f"models:/{first.model_id}"


class Model:
    """A registered model, whose versions are all one and the same classifier."""

    def __init__(self, client: MlflowClient, source: str, bios: pd.DataFrame) -> None:
        self.name = f"guarded-{uuid.uuid4().hex[:8]}"
        self._client, self._source, self._bios = client, source, bios
        client.create_registered_model(self.name)

    def version(self, kind: str = "new") -> str:
        """Add a version that is new, or has passed or failed a real gate."""
        made = self._client.create_model_version(
            self.name, self._source, model_id=self._source.removeprefix("models:/")
        )
        uri = f"models:/{self.name}/{made.version}"
        if kind != "new":
            policy = {"passed": EASY, "failed": HARD}[kind]
            result = biasbios_mlflow.gate(uri, self._bios, {**policy, "promote": None})
            assert result.verdict == kind
        return str(made.version)

    def point(self, alias: str, version: str) -> None:
        self._client.set_registered_model_alias(self.name, alias, version)

    def alias(self, alias: str = "champion") -> str | None:
        found = self._client.get_registered_model(self.name).aliases.get(alias)
        return None if found is None else str(found)

    def tags(self, version: str) -> dict[str, str]:
        return dict(self._client.get_model_version(self.name, version).tags)

    def verdict(self, version: str) -> str | None:
        return self.tags(version).get("biasbios.gate")


@pytest.fixture
def model(tracking: MlflowClient, model_source: str, bios: pd.DataFrame) -> Model:
    return Model(tracking, model_source, bios)


@pytest.fixture
def other_model(tracking: MlflowClient, model_source: str, bios: pd.DataFrame) -> Model:
    return Model(tracking, model_source, bios)


class Guarding:
    """A guard that receives webhooks, as seen from outside."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"

    def status(self) -> dict[str, Any]:
        with urllib.request.urlopen(f"{self.url}/status", timeout=10) as response:
            found: dict[str, Any] = json.load(response)
        return found

    def is_up(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=2) as response:
                return bool(response.status == 200)
        except OSError:
            return False


def until(condition: Callable[[], Any], seconds: float = 120.0) -> Any:
    """Wait for a condition, return what it came to, and fail when time is up."""
    deadline = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < deadline, f"not within {seconds:g} s"
        time.sleep(0.1)


class TinyGate:
    """A command that stands in for a gate, and what it wrote down."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "gates.log"

    def command(self, seconds: float = 0.0) -> tuple[str, ...]:
        program = str(Path(__file__).with_name("tiny_gate.py"))
        return (sys.executable, "-IS", program, str(self.log), str(seconds))

    def noted(self, model: Model | None = None) -> list[tuple[str, str, str, float]]:
        """Return (model, version, "begin" or "end", time), in order."""
        lines = self.log.read_text("utf-8").splitlines() if self.log.exists() else []
        noted = [tuple(json.loads(line)) for line in lines]
        return [entry for entry in noted if model is None or entry[0] == model.name]

    def ended(self, model: Model) -> list[str]:
        """Return the versions that were gated, in order."""
        return [version for _, version, what, _ in self.noted(model) if what == "end"]


@pytest.fixture
def tiny_gate(tmp_path: Path) -> TinyGate:
    return TinyGate(tmp_path)


Configure = Callable[..., Path]


@pytest.fixture
def configure(tmp_path: Path, bios_csv: Path) -> Configure:
    """Write a guard.yaml for models, a policy beside it, and return its path."""

    def write(*models: Model, policy: dict[str, Any] = EASY, **options: Any) -> Path:
        (tmp_path / "gate.yaml").write_text(yaml.safe_dump(policy), "utf-8")
        top = {k: options.pop(k) for k in list(options) if k in GuardConfig.model_fields}
        each = {"policy": "gate.yaml", "data": bios_csv.name, "protect": ["champion"], **options}
        content = {"reconcile_seconds": 600, **top, "models": {m.name: each for m in models}}
        path = tmp_path / "guard.yaml"
        path.write_text(yaml.safe_dump(content), "utf-8")
        return path

    return write


@pytest.fixture
def webhook(port: int, tracking: MlflowClient) -> str:
    """Have the server send to the guards of the tests; return the URL it sends to."""
    from tests.program import call_program

    done = call_program("guard", "--register", f"http://127.0.0.1:{port}", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    if told["created"]:
        time.sleep(1.1)  # the server keeps its list of webhooks for so long
    return str(told["url"])


GuardHere = Callable[..., Any]


@pytest.fixture
def guard_here(port: int, webhook: str) -> GuardHere:
    """Run a guard in threads of this process: its HTTP server, queues and workers."""

    @contextmanager
    def run(path: Path, command: Sequence[str] = GATE_COMMAND) -> Iterator[Guarding]:
        app = create_app(Guard(GuardConfig.read(path), command=command), secret=SECRET)
        server = uvicorn.Server(
            uvicorn.Config(app, host="127.0.0.1", port=port, log_config=None, log_level="warning")
        )
        thread = threading.Thread(target=server.run)
        thread.start()
        try:
            until(lambda: server.started or not thread.is_alive(), 30)
            assert server.started
            yield Guarding(port)
        finally:
            server.should_exit = True
            thread.join(120)
            assert not thread.is_alive()

    return run


class GuardProcess(Guarding):
    """``biasbios guard`` as it is run; with another command than the gate's, `serve` itself."""

    def __init__(self, path: Path, port: int, command: Sequence[str] = ()) -> None:
        super().__init__(port)
        self.log = path.with_name("guard.log")
        program = ["-m", "biasbios_mlflow", "guard", "--config", str(path), "--port", str(port)]
        if command:
            program = [
                "-c",
                "from biasbios_mlflow.guarding.app import serve\n"
                "from biasbios_mlflow.guarding.config import GuardConfig\n"
                f"config = GuardConfig.read({str(path)!r})\n"
                f"serve(config, secret={SECRET!r}, port={port}, command={list(command)!r})",
            ]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, *program], stdout=log, stderr=subprocess.STDOUT
            )
        until(lambda: self.process.poll() is not None or self.is_up())
        assert self.process.poll() is None, self.log.read_text("utf-8")

    def end(self, how: signal.Signals) -> int:
        self.process.send_signal(how)
        return self.process.wait(timeout=60)


StartGuard = Callable[..., GuardProcess]


@pytest.fixture
def guard_process(port: int, webhook: str) -> Iterator[StartGuard]:
    """Run guards in processes of their own, which end with the test."""
    started: list[GuardProcess] = []

    def start(path: Path, command: Sequence[str] = ()) -> GuardProcess:
        started.append(GuardProcess(path, port, command))
        return started[-1]

    yield start
    for guard in started:
        if guard.process.poll() is None:
            guard.end(signal.SIGKILL)
