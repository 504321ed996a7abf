"""Models that eat vectors: encoders of every kind, and vectors that stand in the data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest
from mlflow.exceptions import MlflowException
from mlflow.models import infer_signature
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

from biasbios_mlflow import swap_gender
from tests.prediction.conftest import make_bert, make_bios, run

HASHING = HashingVectorizer(n_features=64, alternate_sign=False)


def encode(texts: Sequence[str]) -> np.ndarray:
    return HASHING.transform(texts).toarray().astype(np.float32)


@pytest.fixture(scope="module")
def head(bios: pd.DataFrame) -> LogisticRegression:
    return LogisticRegression(max_iter=300).fit(encode(bios["hard_text"]), bios["profession"])


@pytest.fixture(scope="module")
def loaded(head: LogisticRegression, mlflow_server: str) -> Any:
    signature = infer_signature(encode(["She heals."]), np.array(["nurse"]))
    with mlflow.start_run():
        info = mlflow.sklearn.log_model(
            head,
            name="model",
            registered_model_name="head",
            signature=signature,
            pip_requirements=["scikit-learn"],
        )
    return mlflow.pyfunc.load_model(f"models:/head/{info.registered_model_version}")


@pytest.fixture(scope="module")
def expected(head: LogisticRegression, bios: pd.DataFrame) -> pd.DataFrame:
    swapped = swap_gender(list(bios["hard_text"]))
    return pd.DataFrame(
        {
            "before": list(head.predict_proba(encode(bios["hard_text"])).max(axis=1)),
            "prediction": head.predict(encode(bios["hard_text"])),
            "counterfactual_prediction": head.predict(encode(swapped)),
        }
    )


def assert_as_expected(evaluation: Any, expected: pd.DataFrame) -> None:
    rows = pd.read_parquet(evaluation.predictions_path)
    assert rows["prediction"].tolist() == expected["prediction"].tolist()
    found = rows["counterfactual_prediction"].tolist()
    assert found == expected["counterfactual_prediction"].tolist()
    assert found != rows["prediction"].tolist()
    np.testing.assert_allclose(rows["probability"], expected["before"], atol=1e-6)


def test_callable(loaded: Any, bios: pd.DataFrame, expected: pd.DataFrame) -> None:
    calls = []

    def counting(texts: list[str]) -> np.ndarray:
        calls.append(len(texts))
        return encode(texts)

    evaluation = run(loaded, bios, encoder=counting)
    assert_as_expected(evaluation, expected)
    assert len(calls) == 2
    assert calls[1] <= 12  # asked about again
    assert len(bios) < calls[0] <= 2 * len(bios)
    assert evaluation.path.endswith("counting, then sklearn.predict and predict_proba")
    assert evaluation.config.as_json()["encoder"].endswith("counting")


def test_through_pyfunc_with_a_tensor_signature(
    loaded: Any, bios: pd.DataFrame, expected: pd.DataFrame
) -> None:
    evaluation = run(loaded, bios, encoder=encode, prediction="pyfunc")
    rows = pd.read_parquet(evaluation.predictions_path)
    assert rows["prediction"].tolist() == expected["prediction"].tolist()


def test_model_uri_as_encoder(
    loaded: Any, bios: pd.DataFrame, expected: pd.DataFrame, tmp_path: Path
) -> None:
    class Hashing(mlflow.pyfunc.PythonModel):
        def predict(self, context, model_input, params=None):
            return HASHING.transform(list(model_input)).toarray()

    path = tmp_path / "encoder"
    mlflow.pyfunc.save_model(path, python_model=Hashing(), pip_requirements=[])
    evaluation = run(loaded, bios, encoder=str(path), window_size=300)
    assert_as_expected(evaluation, expected)


def test_columns(loaded: Any, bios: pd.DataFrame, expected: pd.DataFrame) -> None:
    swapped = swap_gender(list(bios["hard_text"]))
    frame = bios.assign(
        before=list(encode(bios["hard_text"])), after=[list(row) for row in encode(swapped)]
    )
    evaluation = run(loaded, frame, features="before", counterfactual_features="after")
    assert_as_expected(evaluation, expected)
    alone = run(loaded, frame, features="before")
    assert alone.scores.metrics["accuracy"] == evaluation.scores.metrics["accuracy"]
    assert "prediction_consistency" in alone.scores.reasons


def test_pytorch_flavor(bios: pd.DataFrame, head: Any, expected: Any, mlflow_server: str) -> None:
    torch = pytest.importorskip("torch")
    network = torch.nn.Linear(64, len(head.classes_))
    with torch.no_grad():
        network.weight.copy_(torch.from_numpy(head.coef_))
        network.bias.copy_(torch.from_numpy(head.intercept_))
    with mlflow.start_run():
        info = mlflow.pytorch.log_model(
            network,
            name="model",
            registered_model_name="network",
            signature=infer_signature(encode(["a"]), np.zeros((1, 28), dtype=np.float32)),
            pip_requirements=["torch"],
            serialization_format="pickle",
        )
    model = mlflow.pyfunc.load_model(f"models:/network/{info.registered_model_version}")
    evaluation = run(model, bios, encoder=encode, label_names=list(head.classes_))
    assert_as_expected(evaluation, expected)


def test_decision_function(bios: pd.DataFrame, mlflow_server: str) -> None:
    svm = LinearSVC().fit(encode(bios["hard_text"]), bios["profession"])
    with mlflow.start_run():
        info = mlflow.sklearn.log_model(svm, name="model", pip_requirements=["scikit-learn"])
    model = mlflow.pyfunc.load_model(info.model_uri)
    evaluation = run(model, bios, encoder=encode)
    assert evaluation.path.endswith("sklearn.predict and decision_function")
    rows = pd.read_parquet(evaluation.predictions_path)
    assert rows["prediction"].tolist() == svm.predict(encode(bios["hard_text"])).tolist()
    assert "ctf" in evaluation.scores.metrics


def test_two_classes_have_one_margin(bios: pd.DataFrame, tmp_path: Path) -> None:
    two = bios[bios["profession"].isin(["nurse", "surgeon"])].reset_index(drop=True)
    svm = LinearSVC().fit(encode(two["hard_text"]), two["profession"])
    mlflow.sklearn.save_model(svm, tmp_path / "svm", pip_requirements=["scikit-learn"])
    evaluation = run(mlflow.pyfunc.load_model(str(tmp_path / "svm")), two, encoder=encode)
    rows = pd.read_parquet(evaluation.predictions_path)
    assert rows["prediction"].tolist() == svm.predict(encode(two["hard_text"])).tolist()


def test_hugging_face_encoder(
    vocabulary: Sequence[str], tokenizer: Any, bios: pd.DataFrame, tmp_path: Path
) -> None:
    torch = pytest.importorskip("torch")
    bert = make_bert(vocabulary).bert.eval()
    bert.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    texts = list(bios["hard_text"].head(20))
    few = bios.head(20)
    from biasbios_mlflow.config import EvaluationConfig
    from biasbios_mlflow.prediction.features import Encoder, find_features

    found = find_features(EvaluationConfig(encoder=str(tmp_path), token_budget=300))
    assert isinstance(found, Encoder)
    vectors, cut = found(texts, make_bios(few).rows)
    assert cut is not None
    assert cut.tolist() == [len(tokenizer(text)["input_ids"]) > 64 for text in texts]
    with torch.inference_mode():
        for text, vector in zip(texts, vectors, strict=True):
            ids = tokenizer(text, truncation=True, return_tensors="pt")
            mean = bert(**ids).last_hidden_state[0].mean(dim=0)
            np.testing.assert_allclose(vector, mean.numpy(), atol=1e-4)


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (lambda texts: encode(texts)[:-1], "shape"),
        (lambda texts: texts, "no matrix of numbers"),
        (lambda texts: np.full((len(texts), 2), np.nan), "row 0: found numbers that are not fin"),
    ],
)
def test_encoder_that_returns_something_else(
    loaded: Any, bios: pd.DataFrame, output: Any, message: str
) -> None:
    with pytest.raises(MlflowException, match=message):
        run(loaded, bios.head(10), encoder=output)


def test_columns_that_do_not_fit(loaded: Any, bios: pd.DataFrame) -> None:
    frame = bios.head(3).assign(words=["a", "b", "c"], short=[[1.0]] * 3, long=[[1.0, 2.0]] * 3)
    with pytest.raises(MlflowException, match="no column 'vectors' among"):
        run(loaded, frame, features="vectors")
    with pytest.raises(MlflowException, match="not vectors of numbers"):
        run(loaded, frame, features="words")
    with pytest.raises(MlflowException, match="vectors of length 2, expected 1"):
        run(loaded, frame, features="short", counterfactual_features="long")
    with pytest.raises(MlflowException, match="an encoder and feature columns"):
        run(loaded, frame, features="short", encoder=encode)


def test_encoder_that_cannot_be_loaded(loaded: Any, bios: pd.DataFrame, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    (tmp_path / "empty").mkdir()
    with pytest.raises(MlflowException, match=r"encoder: found '.*empty'"):
        run(loaded, bios, encoder=str(tmp_path / "empty"))
