"""Importing the package, or the plugin as MLflow does, stays light."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = {"torch", "transformers", "matplotlib", "pyspark", "sklearn", "datasets"}


@pytest.mark.parametrize(
    "statement",
    [
        "import biasbios_mlflow",
        "import biasbios_mlflow.evaluator",
        "from biasbios_mlflow import swap_gender; swap_gender('he')",
        "from biasbios_mlflow import score",
        "import biasbios_mlflow.cli",
        "from mlflow.models.evaluation.evaluator_registry import _model_evaluation_registry as r;"
        "r._registry['biasbios']().can_evaluate(model_type='classifier', evaluator_config={})",
    ],
)
def test_loads_nothing_heavy(statement: str) -> None:
    if "registry" in statement:  # MLflow itself loads some of them with its own evaluators
        allowed = HEAVY - {"torch", "transformers", "pyspark", "datasets"}
    else:
        allowed = set()
    # Not what MLflow loads by itself, such as pyspark where it is installed.
    program = (
        f"import mlflow, sys\nbefore = set(sys.modules)\n{statement}\n"
        f"print(sorted({HEAVY!r} & (set(sys.modules) - before)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True
    )
    loaded = set(eval(done.stdout.strip().splitlines()[-1]))
    assert loaded <= allowed


def test_public_names_are_there() -> None:
    import biasbios_mlflow

    assert biasbios_mlflow.__all__ == sorted(biasbios_mlflow.__all__)
    for name in biasbios_mlflow.__all__:
        assert callable(getattr(biasbios_mlflow, name))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = biasbios_mlflow.nothing
