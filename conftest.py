"""For the tests and for the examples in docstrings: warnings are errors, but not MLflow's own."""

from __future__ import annotations

import importlib.util
import os
import sys
import warnings

import pytest

# Workers, and whatever else the machine does, share the cores: threads that solve a small problem
# together wait for one another most of the time (12 s instead of 1 s for the tests' classifier).
for _library in ("OMP", "OPENBLAS", "MKL"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")

# Tests tell nobody of them. (Its thread changes the environment while others read it, too.)
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")

# Modules that import torch at once; everything else asks for it only when it is needed.
collect_ignore = (
    []
    if importlib.util.find_spec("torch")
    else ["biasbios_mlflow/prediction/tokens.py", "biasbios_mlflow/training/network.py"]
)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let pass the warnings that MLflow's own code causes."""
    warnings.filterwarnings("ignore", module=r"mlflow\b")


def pytest_configure(config: pytest.Config) -> None:
    """Keep pyspark from ending a worker of pytest-xdist.

    Its Connect client, which MLflow imports to know its data frames, takes a main module without a
    file for its own doctests and exits; it lets interactive sessions be.
    """
    if hasattr(config, "workerinput"):
        sys.ps1 = ""
