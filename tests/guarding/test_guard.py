"""The guard as it is run: real server, real webhooks, real gates, kills and outages."""

from __future__ import annotations

import itertools
import os
import signal
import socket
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import mlflow
import pandas as pd
import pytest
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from biasbios_mlflow.guarding.registry import is_outage
from tests.conftest import Server
from tests.guarding.conftest import (
    SOON,
    Configure,
    GuardHere,
    Model,
    StartGuard,
    TinyGate,
    until,
)


@pytest.mark.slow
def test_from_registration_to_promotion_and_back(
    model: Model, configure: Configure, guard_process: StartGuard
) -> None:
    never = model.version()
    guard = guard_process(configure(model, from_version=2))
    first = model.version()
    until(lambda: model.alias() == first)
    assert model.verdict(first) == "passed"
    until(lambda: guard.status()["models"][model.name]["protect"] == {"champion": first})

    model.point("champion", never)
    until(lambda: model.alias() == first, seconds=SOON)
    assert "champion" in model.tags(never)["biasbios.guard"]
    assert guard.end(signal.SIGTERM) == 0


@pytest.mark.slow
def test_a_model_that_crashes_the_interpreter(
    model: Model, configure: Configure, guard_here: GuardHere, bios: pd.DataFrame
) -> None:
    class Crashes(mlflow.pyfunc.PythonModel):
        def predict(self, context, model_input, params=None):  # type: ignore[no-untyped-def]
            import ctypes

            return ctypes.string_at(0)

    with guard_here(configure(model)) as guard:
        with mlflow.start_run():
            mlflow.pyfunc.log_model(
                name="model",
                python_model=Crashes(),
                registered_model_name=model.name,
                pip_requirements=[],
                signature=mlflow.models.infer_signature(bios[["hard_text"]], ["nurse"]),
            )
        until(lambda: model.verdict("1") == "error")
        reason = model.tags("1")["biasbios.gate.reason"]
        assert "SIGSEGV" in reason
        assert "string_at" in reason  # where it was when it ended
        until(lambda: guard.status()["models"][model.name]["done"] == 1)
        assert guard.status()["healthy"]
        assert model.alias() is None


@pytest.mark.parametrize(
    ("program", "says"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL, most likely because"),
        ("print('half done'); raise SystemExit(0)", "half done"),
        ("raise SystemExit(2)", "code 2 and without a verdict"),
        ("import time; time.sleep(600)", "too long"),
    ],
)
def test_a_gate_that_leaves_no_verdict(
    program: str, says: str, model: Model, configure: Configure, guard_here: GuardHere
) -> None:
    version = model.version()
    path = configure(model, timeout_minutes=0.05)
    with guard_here(path, (sys.executable, "-ISc", program)) as guard:
        until(lambda: guard.status()["models"][model.name]["done"] == 1)
        assert model.verdict(version) == "error"
        assert says in model.tags(version)["biasbios.gate.reason"]
        assert guard.status()["healthy"]


def test_the_error_of_an_outage_is_no_verdict(
    model: Model, configure: Configure, guard_here: GuardHere, tmp_path: Path
) -> None:
    """A gate that loses the server may find it again in time to write that it broke."""
    version = model.version()
    program = tmp_path / "twice.py"
    program.write_text(
        "import json, os, pathlib, sys, urllib.request\n"
        "again = pathlib.Path(__file__).with_name('began')\n"
        "value, code = ('failed', 1) if again.exists() else ('error', 75)\n"
        "again.touch()\n"
        "name, number = json.loads(sys.argv[1])['model_uri'].split(':/')[1].split('/')\n"
        "tag = {'name': name, 'version': number, 'key': 'biasbios.gate', 'value': value}\n"
        "url = os.environ['MLFLOW_TRACKING_URI'] + '/api/2.0/mlflow/model-versions/set-tag'\n"
        "head = {'Content-Type': 'application/json'}\n"
        "sent = urllib.request.Request(url, json.dumps(tag).encode(), head)\n"
        "urllib.request.urlopen(sent).close()\n"
        "sys.exit(code)\n",
        "utf-8",
    )
    with guard_here(configure(model), (sys.executable, "-IS", str(program))) as guard:
        until(lambda: guard.status()["models"][model.name]["done"] == 1)
    assert model.verdict(version) == "failed"


