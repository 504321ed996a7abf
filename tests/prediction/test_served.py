"""Models served from an environment of their own: in chunks, within the server's time-out."""

from __future__ import annotations

import inspect
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest
from mlflow.models import infer_signature
from mlflow.pyfunc import _load_model_or_server
from sklearn.pipeline import Pipeline

from biasbios_mlflow.config import EvaluationConfig
from biasbios_mlflow.prediction.predictor import find_predictor
from biasbios_mlflow.prediction.pyfunc import ServedPredictor
from tests.conftest import Registered
from tests.prediction.conftest import run


class _ServedPyFuncModel:  # named as MLflow's own, by which it is recognised
    """Answers after ``seconds`` a bio, and with an error where a request takes too long."""

    metadata = None
    env_manager = "uv"

    def __init__(self, seconds: float, timeout: float) -> None:
        self.seconds, self.timeout, self.sizes = seconds, timeout, []
        self._client = self

    def invoke(self, data: Any) -> Any:
        spent = self.seconds * len(data)
        time.sleep(min(spent, self.timeout))
        if spent > self.timeout:
            raise RuntimeError(
                "Invocation failed (error code 504, response: Request processing time exceeded)"
            )
        self.sizes.append(len(data))
        self.data = data
        return self

    def get_predictions(self) -> pd.DataFrame:
        return pd.DataFrame({"predictions": ["nurse"] * len(self.data)})

    def predict(self, data: Any) -> Any:
        return self.invoke(data).get_predictions()["predictions"]


def test_chunks_grow_while_there_is_time(
    bios: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_SCORING_SERVER_REQUEST_TIMEOUT", "2")
    model = _ServedPyFuncModel(seconds=0.0005, timeout=2)
    evaluation = run(model, bios.head(400))
    assert evaluation.path == "pyfunc.predict, served (uv)"
    assert model.sizes[0] == 32
    assert max(model.sizes) > 100
    changed = int(pd.read_parquet(evaluation.predictions_path)["changed"].sum())
    *asked, again = model.sizes  # the last are the few that are asked about twice
    assert sum(asked) == 400 + changed
    assert again <= 12


def test_request_that_times_out_is_cut(
    bios: pd.DataFrame, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MLFLOW_SCORING_SERVER_REQUEST_TIMEOUT", "1")
    model = _ServedPyFuncModel(seconds=0.01, timeout=0.1)
    run(model, bios.head(20), prediction="pyfunc")
    assert "Request timed out; going on with 16 bios each" in caplog.text
    assert max(model.sizes) <= 10


def test_other_errors_are_not_sent_again(bios: pd.DataFrame) -> None:
    model = _ServedPyFuncModel(seconds=0, timeout=1)
    model.get_predictions = lambda: 1 / 0  # type: ignore[method-assign]
    with pytest.raises(mlflow.exceptions.MlflowException, match="ZeroDivisionError"):
        run(model, bios.head(5))


def test_ready_made_environment_over_http(
    classifier: Pipeline, bios: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MLflow's own scoring server; only the making of an environment is left out."""
    from mlflow.pyfunc import _ServedPyFuncModel as Served
    from mlflow.pyfunc.backend import PyFuncBackend
    from mlflow.pyfunc.scoring_server.client import ScoringServerClient

    # MLflow starts the server's program by its name.
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    few = bios.head(150)
    example = few[["hard_text"]].head(2)
    mlflow.sklearn.save_model(
        classifier,
        tmp_path / "model",
        pyfunc_predict_fn="predict_proba",
        signature=infer_signature(example, classifier.predict_proba(example)),
        pip_requirements=["scikit-learn"],
    )
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    meta = mlflow.models.Model.load(str(tmp_path / "model"))
    backend = PyFuncBackend(meta.flavors["python_function"], workers=1, env_manager="local")
    older = "enable_mlserver" in inspect.signature(backend.serve).parameters
    process = backend.serve(
        str(tmp_path / "model"),
        port,
        "127.0.0.1",
        timeout=60,
        synchronous=False,
        **({"enable_mlserver": False} if older else {}),
    )
    try:
        client = ScoringServerClient("127.0.0.1", port)
        client.wait_server_ready(timeout=120, scoring_server_proc=process)
        model = Served(meta, client, process.pid)
        evaluation = run(model, few, label_names=list(classifier.classes_))
    finally:
        process.terminate()
        process.wait(timeout=30)
    rows = pd.read_parquet(evaluation.predictions_path)
    matrix = np.stack(rows["probabilities"].to_list())
    np.testing.assert_allclose(matrix, classifier.predict_proba(few[["hard_text"]]), atol=1e-6)
    assert "ctf" in evaluation.scores.metrics


def test_a_local_model_is_not_served(registered: Registered) -> None:
    model = _load_model_or_server(registered.uri, "local")
    assert not ServedPredictor.serves(model)
    config = EvaluationConfig(prediction="pyfunc")
    assert not isinstance(find_predictor(model, config), ServedPredictor)
