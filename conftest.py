"""For the tests and for the examples in docstrings: warnings are errors, but not MLflow's own."""

from __future__ import annotations

import warnings

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let pass the warnings that MLflow's own code causes."""
    warnings.filterwarnings("ignore", module=r"mlflow\b")
