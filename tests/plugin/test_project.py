"""The project's entry points, in the environment at hand.

``mlflow run`` itself takes seconds to import MLflow; where its exit code is not the point, the
function behind it is called here, which starts the same program.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import mlflow
import pytest

from tests.conftest import Registered

ROOT = Path(__file__).parents[2]


def _path() -> dict[str, str]:
    # The project's commands say `python`: that of the environment under test.
    return {"PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])}


def run_project(entry_point: str, **parameters: object) -> str:
    """Do what ``mlflow run . -e entry_point`` does; returns the id of its run."""
    with patch.dict(os.environ, _path()):
        done = mlflow.projects.run(
            str(ROOT), entry_point, parameters=parameters, env_manager="local"
        )
    assert done.get_status() == "FINISHED"
    return str(done.run_id)


def mlflow_run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mlflow", "run", str(ROOT), "--env-manager", "local", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, **_path()},
    )


def run_ids() -> set[str]:
    return {run.info.run_id for run in mlflow.search_runs(output_format="list")}


def test_train_then_evaluate(
    mlflow_server: str, bios_csv: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run_project("train", data=bios_csv, split="", register="trained-by-project")
    before = run_ids()
    capfd.readouterr()

    run_id = run_project(
        "evaluate", model_uri="models:/trained-by-project/1", data=bios_csv, split="", min_cell=2
    )

    assert "balanced_accuracy" in capfd.readouterr().out
    new = run_ids() - before
    assert new == {run_id}, "the project's own run is the one that is logged to"
    metrics = mlflow.get_run(run_id).data.metrics
    assert {"biasbios/gap_rms", "biasbios/ctf"} <= set(metrics)


def test_a_failure_is_a_failure(registered: Registered) -> None:
    done = mlflow_run("-e", "evaluate", "-P", "model_uri=models:/nowhere/1")
    assert done.returncode != 0
    assert "nowhere" in done.stderr
