"""The alias survives what goes wrong: outages at every step, and eight gates at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import mlflow
import pytest
import yaml
from sklearn.pipeline import Pipeline

from tests.conftest import Server, register
from tests.gating.conftest import alias, tags

POLICY = {
    "rules": [
        {"metric": "balanced_accuracy", "min": 0.3},
        {"metric": "prediction_consistency", "no_worse_than_champion": {"margin": 0.02}},
    ],
    "champion": "champion",
    "promote": "champion",
}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A server of the test's own, which it may stop."""
    session = mlflow.get_tracking_uri()
    own = Server(tmp_path)
    own.start()
    mlflow.set_tracking_uri(own.url)
    try:
        yield own
    finally:
        own.stop()
        mlflow.set_tracking_uri(session)


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    path = tmp_path / "gate.yaml"
    path.write_text(yaml.safe_dump(POLICY), "utf-8")
    return path


class Outage:
    """Passes requests on to a server, and stops it for good when one comes that it waits for."""

    def __init__(self, server: Server, moment: Callable[[str, str], bool]) -> None:
        self.struck = False
        outage = self

        class Forward(BaseHTTPRequestHandler):
            def answer(self) -> None:
                length = int(self.headers.get("Content-Length", 0))
                body = self.rfile.read(length)
                if not outage.struck and moment(self.path, body.decode("utf-8", "replace")):
                    outage.struck = True
                    server.stop()
                request = urllib.request.Request(
                    server.url + self.path,
                    data=body or None,
                    method=self.command,
                    headers={k: v for k, v in self.headers.items() if k.lower() != "host"},
                )
                try:
                    with urllib.request.urlopen(request, timeout=60) as response:
                        self.reply(response.status, response.headers, response.read())
                except urllib.error.HTTPError as error:
                    self.reply(error.code, error.headers, error.read())
                except OSError:
                    self.close_connection = True

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


def start_gate(url: str, uri: str, data: Path, policy: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "biasbios_mlflow", "gate", uri, "--data", str(data)),
            *("--policy", str(policy), "--n-replicates", "300", "--json"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={
            **os.environ,
            "MLFLOW_TRACKING_URI": url,
            "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
            "OMP_NUM_THREADS": "1",
        },
    )


MOMENTS: dict[str, Callable[[str, str], bool]] = {
    "evaluation": lambda path, body: path.endswith("runs/log-batch") and "gap_rms" in body,
    "tagging": lambda path, body: path.endswith("model-versions/set-tag"),
    "verdict": lambda path, body: '"biasbios.gate"' in body and "passed" in body,
    "promotion": lambda path, body: path.endswith("registered-models/alias") and '"2"' in body,
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_an_outage_leaves_the_old_champion_and_a_rerun_succeeds(
    moment: str,
    server: Server,
    policy: Path,
    bios_csv: Path,
    classifier: Pipeline,
    augmented: Pipeline,
) -> None:
    register(classifier, "gated")
    register(augmented, "gated")
    mlflow.MlflowClient().set_registered_model_alias("gated", "champion", "1")
    outage = Outage(server, MOMENTS[moment])
    try:
        process = start_gate(outage.url, "models:/gated/2", bios_csv, policy)
        out, err = process.communicate(timeout=300)
    finally:
        outage.close()
    assert outage.struck, err
    assert process.returncode == 2, err
    assert out == ""

    server.start()
    assert alias("gated") == "1"
    rerun = start_gate(server.url, "models:/gated/2", bios_csv, policy)
    out, err = rerun.communicate(timeout=300)
    assert rerun.returncode == 0, err
    assert alias("gated") == "2"
    assert tags("gated", "2")["verdict"] == "passed"
    assert tags("gated", "1")["replaced_by"] == "2"


def test_eight_gates_at_once(
    server: Server, policy: Path, bios_csv: Path, classifier: Pipeline, augmented: Pipeline
) -> None:
    register(classifier, "gated")
    for number in range(8):
        register(augmented if number % 2 else classifier, "gated")
    mlflow.MlflowClient().set_registered_model_alias("gated", "champion", "1")

    gates = {
        version: start_gate(server.url, f"models:/gated/{version}", bios_csv, policy)
        for version in map(str, range(2, 10))
    }
    ends = {version: process.communicate(timeout=500) for version, process in gates.items()}

    promoted = []
    for version, process in gates.items():
        out, err = ends[version]
        assert process.returncode in (0, 1), err
        printed = json.loads(out)
        told = tags("gated", version)
        assert told["verdict"] == printed["verdict"]
        assert told["run_id"] == printed["run_id"]
        assert (process.returncode == 0) == (printed["verdict"] == "passed") == printed["promoted"]
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
    assert alias("gated") == at
    assert mlflow.MlflowClient().get_registered_model("gated").tags == {}
