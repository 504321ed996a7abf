"""Importing the package, or the plugin as MLflow does, stays light."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = {"torch", "transformers", "matplotlib", "pyspark", "sklearn", "datasets"}
STATEMENTS = [
    "import biasbios_mlflow",
    "import biasbios_mlflow.evaluator",
    "from biasbios_mlflow import swap_gender; swap_gender('he')",
    "from biasbios_mlflow import score",
    "import biasbios_mlflow.cli",
    "from mlflow.models.evaluation.evaluator_registry import _model_evaluation_registry as r;"
    "r._registry['biasbios']().can_evaluate(model_type='classifier', evaluator_config={})",
]

# What a statement loads beside what MLflow loads by itself, such as pyspark where it is installed:
# each in a process of its own, forked from one that has imported MLflow.
PROGRAM = """
import json, os, sys
import mlflow
before = set(sys.modules)
for statement in json.loads(sys.argv[1]):
    child = os.fork()
    if child == 0:
        exec(statement)
        print(json.dumps([statement, sorted(set(sys.modules) - before)]), flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, statement
"""


@pytest.fixture(scope="module")
def loaded() -> dict[str, set[str]]:
    """By statement: the modules that it loads."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(STATEMENTS)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("[")]
    return {statement: set(names) for statement, names in map(json.loads, lines)}


@pytest.mark.parametrize("statement", STATEMENTS)
def test_loads_nothing_heavy(statement: str, loaded: dict[str, set[str]]) -> None:
    if "registry" in statement:  # MLflow itself loads some of them with its own evaluators
        allowed = HEAVY - {"torch", "transformers", "pyspark", "datasets"}
    else:
        allowed = set()
    assert loaded[statement] & HEAVY <= allowed


def test_public_names_are_there() -> None:
    import biasbios_mlflow

    assert biasbios_mlflow.__all__ == sorted(biasbios_mlflow.__all__)
    for name in biasbios_mlflow.__all__:
        assert callable(getattr(biasbios_mlflow, name))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = biasbios_mlflow.nothing
