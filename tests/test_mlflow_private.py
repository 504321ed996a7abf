"""What `biasbios_mlflow.mlflow_private` expects of MLflow, one test each.

A test that fails after an update of MLflow names what breaks; the place to mend is that module.
"""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest
from mlflow.exceptions import MlflowException
from mlflow.models.evaluation.artifacts import CsvEvaluationArtifact

import biasbios_mlflow
from biasbios_mlflow import mlflow_private as private
from tests.conftest import Registered

PACKAGE = Path(biasbios_mlflow.__file__).parent


def test_no_other_module_takes_a_private_name_of_mlflow() -> None:
    """Names that begin with ``_`` are imported from MLflow in one module only."""
    found = []
    for path in PACKAGE.rglob("*.py"):
        if path.name == "mlflow_private.py":
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("mlflow"):
                parts = [*(node.module or "").split("."), *(name.name for name in node.names)]
                found += [f"{path.name}: {part}" for part in parts if part.startswith("_")]
            if isinstance(node, ast.Attribute) and node.attr in {
                *("_model_impl", "_client", "_load", "_to_mlflow_entity", "_model_meta"),
                *("_tracking_client", "_get_registry_client", "f_back"),
            }:
                of_self = isinstance(node.value, ast.Name) and node.value.id in {"self", "cls"}
                found += [] if of_self else [f"{path.name}: .{node.attr}"]
    assert found == []


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("models:/occupations/3", ("occupations", "3", None, None)),
        ("models:/occupations@champion", ("occupations", None, "champion", None)),
        ("models:/occupations/latest", ("occupations", None, None, None)),
        ("models:/occupations/Production", ("occupations", None, None, "Production")),
        ("models:/m-0123456789abcdef", (None, None, None, None)),
    ],
)
def test_uris_are_read(uri: str, expected: tuple[str | None, ...]) -> None:
    """Else a gate does not know which version it judges."""
    assert private.parse_models_uri(uri) == expected


def test_what_is_no_uri_is_refused() -> None:
    with pytest.raises(MlflowException, match="Not a proper models"):
        private.parse_models_uri("models:/a/b/c")


@pytest.mark.parametrize("name", ["", "v12", "latest", "a/b", "a b", "x" * 256])
def test_aliases_the_registry_refuses_are_refused_before(name: str, mlflow_server: str) -> None:
    """Else a policy is refused after the evaluation only."""
    with pytest.raises(MlflowException):
        private.check_alias_name(name)
    with pytest.raises(MlflowException):
        mlflow.MlflowClient(registry_uri=mlflow_server).set_registered_model_alias("any", name, "1")


@pytest.mark.parametrize("name", ["a(b", "a,b", "a%", "", "../a", "x" * 251])
def test_metrics_the_store_refuses_are_refused_before(name: str) -> None:
    """Else a run is half logged."""
    with pytest.raises(MlflowException):
        private.check_metric_name(name)
    with mlflow.start_run(), pytest.raises(MlflowException):
        mlflow.log_metric(name, 0.5)


def test_limits_are_those_of_mlflow() -> None:
    """Requests with more metrics are refused; digests of more rows differ from a DataFrame's."""
    from mlflow.data import digest_utils
    from mlflow.utils import validation

    assert private.METRIC_LENGTH == validation.MAX_ENTITY_KEY_LENGTH
    assert private.DIGEST_ROWS == digest_utils.MAX_ROWS
    assert private.METRICS_A_REQUEST == validation.MAX_METRICS_PER_BATCH


def test_digest_is_that_of_a_frame() -> None:
    """Else streamed bios are another dataset in the run than the same bios in memory."""
    frame = pd.DataFrame({"text": ["a", "b"], "number": [1, 2]})
    own = private.digest_of(
        [
            pd.util.hash_pandas_object(frame[["number", "text"]]).to_numpy(),
            np.int64(2),
            *(str(name).encode() for name in frame.columns),
        ]
    )
    assert own == mlflow.data.from_pandas(frame).digest


def test_artifacts_are_deleted(mlflow_server: str, tmp_path: Path) -> None:
    """Else an evaluation that failed while it was logged leaves half of its files."""
    (tmp_path / "one.txt").write_text("1", "utf-8")
    client = mlflow.MlflowClient()
    with mlflow.start_run() as run:
        for folder in ("kept", "gone"):
            mlflow.log_artifact(str(tmp_path / "one.txt"), folder)
    private.delete_artifacts(run.info.artifact_uri, "gone")
    assert [item.path for item in client.list_artifacts(run.info.run_id)] == ["kept"]


