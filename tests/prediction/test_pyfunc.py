"""What reaches a model: the columns of its signature, and neither gender nor occupation."""

from __future__ import annotations

from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest
from mlflow.exceptions import MlflowException
from mlflow.models import ModelSignature, infer_signature
from mlflow.types import ColSpec, DataType, Schema, TensorSpec

from biasbios_mlflow.bios.checked import Bios, check_bios, find_columns
from biasbios_mlflow.bios.occupations import OCCUPATIONS
from biasbios_mlflow.config import EvaluationConfig
from biasbios_mlflow.pipeline import Evaluation, evaluate_bios
from biasbios_mlflow.prediction.predictor import find_predictor

FRAME = pd.DataFrame(
    {
        "hard_text": ["She heals.", "They build.", "He sings to her.", "They rest."],
        "profession": ["nurse", "architect", "rapper", "poet"],
        "gender": ["female", "male", "male", "female"],
        "years": [3, 5, 8, 13],
        "bio_id": ["a", "b", "c", "d"],
    }
)


def make_bios(frame: pd.DataFrame = FRAME, **options: Any) -> Bios:
    return check_bios(frame, find_columns(list(frame.columns), **options))


def run(model: Any, bios: Bios | None = None, **options: Any) -> Evaluation:
    config = EvaluationConfig.parse({"n_replicates": 100, **options})
    return evaluate_bios(bios or make_bios(), find_predictor(model, config), config)


class Recorder:
    """A model without signature that takes one form of input only, and keeps what it saw."""

    def __init__(self, form: type, column: str | None = None) -> None:
        self.form, self.column, self.seen = form, column, []

    def predict(self, data: Any) -> list[str]:
        if not isinstance(data, self.form):
            raise TypeError(f"not a {self.form.__name__}")
        self.seen.append(data)
        texts = data[self.column] if self.column else data
        return ["nurse" if "She" in text else "poet" for text in texts]


@pytest.mark.parametrize("form", [list, np.ndarray])
def test_without_signature_forms_are_tried(form: type) -> None:
    model = Recorder(form)
    evaluation = run(model)
    assert evaluation.path == "pyfunc.predict"
    assert list(model.seen[0]) == [*FRAME["hard_text"], "He heals.", "She sings to him."]
    assert evaluation.scores.metrics["prediction_consistency"] == 0.5


def test_without_signature_a_frame_holds_nothing_sensitive() -> None:
    model = Recorder(pd.DataFrame, "hard_text")
    run(model)
    assert list(model.seen[0].columns) == ["hard_text", "years"]
    assert model.seen[0]["years"].tolist() == [3, 5, 8, 13, 3, 8]


def test_no_form_fits() -> None:
    with pytest.raises(MlflowException, match=r"no usable output for 6 bios \(as frame: TypeErr"):
        run(Recorder(dict))


@pytest.mark.parametrize("rows", [0, 3, 9])
def test_another_number_of_predictions(rows: int) -> None:
    class Model:
        def predict(self, data: Any) -> list[str]:
            return ["nurse"] * rows

    with pytest.raises(MlflowException, match=f"{rows} predictions"):
        run(Model())


class Echo(mlflow.pyfunc.PythonModel):
    """Answers with the column names and a value of each row, to show what reached it."""

    def predict(self, context, model_input, params=None):  # with hints MLflow checks inputs
        self.seen = getattr(self, "seen", model_input)  # later a few are asked about again
        return ["nurse"] * len(model_input)


def saved(path: Any, signature: ModelSignature | None) -> Any:
    mlflow.pyfunc.save_model(path, python_model=Echo(), signature=signature, pip_requirements=[])
    return mlflow.pyfunc.load_model(str(path))


def named(*columns: tuple[str, DataType]) -> ModelSignature:
    return ModelSignature(Schema([ColSpec(kind, name) for name, kind in columns]))


TEXT = ("hard_text", DataType.string)


