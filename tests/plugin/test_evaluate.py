"""The plugin through mlflow.models.evaluate, in all its forms, against a real server."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest
from mlflow.exceptions import MlflowException
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score
from sklearn.pipeline import Pipeline

import biasbios_mlflow
from biasbios_mlflow import swap_gender
from tests.conftest import Registered

FIVE = ("balanced_accuracy", "ctf", "prediction_consistency", "gap_rms", "gap_abs")
FILES = {"biasbios/summary.json", "biasbios/occupation_gaps.csv", "biasbios/flips.csv"}


def evaluate(model: Any, data: Any, **options: Any) -> mlflow.models.EvaluationResult:
    settings = {
        "targets": "profession",
        "model_type": "classifier",
        "evaluators": ["biasbios"],
        "evaluator_config": {"biasbios": {"n_replicates": 200}},
        **options,
    }
    return mlflow.models.evaluate(model, data, **settings)


def points(run_id: str) -> dict[str, int]:
    """How many points each metric of a run has."""
    client = mlflow.MlflowClient()
    names = client.get_run(run_id).data.metrics
    return {name: len(client.get_metric_history(run_id, name)) for name in names}


@pytest.fixture(scope="module")
def reference(classifier: Pipeline, bios: pd.DataFrame) -> dict[str, float]:
    """The five metrics, computed plainly from the model itself."""
    genders, truth = bios["gender"], bios["profession"]
    swapped = bios.assign(hard_text=swap_gender(list(bios["hard_text"])))
    before = classifier.predict_proba(bios[["hard_text"]])
    after = classifier.predict_proba(swapped[["hard_text"]])
    predicted = classifier.classes_[before.argmax(axis=1)]
    flipped = classifier.classes_[after.argmax(axis=1)]
    rows = np.arange(len(bios))
    pairs = np.stack([m[rows, before.argmax(axis=1)] for m in (before, after)])
    gaps = []
    for occupation in truth.unique():
        rates = [
            np.mean((predicted == truth)[(truth == occupation) & (genders == gender)])
            for gender in ("male", "female")
            if ((truth == occupation) & (genders == gender)).sum() >= 5
        ]
        if len(rates) == 2:
            gaps.append(rates[0] - rates[1])
    return {
        "balanced_accuracy": balanced_accuracy_score(truth, predicted),
        "ctf": pairs.var(axis=0).mean(),
        "prediction_consistency": np.mean(predicted == flipped),
        "gap_rms": np.sqrt(np.mean(np.square(gaps))),
        "gap_abs": np.mean(np.abs(gaps)),
    }


def assert_five(metrics: dict[str, float], reference: dict[str, float]) -> None:
    found = {name: metrics[f"biasbios/{name}"] for name in FIVE}
    assert found == pytest.approx(reference, abs=1e-12)


@pytest.mark.parametrize("kind", ["version", "alias", "model id", "run", "loaded"])
def test_every_uri_gives_one_point_linked_to_model_and_dataset(
    kind: str, registered: Registered, bios: pd.DataFrame, run: Any, reference: dict[str, float]
) -> None:
    uris = registered.uris()
    model = mlflow.pyfunc.load_model(registered.uri) if kind == "loaded" else uris[kind]

    result = evaluate(model, bios)

    assert_five(result.metrics, reference)
    client = mlflow.MlflowClient()
    logged = client.get_run(run.info.run_id)
    assert logged.data.metrics == pytest.approx(result.metrics, abs=0)
    assert set(points(run.info.run_id).values()) == {1}
    assert {f.path for f in client.list_artifacts(run.info.run_id, "biasbios")} >= FILES
    assert len(logged.inputs.dataset_inputs) == 1
    dataset = logged.inputs.dataset_inputs[0].dataset
    assert [m.model_id for m in logged.inputs.model_inputs] == [registered.model_id]
    of_model = [
        metric
        for metric in client.get_logged_model(registered.model_id).metrics
        if metric.run_id == run.info.run_id
    ]
    assert {metric.key for metric in of_model} == set(result.metrics)
    assert len(of_model) == len(result.metrics)
    assert {metric.dataset_digest for metric in of_model} == {dataset.digest}


def test_the_version_that_was_named_comes_first(
    registered: Registered, bios: pd.DataFrame, mlflow_server: str
) -> None:
    """A logged model may be registered many times, under any name."""
    client = mlflow.MlflowClient()
    for name in ("aaa", "zzz"):
        mlflow.register_model(f"models:/{registered.model_id}", name)
    for name, version in ((registered.name, registered.version), ("aaa", "1"), ("zzz", "1")):
        result = biasbios_mlflow.evaluate(f"models:/{name}/{version}", bios.head(40))
        summary = result.artifacts["biasbios/summary"].content
        assert summary["model"]["versions"][0] == {"name": name, "version": version}
        assert len(summary["model"]["versions"]) >= 3
        assert f"<h1>{name} version {version}</h1>" in result.artifacts["biasbios/report"].content
    for name in ("aaa", "zzz"):
        client.delete_registered_model(name)


def test_a_function_is_a_model(
    classifier: Pipeline, bios: pd.DataFrame, run: Any, reference: dict[str, float]
) -> None:
    seen = []

    def predict(frame: pd.DataFrame) -> np.ndarray:
        seen.append(list(frame.columns))
        return classifier.predict(frame[["hard_text"]])

    result = evaluate(predict, bios)

    assert seen[0] == ["hard_text"], "gender and occupation must not reach the model"
    labels_only = {name: reference[name] for name in FIVE if name != "ctf"}
    found = {name: result.metrics[f"biasbios/{name}"] for name in labels_only}
    assert found == pytest.approx(labels_only, abs=1e-12)
    assert "biasbios/ctf" not in result.metrics
    summary = result.artifacts["biasbios/summary"].content
    assert "ctf" in summary["scores"]["reasons"]
    assert set(points(run.info.run_id).values()) == {1}


@pytest.mark.parametrize(
    "form",
    [
        {"evaluators": "biasbios", "evaluator_config": {"n_replicates": 200}},
        {"evaluators": "biasbios", "evaluator_config": None},
        {"evaluators": ["biasbios"], "evaluator_config": None},
        {"model_type": "biasbios", "targets": None},
        {"model_type": "biasbios", "targets": None, "evaluators": "biasbios"},
        {"model_type": "biasbios"},
    ],
    ids=["flat", "flat, none", "nested, none", "own type", "own type, flat", "own type, targets"],
)
def test_forms_of_the_call(
    form: dict[str, Any],
    registered: Registered,
    bios: pd.DataFrame,
    run: Any,
    reference: dict[str, float],
) -> None:
    if form.get("evaluators") == "biasbios":
        form = {"evaluator_config": {"n_replicates": 200}, **form}
    assert_five(evaluate(registered.uri, bios, **form).metrics, reference)


def test_mlflow_evaluate_works_the_same(
    registered: Registered, bios: pd.DataFrame, run: Any, reference: dict[str, float]
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # mlflow.evaluate itself is deprecated
        result = mlflow.evaluate(
            registered.uri,
            bios,
            targets="profession",
            model_type="classifier",
            evaluators=["biasbios"],
        )
    assert_five(result.metrics, reference)


def test_an_mlflow_dataset(
    registered: Registered, bios: pd.DataFrame, run: Any, reference: dict[str, float]
) -> None:
    dataset = mlflow.data.from_pandas(bios, targets="profession", name="my bios")
    result = evaluate(registered.uri, dataset, targets=None)
    assert_five(result.metrics, reference)
    inputs = mlflow.MlflowClient().get_run(run.info.run_id).inputs.dataset_inputs
    assert [i.dataset.name for i in inputs] == ["my bios"]


def test_beside_the_default_evaluator(
    registered: Registered, bios: pd.DataFrame, run: Any, reference: dict[str, float]
) -> None:
    with warnings.catch_warnings():
        # What MLflow's own classifier evaluator warns of is not ours.
        warnings.simplefilter("ignore")
        result = evaluate(
            registered.uri,
            bios[["hard_text", "profession", "gender"]],
            evaluators=["default", "biasbios"],
            evaluator_config={"default": {"log_model_explainability": False}, "biasbios": {}},
        )
    assert_five(result.metrics, reference)
    assert "accuracy_score" in result.metrics
    ours = {k: v for k, v in points(run.info.run_id).items() if k.startswith("biasbios/")}
    assert set(ours.values()) == {1}


def test_static_predictions(
    classifier: Pipeline, bios: pd.DataFrame, run: Any, reference: dict[str, float]
) -> None:
    swapped = bios.assign(hard_text=swap_gender(list(bios["hard_text"])))

    def cells(frame: pd.DataFrame) -> list[dict[str, float]]:
        matrix = classifier.predict_proba(frame[["hard_text"]])
        return [dict(zip(classifier.classes_, row, strict=True)) for row in matrix]

    data = bios.assign(before=cells(bios), after=cells(swapped))
    result = evaluate(
        None,
        data,
        predictions="before",
        evaluator_config={"biasbios": {"counterfactual_predictions": "after"}},
    )
    assert_five(result.metrics, reference)
    assert set(points(run.info.run_id).values()) == {1}


def test_static_predictions_without_counterfactuals_say_why(
    classifier: Pipeline, bios: pd.DataFrame, run: Any
) -> None:
    data = bios.assign(predicted=classifier.predict(bios[["hard_text"]]))
    result = evaluate(None, data, predictions="predicted")
    assert "biasbios/gap_rms" in result.metrics
    assert "biasbios/prediction_consistency" not in result.metrics
    reasons = result.artifacts["biasbios/summary"].content["scores"]["reasons"]
    assert {"ctf", "prediction_consistency"} <= set(reasons)


def test_a_prefix_goes_in_front(registered: Registered, bios: pd.DataFrame, run: Any) -> None:
    config = {"biasbios": {"metric_prefix": "dev_", "n_replicates": 200}}
    result = evaluate(registered.uri, bios, evaluator_config=config)
    assert {name.split("/")[0] for name in result.metrics} == {"dev_biasbios"}


def test_saved_results_load_again(
    registered: Registered, bios: pd.DataFrame, run: Any, tmp_path: Any
) -> None:
    result = evaluate(registered.uri, bios)
    result.save(str(tmp_path / "result"))
    loaded = mlflow.models.EvaluationResult.load(str(tmp_path / "result"))
    assert loaded.metrics == result.metrics
    assert (
        loaded.artifacts["biasbios/summary"].content == result.artifacts["biasbios/summary"].content
    )


def test_thresholds_of_mlflow_apply(registered: Registered, bios: pd.DataFrame, run: Any) -> None:
    from mlflow import validate_evaluation_results
    from mlflow.models import MetricThreshold
    from mlflow.models.evaluation.validation import ModelValidationFailedException

    result = evaluate(registered.uri, bios)

    def limits(most: float) -> dict[str, MetricThreshold]:
        return {"biasbios/gap_rms": MetricThreshold(threshold=most, greater_is_better=False)}

    validate_evaluation_results(limits(1.0), result)
    with pytest.raises(ModelValidationFailedException):
        validate_evaluation_results(limits(0.001), result)


class TestSteppingAside:
    """On data that is not bios, nobody else's evaluation breaks."""

    @pytest.fixture
    def flowers(self) -> pd.DataFrame:
        rng = np.random.default_rng(0)
        return pd.DataFrame({"a": rng.normal(size=60), "b": rng.normal(size=60), "y": [0, 1] * 30})

    def evaluate_all(self, data: pd.DataFrame, **options: Any) -> Any:
        model = LogisticRegression().fit(data[["a", "b"]].to_numpy(), data["y"])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # those of MLflow's own evaluator
            return mlflow.models.evaluate(
                lambda frame: model.predict(frame[["a", "b"]].to_numpy()),
                data,
                targets="y",
                model_type="classifier",
                **options,
            )

    def test_other_data(
        self, flowers: pd.DataFrame, run: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.INFO, logger="biasbios_mlflow"):
            result = self.evaluate_all(flowers, evaluators=None)
        assert "accuracy_score" in result.metrics
        assert not any(name.startswith("biasbios") for name in result.metrics)
        lines = [r.getMessage() for r in caplog.records if r.name.startswith("biasbios")]
        assert len(lines) == 1
        assert "steps aside" in lines[0]

    def test_other_data_with_columns_of_our_names(self, flowers: pd.DataFrame, run: Any) -> None:
        data = flowers.assign(text="a review", gender=["x", "y"] * 30)
        # MLflow's own explainer cannot read text columns.
        options = {"evaluator_config": {"log_model_explainability": False}}
        assert "accuracy_score" in self.evaluate_all(data, evaluators=None, **options).metrics

    def test_options_of_others(self, flowers: pd.DataFrame, run: Any) -> None:
        options = {"evaluator_config": {"log_model_explainability": False}}
        result = self.evaluate_all(flowers, evaluators=None, **options)
        assert "accuracy_score" in result.metrics

    def test_named_alone_it_says_what_is_wrong(self, flowers: pd.DataFrame, run: Any) -> None:
        with pytest.raises(MlflowException, match="none of the usual columns"):
            self.evaluate_all(flowers, evaluators=["biasbios"])

    def test_bios_are_evaluated_when_all_are_asked(
        self, registered: Registered, bios: pd.DataFrame, run: Any
    ) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = evaluate(
                registered.uri,
                bios[["hard_text", "profession", "gender"]],
                evaluators=None,
                evaluator_config={"log_model_explainability": False},
            )
        assert {"biasbios/ctf", "accuracy_score"} <= set(result.metrics)


