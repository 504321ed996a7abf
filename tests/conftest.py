"""One real MLflow server over HTTP for the whole test session, and a model registered on it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import hypothesis
import mlflow
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline

from biasbios_mlflow import load_bios
from tests.drawing import draw_once

# Machines that run the tests are slow at times; a slow example is no failure.
hypothesis.settings.register_profile("biasbios", deadline=None)
hypothesis.settings.load_profile("biasbios")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--screenshots", metavar="FOLDER", help="write the pictures of the docs there")


# What takes seconds: programs that start, training, many evaluations, simulations, thousands of
# examples. Files and tests by how their ids begin; others carry the marker themselves.
_SLOW = (
    "bios/test_invented.py",
    "bios/test_sample.py::test_the_file_is_what_the_generator_writes",
    "counterfactual/test_properties.py",
    "gating/test_binding.py",
    "gating/test_decision.py::test_the_pairwise_rule_is",
    "gating/test_gate.py",
    "gating/test_safety.py",
    "plugin/test_command_line.py::test_demo_json",
    "plugin/test_command_line.py::test_evaluate_json",
    "plugin/test_evaluate.py::TestSteppingAside::test_bios_are_evaluated",
    "plugin/test_evaluate.py::test_beside_the_default_evaluator",
    "plugin/test_project.py",
    "prediction/test_flavors.py::test_several_processes",
    "prediction/test_resume.py::test_killed",
    "prediction/test_language.py",
    "prediction/test_real_servers.py",
    "prediction/test_remote.py::test_killed",
    "prediction/test_served.py",
    "prediction/test_transformers.py",
    "prediction/test_zero_shot.py",
    "report/test_browser.py",
    "report/test_compare.py",
    "report/test_files.py",
    "scoring/test_metrics.py",
    "scoring/test_uncertainty.py",
    "spark/",
    "test_docs.py",
    "test_import.py",
    "training/test_benchmark.py",
    "training/test_classifiers.py",
)
_STARTED_BY = {"browser": "browser", "mlflow_server": "server", "spark": "spark"}
_TORCH = {"encoder", "bert_uri", "bert_all_uri", "tokenizer", "words"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests by what they start, and put those together that start the same.

    pytest-xdist hands each worker a part of the list as it stands: Spark, torch and a server then
    start in as few workers as can be, and what takes longest is not left for the end.
    """
    order: dict[pytest.Item, int] = {}
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        for fixture in sorted(fixtures & set(_STARTED_BY)):
            item.add_marker(_STARTED_BY[fixture])
        if item.nodeid.removeprefix("tests/").startswith(_SLOW):
            item.add_marker("slow")
        marks = {mark.name for mark in item.iter_markers()}
        if marks & {"browser", "spark"}:
            item.add_marker("slow")
        kinds = ("spark" in marks, bool(fixtures & _TORCH), "slow" in marks, "server" in marks)
        order[item] = next((at for at, kind in enumerate(kinds) if kind), len(kinds))
    items.sort(key=order.__getitem__)


class Server:
    """A real MLflow server over HTTP, with sqlite."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = _free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1"),
                    *("--port", str(self.port), "--workers", "1"),
                    *("--backend-store-uri", f"sqlite:///{self.folder / 'mlflow.db'}"),
                    *("--artifacts-destination", str(self.folder / "artifacts")),
                ],
                cwd=self.folder,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                # Half a dozen processes that no test needs.
                env={**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
            )
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise RuntimeError(f"the MLflow server ended with code {self._process.returncode}")
            try:
                with urllib.request.urlopen(f"{self.url}/health", timeout=2):
                    return
            except OSError:
                time.sleep(0.2)
        raise RuntimeError("the MLflow server did not answer within 120 s")

    def stop(self) -> None:
        """End it at once, with its workers."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(timeout=30)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="session", autouse=True)
def figures() -> Iterator[None]:
    """Figures of equal content are drawn once."""
    with pytest.MonkeyPatch.context() as patch:
        draw_once(patch)
        yield


@pytest.fixture(scope="session")
def mlflow_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of the session's MLflow server, which is also the tracking server of the tests."""
    server = Server(tmp_path_factory.mktemp("mlflow"))
    try:
        server.start()
        os.environ["MLFLOW_TRACKING_URI"] = server.url  # for the programs that tests start
        mlflow.set_tracking_uri(server.url)
        yield server.url
    finally:
        server.stop()


@pytest.fixture
def run(mlflow_server: str) -> Iterator[mlflow.ActiveRun]:
    """A run that is active during the test."""
    with mlflow.start_run() as active:
        yield active


@pytest.fixture(scope="session")
def bios() -> pd.DataFrame:
    """Every tenth bio of the sample's test split: 28 occupations, both genders."""
    return load_bios("sample", split="test").df.iloc[::10].reset_index(drop=True)


@pytest.fixture(scope="session")
def classifier() -> Pipeline:
    """A small classifier from a frame with the column hard_text."""
    train = few_training_bios()
    pipeline = make_pipeline(
        ColumnTransformer([("tfidf", TfidfVectorizer(max_features=2000), "hard_text")]),
        LogisticRegression(C=10.0, max_iter=1000, tol=1e-3),
    )
    return pipeline.fit(train[["hard_text"]], train["profession"])


def few_training_bios() -> pd.DataFrame:
    """Every tenth bio of the sample's training split."""
    return load_bios("sample", split="train").df.iloc[::10]


@dataclass(frozen=True)
class Registered:
    """One version of a registered model, under all its URIs."""

    name: str
    version: str
    model_id: str
    run_id: str

    def uris(self) -> dict[str, str]:
        return {
            "version": f"models:/{self.name}/{self.version}",
            "alias": f"models:/{self.name}@candidate",
            "model id": f"models:/{self.model_id}",
            "run": f"runs:/{self.run_id}/model",
        }

    @property
    def uri(self) -> str:
        return f"models:/{self.name}/{self.version}"


def register(model: object, name: str, **options: object) -> Registered:
    """Log a scikit-learn model in a run of its own and register it under ``name``."""
    with mlflow.start_run() as run:
        info = mlflow.sklearn.log_model(
            model,
            name="model",
            registered_model_name=name,
            pip_requirements=["scikit-learn"],
            serialization_format="cloudpickle",  # MLflow's own choice takes seconds to import
            **{"input_example": pd.DataFrame({"hard_text": ["She heals."]}), **options},
        )
    version = str(info.registered_model_version)
    mlflow.MlflowClient().set_registered_model_alias(name, "candidate", version)
    return Registered(name, version, info.model_id, run.info.run_id)


@pytest.fixture(scope="session")
def registered(mlflow_server: str, classifier: Pipeline) -> Registered:
    """The small classifier, registered on the server."""
    return register(classifier, "occupations")


@pytest.fixture
def bios_csv(bios: pd.DataFrame, tmp_path: Path) -> Path:
    """The same bios as a file."""
    path = tmp_path / "bios.csv"
    bios.to_csv(path, index=False)
    return path
