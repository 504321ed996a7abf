"""The command line as CI would call it: a program, its output and its exit code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mlflow
import pandas as pd
import pytest

from tests.conftest import Registered
from tests.program import call_program, run_program


@pytest.mark.parametrize(
    "command", ["evaluate", "gate", "compare", "train", "benchmark", "swap", "demo"]
)
def test_help_shows_an_example(command: str) -> None:
    done = call_program(command, "--help")
    assert done.returncode == 0
    assert f"Example: biasbios {command}" in done.stdout


def test_evaluate_json(registered: Registered, bios_csv: Path) -> None:
    done = run_program(
        *("evaluate", registered.uris()["alias"], "--data", str(bios_csv)),
        *("--n-replicates", "200", "--min-cell", "2", "--json"),
    )
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    assert set(printed) == {"model_uri", "model_version", "run_id", "metrics", "reasons"}
    assert printed["model_uri"] == registered.uri
    assert printed["model_version"] == registered.version
    logged = mlflow.get_run(printed["run_id"]).data.metrics
    assert logged == pytest.approx(printed["metrics"], abs=0)
    assert printed["metrics"]["biasbios/occupations_excluded"] > 0


def test_evaluate_table_fits_80_columns(
    registered: Registered, bios_csv: Path, mlflow_server: str
) -> None:
    done = call_program(
        *("evaluate", registered.uri, "--data", str(bios_csv), "--n-replicates", "200")
    )
    assert done.returncode == 0, done.stderr
    for name in ("balanced_accuracy", "ctf", "prediction_consistency", "gap_rms", "gap_abs"):
        assert name in done.stdout
    links = [line for line in done.stdout.splitlines() if mlflow_server in line]
    assert len(links) == 1
    assert max(len(line) for line in done.stdout.splitlines() if line not in links) <= 80
    # The worst five occupations, with what the table in the run says of them.
    run_id = done.stdout.split("Run    ")[1].split()[0]
    path = mlflow.artifacts.download_artifacts(f"runs:/{run_id}/biasbios/occupation_gaps.csv")
    for row in pd.read_csv(path).head(5).to_dict("records"):
        (line,) = (x for x in done.stdout.splitlines() if x.startswith(f"{row['occupation']} "))
        assert f"{row['tpr_gap']:+.3f}" in line
        assert f"[{row['tpr_gap_ci_low']:+.3f}, {row['tpr_gap_ci_high']:+.3f}]" in line


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["evaluate", "models:/nowhere/1"], "nowhere"),
        (["evaluate", "{uri}", "--data", "nowhere.csv"], "nowhere.csv"),
        (["evaluate", "{uri}", "--data", "{csv}", "--text-column", "hard_txt"], "hard_text"),
        (["evaluate", "{uri}", "--data", "{csv}", "--window-size", "0"], "window_size"),
        (["evaluate", "{uri}", "--scope", "everything"], "--scope"),
        (["evaluate"], "MODEL_URI"),
        (["evaluate", "{uri}", "--min-cel", "3"], "--min-cell"),
        (["train", "--data", "nowhere.csv"], "nowhere.csv"),
    ],
)
def test_what_cannot_run_says_so_and_exits_with_2(
    arguments: list[str], says: str, registered: Registered, bios_csv: Path
) -> None:
    filled = [argument.format(uri=registered.uri, csv=bios_csv) for argument in arguments]
    done = call_program(*filled)
    assert done.returncode == 2
    assert done.stdout == ""
    assert says in done.stderr
    assert "Traceback" not in done.stderr


def test_train_registers_a_version(bios_csv: Path, mlflow_server: str) -> None:
    done = call_program(
        *("train", "--data", str(bios_csv), "--split", "", "--method", "cda"),
        *("--register", "trained-by-cli", "--json"),
    )
    assert done.returncode == 0, done.stderr
    trained = json.loads(done.stdout)
    assert trained["model_uri"] == "models:/trained-by-cli/1"
    run = mlflow.get_run(trained["run_id"])
    assert run.data.params["method"] == "cda"
    model = mlflow.pyfunc.load_model(trained["model_uri"])
    bios = pd.read_csv(bios_csv)
    predicted = model.predict(bios[["hard_text"]]).idxmax(axis=1)
    assert (predicted == bios["profession"]).mean() > 0.5  # it saw these bios


class TestSwap:
    def test_arguments(self) -> None:
        done = call_program("swap", "Her students love her.", "He works.")
        assert done.stdout.splitlines() == ["His students love him.", "She works."]

    def test_lines_of_standard_input(self) -> None:
        done = run_program("swap", text="She’s a poet.\n\nNobody.\n")
        assert done.stdout == "He’s a poet.\n\nNobody.\n"

    def test_json(self) -> None:
        done = call_program("swap", "--json", "--scope", "titles", "Mr. Lund met her.")
        assert json.loads(done.stdout) == {
            "text": "Mr. Lund met her.",
            "swapped": "Ms. Lund met him.",
        }


def test_demo_json(mlflow_server: str) -> None:
    done = call_program("demo", "--register", "demo-json", "--json")
    assert done.returncode == 0, done.stderr
    printed: dict[str, Any] = json.loads(done.stdout)
    assert list(printed) == ["baseline", "cda"]
    plain, augmented = (printed[m]["metrics"] for m in printed)
    assert augmented["biasbios/prediction_consistency"] > plain["biasbios/prediction_consistency"]
    assert augmented["biasbios/ctf"] < plain["biasbios/ctf"]
    for number, method in enumerate(printed, start=1):
        version = mlflow.MlflowClient().get_model_version("demo-json", str(number))
        assert printed[method]["model_version"] == str(version.version)
        assert printed[method]["verdict"] == version.tags["biasbios.gate"] == "passed"
        assert mlflow.get_run(printed[method]["run_id"]).info.status == "FINISHED"
