"""Models that misbehave: what they do is found out, told, or has no effect."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest
import yaml

import biasbios_mlflow
from biasbios_mlflow.bios.occupations import OCCUPATIONS
from tests.gating.conftest import alias, tags
from tests.prediction.conftest import run
from tests.program import call_program

AGAIN = "when it is asked again"


def label_of(text: str) -> str:
    return OCCUPATIONS[len(text) % 28]


class Model:
    """Answers by a function from texts."""

    def __init__(self, answer: Callable[[list[str]], Any]) -> None:
        self.answer = answer
        self.rows = 0

    def predict(self, data: Any) -> Any:
        self.rows += len(data)
        return self.answer(list(data["hard_text"]))


def steady(texts: list[str]) -> list[str]:
    return [label_of(text) for text in texts]


def scores(texts: list[str]) -> pd.DataFrame:
    sums = np.array([sum(text.encode()) for text in texts])
    powers = np.exp(3 * np.sin(np.outer(sums, np.arange(1, 29))))
    return pd.DataFrame(powers / powers.sum(axis=1, keepdims=True), columns=OCCUPATIONS)


class TestAskedAgain:
    def test_one_that_draws_lots(self, bios: pd.DataFrame) -> None:
        lots = np.random.default_rng(0)
        found = run(Model(lambda texts: list(lots.choice(OCCUPATIONS, len(texts)))), bios)
        [told] = [warning for warning in found.warnings if AGAIN in warning]
        assert " of 1" in told  # how many, and of how many

    def test_one_that_keeps_state(self, bios: pd.DataFrame) -> None:
        count = itertools.count()
        model = Model(lambda texts: [OCCUPATIONS[next(count) // 500 % 28] for _ in texts])
        assert any(AGAIN in warning for warning in run(model, bios).warnings)

    def test_scores_that_are_drawn_under_steady_labels(self, bios: pd.DataFrame) -> None:
        lots = np.random.default_rng(0)

        def noisy(texts: list[str]) -> pd.DataFrame:
            found = scores(texts)
            sure = np.eye(28)[found.to_numpy().argmax(axis=1)]
            share = lots.uniform(0.5, 0.9, (len(texts), 1))
            return pd.DataFrame(sure * share + (1 - share) / 28, columns=OCCUPATIONS)

        assert any(AGAIN in warning for warning in run(Model(noisy), bios).warnings)

    @pytest.mark.parametrize("answer", [steady, scores])
    def test_steady_ones_are_asked_about_few_texts(
        self, answer: Callable[[list[str]], Any], bios: pd.DataFrame
    ) -> None:
        model = Model(answer)
        found = run(model, bios, window_size=100)
        assert not any("asked" in warning for warning in found.warnings)
        changed = biasbios_mlflow.swap_gender(list(bios["hard_text"]))
        texts = len(bios) + sum(a != b for a, b in zip(bios["hard_text"], changed, strict=True))
        assert texts < model.rows <= texts + 12

    def test_one_that_fails_when_asked_again(self, bios: pd.DataFrame) -> None:
        def once(texts: list[str]) -> list[str]:
            if len(texts) <= 12:
                raise RuntimeError("used up")
            return steady(texts)

        told = [w for w in run(Model(once), bios).warnings if "used up" in w]
        assert len(told) == 1

    def test_it_stands_in_summary_and_report(self, bios: pd.DataFrame, run: Any) -> None:
        lots = np.random.default_rng(0)
        model = Model(lambda texts: list(lots.choice(OCCUPATIONS, len(texts))))
        result = biasbios_mlflow.evaluate(model.predict, bios, n_replicates=100)
        assert AGAIN in str(result.artifacts["biasbios/summary"].content["warnings"])
        assert AGAIN in str(result.artifacts["biasbios/report"].content)


def test_one_that_changes_its_input_in_place(bios: pd.DataFrame) -> None:
    def greedy(data: pd.DataFrame) -> list[str]:
        answers = steady(list(data["hard_text"]))
        for name in list(data.columns):
            data[name] = "gone"
        return answers

    model = Model(steady)
    before = bios.copy()
    expected = run(model, bios, window_size=100)
    model.predict = greedy  # type: ignore[method-assign]
    found = run(model, bios, window_size=100)
    assert found.scores.to_dict() == expected.scores.to_dict()
    assert found.data_sha256 == expected.data_sha256
    pd.testing.assert_frame_equal(bios, before)


def test_one_that_fails_in_the_third_window(
    bios: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mlflow_server: str
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    calls = itertools.count(1)

    def third(texts: list[str]) -> list[str]:
        if next(calls) == 3:
            raise RuntimeError("the third")
        return steady(texts)

    with mlflow.start_run() as active, pytest.raises(Exception, match="the third"):
        biasbios_mlflow.evaluate(Model(third).predict, bios, window_size=50, n_replicates=100)
    run_ = mlflow.get_run(active.info.run_id)
    assert not run_.data.metrics
    assert not mlflow.MlflowClient().list_artifacts(active.info.run_id)
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.name != ".lock"]


class Exiting(mlflow.pyfunc.PythonModel):
    """Ends the process, as a script would that is no model."""

    def predict(self, context, model_input, params=None):  # type: ignore[no-untyped-def]
        sys.exit(0)


class Talking(mlflow.pyfunc.PythonModel):
    """Prints while it is loaded and when it predicts."""

    def load_context(self, context):  # type: ignore[no-untyped-def]
        print("loading")

    def predict(self, context, model_input, params=None):  # type: ignore[no-untyped-def]
        print("predicting", {"a": 1})
        return [OCCUPATIONS[len(text) % 28] for text in model_input["hard_text"]]


def registered(model: Any, name: str) -> str:
    with mlflow.start_run():
        mlflow.pyfunc.log_model(
            name="model", python_model=model, registered_model_name=name, pip_requirements=[]
        )
    return f"models:/{name}/1"


@pytest.mark.filterwarnings("ignore:.*type hint")
def test_one_that_exits_does_not_pass(mlflow_server: str, bios_csv: Path, tmp_path: Path) -> None:
    uri = registered(Exiting(), "exiting")
    policy = tmp_path / "gate.yaml"
    rules = [{"metric": "balanced_accuracy", "min": 0.0}]
    policy.write_text(yaml.safe_dump({"rules": rules, "promote": "champion"}))
    done = call_program("gate", uri, "--data", str(bios_csv), "--policy", str(policy))
    assert done.returncode == 2
    assert "sys.exit(0)" in done.stderr
    assert alias("exiting") is None
    assert tags("exiting", "1")["verdict"] == "error"
    assert call_program("evaluate", uri, "--data", str(bios_csv)).returncode == 2


@pytest.mark.filterwarnings("ignore:.*type hint")
def test_one_that_prints(mlflow_server: str, bios_csv: Path) -> None:
    uri = registered(Talking(), "talking")
    options = ("--data", str(bios_csv), "--json", "--n-replicates", "100")
    done = call_program("evaluate", uri, *options)
    assert json.loads(done.stdout)["model_uri"] == uri
    assert "predicting" in done.stderr
