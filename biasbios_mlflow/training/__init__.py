"""Train the classifiers that the paper compares, and compare them."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from biasbios_mlflow.training.benchmarking import BenchmarkResult, benchmark
    from biasbios_mlflow.training.classifiers import TrainedModel, train
    from biasbios_mlflow.training.methods import METHODS, Settings

__all__ = ["METHODS", "BenchmarkResult", "Settings", "TrainedModel", "benchmark", "train"]

# Loaded on first use: the command line needs the settings alone.
_HOMES = {
    "METHODS": "methods",
    "BenchmarkResult": "benchmarking",
    "Settings": "methods",
    "TrainedModel": "classifiers",
    "benchmark": "benchmarking",
    "train": "classifiers",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
