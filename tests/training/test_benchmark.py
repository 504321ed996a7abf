"""The benchmark: nested runs, tables, reuse of what is done, failures that cost nothing else."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest
from mlflow.exceptions import MlflowException

import biasbios_mlflow
from biasbios_mlflow.config import EvaluationConfig
from biasbios_mlflow.runs import outcomes_at
from biasbios_mlflow.scoring import HEADLINE, compare
from biasbios_mlflow.training import BenchmarkResult, Settings, benchmark, benchmarking, train
from biasbios_mlflow.training.classifiers import TrainingSet
from tests.plugin.test_project import run_project
from tests.program import call_program
from tests.training.conftest import QUICK

pytest.importorskip("inFairness")

EVALUATION = {"n_replicates": 100}
VECTOR_METHODS = ["baseline", "sensei"]


@pytest.fixture(autouse=True)
def experiment(mlflow_server: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """An experiment of its own for each test: what is done is looked for in the experiment."""
    before = mlflow.get_experiment_by_name("Default")
    name = f"{request.node.name} {time.time_ns()}"
    yield mlflow.set_experiment(name).experiment_id
    assert before is not None
    mlflow.set_experiment(experiment_id=before.experiment_id)


def compared(few: pd.DataFrame, held_out: pd.DataFrame, **options: Any) -> BenchmarkResult:
    chosen = {"seeds": 1, "evaluation": EVALUATION, **options}
    return benchmark(few, test_data=held_out, split=None, test_split=None, **chosen)


def children(run_id: str) -> list[Any]:
    experiment_id = mlflow.get_run(run_id).info.experiment_id
    return mlflow.MlflowClient().search_runs(
        [experiment_id], f"tags.mlflow.parentRunId = '{run_id}'"
    )


def test_on_the_features_of_an_encoder(
    few: pd.DataFrame,
    held_out: pd.DataFrame,
    encoder: str,
    cache: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    options = {"features": encoder, "cache": cache, "device": "cpu", **QUICK}
    result = compared(few, held_out, methods=VECTOR_METHODS, seeds=2, **options)
    told = [line for line in capsys.readouterr().err.splitlines() if line.startswith("benchmark:")]
    assert [line.partition(" runs")[0] for line in told] == [
        f"benchmark: {done} of 4" for done in (1, 2, 3, 4)
    ]
    assert "sensei with seed 1: balanced_accuracy 0." in told[-1]
    assert told[-1].endswith("about 0 min left")

    assert result.runs["method"].tolist() == [m for m in VECTOR_METHODS for _ in range(2)]
    assert result.runs["seed"].tolist() == [0, 1] * 2
    assert len(result.failed) == 0
    assert set(result.runs["run_id"]) == {run.info.run_id for run in children(result.run_id)}

    # The run of a seed holds what training and evaluating its model by hand gives.
    row = result.runs.iloc[-1]
    one = train(few, split=None, method="sensei", seed=1, **options)
    by_hand = biasbios_mlflow.evaluate(one.model_uri, held_out, device="cpu", **EVALUATION)
    for metric in HEADLINE:
        assert row[metric] == pytest.approx(by_hand.metrics[f"biasbios/{metric}"], abs=1e-6)

    # The paired intervals are those of the two runs' rows.
    a, b = (
        outcomes_at(f"runs:/{run_id}/biasbios/predictions.parquet")
        for run_id in (result.runs.iloc[1]["run_id"], row["run_id"])
    )
    expected = compare(a, b, n_replicates=100).differences.loc["ctf"]
    found = result.comparisons.query("method == 'sensei' and seed == 1 and metric == 'ctf'")
    assert found[["difference", "ci_low", "ci_high"]].iloc[0].tolist() == pytest.approx(
        expected[["difference", "ci_low", "ci_high"]].tolist()
    )
    assert len(result.comparisons) == 2 * 5

    folder = Path(mlflow.artifacts.download_artifacts(f"runs:/{result.run_id}/benchmark"))
    names = ["benchmark.json", "comparisons.csv", "methods.csv", "runs.csv", "table.md"]
    assert sorted(path.name for path in folder.iterdir()) == [*names, "tradeoff.png"]
    pd.testing.assert_frame_equal(
        pd.read_csv(folder / "runs.csv", keep_default_na=False), result.runs
    )
    assert (folder / "table.md").read_text("utf-8") == result.markdown()
    about = json.loads((folder / "benchmark.json").read_text("utf-8"))
    assert about["settings"]["sensei"]["width"] == QUICK["width"]
    assert "rho" not in about["settings"]["baseline"]
    assert (folder / "tradeoff.png").stat().st_size > 10_000
    mean = result.runs.groupby("method")["ctf"].mean()["sensei"]
    assert mlflow.get_run(result.run_id).data.metrics["benchmark/sensei/ctf"] == pytest.approx(mean)

    again = compared(few, held_out, methods=["sensei", "baseline"], seeds=2, **options)
    assert again.runs["reused"].all()
    assert children(again.run_id) == []  # they stay where they are
    pd.testing.assert_frame_equal(
        again.comparisons, result.comparisons.query("method == 'sensei'").reset_index(drop=True)
    )


def test_what_is_done_is_known_by_all_that_the_figures_depend_on(
    few: pd.DataFrame, held_out: pd.DataFrame
) -> None:
    def key(
        train_on: pd.DataFrame = few,
        test_on: pd.DataFrame = held_out,
        options: dict[str, Any] = EVALUATION,
        **changed: Any,
    ) -> str:
        config = EvaluationConfig.parse(options)
        training = TrainingSet.read(train_on, split=None, scope="pronouns", encoder=None)
        test = benchmarking._TestSet.read(test_on, split=None, config=config, encoder=None)
        chosen = {"method": "cda", "seed": 0, "features": "tfidf", "scope": "pronouns"}
        one = benchmarking._Job(settings=Settings(), log_models=False, **{**chosen, **changed})
        return one._key(training, test, config)

    keys = [
        key(),
        key(few.iloc[1:]),
        key(few, held_out.iloc[1:]),
        key(options={"n_replicates": 101}),
        key(options={**EVALUATION, "scope": "titles"}),
        key(seed=1),
        key(method="baseline"),
        key(features="other"),
    ]
    assert len(set(keys)) == len(keys)
    assert key() == key(few.iloc[::-1]) == keys[0]


def test_killed_and_resumed(
    few: pd.DataFrame, held_out: pd.DataFrame, tmp_path: Path, experiment: str
) -> None:
    few.to_csv(tmp_path / "train.csv", index=False)
    held_out.to_csv(tmp_path / "test.csv", index=False)
    arguments = [
        "benchmark",
        *("--data", str(tmp_path / "train.csv"), "--test-data", str(tmp_path / "test.csv")),
        *("--split", "", "--test-split", "", "--methods", "baseline"),
        *("--n-replicates", "100", "--json"),
    ]
    process = subprocess.Popen(
        [sys.executable, "-m", "biasbios_mlflow", *arguments, "--seeds", "50"],
        env={**os.environ, "MLFLOW_EXPERIMENT_ID": experiment},
        stdout=subprocess.DEVNULL,
    )
    client = mlflow.MlflowClient()
    deadline = time.monotonic() + 200
    finished: list[Any] = []
    while not finished and time.monotonic() < deadline and process.poll() is None:
        finished = client.search_runs([experiment], "attributes.status = 'FINISHED'")
        time.sleep(0.1)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert finished, "it ended before a run was finished"

    done = call_program(*arguments, "--seeds", "3")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    reused = {row["run_id"] for row in found["runs"] if row["reused"]}
    assert {run.info.run_id for run in finished} <= reused < {r["run_id"] for r in found["runs"]}
    # What the killed benchmark left belongs to this one now.
    (parent,) = {r.data.tags["mlflow.parentRunId"] for r in children(found["run_id"])}
    assert parent == found["run_id"]
    assert len(children(parent)) == 3
    # Words through a logistic regression are the same for every seed: what was taken over is what
    # was run anew.
    for metric in HEADLINE:
        assert len({row[metric] for row in found["runs"]}) == 1


def test_one_that_fails_costs_nothing_else(
    few: pd.DataFrame, held_out: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit = benchmarking.fit

    def fails_once(*args: Any, **options: Any) -> Any:
        if options["method"] == "cda":
            raise RuntimeError("out of luck")
        return fit(*args, **options)

    monkeypatch.setattr(benchmarking, "fit", fails_once)
    result = compared(few, held_out)
    assert result.runs["error"].tolist() == ["", "RuntimeError: out of luck"]
    assert len(result.comparisons) == 0
    assert "cda, seed 0 failed: RuntimeError: out of luck" in str(result)
    assert "failed" in result.markdown()
    statuses = {run.data.params["method"]: run.info.status for run in children(result.run_id)}
    assert statuses == {"baseline": "FINISHED", "cda": "FAILED"}
    assert mlflow.get_run(result.run_id).info.status == "FINISHED"

    monkeypatch.setattr(benchmarking, "fit", fit)
    again = compared(few, held_out)
    assert again.runs["reused"].tolist() == [True, False]
    assert len(again.failed) == 0


def test_models_are_logged_when_asked_for(
    few: pd.DataFrame, held_out: pd.DataFrame, encoder: str, cache: Path
) -> None:
    result = compared(
        few,
        held_out,
        methods=["clp"],
        features=encoder,
        cache=cache,
        log_models=True,
        **QUICK,
    )
    (run,) = children(result.run_id)
    (output,) = run.outputs.model_outputs
    model = mlflow.pyfunc.load_model(f"models:/{output.model_id}")
    assert model.predict(held_out[["hard_text"]].head(2)).shape == (2, 28)
    client = mlflow.MlflowClient()
    points = client.get_metric_history(run.info.run_id, "biasbios/ctf")
    assert len(points) == 1
    linked = {metric.key for metric in client.get_logged_model(output.model_id).metrics}
    assert {f"biasbios/{name}" for name in HEADLINE} <= linked
    assert len(result.comparisons) == 0  # no baseline to compare with
    assert np.isfinite(result.runs["ctf"]).all()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"methods": ["baseline", "cdaa"]}, "method: found 'cdaa'"),
        ({"methods": ["sensei"]}, "method 'sensei': found features 'tfidf'"),
        ({"seeds": 0}, "seeds: found 0"),
        ({"evaluation": {"min_cel": 2}}, "min_cel"),
        ({"rh": 2}, "settings: found the key 'rh'"),
    ],
)
def test_what_concerns_all_runs_is_said_at_once(
    options: dict[str, Any],
    says: str,
    few: pd.DataFrame,
    held_out: pd.DataFrame,
    experiment: str,
) -> None:
    with pytest.raises(MlflowException, match=says):
        compared(few, held_out, **options)
    assert mlflow.search_runs([experiment], output_format="list") == []


def test_as_a_project(few: pd.DataFrame, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    half = len(few) // 2
    few.assign(split=["train"] * half + ["test"] * (len(few) - half)).to_csv(
        tmp_path / "bios.csv", index=False
    )
    capfd.readouterr()
    run_project("benchmark", data=tmp_path / "bios.csv", seeds=1, methods="baseline")
    printed = capfd.readouterr().out
    assert "bal_accuracy" in printed
    assert max(map(len, printed.splitlines()[:2])) <= 80
