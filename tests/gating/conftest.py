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
from tests.conftest import Registered, few_training_bios, register


@pytest.fixture(scope="session")
def augmented(classifier: Pipeline) -> Pipeline:
    """The same kind of classifier, trained on every bio and its swapped copy."""
    train = few_training_bios()
    texts = list(train["hard_text"])
    both = pd.DataFrame({"hard_text": texts + swap_gender(texts)})
    return clone(classifier).fit(both, list(train["profession"]) * 2)


@pytest.fixture(scope="session")
def plain_logged(registered: Registered) -> str:
    """The id of the logged plain classifier."""
    return registered.model_id


@pytest.fixture(scope="session")
def augmented_logged(mlflow_server: str, augmented: Pipeline) -> str:
    """The id of the logged augmented classifier."""
    return register(augmented, "augmented").model_id


Versions = Callable[..., str]


@pytest.fixture
def versions(plain_logged: str, augmented_logged: str) -> Versions:
    """Register versions of a new model; "plain" and "augmented" say which.

    Versions of a kind share one logged model: to log one takes longer than to gate it.
    """

    def make(*kinds: str) -> str:
        name = f"gated-{uuid.uuid4().hex[:8]}"
        client = mlflow.MlflowClient()
        client.create_registered_model(name)
        for kind in kinds:
            logged = {"plain": plain_logged, "augmented": augmented_logged}[kind]
            made = client.create_model_version(name, f"models:/{logged}", model_id=logged)
        client.set_registered_model_alias(name, "candidate", str(made.version))
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
