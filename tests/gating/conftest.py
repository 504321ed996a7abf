"""Versions to gate: a plain classifier and a counterfactually augmented one."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import mlflow
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.pipeline import Pipeline

from biasbios_mlflow import swap_gender
from tests.conftest import few_training_bios, register


@pytest.fixture(scope="session")
def augmented(classifier: Pipeline) -> Pipeline:
    """The same kind of classifier, trained on every bio and its swapped copy."""
    train = few_training_bios()
    texts = list(train["hard_text"])
    both = pd.DataFrame({"hard_text": texts + swap_gender(texts)})
    return clone(classifier).fit(both, list(train["profession"]) * 2)


Versions = Callable[..., str]


@pytest.fixture
def versions(mlflow_server: str, classifier: Pipeline, augmented: Pipeline) -> Versions:
    """Register versions of a new model; "plain" and "augmented" say which."""

    def make(*kinds: str) -> str:
        name = f"gated-{uuid.uuid4().hex[:8]}"
        for kind in kinds:
            register({"plain": classifier, "augmented": augmented}[kind], name)
        return name

    return make


def alias(name: str, alias: str = "champion") -> str | None:
    """Return the version an alias points at."""
    target = mlflow.MlflowClient().get_registered_model(name).aliases.get(alias)
    return None if target is None else str(target)


def tags(name: str, version: str) -> dict[str, str]:
    """Return the gate's tags of a version, without their common prefix."""
    found = mlflow.MlflowClient().get_model_version(name, version).tags
    return {
        key.removeprefix("biasbios.gate").removeprefix(".") or "verdict": value
        for key, value in found.items()
        if key.startswith("biasbios.gate")
    }