def answer_once(answer: bytes) -> str:
    """Serve one answer and go away; return where."""
    listening = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with listening:
            connection, _ = listening.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answer)

    threading.Thread(target=serve, daemon=True).start()
    return f"http://127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.parametrize(
    ("answer", "outage"),
    [
        (b"", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n{", True),
        (b"HTTP/1.1 503 Gone for lunch\r\nContent-Length: 0\r\n\r\n", True),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\n{}", False),
    ],
)
def test_what_an_outage_is(answer: bytes, outage: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    url = answer_once(answer)
    with pytest.raises(MlflowException) as raised:
        MlflowClient(url, url).get_registered_model("any")
    assert is_outage(raised.value) == outage


def test_what_is_gated(
    tracking: MlflowClient,
    model: Model,
    configure: Configure,
    guard_here: GuardHere,
    tiny_gate: TinyGate,
) -> None:
    """Every version once; again when its verdict was taken off; none before ``from_version``."""
    for _ in range(3):
        model.version()
    with guard_here(configure(model, from_version=2), tiny_gate.command()) as guard:
        until(lambda: tiny_gate.ended(model) == ["2", "3"])
        model.version()
        until(lambda: tiny_gate.ended(model) == ["2", "3", "4"])
        until(lambda: guard.status()["models"][model.name]["done"] == 3)
        tracking.delete_model_version_tag(model.name, "2", "biasbios.gate")
        until(lambda: tiny_gate.ended(model) == ["2", "3", "4", "2"])
    assert model.verdict("1") is None


def test_gating_what_an_alias_is_set_to(
    model: Model, configure: Configure, guard_here: GuardHere, tiny_gate: TinyGate
) -> None:
    versions = [model.version() for _ in range(3)]
    with guard_here(configure(model, gate_on="alias:candidate"), tiny_gate.command()):
        for version in (versions[1], versions[0], versions[1]):
            model.point("candidate", version)
            until(lambda: model.verdict(version) == "failed")  # noqa: B023
    assert tiny_gate.ended(model) == [versions[1], versions[0]]
    assert model.verdict(versions[2]) is None


def test_a_running_gate_is_finished_before_the_end(
    model: Model, configure: Configure, guard_here: GuardHere, tiny_gate: TinyGate
) -> None:
    versions = [model.version(), model.version()]
    with guard_here(configure(model), tiny_gate.command(seconds=1.5)) as guard:
        until(lambda: guard.status()["models"][model.name]["running"])
    assert tiny_gate.ended(model) == versions[:1]
    assert [model.verdict(version) for version in versions] == ["failed", None]


@pytest.mark.slow
def test_killed_in_the_middle_of_a_gate(
    model: Model, configure: Configure, guard_process: StartGuard, tiny_gate: TinyGate
) -> None:
    passed = model.version("passed")
    model.point("champion", passed)
    path = configure(model)
    guard = guard_process(path, tiny_gate.command(seconds=60))
    until(lambda: guard.status()["models"][model.name]["protect"] == {"champion": passed})
    first = model.version()
    until(lambda: tiny_gate.noted(model))
    guard.end(signal.SIGKILL)

    # Four versions and an alias that nobody hears of.
    missed = [model.version() for _ in range(4)]
    model.point("champion", missed[0])

    guard = guard_process(path, tiny_gate.command())
    until(lambda: guard.status()["models"][model.name]["done"] == 5)
    assert tiny_gate.ended(model) == [first, *missed]
    # The gate of the first guard went with it, or it would have ended a second time.
    assert [what for _, version, what, _ in tiny_gate.noted(model) if version == first] == [
        "begin",
        "begin",
        "end",
    ]
    assert model.alias() == passed
    assert guard.end(signal.SIGTERM) == 0


@pytest.mark.slow
def test_the_server_is_gone_for_a_while(
    hooked_server: Server,
    model: Model,
    configure: Configure,
    guard_here: GuardHere,
    tiny_gate: TinyGate,
) -> None:
    passed = model.version("passed")
    model.point("champion", passed)
    path = configure(model, reconcile_seconds=1)
    with guard_here(path, tiny_gate.command(seconds=1)) as guard:
        until(lambda: guard.status()["models"][model.name]["protect"] == {"champion": passed})
        # Its event dies with the server, or its verdict has nowhere to go.
        version = model.version()
        hooked_server.stop()
        until(lambda: guard.status()["models"][model.name]["error"])
        time.sleep(2)
        hooked_server.start()
        until(lambda: model.verdict(version) == "failed")
        until(lambda: guard.status()["models"][model.name]["error"] is None)
        until(lambda: guard.status()["models"][model.name]["done"] == 1)
        # At most: a server that dies in its answer has the verdict, and the gate does not know.
        assert tiny_gate.ended(model) in ([version], [])
        assert model.alias() == passed
        assert "biasbios.guard" not in model.tags(passed)
        assert guard.status()["healthy"]


@pytest.mark.slow
def test_two_hundred_versions_at_once(
    tracking: MlflowClient,
    model_source: str,
    bios: pd.DataFrame,
    configure: Configure,
    guard_here: GuardHere,
    tiny_gate: TinyGate,
) -> None:
    models = [Model(tracking, model_source, bios) for _ in range(5)]
    path = configure(*models, workers=3)
    with guard_here(path, tiny_gate.command()) as guard, ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: models[number % 5].version(), range(200)))
        took = []
        deadline = time.monotonic() + 300
        while any(told["done"] < 40 for told in guard.status()["models"].values()):
            begun = time.perf_counter()
            guard.status()
            took.append(time.perf_counter() - begun)
            assert time.monotonic() < deadline
            time.sleep(0.5)
    everything = sorted(str(number) for number in range(1, 41))
    for model in models:
        noted = tiny_gate.noted(model)
        # One at a time: begin, end, begin, end, each pair of one version.
        assert [what for _, _, what, _ in noted] == ["begin", "end"] * 40
        assert all(a[1] == b[1] for a, b in zip(noted[::2], noted[1::2], strict=True))
        assert sorted(tiny_gate.ended(model)) == everything
    # Models did not wait for one another.
    order = [name for name, _, what, _ in tiny_gate.noted() if what == "begin"]
    assert len(list(itertools.groupby(order))) > 10
    assert sorted(took)[len(took) // 2] < 0.1
    assert os.path.getsize(path.with_name("guard.db")) < 10_000_000
