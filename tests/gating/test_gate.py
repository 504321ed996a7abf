"""The gate on a real server: verdicts, tags, aliases, exit codes, reports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import mlflow
import pandas as pd
import pytest
import yaml
from mlflow.exceptions import MlflowException
from sklearn.pipeline import Pipeline

import biasbios_mlflow
from biasbios_mlflow.gating import reports
from biasbios_mlflow.gating.promotion import alias_history
from tests.conftest import register
from tests.gating.conftest import Versions, alias, tags
from tests.program import call_program, run_program

EVALUATION = {"n_replicates": 300}
LENIENT: dict[str, Any] = {
    "evaluation": EVALUATION,
    "rules": [
        {"metric": "balanced_accuracy", "min": 0.3},
        {"metric": "prediction_consistency", "no_worse_than_champion": {"margin": 0.02}},
    ],
    "champion": "champion",
    "promote": "champion",
    "first_champion": "allow",
}


def gate(uri: str, data: Any, policy: Any = LENIENT, **options: Any) -> Any:
    policy = {"evaluation": EVALUATION, **policy}
    return biasbios_mlflow.gate(uri, data, policy, **options)


def test_first_champion_then_a_fairer_one_then_the_unfair_one_again(
    versions: Versions, bios: pd.DataFrame
) -> None:
    name = versions("plain", "augmented")

    first = gate(f"models:/{name}/1", bios)
    assert first.passed
    assert first.promoted
    assert alias(name) == "1"
    assert tags(name, "1")["verdict"] == "passed"

    second = gate(f"models:/{name}/2", bios)
    assert second.passed
    assert second.champion_version == "1"
    assert alias(name) == "2"
    assert tags(name, "1")["replaced_by"] == "2"
    assert alias_history(mlflow.MlflowClient(), name, "champion") == ("1", "2")
    told = tags(name, "2")
    assert set(told) == {"verdict", "reason", "evidence"}
    assert told["reason"] == "all 2 rules passed"
    evidence = json.loads(told["evidence"])
    assert evidence["run_id"] == second.run_id
    assert evidence["policy_sha256"] == second.policy_sha256
    assert evidence["data_sha256"] == second.data_sha256
    assert set(evidence["files"]) == {"gate.json", "summary.json", "predictions.parquet"}
    assert mlflow.get_run(second.run_id).data.metrics == pytest.approx(
        second.evaluation.metrics, abs=0
    )

    third = gate(f"models:/{name}/1", bios)
    assert not third.passed
    assert not third.promoted
    assert alias(name) == "2"
    assert tags(name, "1")["verdict"] == "failed"
    assert "prediction_consistency" in tags(name, "1")["reason"]


def test_the_stored_champion_is_reused_only_for_the_same_data(
    versions: Versions, bios: pd.DataFrame
) -> None:
    name = versions("plain", "augmented", "augmented")

    def runs_of_champion() -> int:
        found = mlflow.search_runs(
            filter_string="tags.mlflow.runName LIKE 'champion%'",
            search_all_experiments=True,
            output_format="list",
        )
        return len(found)

    gate(f"models:/{name}/1", bios)
    before = runs_of_champion()
    reused = gate(f"models:/{name}/2", bios, dry_run=True)
    assert runs_of_champion() == before
    anew = gate(f"models:/{name}/2", bios.iloc[1:], dry_run=True)
    assert runs_of_champion() == before + 1
    assert any("data" in note for note in anew.notes)
    other_cells = {**LENIENT, "evaluation": {**EVALUATION, "min_cell": 2}}
    rescored = gate(f"models:/{name}/2", bios, other_cells, dry_run=True)
    assert runs_of_champion() == before + 1  # the rows are the same, however they are scored
    assert reused.passed
    assert reused.notes == rescored.notes == ()
    assert anew.passed
    assert rescored.passed


def test_fails_by_the_bound_and_passes_by_the_point(versions: Versions, bios: pd.DataFrame) -> None:
    name = versions("plain")
    uri = f"models:/{name}/1"
    measured = biasbios_mlflow.evaluate(uri, bios, n_replicates=300).metrics
    name_of = "biasbios/balanced_accuracy"
    limit = (measured[name_of] + measured[f"{name_of}_ci_low"]) / 2
    rule = {"metric": "balanced_accuracy", "min": limit}

    by_bound = gate(uri, bios, {"rules": [rule], "promote": "champion"})
    assert not by_bound.passed
    assert alias(name) is None
    by_point = gate(uri, bios, {"rules": [{**rule, "bound": "point"}], "promote": "champion"})
    assert by_point.passed
    assert alias(name) == "1"


def test_every_occupation(versions: Versions, bios: pd.DataFrame) -> None:
    name = versions("plain")
    rule = {"metric": "tpr_gap/*", "abs_max": 0.001, "bound": "point"}
    result = gate(f"models:/{name}/1", bios, {"rules": [rule]})
    scored = result.evaluation.metrics["biasbios/occupations_scored"]
    assert len(result.rules) == scored
    assert not result.passed


def test_without_a_champion_it_refuses_by_default(versions: Versions, bios: pd.DataFrame) -> None:
    name = versions("plain")
    result = gate(f"models:/{name}/1", bios, {**LENIENT, "first_champion": "refuse"})
    assert not result.passed
    assert alias(name) is None
    assert "does not exist yet" in result.reason


def test_a_dry_run_writes_nothing(versions: Versions, bios: pd.DataFrame) -> None:
    name = versions("plain")
    result = gate(f"models:/{name}/1", bios, dry_run=True)
    assert result.passed
    assert not result.promoted
    assert alias(name) is None
    assert tags(name, "1") == {}


def test_aliases_of_the_call_replace_the_policys(versions: Versions, bios: pd.DataFrame) -> None:
    name = versions("plain")
    gate(f"models:/{name}/1", bios, champion="prod", promote="staging")
    assert alias(name, "staging") == "1"
    assert alias(name) is None


def test_an_alias_names_the_version_at_the_start(versions: Versions, bios: pd.DataFrame) -> None:
    name = versions("plain", "augmented")
    result = gate(f"models:/{name}@candidate", bios)
    assert result.version == "2"
    assert result.model_uri == f"models:/{name}/2"


def test_a_broken_evaluation_moves_nothing_and_says_error(
    versions: Versions, bios: pd.DataFrame
) -> None:
    name = versions("plain", "augmented")
    gate(f"models:/{name}/1", bios)
    with pytest.raises(MlflowException, match="no column"):
        gate(
            f"models:/{name}/2",
            bios,
            {**LENIENT, "evaluation": {"gender_column": "nowhere"}},
        )
    assert alias(name) == "1"
    assert tags(name, "2")["verdict"] == "error"
    assert "no column" in tags(name, "2")["reason"]


def test_a_champion_that_cannot_be_evaluated_is_an_error(
    mlflow_server: str, classifier: Pipeline, augmented_logged: str, bios: pd.DataFrame
) -> None:
    name = "gated-broken"
    champion = register(classifier, name)  # a model of its own, to be broken
    client = mlflow.MlflowClient()
    client.create_model_version(name, f"models:/{augmented_logged}", model_id=augmented_logged)
    client.set_registered_model_alias(name, "champion", "1")
    root = mlflow.get_logged_model(champion.model_id).artifact_location
    from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

    get_artifact_repository(root).delete_artifacts("MLmodel")
    with pytest.raises(Exception, match=r"MLmodel|artifact"):
        gate(f"models:/{name}/2", bios)
    assert alias(name) == "1"
    assert tags(name, "2")["verdict"] == "error"


def test_a_version_deleted_meanwhile(versions: Versions, bios: pd.DataFrame) -> None:
    name = versions("plain", "plain")
    gate(f"models:/{name}/1", bios)
    client = mlflow.MlflowClient()

    class Deletes(mlflow.pyfunc.PythonModel):
        """While it predicts, its own version disappears."""

        def predict(self, context: Any, model_input: Any, params: Any = None) -> Any:
            client.delete_model_version(name, "3")
            return ["nurse"] * len(model_input)

    with mlflow.start_run():
        mlflow.pyfunc.log_model(
            name="model",
            python_model=Deletes(),
            registered_model_name=name,
            pip_requirements=[],
            signature=mlflow.models.infer_signature(bios[["hard_text"]], ["nurse"]),
        )
    rule = {"metric": "bios", "min": 1, "bound": "point"}
    with pytest.raises(MlflowException):
        gate(f"models:/{name}/3", bios, {"rules": [rule], "promote": "champion"}, window_size=9999)
    assert alias(name) == "1"


def test_only_a_registered_version_can_be_gated(versions: Versions, bios: pd.DataFrame) -> None:
    name = versions("plain")
    source = mlflow.MlflowClient().get_model_version(name, "1").source
    with pytest.raises(MlflowException, match="expected a registered version"):
        gate(source, bios)


def test_thresholds_of_mlflow_work_on_the_result(versions: Versions, bios: pd.DataFrame) -> None:
    from mlflow.models import MetricThreshold

    name = versions("plain")
    result = gate(f"models:/{name}/1", bios, dry_run=True)
    threshold = MetricThreshold(threshold=0.3, greater_is_better=True)
    mlflow.validate_evaluation_results({"biasbios/balanced_accuracy": threshold}, result.evaluation)


class TestRollback:
    def test_puts_back_the_version_before(self, versions: Versions, bios: pd.DataFrame) -> None:
        name = versions("plain", "augmented")
        gate(f"models:/{name}/1", bios)
        gate(f"models:/{name}/2", bios)
        done = call_program("gate", name, "--rollback", "champion")
        assert done.returncode == 0, done.stderr
        assert alias(name) == "1"
        assert "replaced_by" not in tags(name, "1")
        assert tags(name, "2")["rolled_back_to"] == "1"

    def test_without_a_version_before(self, versions: Versions, bios: pd.DataFrame) -> None:
        name = versions("plain")
        gate(f"models:/{name}/1", bios)
        done = call_program("gate", name, "--rollback", "champion")
        assert done.returncode == 2
        assert "before version 1" in done.stderr
        assert alias(name) == "1"


@pytest.fixture
def policy_file(tmp_path: Path) -> Path:
    path = tmp_path / "gate.yaml"
    path.write_text(yaml.safe_dump(LENIENT), "utf-8")
    return path


class TestCommand:
    def test_pass(
        self, versions: Versions, bios_csv: Path, policy_file: Path, tmp_path: Path
    ) -> None:
        name = versions("plain")
        done = run_program(
            *("gate", f"models:/{name}/1", "--data", str(bios_csv), "--policy", str(policy_file)),
            "--json",
            *("--junit", str(tmp_path / "gate.xml"), "--summary", str(tmp_path / "gate.md")),
        )
        assert done.returncode == 0, done.stderr
        printed = json.loads(done.stdout)
        assert printed["verdict"] == "passed"
        assert printed["promoted"] is True
        assert printed["model_uri"] == f"models:/{name}/1"
        assert printed["model_version"] == "1"
        assert {"run_id", "metrics", "reasons", "rules"} <= set(printed)
        assert len(printed["rules"]) == 2
        assert alias(name) == "1"
        suite = ElementTree.parse(tmp_path / "gate.xml").getroot()
        assert suite.get("tests") == "2"
        assert suite.get("failures") == "0"
        assert "Gate passed" in (tmp_path / "gate.md").read_text("utf-8")

    def test_fail(
        self, versions: Versions, bios_csv: Path, policy_file: Path, tmp_path: Path
    ) -> None:
        name = versions("augmented", "plain")
        mlflow.MlflowClient().set_registered_model_alias(name, "champion", "1")
        done = call_program(
            *("gate", f"models:/{name}/2", "--data", str(bios_csv), "--policy", str(policy_file)),
            *("--junit", str(tmp_path / "gate.xml")),
        )
        assert done.returncode == 1, done.stderr
        assert done.stdout.startswith(f"Gate failed: {name} version 2 against 1")
        assert "FAIL  prediction_consistency" in done.stdout
        links = [line for line in done.stdout.splitlines() if "http" in line]
        assert max(len(line) for line in done.stdout.splitlines() if line not in links) <= 80
        assert alias(name) == "1"
        suite = ElementTree.parse(tmp_path / "gate.xml").getroot()
        assert suite.get("failures") == "1"
        [failure] = suite.iter("failure")
        assert "worse" in str(failure.text)

    @pytest.mark.parametrize(
        ("arguments", "says"),
        [
            (["models:/nowhere/1", "--data", "{csv}", "--policy", "{policy}"], "nowhere"),
            (["{uri}", "--data", "nowhere.csv", "--policy", "{policy}"], "nowhere.csv"),
            (["{uri}", "--data", "{csv}", "--policy", "nowhere.yaml"], "nowhere.yaml"),
            (["{uri}", "--data", "{csv}"], "--policy"),
            ([], "MODEL_URI"),
        ],
    )
    def test_what_cannot_run(
        self,
        arguments: list[str],
        says: str,
        versions: Versions,
        bios_csv: Path,
        policy_file: Path,
    ) -> None:
        name = versions("plain") if "{uri}" in arguments else "nobody"
        filled = [
            a.format(uri=f"models:/{name}/1", csv=bios_csv, policy=policy_file) for a in arguments
        ]
        done = call_program("gate", *filled)
        assert done.returncode == 2
        assert done.stdout == ""
        assert says in done.stderr

    def test_schema(self) -> None:
        done = call_program("gate", "--schema")
        assert json.loads(done.stdout)["properties"]["rules"]


def test_reports_show_any_reason(versions: Versions, bios: pd.DataFrame) -> None:
    from dataclasses import replace

    name = versions("plain")
    result = gate(f"models:/{name}/1", bios, dry_run=True)
    odd = replace(result.rules[0], passed=False, reason='a | b <c> & "d" \x00 \ud800')
    broken = replace(result, rules=(odd,), verdict="failed")
    assert ElementTree.fromstring(reports.junit(broken).encode()).get("failures") == "1"
    [row] = [line for line in reports.markdown(broken).splitlines() if "a \\| b" in line]
    assert row.count(" | ") == 5
    lost = replace(result, verdict="failed", reason="the alias champion moved during the gate")
    suite = ElementTree.fromstring(reports.junit(lost).encode())
    assert suite.get("tests") == str(len(result.rules) + 1)
    assert suite.get("failures") == "1"
