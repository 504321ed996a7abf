"""Two runs side by side: the same numbers as from arrays, and clear errors."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
from mlflow.exceptions import MlflowException
from mlflow.models import EvaluationResult
from sklearn.base import clone
from sklearn.pipeline import Pipeline

import biasbios_mlflow
from biasbios_mlflow import compare, score, swap_gender
from biasbios_mlflow.runs import compare_runs, plot_comparison
from tests.conftest import Registered, few_training_bios
from tests.program import call_program


@pytest.fixture(scope="module")
def other(classifier: Pipeline) -> Pipeline:
    train = few_training_bios()
    pipeline = clone(classifier)
    swapped = pd.DataFrame({"hard_text": swap_gender(list(train["hard_text"]))})
    both = pd.concat([train[["hard_text"]], swapped])
    return pipeline.fit(both, [*train["profession"]] * 2)


@pytest.fixture(scope="module")
def results(
    registered: Registered, other: Pipeline, bios: pd.DataFrame
) -> tuple[EvaluationResult, EvaluationResult]:
    a = biasbios_mlflow.evaluate(registered.uri, bios, n_replicates=500)
    return a, biasbios_mlflow.evaluate(
        other.predict_proba, bios, label_names=None, n_replicates=500
    )


def test_runs_compare_as_their_arrays_do(
    results: tuple[EvaluationResult, EvaluationResult],
    classifier: Pipeline,
    other: Pipeline,
    bios: pd.DataFrame,
) -> None:
    swapped = pd.DataFrame({"hard_text": swap_gender(list(bios["hard_text"]))})
    scores = []
    for model in (classifier, other):
        before, after = (model.predict_proba(x) for x in (bios[["hard_text"]], swapped))
        scores.append(
            score(
                bios["profession"],
                bios["gender"],
                model.classes_[before.argmax(1)],
                model.classes_[after.argmax(1)],
                labels=list(model.classes_),
                changed=swapped["hard_text"].to_numpy() != bios["hard_text"].to_numpy(),
            )
        )
    expected = compare(*scores, n_replicates=500).differences
    by_id = compare_runs(*(result.run_id for result in results), n_replicates=500)
    found = by_id.comparison.differences.loc[expected.index]
    pd.testing.assert_frame_equal(found, expected, rtol=1e-12)
    by_result = compare_runs(*results, n_replicates=500)
    pd.testing.assert_frame_equal(
        by_result.comparison.differences, by_id.comparison.differences, check_exact=True
    )
    assert "ctf" in by_id.comparison.differences.index


def test_command_line(
    results: tuple[EvaluationResult, EvaluationResult], tmp_path: Path, registered: Registered
) -> None:
    ids = [result.run_id for result in results]
    done = call_program("compare", *ids, "--figure", str(tmp_path / "c.svg"))
    assert done.returncode == 0, done.stderr
    assert registered.uri in done.stdout
    assert "prediction_consistency" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 90
    assert "<svg" in (tmp_path / "c.svg").read_text()
    printed = json.loads(call_program("compare", *ids, "--json").stdout)
    assert printed["a"] == registered.uri
    named = {row["metric"]: row for row in printed["differences"]}
    a, b = (result.metrics["biasbios/ctf"] for result in results)
    assert named["ctf"]["difference"] == pytest.approx(b - a, abs=1e-15)
    broken = call_program("compare", ids[0], ids[1], "--figure", str(tmp_path / "c.nonsense"))
    assert broken.returncode == 2
    assert "nonsense" in broken.stderr


def test_figure_of_results(results: tuple[EvaluationResult, EvaluationResult]) -> None:
    figure = plot_comparison(*results, names=("first", "second"), n_replicates=200)
    assert {axes.get_label() for axes in figure.axes} >= {"gaps", "ctf", "balanced_accuracy"}


def test_errors_name_what_is_missing(
    results: tuple[EvaluationResult, EvaluationResult], registered: Registered, bios: pd.DataFrame
) -> None:
    run_id = results[0].run_id
    with pytest.raises(MlflowException, match="no evaluation by biasbios"):
        compare_runs(run_id, registered.run_id)
    with pytest.raises(MlflowException, match="no evaluation by biasbios"):
        compare_runs(run_id, f"{run_id}/dev_")
    fewer = biasbios_mlflow.evaluate(registered.uri, bios[:100])
    with pytest.raises(MlflowException, match="bios"):
        compare_runs(run_id, fewer.run_id)
    rowless = biasbios_mlflow.evaluate(registered.uri, bios, log_predictions=False)
    with pytest.raises(MlflowException, match="log_predictions"):
        compare_runs(run_id, rowless.run_id)
    with pytest.raises(MlflowException, match="log_predictions"):
        compare_runs(results[0], rowless)
    stricter = biasbios_mlflow.evaluate(registered.uri, bios, min_cell=3)
    with pytest.raises(MlflowException, match="3 and 5"):
        compare_runs(run_id, stricter.run_id)
    assert compare_runs(run_id, stricter.run_id, min_cell=2).comparison.options["min_cell"] == 2
