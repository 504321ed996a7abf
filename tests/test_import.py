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


# Each in a process of its own that has imported nothing yet.
WITHOUT_MLFLOW = {
    "help": "from biasbios_mlflow.cli import main; main(['--help'], standalone_mode=False)",
    "version": "from biasbios_mlflow.cli import main; main(['--version'], standalone_mode=False)",
    "swap": "from biasbios_mlflow.cli import main;"
    "main(['swap', 'Her students love her.'], standalone_mode=False)",
    "score": "import biasbios_mlflow;"
    "biasbios_mlflow.score([0, 1, 0, 1], ['M', 'F'] * 2, [0, 1, 1, 1], [0, 0, 1, 1], min_cell=1)",
}
NOT_NEEDED = {*HEAVY, "mlflow", "scipy.stats", "faker"}


@pytest.mark.parametrize("what", WITHOUT_MLFLOW)
def test_starts_without_mlflow(what: str) -> None:
    program = f"""
import sys
{WITHOUT_MLFLOW[what]}
print("loaded:", *sorted(sys.modules))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    modules = set(done.stdout.rpartition("loaded:")[2].split())
    assert "biasbios_mlflow" in modules
    assert not modules & NOT_NEEDED
    if what != "score":  # which returns tables
        assert not modules & {"pandas", "pyarrow", "scipy"}


def test_an_error_loads_mlflow_when_it_is_raised() -> None:
    program = """
import sys
import biasbios_mlflow
try:
    biasbios_mlflow.swap_gender("he", scope="pronoun")
except Exception as error:
    assert type(error) is sys.modules["mlflow.exceptions"].MlflowException, type(error)
    assert error.error_code == "INVALID_PARAMETER_VALUE"
else:
    raise AssertionError("no error")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr


def test_readers_may_be_the_first_to_import_mlflow() -> None:
    program = """
import warnings
warnings.filterwarnings("error", message="Failure attempting to register")
from biasbios_mlflow import load_bios
from mlflow.data.dataset_source_registry import get_registered_sources
assert "ArtifactSource" in [source.__name__ for source in get_registered_sources()]
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr


def test_public_names_are_there() -> None:
    import biasbios_mlflow

    assert biasbios_mlflow.__all__ == sorted(biasbios_mlflow.__all__)
    for name in biasbios_mlflow.__all__:
        assert callable(getattr(biasbios_mlflow, name))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = biasbios_mlflow.nothing
