"""Real flavors through the registry of a real server, by the plugin."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest
from mlflow.exceptions import MlflowException
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.svm import LinearSVC

import biasbios_mlflow
from biasbios_mlflow import swap_gender
from biasbios_mlflow.bios.occupations import OCCUPATIONS
from biasbios_mlflow.config import EvaluationConfig
from biasbios_mlflow.pipeline import evaluate_bios
from biasbios_mlflow.prediction.sklearn import SklearnPredictor
from tests.conftest import Registered
from tests.prediction.conftest import make_bios, run


def evaluate(model: Any, data: pd.DataFrame, **options: Any) -> mlflow.models.EvaluationResult:
    return biasbios_mlflow.evaluate(model, data, n_replicates=100, **options)


def path_of(result: mlflow.models.EvaluationResult) -> str:
    return result.artifacts["biasbios/summary"].content["model"]["path"]


@pytest.fixture(autouse=True)
def _in_a_run(mlflow_server: str) -> Iterator[None]:
    with mlflow.start_run():
        yield


def log(model: Any, name: str) -> str:
    with mlflow.start_run(nested=True):
        info = mlflow.sklearn.log_model(
            model, name="model", registered_model_name=name, pip_requirements=["scikit-learn"]
        )
    return f"models:/{name}/{info.registered_model_version}"


def test_sklearn_and_its_pyfunc(
    registered: Registered, classifier: Pipeline, bios: pd.DataFrame
) -> None:
    fast = evaluate(registered.uri, bios)
    plain = evaluate(registered.uri, bios, prediction="pyfunc")
    assert path_of(fast) == "sklearn.predict and predict_proba"
    assert path_of(plain) == "pyfunc.predict"
    for name in ("balanced_accuracy", "prediction_consistency", "gap_rms", "gap_abs"):
        assert fast.metrics[f"biasbios/{name}"] == plain.metrics[f"biasbios/{name}"]
    assert "biasbios/ctf" not in plain.metrics
    reasons = plain.artifacts["biasbios/summary"].content["scores"]["reasons"]
    assert reasons["ctf"] == "no probabilities: the model returns only labels"


def test_several_processes_give_the_same(classifier: Pipeline, bios: pd.DataFrame) -> None:
    model = SklearnPredictor(classifier)
    results = []
    for jobs in (1, 2):
        config = EvaluationConfig(n_jobs=jobs, window_size=100, n_replicates=100)
        evaluation = evaluate_bios(make_bios(bios), model, config)
        rows = pd.read_parquet(evaluation.predictions_path)
        results.append((evaluation.scores.to_dict(), evaluation.result.flips, rows.to_json()))
    assert results[0] == results[1]


def test_sklearn_from_bare_texts(bios: pd.DataFrame) -> None:
    model = make_pipeline(TfidfVectorizer(max_features=500), LogisticRegression(max_iter=300))
    model.fit(list(bios["hard_text"]), bios["profession"])
    result = evaluate(log(model, "bare"), bios)
    expected = np.mean(model.predict(list(bios["hard_text"])) == bios["profession"])
    assert result.metrics["biasbios/accuracy"] == pytest.approx(expected)


def test_sklearn_with_ids_for_classes(bios: pd.DataFrame) -> None:
    ids = bios["profession"].map(OCCUPATIONS.index)
    model = make_pipeline(TfidfVectorizer(max_features=500), LinearSVC())
    model.fit(list(bios["hard_text"]), ids)
    result = evaluate(log(model, "ids"), bios)
    assert path_of(result) == "sklearn.predict and decision_function"
    expected = np.mean(model.predict(list(bios["hard_text"])) == ids)
    assert result.metrics["biasbios/accuracy"] == pytest.approx(expected)
    assert "biasbios/ctf" in result.metrics


def test_ids_that_no_label_set_decides(bios: pd.DataFrame) -> None:
    ten = bios[bios["profession"].isin(OCCUPATIONS[10:20])].reset_index(drop=True)
    ids = ten["profession"].map(OCCUPATIONS[10:20].index)
    model = make_pipeline(TfidfVectorizer(max_features=500), LogisticRegression())
    uri = log(model.fit(list(ten["hard_text"]), ids), "ten")
    with pytest.raises(MlflowException, match=r"'9'.*'yoga_teacher'.*label_names"):
        evaluate(uri, ten)
    result = evaluate(uri, ten, label_names=OCCUPATIONS[10:20])
    expected = np.mean(model.predict(list(ten["hard_text"])) == ids)
    assert result.metrics["biasbios/accuracy"] == pytest.approx(expected)


def test_pyfunc_class_like_a_chat_model(bios: pd.DataFrame) -> None:
    class Chat(mlflow.pyfunc.PythonModel):
        def predict(self, context, model_input, params=None):
            answers = []
            for text in model_input["hard_text"]:
                guess = next((o for o in OCCUPATIONS if o.replace("_", " ") in text), "I cannot")
                answers.append(guess.replace("_", " ").title())
            return answers

    with mlflow.start_run(nested=True):
        info = mlflow.pyfunc.log_model(
            name="model",
            python_model=Chat(),
            registered_model_name="chat",
            pip_requirements=[],
        )
    result = evaluate(f"models:/chat/{info.registered_model_version}", bios)
    assert "biasbios/ctf" not in result.metrics
    summary = result.artifacts["biasbios/summary"].content
    assert summary["scores"]["reasons"]["ctf"] == "no probabilities: the model returns only labels"
    assert summary["unknown_predictions"]["I Cannot"] > 0


def test_function(bios: pd.DataFrame, classifier: Pipeline) -> None:
    seen = []

    def predict(data: pd.DataFrame) -> pd.DataFrame:
        seen.append(list(data.columns))
        return pd.DataFrame(classifier.predict_proba(data), columns=classifier.classes_)

    result = evaluate(predict, bios)
    assert seen == [["hard_text"]] * 2  # and again, about a few
    texts = list(bios["hard_text"])
    before, after = (
        classifier.predict_proba(pd.DataFrame({"hard_text": t}))
        for t in (texts, swap_gender(texts))
    )
    rows = np.arange(len(bios))
    at = before.argmax(axis=1)
    ctf = np.mean(((before - after)[rows, at] / 2) ** 2)
    assert result.metrics["biasbios/ctf"] == pytest.approx(ctf, abs=1e-12)


def test_a_model_fooled_by_pandas_index(classifier: Pipeline, bios: pd.DataFrame) -> None:
    shuffled = bios.sample(frac=1, random_state=0)  # keeps its old index
    again = bios.sample(frac=1, random_state=0).reset_index(drop=True)

    class Model:
        def predict(self, data: pd.DataFrame) -> Any:
            return pd.Series(classifier.predict(data), index=data.index)

    assert run(Model(), shuffled).scores.metrics == run(Model(), again).scores.metrics