def test_artifacts_are_loaded_from_a_local_file(tmp_path: Path) -> None:
    """Else each table and figure is fetched from the server once more."""
    path = tmp_path / "table.csv"
    path.write_text("a\n1\n", "utf-8")
    artifact = CsvEvaluationArtifact(uri="nowhere:/table.csv")
    private.load_artifact(artifact, path)
    assert list(artifact.content["a"]) == [1]


def test_the_wrapper_in_a_pyfunc_model(registered: Registered) -> None:
    """Else it is not told with which configuration a model was loaded, nor what is in it."""
    model = mlflow.pyfunc.load_model(registered.uri)
    assert private.inner_model(model) is not None
    assert private.loaded_configuration(object()) is None
    assert private.prompt_template(model) is None
    assert not private.is_served(model)


@pytest.mark.filterwarnings("ignore:.*type hints:UserWarning")
def test_the_configuration_a_model_was_loaded_with(tmp_path: Path) -> None:
    """Else two evaluations under different configurations are taken for one."""

    class Configured(mlflow.pyfunc.PythonModel):
        def predict(self, context, model_input):  # type: ignore[no-untyped-def]
            return ["nurse"] * len(model_input)

    mlflow.pyfunc.save_model(
        tmp_path / "model",
        python_model=Configured(),
        model_config={"a": 1, "b": 2},
        pip_requirements=[],
    )
    model = mlflow.pyfunc.load_model(str(tmp_path / "model"), model_config={"a": 3})
    found = private.loaded_configuration(model)
    assert found is not None
    assert dict(found) == {"a": 3, "b": 2}


def test_served_models_are_known_by_their_class() -> None:
    """Else requests of any size go to a served model, and only one column comes back."""
    from mlflow.pyfunc import _ServedPyFuncModel

    class Client:
        def invoke(self, data: Any) -> Any:
            raise NotImplementedError

    client = Client()
    model = _ServedPyFuncModel(mlflow.models.Model(), client, 1)
    assert private.is_served(model)
    assert private.served_client(model) is client
    assert private.served_client(object()) is None


@pytest.mark.parametrize("evaluators", ["biasbios", ["biasbios"]])
def test_the_frames_of_mlflow_name_the_evaluators(
    evaluators: Any, bios: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else options of MLflow's own evaluators are swallowed where none of these is asked."""
    seen: list[Any] = []
    found = private.caller_locals

    def recorded(name: str) -> Any:
        values = list(found(name))
        seen.append((name, values))
        return iter(values)

    monkeypatch.setattr("biasbios_mlflow.evaluator.caller_locals", recorded)
    data = mlflow.data.from_pandas(bios.head(40), targets="profession")
    with pytest.raises(MlflowException, match="extra_metrics"):
        mlflow.models.evaluate(
            lambda frame: ["nurse"] * len(frame),
            data,
            model_type="classifier",
            evaluators=evaluators,
            extra_metrics=[],
        )
    names = dict(seen)
    assert ["biasbios"] in [list(value) for value in names["evaluator_name_list"]]


def test_autologging_is_off_while_an_evaluation_runs(
    registered: Registered, bios: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else evaluations in threads wait for each other for ever where ``openai`` is imported."""
    pytest.importorskip("openai")
    from mlflow.utils.autologging_utils import AUTOLOGGING_INTEGRATIONS

    called = []
    monkeypatch.setattr(mlflow.openai, "autolog", lambda **options: called.append(options))
    before = dict(AUTOLOGGING_INTEGRATIONS)
    biasbios_mlflow.evaluate(registered.uri, bios.head(40), n_replicates=100)
    assert not called
    assert {name: AUTOLOGGING_INTEGRATIONS[name] for name in before} == before
    assert not any(config.get("disable") for config in AUTOLOGGING_INTEGRATIONS.values())
    undo = private.switch_off_autologging()
    AUTOLOGGING_INTEGRATIONS["openai"] = {"disable": False}  # by the user, meanwhile
    undo()
    assert AUTOLOGGING_INTEGRATIONS.pop("openai") == {"disable": False}
    AUTOLOGGING_INTEGRATIONS.update(before)