class TestOneCall:
    """biasbios_mlflow.evaluate: same run, same result."""

    def test_same_as_the_plugin(
        self, registered: Registered, bios: pd.DataFrame, run: Any, reference: dict[str, float]
    ) -> None:
        result = biasbios_mlflow.evaluate(registered.uri, bios, n_replicates=200)
        assert result.run_id == run.info.run_id
        assert_five(result.metrics, reference)
        plugin = evaluate(registered.uri, bios)
        assert plugin.metrics == result.metrics

    def test_an_alias_is_pinned_to_its_version(
        self, registered: Registered, bios: pd.DataFrame, run: Any
    ) -> None:
        result = biasbios_mlflow.evaluate(registered.uris()["alias"], bios, n_replicates=200)
        model = result.artifacts["biasbios/summary"].content["model"]
        assert model["uri"] == registered.uri
        assert model["versions"] == [{"name": "occupations", "version": registered.version}]

    def test_without_data_it_warns_and_takes_the_sample(
        self, registered: Registered, run: Any
    ) -> None:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            result = biasbios_mlflow.evaluate(registered.uri, n_replicates=200)
        assert [w for w in caught if "invented" in str(w.message) and w.filename == __file__]
        assert result.metrics["biasbios/bios"] == len(
            biasbios_mlflow.load_bios("sample", split="test").df
        )

    def test_a_file(
        self, registered: Registered, bios_csv: Any, run: Any, reference: dict[str, float]
    ) -> None:
        result = biasbios_mlflow.evaluate(registered.uri, bios_csv, n_replicates=200)
        assert_five(result.metrics, reference)

    def test_own_column_names(
        self, registered: Registered, bios: pd.DataFrame, run: Any, reference: dict[str, float]
    ) -> None:
        renamed = bios.rename(columns={"profession": "job", "gender": "sex"})
        result = biasbios_mlflow.evaluate(
            registered.uri, renamed, occupation_column="job", n_replicates=200
        )
        assert_five(result.metrics, reference)

    def test_without_an_active_run_it_makes_one(
        self, registered: Registered, bios: pd.DataFrame
    ) -> None:
        result: Callable[..., Any] | Any = biasbios_mlflow.evaluate(
            registered.uri, bios, n_replicates=200
        )
        assert mlflow.active_run() is None
        assert result.run_id is not None
        assert set(points(result.run_id).values()) == {1}

    def test_static_predictions(self, classifier: Pipeline, bios: pd.DataFrame, run: Any) -> None:
        data = bios.assign(predicted=classifier.predict(bios[["hard_text"]]))
        result = biasbios_mlflow.evaluate(None, data, predictions="predicted")
        expected = balanced_accuracy_score(data["profession"], data["predicted"])
        assert result.metrics["biasbios/balanced_accuracy"] == pytest.approx(expected, abs=1e-12)
