"""``mlflow run .``: the project's entry points, in the environment at hand."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import mlflow

from tests.conftest import Registered

ROOT = Path(__file__).parents[2]


def mlflow_run(*arguments: str) -> subprocess.CompletedProcess[str]:
    # The project's commands say `python`: that of the environment under test.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return subprocess.run(
        [sys.executable, "-m", "mlflow", "run", str(ROOT), "--env-manager", "local", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "PATH": path},
    )


def run_ids() -> set[str]:
    return {run.info.run_id for run in mlflow.search_runs(output_format="list")}


def test_train_then_evaluate(mlflow_server: str, bios_csv: Path) -> None:
    done = mlflow_run(
        *("-e", "train", "-P", f"data={bios_csv}", "-P", "split="),
        *("-P", "register=trained-by-project"),
    )
    assert done.returncode == 0, done.stderr
    before = run_ids()

    done = mlflow_run(
        *("-e", "evaluate", "-P", "model_uri=models:/trained-by-project/1"),
        *("-P", f"data={bios_csv}", "-P", "split=", "-P", "min_cell=2"),
    )

    assert done.returncode == 0, done.stderr
    assert "balanced_accuracy" in done.stdout
    new = run_ids() - before
    assert len(new) == 1, "the project's own run is the one that is logged to"
    metrics = mlflow.get_run(new.pop()).data.metrics
    assert {"biasbios/gap_rms", "biasbios/ctf"} <= set(metrics)


def test_a_failure_is_a_failure(registered: Registered) -> None:
    done = mlflow_run("-e", "evaluate", "-P", "model_uri=models:/nowhere/1")
    assert done.returncode != 0
    assert "nowhere" in done.stderr
