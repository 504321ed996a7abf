"""What users get wrong: a clear error or a documented count, and no metric that looks real."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest
from mlflow.exceptions import MlflowException

import biasbios_mlflow
from biasbios_mlflow.bios.occupations import OCCUPATIONS
from tests.conftest import Registered

Predict = Callable[[pd.DataFrame], Any]


def evaluate(model: Any, data: pd.DataFrame, **config: Any) -> Any:
    return mlflow.models.evaluate(
        model,
        data,
        targets="profession",
        model_type="classifier",
        evaluators="biasbios",
        evaluator_config={"n_replicates": 200, **config},
    )


def assert_fails(model: Any, data: pd.DataFrame, says: str, **config: Any) -> None:
    """Assert a clear error, and a run without metrics and artifacts of ours."""
    with mlflow.start_run() as run:
        with pytest.raises(MlflowException, match=says) as caught:
            evaluate(model, data, **config)
        assert caught.value.error_code == "INVALID_PARAMETER_VALUE"
        client = mlflow.MlflowClient()
        assert client.get_run(run.info.run_id).data.metrics == {}
        assert client.list_artifacts(run.info.run_id, "biasbios") == []


class TestData:
    @pytest.mark.parametrize("column", ["hard_text", "gender"])
    def test_missing_column(self, column: str, registered: Registered, bios: pd.DataFrame) -> None:
        data = bios.drop(columns=column)
        assert_fails(
            registered.uri, data, rf"none of the usual columns .* among .*{data.columns[0]}"
        )

    def test_column_named_wrong(self, registered: Registered, bios: pd.DataFrame) -> None:
        assert_fails(registered.uri, bios, "gender_column='gender'", gender_column="gendre")

    def test_empty(self, registered: Registered, bios: pd.DataFrame) -> None:
        # As objects: on an empty column of pandas' str type MLflow itself fails before any plugin.
        assert_fails(registered.uri, bios.astype(object).iloc[:0], "found no rows")
        with pytest.raises(MlflowException, match="found no rows"):
            biasbios_mlflow.evaluate(registered.uri, bios.iloc[:0])

    def test_unknown_gender(self, registered: Registered, bios: pd.DataFrame) -> None:
        data = bios.assign(gender=["herr", "frau"] * (len(bios) // 2) + ["frau"] * (len(bios) % 2))
        assert_fails(registered.uri, data, "'frau', 'herr'.*gender_values")
        with mlflow.start_run():
            values = {"herr": "male", "frau": "female"}
            assert evaluate(registered.uri, data, gender_values=values).metrics

    def test_text_that_is_a_number(self, registered: Registered, bios: pd.DataFrame) -> None:
        data = bios.assign(hard_text=range(len(bios)))
        assert_fails(registered.uri, data, "row 0: found int 0, expected a text")

    def test_too_many_incomplete_bios(self, registered: Registered, bios: pd.DataFrame) -> None:
        texts = bios["hard_text"].astype(object).to_numpy().copy()
        texts[: len(texts) // 2] = None
        assert_fails(registered.uri, bios.assign(hard_text=texts), "without text.*allow_missing")

    def test_incomplete_bios_are_counted(self, registered: Registered, bios: pd.DataFrame) -> None:
        data = bios.astype(object)
        data.iloc[0, 0] = None
        data.iloc[1, 0] = "  "
        data.iloc[2, 1] = np.nan
        data.iloc[3, 2] = None
        with mlflow.start_run():
            result = evaluate(registered.uri, data)
        assert result.metrics["biasbios/bios"] == len(bios) - 4
        summary = result.artifacts["biasbios/summary"].content
        assert summary["data"]["left_out"] == {"text": 2, "occupation": 1, "gender": 1}

    def test_one_gender_only(self, registered: Registered, bios: pd.DataFrame) -> None:
        women = bios[bios["gender"] == "female"]
        with mlflow.start_run() as run:
            result = evaluate(registered.uri, women)
        absent = ["gap_rms", "gap_abs", "accuracy_male", "accuracy_gap", "gap_rms_debiased"]
        reasons = result.artifacts["biasbios/summary"].content["scores"]["reasons"]
        for name in absent:
            assert f"biasbios/{name}" not in result.metrics
            assert reasons[name]
        assert result.metrics["biasbios/occupations_scored"] == 0
        assert result.metrics["biasbios/balanced_accuracy"] > 0.3
        assert set(mlflow.get_run(run.info.run_id).data.metrics) == set(result.metrics)

    def test_an_absent_occupation(self, registered: Registered, bios: pd.DataFrame) -> None:
        data = bios[bios["profession"] != "surgeon"]
        with mlflow.start_run():
            result = evaluate(registered.uri, data)
        assert "biasbios/tpr_gap/surgeon" not in result.metrics
        scored = result.metrics["biasbios/occupations_scored"]
        excluded = result.metrics["biasbios/occupations_excluded"]
        assert scored + excluded == len(OCCUPATIONS)
        gaps = result.artifacts["biasbios/occupation_gaps"].content.set_index("occupation")
        assert not gaps.loc["surgeon", "scored"]
        assert gaps.loc["surgeon", ["n_male", "n_female"]].tolist() == [0, 0]

    def test_one_bio(self, registered: Registered, bios: pd.DataFrame) -> None:
        with mlflow.start_run():
            result = evaluate(registered.uri, bios.iloc[:1])
        assert result.metrics["biasbios/bios"] == 1
        assert np.isfinite(list(result.metrics.values())).all()


class TestModel:
    """A model that misbehaves."""

    @pytest.mark.parametrize(
        ("predict", "says"),
        [
            (lambda frame: ["nurse"] * (len(frame) - 1), "predictions"),
            (lambda frame: ["nurse"] * (len(frame) + 1), "predictions"),
            (lambda frame: np.full((len(frame), 28), np.nan), "not finite"),
            (lambda frame: np.full((len(frame), 27), 1 / 27), "27 columns"),
            (lambda frame: [["a", "b"]] * len(frame), "not numbers"),
            (lambda frame: ["pilot"] * len(frame), r"pilot.*accountant"),
            (lambda frame: np.linspace(0.1, 0.9, len(frame)), "not whole"),
            (lambda frame: None, "prediction"),
        ],
        ids=["few", "many", "nan", "narrow", "strings", "labels", "scores", "nothing"],
    )
    def test_output(
        self, predict: Predict, says: str, bios: pd.DataFrame, mlflow_server: str
    ) -> None:
        assert_fails(predict, bios, says)

    def test_another_form_later_names_the_row(self, bios: pd.DataFrame, mlflow_server: str) -> None:
        calls = []

        def predict(frame: pd.DataFrame) -> Any:
            calls.append(len(frame))
            if len(calls) < 3:
                return ["nurse"] * len(frame)
            return np.full((len(frame), 28), 1 / 28)

        assert_fails(predict, bios, "from row 200 on", window_size=100)

    def test_nan_in_a_later_window_names_the_row(
        self, bios: pd.DataFrame, mlflow_server: str
    ) -> None:
        def predict(frame: pd.DataFrame) -> Any:
            matrix = np.full((len(frame), 28), 1 / 28)
            bad = frame["hard_text"].to_numpy() == bios["hard_text"].iloc[150]
            matrix[bad] = np.nan
            return matrix

        assert_fails(predict, bios, "row 150", window_size=100)

    def test_unknown_labels_count_as_wrong(self, bios: pd.DataFrame, mlflow_server: str) -> None:
        def predict(frame: pd.DataFrame) -> list[str]:
            return ["nurse" if i % 2 else "pilot" for i in range(len(frame))]

        with mlflow.start_run():
            result = evaluate(predict, bios)
        summary = result.artifacts["biasbios/summary"].content
        assert set(summary["unknown_predictions"]) == {"pilot"}
        assert summary["scores"]["unknown_predictions"] == sum(
            summary["unknown_predictions"].values()
        )
        nurses = (bios["profession"] == "nurse").to_numpy()
        expected = nurses[1::2].sum() / len(bios)
        assert result.metrics["biasbios/accuracy"] == pytest.approx(expected, abs=1e-12)

    def test_a_model_that_would_never_see_the_swap(
        self, bios: pd.DataFrame, mlflow_server: str
    ) -> None:
        from mlflow.models import ModelSignature
        from mlflow.types import ColSpec, Schema

        class Reads(mlflow.pyfunc.PythonModel):
            def predict(self, context: Any, model_input: Any, params: Any = None) -> Any:
                return ["nurse"] * len(model_input)

        with mlflow.start_run():
            info = mlflow.pyfunc.log_model(
                name="model",
                python_model=Reads(),
                signature=ModelSignature(inputs=Schema([ColSpec("string", "text")])),
                pip_requirements=[],
            )
        data = bios.assign(text=bios["hard_text"])
        assert_fails(info.model_uri, data, "text_column: found 'hard_text'")
        with mlflow.start_run():
            assert evaluate(info.model_uri, data, text_column="text").metrics


class TestConfig:
    @pytest.mark.parametrize(
        ("config", "says"),
        [
            ({"min_cel": 3}, "did you mean 'min_cell'"),
            ({"zzz": 3}, "expected one of allow_missing"),
            ({"min_cell": 0}, r"evaluator_config\.min_cell: found 0"),
            ({"scope": "nouns"}, "'pronouns', 'titles', 'words' or 'names'"),
            ({"label_names": ["nurse", "Nurse"]}, "more than once"),
            ({"label_names": ["nurse", "poet"]}, "label_names: found no"),
            ({"counterfactual_column": "swapped"}, "no column 'swapped'"),
        ],
    )
    def test_wrong_options(
        self, config: dict[str, Any], says: str, registered: Registered, bios: pd.DataFrame
    ) -> None:
        assert_fails(registered.uri, bios, says, **config)


def test_a_broken_model_leaves_no_result(bios: pd.DataFrame, mlflow_server: str) -> None:
    def predict(frame: pd.DataFrame) -> Any:
        raise RuntimeError("out of coffee")

    assert_fails(predict, bios, "out of coffee")


def test_without_texts_no_text_is_logged(
    registered: Registered, bios: pd.DataFrame, mlflow_server: str, tmp_path: Any
) -> None:
    with mlflow.start_run() as run:
        result = evaluate(registered.uri, bios, log_texts=False)
    folder = mlflow.MlflowClient().download_artifacts(run.info.run_id, "biasbios", str(tmp_path))
    content = "".join(
        path.read_text(encoding="utf-8", errors="replace") for path in Path(folder).iterdir()
    )
    assert not [text for text in bios["hard_text"] if text[:40] in content]
    flips = result.artifacts["biasbios/flips"].content
    assert len(flips) > 0
    assert "text" not in flips.columns
    assert flips["changed_words"].str.contains(" > ").all()
