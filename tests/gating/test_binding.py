"""A verdict is bound to what it was made of: policy, model, data, files, aliases."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from mlflow.exceptions import MlflowException
from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository
from sklearn.pipeline import Pipeline

import biasbios_mlflow
from biasbios_mlflow.bios.occupations import OCCUPATIONS
from biasbios_mlflow.config import BEARING, EvaluationConfig
from biasbios_mlflow.fingerprint import Fingerprint, Identity
from biasbios_mlflow.gating.evidence import read_evidence
from biasbios_mlflow.gating.flow import rollback
from biasbios_mlflow.gating.promotion import (
    alias_history,
    alias_target,
    move_alias,
    remember_move,
    turn,
)
from biasbios_mlflow.prediction.identity import content_digest, identify
from biasbios_mlflow.runs import compare_runs
from tests.conftest import register
from tests.gating.conftest import Versions, alias, tags
from tests.program import call_program

EASY = {"metric": "bios", "min": 1, "bound": "point"}
QUICK = {"n_replicates": 100}
PROMOTES = {"evaluation": QUICK, "rules": [EASY], "promote": "champion"}
COMPARES: dict[str, Any] = {
    "evaluation": QUICK,
    "rules": [{"metric": "balanced_accuracy", "no_worse_than_champion": {"margin": 0.02}}],
    "champion": "champion",
    "promote": "champion",
    "first_champion": "allow",
}


@pytest.fixture(scope="module")
def few() -> pd.DataFrame:
    """Bios enough to be evaluated in no time."""
    return biasbios_mlflow.load_bios("sample", split="test").df.iloc[::40].reset_index(drop=True)


def rewrite(run_id: str, name: str, change: Callable[[bytes], bytes]) -> None:
    """Change a file of an evaluation in the artifact store, as somebody might by hand."""
    client = mlflow.MlflowClient()
    path = Path(mlflow.artifacts.download_artifacts(f"runs:/{run_id}/biasbios/{name}"))
    path.write_bytes(change(path.read_bytes()))
    client.log_artifact(run_id, str(path), "biasbios")


class TestPolicy:
    def test_every_option_says_what_it_bears_on(self) -> None:
        said = {name: EvaluationConfig.bears_on(name) for name in EvaluationConfig.model_fields}
        assert set(said.values()) == set(BEARING)

    @pytest.mark.parametrize(
        "name",
        [n for n in EvaluationConfig.model_fields if EvaluationConfig.bears_on(n) != "nothing"],
    )
    def test_what_bears_on_the_numbers_stands_in_the_policy_only(self, name: str) -> None:
        rules = {"rules": [EASY]}
        with pytest.raises(MlflowException, match=f"{name}: found .*write it under evaluation"):
            biasbios_mlflow.gate("models:/nobody/1", "nowhere.csv", rules, **{name: 1})
        value = {
            "scope": "names", "label_names": ["a"], "gender_values": {"x": "male"},
            "allow_missing": True, "prediction": "pyfunc", "dtype": "float16", "max_length": 7,
            "confidence": 0.5, "n_replicates": 101, "seed": 3, "min_cell": 7, "answers": "text",
            "label_score": "mean", "label_from": "likelihood", "samples": 5, "temperature": 0.5,
            "max_answer_tokens": 9,
        }.get(name, "other")  # fmt: skip
        plain = biasbios_mlflow.GatePolicy.parse(rules)
        other = biasbios_mlflow.GatePolicy.parse({**rules, "evaluation": {name: value}})
        assert other.sha256() != plain.sha256()
        default = {name: EvaluationConfig.model_fields[name].get_default()}
        spelled = biasbios_mlflow.GatePolicy.parse({**rules, "evaluation": default})
        assert spelled.sha256() == plain.sha256()

    @pytest.mark.parametrize("name", ["env_manager", "model_config"])
    def test_how_the_model_is_loaded_too(self, name: str) -> None:
        with pytest.raises(MlflowException, match="write it under evaluation"):
            biasbios_mlflow.gate("models:/nobody/1", "x.csv", {"rules": [EASY]}, **{name: "uv"})

    def test_confidence_and_cells_of_the_call_are_refused_on_the_command_line(
        self, tmp_path: Path
    ) -> None:
        path = tmp_path / "gate.yaml"
        path.write_text(yaml.safe_dump({"rules": [EASY]}))
        for flags in (["--confidence", "0.01"], ["--min-cell", "100"]):
            arguments = ["models:/nobody/1", "--data", "x.csv", "--policy", str(path), *flags]
            done = call_program("gate", *arguments)
            assert done.returncode == 2
            assert "write it under evaluation" in done.stderr
        listed = call_program("gate", "--help").stdout
        assert "--device" in listed
        assert "--confidence" not in listed

    @pytest.mark.parametrize(
        ("written", "read"),
        [
            ("gap-rms", "gap_rms"),
            ("biasbios/GAP RMS", "gap_rms"),
            ("tpr_gap/Nurse", "tpr_gap/nurse"),
            ("TPR-gap/Software Engineer", "tpr_gap/software_engineer"),
            ("tpr_gap/*", "tpr_gap/*"),
            ("ctf_ci_high", "ctf_ci_high"),
        ],
    )
    def test_any_spelling_of_a_metric(self, written: str, read: str) -> None:
        policy = biasbios_mlflow.GatePolicy.parse({"rules": [{"metric": written, "max": 1}]})
        assert policy.rules[0].metric == read
        same = biasbios_mlflow.GatePolicy.parse({"rules": [{"metric": read, "max": 1}]})
        assert same.sha256() == policy.sha256()

    @pytest.mark.parametrize(
        ("written", "near"),
        [("gap_rsm", "gap_rms"), ("tpr_gp/nurse", "tpr_gap/nurse"), ("tpr_gap", r"tpr_gap/\*"),
         ("gapp_*", "gap"), ("ballanced accuracy", "balanced_accuracy")],
    )  # fmt: skip
    def test_an_unknown_metric_is_an_error_with_the_nearest(self, written: str, near: str) -> None:
        with pytest.raises(MlflowException, match=f"the name of a metric .nearest: {near}"):
            biasbios_mlflow.GatePolicy.parse({"rules": [{"metric": written, "max": 1}]})

    def test_data_in_the_policy_and_in_the_call(self) -> None:
        pinned = {"rules": [EASY], "evaluation": {"data": "bios.csv"}}
        with pytest.raises(MlflowException, match="data: found it in the call and in the policy"):
            biasbios_mlflow.gate("models:/nobody/1", "other.csv", pinned)
        with pytest.raises(MlflowException, match="none in the call or the policy"):
            biasbios_mlflow.gate("models:/nobody/1", None, {"rules": [EASY]})


class TestDoor:
    """What is wrong is found before a bio is predicted: nothing is logged, nothing moves."""

    def runs(self) -> int:
        return len(mlflow.search_runs(search_all_experiments=True, output_format="list"))

    def test_data_and_metrics(self, versions: Versions, few: pd.DataFrame) -> None:
        name = versions("plain")
        before = self.runs()
        for evaluation, rule, says in (
            ({"data_sha256": "0" * 64}, EASY, "the policy's data_sha256"),
            ({"min_bios": 10**6}, EASY, "the policy's min_bios"),
            ({}, {"metric": "tpr_gap/nurs", "max": 1}, "did you mean tpr_gap/nurse"),
            ({}, {"metric": "tpr_gap/zz*", "max": 1}, "no occupation 'zz"),
        ):
            policy = {"evaluation": evaluation, "rules": [rule], "promote": "champion"}
            with pytest.raises(MlflowException, match=says):
                biasbios_mlflow.gate(f"models:/{name}/1", few, policy)
        assert self.runs() == before
        assert alias(name) is None

    def test_files_that_cannot_be_written(
        self, versions: Versions, bios_csv: Path, tmp_path: Path
    ) -> None:
        name = versions("plain")
        before = self.runs()
        path = tmp_path / "gate.yaml"
        path.write_text(yaml.safe_dump(PROMOTES))
        uri = f"models:/{name}/1"
        call = ("gate", uri, "--data", str(bios_csv), "--policy", str(path))
        for option in ("--junit", "--summary"):
            done = call_program(*call, option, str(tmp_path / "no" / "such" / "x.xml"))
            assert done.returncode == 2
            assert option in done.stderr
        assert self.runs() == before
        assert alias(name) is None

    def test_what_fails_after_the_alias_moved_is_a_warning(
        self, versions: Versions, few: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        name = versions("plain")
        data, path, folder = tmp_path / "b.csv", tmp_path / "gate.yaml", tmp_path / "reports"
        few.to_csv(data, index=False)
        path.write_text(yaml.safe_dump(PROMOTES))
        folder.mkdir()

        from biasbios_mlflow.gating import flow

        real = flow.move_alias

        def move_then_lose_the_folder(*arguments: Any, **options: Any) -> None:
            real(*arguments, **options)
            folder.rmdir()

        monkeypatch.setattr(flow, "move_alias", move_then_lose_the_folder)
        call = ("gate", f"models:/{name}/1", "--data", str(data), "--policy", str(path))
        done = call_program(*call, "--junit", str(folder / "x.xml"))
        assert done.returncode == 0, done.stderr
        assert "warning: --junit" in done.stderr
        assert alias(name) == "1"
        assert tags(name, "1")["verdict"] == "passed"


def test_nothing_swapped_fails(versions: Versions, few: pd.DataFrame) -> None:
    neutral = few.assign(
        hard_text=[f"Bio number {i} of a person at work." for i in range(len(few))]
    )
    name = versions("plain")
    rule = {"metric": "prediction_consistency", "min": 0.9}
    policy = {"evaluation": QUICK, "rules": [rule], "promote": "champion"}
    result = biasbios_mlflow.gate(f"models:/{name}/1", neutral, policy)
    assert not result.passed
    assert "the swap changed no bio" in result.reason
    assert alias(name) is None


@pytest.fixture
def configured(mlflow_server: str) -> str:
    """A model whose answers hang on its model_config, in two versions that are the same."""

    class Configured(mlflow.pyfunc.PythonModel):
        def predict(self, context: Any, model_input: Any, params: Any = None) -> Any:
            first = context.model_config.get("first", "nurse")
            return [first if len(text) % 2 else "poet" for text in model_input["hard_text"]]

    name = "gated-configured"
    for _ in range(2):
        with mlflow.start_run():
            mlflow.pyfunc.log_model(
                name="model",
                python_model=Configured(),
                registered_model_name=name,
                pip_requirements=[],
                model_config={"first": "nurse"},
                signature=mlflow.models.infer_signature(
                    pd.DataFrame({"hard_text": ["She heals."]}), ["nurse"]
                ),
            )
    return name


def test_a_champion_under_another_model_config_is_evaluated_anew(
    configured: str, few: pd.DataFrame
) -> None:
    rules = {k: v for k, v in COMPARES.items() if k != "evaluation"}
    first = biasbios_mlflow.gate(f"models:/{configured}/1", few, COMPARES)
    assert first.promoted
    pinned = {**rules, "evaluation": {**QUICK, "model_config": {"first": "professor"}}}
    second = biasbios_mlflow.gate(f"models:/{configured}/2", few, pinned, dry_run=True)
    assert any("model_config" in note for note in second.notes)
    assert second.rules[0].value == 0.0  # the two versions are the same
    assert second.evaluation.metrics != first.evaluation.metrics
    text = Path(mlflow.artifacts.download_artifacts(f"runs:/{second.run_id}/biasbios/gate.json"))
    assert "professor" not in json.dumps(json.loads(text.read_text())["policy"])


class TestIdentity:
    def test_closures_of_one_factory(self) -> None:
        def factory(by: int) -> Callable[[list[str]], Any]:
            def encode(texts: list[str]) -> Any:
                return np.array([[len(text) * by] for text in texts], dtype=float)

            return encode

        assert content_digest(factory(1)) == content_digest(factory(1))
        assert content_digest(factory(1)) != content_digest(factory(2))
        rules = [EASY]
        hashes = {
            biasbios_mlflow.GatePolicy.parse(
                {"rules": rules, "evaluation": {"encoder": factory(by)}}
            ).sha256()
            for by in (1, 2, 2)
        }
        assert len(hashes) == 2

    def test_the_configuration_of_a_loaded_model(self, configured: str) -> None:
        load = mlflow.pyfunc.load_model
        plain = identify(load(f"models:/{configured}/1"), EvaluationConfig())
        other = load(f"models:/{configured}/1", model_config={"first": "poet"})
        found = identify(other, EvaluationConfig())
        assert found.model == plain.model
        assert found.model_config != plain.model_config
        again = identify(load(f"models:/{configured}/2"), EvaluationConfig())
        assert again.model != plain.model
        assert again.model_config == plain.model_config

    def test_what_a_fingerprint_tells_apart(self) -> None:
        config = EvaluationConfig()
        one = Fingerprint.of(Identity("m"), config, data="d", inputs="i")
        assert one.differences(one) == []
        others = [
            Fingerprint.of(Identity("n"), config, data="d", inputs="i"),
            Fingerprint.of(Identity("m", "c"), config, data="d", inputs="i"),
            Fingerprint.of(Identity("m", env_manager="uv"), config, data="d", inputs="i"),
            Fingerprint.of(Identity("m", encoder="e"), config, data="d", inputs="i"),
            Fingerprint.of(Identity("m"), config, data="e", inputs="i"),
            Fingerprint.of(Identity("m"), config, data="d", inputs="j"),
            Fingerprint.of(Identity("m"), config, data="d", inputs=None),
            Fingerprint.of(Identity(None), config, data="d", inputs="i"),
            *(
                Fingerprint.of(Identity("m"), EvaluationConfig(**option), data="d", inputs="i")
                for option in ({"scope": "names"}, {"seed": 1}, {"max_length": 3})
            ),
        ]  # fmt: skip
        assert all(len(one.differences(other)) == 1 for other in others)
        assert len({f.sha256() for f in (one, *others)}) == len(others) + 1
        device = EvaluationConfig(device="cpu", n_jobs=2, gender_column="g")
        assert Fingerprint.of(Identity("m"), device, data="d", inputs="i").sha256() == one.sha256()

    def test_summaries_of_other_versions_are_read(self) -> None:
        old = {
            "config": {"min_cell": 3, "gone": 1},
            "data": {"sha256": "d"},
            "versions": {"numpy": "1"},
        }
        found = Fingerprint.read(old)
        assert (found.schema, found.data, found.swap) == (0, "d", None)
        assert found.options["scoring"] == {"min_cell": 3}
        now = Fingerprint.of(Identity("m"), EvaluationConfig(), data="d", inputs="i")
        assert found.differences(now)
        later = now.to_dict()
        later["schema"] = 9
        later["model"]["more"] = "x"
        assert now.differences(Fingerprint.read({"fingerprint": later})) == [
            "schema of the summary: 1 and 9"
        ]


def test_stored_rows_that_were_edited_are_found_out(versions: Versions, few: pd.DataFrame) -> None:
    name = versions("plain", "plain")
    first = biasbios_mlflow.gate(f"models:/{name}/1", few, COMPARES)

    def worse(content: bytes) -> bytes:
        table = pq.read_table(pa.BufferReader(content))
        at = table.schema.get_field_index("prediction")
        wrong = pa.array(["dj"] * len(table), pa.string())
        sink = pa.BufferOutputStream()
        pq.write_table(table.set_column(at, "prediction", wrong), sink)
        return bytes(sink.getvalue().to_pybytes())

    rewrite(first.run_id, "predictions.parquet", worse)
    second = biasbios_mlflow.gate(f"models:/{name}/2", few, COMPARES, dry_run=True)
    assert any("other content than the evaluation wrote" in note for note in second.notes)
    assert second.rules[0].value == 0.0  # the two versions are the same
    with pytest.raises(MlflowException, match="other content than the evaluation wrote"):
        compare_runs(first.run_id, second.run_id)


def test_runs_that_differ_in_more_than_the_model_are_not_compared(
    versions: Versions, few: pd.DataFrame, caplog: pytest.LogCaptureFixture
) -> None:
    uri = f"models:/{versions('plain')}/1"
    one = biasbios_mlflow.evaluate(uri, few, n_replicates=100)
    named = {"label_names": list(OCCUPATIONS)}
    other = biasbios_mlflow.evaluate(uri, few, n_replicates=100, min_cell=2, **named)
    with pytest.raises(MlflowException, match="option label_names: None and"):
        compare_runs(one, other, min_cell=1)
    compare_runs(one, other, allow_different=True, n_replicates=100, min_cell=1)
    assert "option label_names: None and" in caplog.text


def promote(name: str, version: str, *aliases: str) -> None:
    """Move aliases as a gate does on a pass."""
    client = mlflow.MlflowClient()
    for one in aliases:
        with turn(client, name, one):
            was = alias_target(client, name, one)
            move_alias(client, name, one, version=version, expected=was)
            remember_move(client, name, one, version=version, was=was)


def test_rollback_of_each_alias_for_itself_and_several_steps(versions: Versions) -> None:
    name = versions("plain", "plain", "plain")
    promote(name, "1", "champion")
    promote(name, "2", "champion", "staging")
    promote(name, "3", "staging", "champion")
    promote(name, "1", "champion")
    assert alias_history(mlflow.MlflowClient(), name, "champion") == ("1", "2", "3", "1")
    assert rollback(name, "champion") == ("1", "3")
    assert rollback(name, "champion") == ("3", "2")
    assert (alias(name), alias(name, "staging")) == ("2", "3")
    assert rollback(name, "staging") == ("3", "2")
    with pytest.raises(MlflowException, match="before version 2"):
        rollback(name, "staging")
    # A version moved in by hand goes back to where a gate had put the alias.
    mlflow.MlflowClient().set_registered_model_alias(name, "champion", "3")
    assert rollback(name, "champion") == ("3", "2")
    assert rollback(name, "champion") == ("2", "1")
    with pytest.raises(MlflowException, match="before version 1"):
        rollback(name, "champion")
    # And a version that is gone is passed over.
    promote(name, "2", "champion")
    promote(name, "3", "champion")
    mlflow.MlflowClient().delete_model_version(name, "2")
    assert rollback(name, "champion") == ("3", "1")


@pytest.fixture(scope="module")
def gated(mlflow_server: str, classifier: Pipeline, few: pd.DataFrame) -> tuple[str, str]:
    """The name of a model whose first of two versions is champion, and the run behind it."""
    name = "gated-status"
    for _ in range(2):
        register(classifier, name)
    return name, biasbios_mlflow.gate(f"models:/{name}/1", few.head(60), PROMOTES).run_id


class TestStatus:
    @pytest.fixture
    def champion(self, gated: tuple[str, str]) -> Iterator[tuple[str, str]]:
        """The same; aliases, tags, files and the run are put back after the test."""
        name, run_id = gated
        client = mlflow.MlflowClient()
        were = {v: client.get_model_version(name, v).tags for v in ("1", "2")}
        with tempfile.TemporaryDirectory() as folder:
            files = mlflow.artifacts.download_artifacts(f"runs:/{run_id}/biasbios", dst_path=folder)
            yield name, run_id
            if client.get_run(run_id).info.lifecycle_stage == "deleted":
                client.restore_run(run_id)
            client.log_artifacts(run_id, files, "biasbios")
        for version, before in were.items():
            for key in client.get_model_version(name, version).tags.keys() - before.keys():
                client.delete_model_version_tag(name, version, key)
            for key, value in before.items():
                client.set_model_version_tag(name, version, key, value)
        client.set_registered_model_alias(name, "champion", "1")

    def require(self, name: str) -> tuple[int, str]:
        done = call_program("status", name, "--require", "champion")
        return done.returncode, done.stderr

    def test_good_evidence(self, champion: tuple[str, str], tmp_path: Path) -> None:
        name, run_id = champion
        assert self.require(name) == (0, "")
        figure, policy = tmp_path / "versions.png", tmp_path / "gate.yaml"
        policy.write_text(yaml.safe_dump(PROMOTES))
        done = call_program(
            *("status", name, "--json", "--figure", str(figure), "--policy", str(policy)),
            *("--require", "champion"),
        )
        assert done.returncode == 0, done.stderr
        printed = json.loads(done.stdout)
        assert printed["aliases"]["champion"] == "1"
        second, first = printed["versions"]
        assert (first["verdict"], second["verdict"]) == ("passed", "not gated")
        assert first["evidence"]["holds"]
        assert first["evidence"]["run_id"] == run_id
        metrics = mlflow.get_run(run_id).data.metrics
        for metric in ("balanced_accuracy", "ctf", "prediction_consistency", "gap_rms", "gap_abs"):
            shown = first["metrics"][metric]
            assert shown["value"] == metrics[f"biasbios/{metric}"]
            assert shown["ci_low"] == metrics[f"biasbios/{metric}_ci_low"]
        assert figure.stat().st_size > 10_000
        policy.write_text(yaml.safe_dump({**PROMOTES, "evaluation": {"n_replicates": 200}}))
        done = call_program("status", name, "--require", "champion", "--policy", str(policy))
        assert done.returncode == 1
        assert "another policy" in done.stderr

    def test_an_alias_moved_by_hand(self, champion: tuple[str, str]) -> None:
        name, _ = champion
        mlflow.MlflowClient().set_registered_model_alias(name, "champion", "2")
        code, told = self.require(name)
        assert code == 1
        assert "version 2, which was never gated" in told

    def test_a_deleted_run(self, champion: tuple[str, str]) -> None:
        name, run_id = champion
        mlflow.delete_run(run_id)
        code, told = self.require(name)
        assert code == 1
        assert "is deleted" in told

    @pytest.mark.parametrize("file", ["gate.json", "summary.json"])
    def test_an_edited_file(self, file: str, champion: tuple[str, str]) -> None:
        name, run_id = champion
        rewrite(run_id, file, lambda content: content.replace(b"0.", b"0.1", 1))
        code, told = self.require(name)
        assert code == 1
        assert f"{file} was changed" in told

    def test_a_file_that_is_gone(self, champion: tuple[str, str]) -> None:
        name, run_id = champion
        root = mlflow.get_run(run_id).info.artifact_uri
        get_artifact_repository(root).delete_artifacts("biasbios/gate.json")
        code, told = self.require(name)
        assert code == 1
        assert "gate.json is not in run" in told

    @pytest.mark.parametrize("key", ["policy_sha256", "data_sha256", "fingerprint", "run_id"])
    def test_another_hash_on_the_version(self, key: str, champion: tuple[str, str]) -> None:
        name, _ = champion
        evidence = json.loads(tags(name, "1")["evidence"])
        evidence[key] = "0" * 64
        mlflow.MlflowClient().set_model_version_tag(
            name, "1", "biasbios.gate.evidence", json.dumps(evidence)
        )
        code, told = self.require(name)
        assert code == 1
        assert "0" * 64 in told or "fingerprint" in told

    def test_a_verdict_written_by_hand(self, champion: tuple[str, str]) -> None:
        name, _ = champion
        client = mlflow.MlflowClient()
        client.set_model_version_tag(name, "2", "biasbios.gate", "passed")
        client.set_model_version_tag(
            name, "2", "biasbios.gate.evidence", tags(name, "1")["evidence"]
        )
        client.set_registered_model_alias(name, "champion", "2")
        code, told = self.require(name)
        assert code == 1
        assert "model_uri" in told
        client.set_model_version_tag(name, "2", "biasbios.gate.evidence", "[]")
        assert "not what a gate writes" in self.require(name)[1]

    def test_tags_of_earlier_versions_are_read(self, champion: tuple[str, str]) -> None:
        name, run_id = champion
        client = mlflow.MlflowClient()
        evidence = json.loads(tags(name, "1")["evidence"])
        client.delete_model_version_tag(name, "1", "biasbios.gate.evidence")
        for key in ("run_id", "policy_sha256", "data_sha256"):
            client.set_model_version_tag(name, "1", f"biasbios.gate.{key}", evidence[key])
        found = read_evidence(client, name, "1")
        assert found is not None
        assert found.passes
        assert (found.run_id, dict(found.files)) == (run_id, {})
        client.set_model_version_tag(name, "1", "biasbios.gate.policy_sha256", "0" * 64)
        assert not read_evidence(client, name, "1").passes  # type: ignore[union-attr]

    def test_without_the_alias_or_the_model(self, champion: tuple[str, str]) -> None:
        name, _ = champion
        done = call_program("status", name, "--require", "nobody")
        assert (done.returncode, "no alias nobody" in done.stderr) == (1, True)
        assert call_program("status", "no-such-model").returncode == 2


def test_descriptions(gated: tuple[str, str], few: pd.DataFrame) -> None:
    name, run_id = gated
    client = mlflow.MlflowClient()
    note = mlflow.get_run(run_id).data.tags["mlflow.note.content"]
    assert note.startswith("**biasbios: passed")
    assert "| balanced_accuracy | 0." in note
    assert f"runs/{run_id}/artifacts/biasbios/report.html" in note
    assert client.get_model_version(name, "1").description == note
    client.update_model_version(name, "2", "By the team.")
    with mlflow.start_run(description="Mine.") as run:
        biasbios_mlflow.gate(f"models:/{name}/2", few.head(60), {**PROMOTES, "promote": None})
        biasbios_mlflow.evaluate(f"models:/{name}/1", few.head(60), n_replicates=100)
    assert client.get_model_version(name, "2").description == "By the team."
    assert mlflow.get_run(run.info.run_id).data.tags["mlflow.note.content"] == "Mine."
