"""The alias survives what goes wrong: outages at every step, and eight gates at once."""

from __future__ import annotations

import json
import multiprocessing
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import mlflow
import pytest
import yaml

from biasbios_mlflow.gating import promotion
from tests.gating.conftest import Versions, alias, tags
from tests.program import Done, call_program

POLICY = {
    "evaluation": {"n_replicates": 300},
    "rules": [
        {"metric": "balanced_accuracy", "min": 0.3},
        {"metric": "prediction_consistency", "no_worse_than_champion": {"margin": 0.02}},
    ],
    "champion": "champion",
    "promote": "champion",
}


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    path = tmp_path / "gate.yaml"
    path.write_text(yaml.safe_dump(POLICY), "utf-8")
    return path


class Outage:
    """Passes requests on to a server until one comes that it waits for; from then on, none."""

    def __init__(self, server: str, moment: Callable[[str, str], bool]) -> None:
        self.struck = False
        outage = self

        class Forward(BaseHTTPRequestHandler):
            def answer(self) -> None:
                length = int(self.headers.get("Content-Length", 0))
                body = self.rfile.read(length)
                outage.struck = outage.struck or moment(self.path, body.decode("utf-8", "replace"))
                if outage.struck:
                    self.close_connection = True
                    return
                request = urllib.request.Request(
                    server + self.path,
                    data=body or None,
                    method=self.command,
                    headers={k: v for k, v in self.headers.items() if k.lower() != "host"},
                )
                try:
                    with urllib.request.urlopen(request, timeout=60) as response:
                        self.reply(response.status, response.headers, response.read())
                except urllib.error.HTTPError as error:
                    self.reply(error.code, error.headers, error.read())

            # The names are the protocol's.
            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer  # noqa: N815

            def reply(self, status: int, headers: Any, body: bytes) -> None:
                self.send_response(status)
                for key, value in headers.items():
                    if key.lower() not in {"transfer-encoding", "content-length", "connection"}:
                        self.send_header(key, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *arguments: Any) -> None:
                pass

        self._proxy = ThreadingHTTPServer(("127.0.0.1", 0), Forward)
        self.url = f"http://127.0.0.1:{self._proxy.server_address[1]}"
        threading.Thread(target=self._proxy.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._proxy.shutdown()
        self._proxy.server_close()


def call_gate(url: str, uri: str, data: Path, policy: Path) -> Done[str]:
    """Run a gate against a server, in this process."""
    mlflow.set_tracking_uri(url)
    options = ("--data", str(data), "--policy", str(policy), "--json")
    return call_program("gate", uri, *options)


MOMENTS: dict[str, Callable[[str, str], bool]] = {
    "evaluation": lambda path, body: path.endswith("runs/log-batch") and "gap_rms" in body,
    "tagging": lambda path, body: path.endswith("model-versions/set-tag"),
    "verdict": lambda path, body: '"biasbios.gate"' in body and "passed" in body,
    "promotion": lambda path, body: path.endswith("registered-models/alias") and '"2"' in body,
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_an_outage_leaves_the_old_champion_and_a_rerun_succeeds(
    moment: str,
    monkeypatch: pytest.MonkeyPatch,
    mlflow_server: str,
    policy: Path,
    bios_csv: Path,
    versions: Versions,
) -> None:
    name = versions("plain", "augmented")
    mlflow.MlflowClient().set_registered_model_alias(name, "champion", "1")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")
    # The rerun waits so long for the turn that the first gate could not give back.
    monkeypatch.setattr(promotion, "PATIENCE_SECONDS", 2.0)
    outage = Outage(mlflow_server, MOMENTS[moment])
    try:
        done = call_gate(outage.url, f"models:/{name}/2", bios_csv, policy)
    finally:
        outage.close()
        mlflow.set_tracking_uri(mlflow_server)
    assert outage.struck, done.stderr
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""

    assert alias(name) == "1"
    rerun = call_gate(mlflow_server, f"models:/{name}/2", bios_csv, policy)
    assert rerun.returncode == 0, rerun.stderr
    assert alias(name) == "2"
    assert tags(name, "2")["verdict"] == "passed"
    assert tags(name, "1")["replaced_by"] == "2"


def test_eight_gates_at_once(
    mlflow_server: str, policy: Path, bios_csv: Path, versions: Versions
) -> None:
    name = versions("plain", *["plain", "augmented"] * 4)
    mlflow.MlflowClient().set_registered_model_alias(name, "champion", "1")

    # Processes of their own, forked from one that has imported everything.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["mlflow.sklearn", "matplotlib.figure", __name__])
    numbers = [str(number) for number in range(2, 10)]
    with ProcessPoolExecutor(len(numbers), mp_context=context) as pool:
        started = {
            version: pool.submit(
                call_gate, mlflow_server, f"models:/{name}/{version}", bios_csv, policy
            )
            for version in numbers
        }
        gates = {version: gate.result(timeout=500) for version, gate in started.items()}

    promoted = []
    for version, done in gates.items():
        assert done.returncode in (0, 1), done.stderr
        printed = json.loads(done.stdout)
        told = tags(name, version)
        assert told["verdict"] == printed["verdict"]
        assert json.loads(told["evidence"])["run_id"] == printed["run_id"]
        assert (done.returncode == 0) == (printed["verdict"] == "passed") == printed["promoted"]
        if printed["promoted"]:
            promoted.append((version, printed["champion_version"]))
        else:
            assert "moved during the gate" in printed["reason"]

    # Whoever was promoted replaced just the version it was compared with: the promotions are one
    # chain from the old champion to the present one, without a fork.
    replaced = {old: new for new, old in promoted}
    assert len(replaced) == len(promoted) >= 1
    at = "1"
    for _ in promoted:
        at = replaced[at]
    assert alias(name) == at
    left = mlflow.MlflowClient().get_registered_model(name).tags
    assert list(left) == ["biasbios.gate.history.champion"]  # no turn is left
    assert json.loads(left["biasbios.gate.history.champion"])[-1] == at
