"""Options that change nothing are errors; those of MLflow's own evaluators break nothing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import mlflow
import mlflow.models.evaluation
import numpy as np
import pandas as pd
import pytest
from mlflow.exceptions import MlflowException

from biasbios_mlflow.config import EvaluationConfig
from tests.conftest import Registered
from tests.prediction.conftest import run


def test_every_option_of_mlflow_is_known() -> None:
    """Read from the installed MLflow: a flat config may hold any of these."""
    folder = Path(mlflow.models.evaluation.__file__).parent
    source = "\n".join(path.read_text("utf-8") for path in sorted(folder.rglob("*.py")))
    read = r"evaluator_config\s*(?:\.(?:get|pop|setdefault)\(|\[)\s*['\"](\w+)['\"]"
    keys = set(re.findall(read, source))
    assert len(keys) > 10
    assert EvaluationConfig.options_of_mlflow(dict.fromkeys(keys)) == sorted(
        keys - {"metric_prefix"}
    )
    EvaluationConfig.parse(dict.fromkeys(keys - {"metric_prefix"}, 1))


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"extra_metrics": [object()]}, "extra_metrics"),
        ({"custom_artifacts": [object()]}, "custom_artifacts"),
        (
            {"evaluator_config": {"biasbios": {"sample_weights": [1.0]}}},
            "evaluator_config.sample_weights",
        ),
        ({"evaluator_config": {"biasbios": {"label_list": [0]}}}, "evaluator_config.label_list"),
    ],
)
def test_options_of_others_with_biasbios_alone(
    registered: Registered, bios: pd.DataFrame, arguments: dict[str, Any], name: str
) -> None:
    with (
        mlflow.start_run() as active,
        pytest.raises(MlflowException, match=rf"^{name}.*: .*\['default', 'biasbios'\]"),
    ):
        mlflow.models.evaluate(
            registered.uri,
            bios,
            targets="profession",
            model_type="classifier",
            evaluators=["biasbios"],
            **arguments,
        )
    assert mlflow.get_run(active.info.run_id).data.metrics == {}


@pytest.mark.filterwarnings("ignore")
def test_a_flat_config_for_mlflow_is_not_broken(caplog: pytest.LogCaptureFixture) -> None:
    data = pd.DataFrame({"x": np.arange(40.0), "target": [0, 1] * 20})
    with mlflow.start_run():
        result = mlflow.models.evaluate(
            lambda frame: (frame["x"].to_numpy() % 2).astype(int),
            data,
            targets="target",
            model_type="classifier",
            evaluator_config={"label_list": [0, 1], "pos_label": 1, "log_explainer": False},
        )
    assert result.metrics["accuracy_score"] == 1.0


class Always:
    def predict(self, data: Any) -> list[str]:
        return ["nurse"] * len(data)


@pytest.mark.parametrize(
    "option",
    [
        {"device": "cuda"},
        {"dtype": "float32"},
        {"max_length": 64},
        {"token_budget": 1000},
        {"n_jobs": 2},
        {"probabilities": "p"},
        {"counterfactual_predictions": "q"},
        {"counterfactual_probabilities": "q"},
    ],
    ids=lambda option: next(iter(option)),
)
def test_options_without_use_for_the_model(bios: pd.DataFrame, option: dict[str, Any]) -> None:
    (name,) = option
    with pytest.raises(MlflowException, match=rf"^{name}: found .* pyfunc.predict.*leave out"):
        run(Always(), bios.head(3), **option)
    if name in ("device", "dtype", "max_length", "n_jobs", "token_budget"):
        with pytest.raises(MlflowException, match=rf"^{name}: found .* static predictions"):
            run(None, bios.head(3).assign(p="nurse"), predictions="p", **option)


def test_no_processes() -> None:
    with pytest.raises(MlflowException, match=r"n_jobs: found 0, expected .*from 1 on, or -1"):
        EvaluationConfig.parse({"n_jobs": 0})


def test_a_column_of_the_name_targets(registered: Registered, bios: pd.DataFrame) -> None:
    with mlflow.start_run():
        result = mlflow.models.evaluate(
            registered.uri,
            bios.head(60).assign(targets=1, predictions=2),
            targets="profession",
            model_type="classifier",
            evaluators=["biasbios"],
        )
    assert result.metrics["biasbios/bios"] == 60