@pytest.mark.parametrize(
    ("signature", "seen"),
    [
        (named(TEXT), ["hard_text"]),
        (named(("years", DataType.long), TEXT), ["years", "hard_text"]),
        (named(TEXT, ("gender", DataType.string)), ["hard_text", "gender"]),
        (named(("text", DataType.string)), ["text"]),
    ],
    ids=["the bio", "the bio and another", "gender by name", "one unknown column"],
)
def test_signature_with_columns(signature: ModelSignature, seen: list[str], tmp_path: Any) -> None:
    model = saved(tmp_path / "model", signature)
    run(model)
    data = model.unwrap_python_model().seen
    assert list(data.columns) == seen
    text = "hard_text" if "hard_text" in seen else "text"
    assert data[text].tolist()[4:] == ["He heals.", "She sings to him."]


def test_signature_with_an_unnamed_string(tmp_path: Any) -> None:
    model = saved(tmp_path / "model", ModelSignature(Schema([ColSpec(DataType.string)])))
    run(model)
    data = model.unwrap_python_model().seen
    assert np.asarray(data).ravel().tolist()[:2] == ["She heals.", "They build."]
    assert not {"gender", "profession"} & set(map(str, getattr(data, "columns", [])))


def test_signature_with_a_tensor(tmp_path: Any) -> None:
    spec = TensorSpec(np.dtype("O"), (-1,))
    model = saved(tmp_path / "model", ModelSignature(Schema([spec])))
    run(model)
    data = model.unwrap_python_model().seen
    assert isinstance(data, np.ndarray)
    assert data.tolist()[-1] == "She sings to him."


def test_signature_that_the_data_cannot_meet(tmp_path: Any) -> None:
    model = saved(tmp_path / "a", named(TEXT, ("height", DataType.double)))
    with pytest.raises(MlflowException, match=r"no column\(s\) \['height'\] among .*'years'"):
        run(model)
    model = saved(tmp_path / "b", named(("years", DataType.long)))
    with pytest.raises(MlflowException, match="which the model does not ask for"):
        run(model)


def test_static_predictions() -> None:
    frame = FRAME.assign(
        model_a=["nurse", "architect", "rapper", "surgeon"],
        model_a_swapped=["surgeon", "architect", "rapper", "surgeon"],
    )
    alone = run(None, make_bios(frame), predictions="model_a")
    assert alone.path == "static predictions"
    assert alone.scores.metrics["accuracy"] == 0.75
    assert "prediction_consistency" in alone.scores.reasons
    both = run(
        None,
        make_bios(frame),
        predictions="model_a",
        counterfactual_predictions="model_a_swapped",
    )
    assert both.scores.metrics["prediction_consistency"] == 0.75
    with pytest.raises(MlflowException, match="no column 'model_b' among"):
        run(None, make_bios(frame), predictions="model_b")


def test_neither_model_nor_predictions() -> None:
    with pytest.raises(MlflowException, match="neither a model nor a column"):
        find_predictor(None, EvaluationConfig())


def test_windows_do_not_change_the_scores(bios: pd.DataFrame) -> None:
    class Hashed:
        def predict(self, data: pd.DataFrame) -> np.ndarray:
            sums = [sum(text.encode()) for text in data["hard_text"]]
            logits = np.sin(np.outer(sums, np.arange(1, 29)))
            return np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)

    checked = make_bios(bios)
    whole = run(Hashed(), checked)
    parts = run(Hashed(), checked, window_size=50)
    assert whole.scores.to_dict() == parts.scores.to_dict()
    assert whole.data_sha256 == parts.data_sha256
    assert whole.result.flips == parts.result.flips


def test_signature_inferred_from_an_example(tmp_path: Any) -> None:
    example = pd.DataFrame({"hard_text": ["She heals."]})
    model = saved(tmp_path / "model", infer_signature(example, ["nurse"]))
    assert run(model).labels == OCCUPATIONS
