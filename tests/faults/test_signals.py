"""Programs that are ended in the middle: the alias is right, and everything is put away."""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import uuid
from pathlib import Path

import mlflow
import pytest

from biasbios_mlflow import temporary
from biasbios_mlflow.gating import promotion
from tests.faults.conftest import make_versions
from tests.faults.proxy import Fault, Proxy
from tests.gating.conftest import alias, tags
from tests.gating.test_safety import call_gate
from tests.program import call_program

MOMENTS = int(os.environ.get("BIASBIOS_FAULTS_MOMENTS", "1"))
"""For each signal; docs/security.md says what came of many."""


def _program(arguments: tuple[str, ...], url: str, temporary_: str, experiment: str) -> None:
    """Run in a process of its own, forked from one that has imported everything."""
    os.setsid()
    tempfile.tempdir = temporary_
    mlflow.set_tracking_uri(url)
    mlflow.set_experiment(experiment)
    done = call_program(*arguments)
    Path(temporary_, "done").write_text(f"{done.returncode}\n{done.stderr}")


def end_at(
    server: str, request: int, how: signal.Signals, arguments: tuple[str, ...], folder: Path
) -> tuple[int, str, str, Proxy]:
    """Run a program, and send it a signal while it waits for the answer to a request."""
    experiment = f"ended-{uuid.uuid4().hex[:8]}"
    folder.mkdir()
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["mlflow.sklearn", "matplotlib.figure", __name__])
    started: list[int] = []

    def strike(number: int) -> Fault | None:
        if number == request:
            os.kill(started[0], how)
        return None

    proxy = Proxy(server, strike)
    process = context.Process(target=_program, args=(arguments, proxy.url, str(folder), experiment))
    process.start()
    assert process.pid is not None
    started.append(process.pid)
    process.join(120)
    assert process.exitcode is not None
    proxy.close()
    said = folder / "done"
    told = said.read_text() if said.exists() else ""
    said.unlink(missing_ok=True)
    code = int(told.split("\n")[0]) if told else process.exitcode
    return code, told, experiment, proxy


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_gate_that_is_ended(
    how: signal.Signals,
    mlflow_server: str,
    source: str,
    few_csv: Path,
    policy: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(promotion, "PATIENCE_SECONDS", 1.0)
    client = mlflow.MlflowClient()
    for turn in range(MOMENTS):
        name = f"ended-{uuid.uuid4().hex[:8]}"
        make_versions(source, name)
        uri = f"models:/{name}/2"
        request = 12 + (how + 37 * turn * 2 // MOMENTS) % 120 if turn else 70 + how
        arguments = ("gate", uri, "--data", str(few_csv), "--policy", str(policy))
        folder = tmp_path / f"t{turn}"
        code, told, experiment, proxy = end_at(mlflow_server, request, how, arguments, folder)
        ended = f"{how.name} at request {request} of {len(proxy.asked)}: {code}: {told}"
        print(ended.split("\n")[0])
        assert len(proxy.asked) >= request, ended

        # The alias follows the verdict.
        target, verdict = alias(name), tags(name, "2").get("verdict")
        assert (target, verdict) == ("2", "passed") or target == "1", ended
        left = client.get_registered_model(name).tags
        found = client.get_experiment_by_name(experiment)
        runs = client.search_runs([found.experiment_id]) if found is not None else []
        if how is signal.SIGKILL:
            assert code == -signal.SIGKILL, ended
            # What it left goes with the next process, and a turn when patience ends.
            with monkeypatch.context() as patch:
                patch.setattr("tempfile.tempdir", str(folder))
                temporary.remove_abandoned()
            assert call_gate(mlflow_server, uri, few_csv, policy).returncode == 0
            assert alias(name) == "2"
            left = client.get_registered_model(name).tags
        else:
            assert code == 2, ended
            assert f"ended by {how.name}" in told, ended
            assert {run.info.status for run in runs} <= {"FAILED", "FINISHED"}, ended
        assert not [tag for tag in left if tag.startswith("biasbios.gate.turn")], ended
        # Folders of MLflow's own are its own; of ours there is nothing left but the lock, which
        # goes where a process ends by itself.
        ours = [path for path in folder.glob("biasbios-*/**/*") if path.is_file()]
        assert [path for path in ours if path.name != ".lock"] == [], ended


def test_signals_are_left_as_they_were() -> None:
    before = [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)]
    assert call_program("swap", "She heals.").returncode == 0
    assert [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)] == before


class TestTemporaryFolders:
    def test_those_of_living_processes_stay(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        folder = temporary.make_folder()
        foreign = tmp_path / "biasbios-of-somebody"
        foreign.mkdir()
        (tmp_path / "biasbios-link").symlink_to(foreign)
        assert folder.stat().st_mode & 0o077 == 0
        child = os.fork()
        if child == 0:
            own = temporary.make_folder()
            os._exit(0 if own.parent != folder.parent and folder.is_dir() else 1)
        assert os.waitpid(child, 0)[1] == 0
        removed = temporary.remove_abandoned()
        assert len(removed) == 1  # the child's
        assert folder.is_dir()
        assert foreign.is_dir()
        assert temporary.remove_abandoned() == []
