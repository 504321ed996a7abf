"""A champion and a challenger, few bios, and the policy they are gated by."""

from __future__ import annotations

from pathlib import Path

import mlflow
import pandas as pd
import pytest
import yaml
from sklearn.pipeline import Pipeline

from tests.conftest import register

POLICY = {
    "evaluation": {"n_replicates": 100},
    "rules": [
        {"metric": "balanced_accuracy", "min": 0.1, "bound": "point"},
        {"metric": "ctf", "no_worse_than_champion": {"margin": 1.0}},
    ],
    "champion": "champion",
    "promote": "champion",
}


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    path = tmp_path / "gate.yaml"
    path.write_text(yaml.safe_dump(POLICY), "utf-8")
    return path


@pytest.fixture
def few_csv(bios: pd.DataFrame, tmp_path: Path) -> Path:
    path = tmp_path / "few.csv"
    bios.head(120).to_csv(path, index=False)
    return path


@pytest.fixture(scope="session")
def source(mlflow_server: str, classifier: Pipeline) -> str:
    """URI of a logged model, of which any version can be made."""
    return f"models:/{register(classifier, 'source').model_id}"


def make_versions(source: str, name: str, versions: int = 2) -> None:
    """Register versions, the first of which is champion, ungated."""
    client = mlflow.MlflowClient()
    client.create_registered_model(name)
    for _ in range(versions):
        client.create_model_version(name, source, model_id=source.removeprefix("models:/"))
    client.set_registered_model_alias(name, "champion", "1")
