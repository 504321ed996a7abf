"""The configuration is checked before anything is started."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from mlflow.exceptions import MlflowException

from biasbios_mlflow.guarding.config import (
    DEFAULT_SECRET_ENV,
    GuardConfig,
    WatchedModel,
    read_secret,
)
from tests.program import call_program

POLICY = {"rules": [{"metric": "bios", "min": 1, "bound": "point"}]}
MODEL = {"policy": "gate.yaml", "data": "sample"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "gate.yaml").write_text(yaml.safe_dump(POLICY), "utf-8")
    pinned = {**POLICY, "evaluation": {"data": "sample"}}
    (tmp_path / "pinned.yaml").write_text(yaml.safe_dump(pinned), "utf-8")
    (tmp_path / "bios.csv").touch()
    return tmp_path


def read(folder: Path, content: Any) -> GuardConfig:
    path = folder / "guard.yaml"
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content), "utf-8")
    return GuardConfig.read(path)


def test_paths_are_relative_to_the_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    models = {
        "file": {**MODEL, "data": "bios.csv"},
        "named": {**MODEL, "data": "sample", "gate_on": "alias:candidate"},
        "policy's": {"policy": "pinned.yaml"},
    }
    config = read(folder, {"models": models})
    assert config.state == str(folder / "guard.db")
    assert config.models["file"].policy == str(folder / "gate.yaml")
    assert config.models["file"].data == str(folder / "bios.csv")
    assert config.models["named"].data == "sample"
    assert config.models["policy's"].data is None
    arguments = config.models["named"].gate_arguments("named", "3")
    assert arguments["model_uri"] == "models:/named/3"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({"modls": {}}, "found the key 'modls'.*did you mean 'models'"),
        ({"models": {}}, "guard.models: found {}"),
        ({}, "guard.models: found nothing"),
        ([], r"guard: found \[\]"),
        ("a: [", "expected a YAML file"),
        ({"models": {"m": {**MODEL, "gaet_on": "version"}}}, "models.m.*did you mean 'gate_on'"),
        ({"models": {"m": {}}}, "models.m.policy: found nothing"),
        ({"models": {"m": {**MODEL, "gate_on": "every"}}}, "gate_on: found 'every'"),
        ({"models": {"m": {**MODEL, "gate_on": "alias:latest"}}}, "gate_on: found 'alias:latest'"),
        ({"models": {"m": {**MODEL, "protect": ["v1"]}}}, "protect"),
        ({"models": {"m": {"policy": "nowhere.yaml"}}}, "nowhere.yaml"),
        ({"models": {"m": {"policy": "bios.csv"}}}, "policy"),
        ({"models": {"m": {**MODEL, "options": {"devise": "cpu"}}}}, "did you mean 'device'"),
        ({"models": {"m": {**MODEL, "options": {"min_cell": 3}}}}, "found 'min_cell'"),
        ({"models": {"m": {"policy": "gate.yaml"}}}, "none here or in the policy"),
        ({"models": {"m": {**MODEL, "policy": "pinned.yaml"}}}, "it here and in the policy"),
        ({"models": {"m": MODEL}, "reconcile_seconds": 0}, "reconcile_seconds: found 0"),
        ({"models": {"m": MODEL}, "workers": 0}, "workers: found 0"),
    ],
)
def test_what_is_wrong_is_named(folder: Path, content: Any, says: str) -> None:
    with pytest.raises(MlflowException, match=says):
        read(folder, content)


def test_the_example_of_the_contract(folder: Path) -> None:
    config = read(
        folder,
        """
        secret_env: BIASBIOS_WEBHOOK_SECRET
        state: guard.db
        reconcile_seconds: 60
        models:
          occupations:
            policy: gate.yaml
            data: bios/test.parquet
            gate_on: version            # every new version, or alias:candidate
            protect: [champion]
        """,
    )
    assert config.models["occupations"].protect == ("champion",)


def test_the_secret() -> None:
    assert read_secret("A", {"A": "s"}) == "s"
    for environment in ({}, {"A": ""}):
        with pytest.raises(MlflowException, match="nothing in the environment variable A"):
            read_secret("A", environment)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "--config is missing"),
        (["--config", "nowhere.yaml"], "nowhere.yaml"),
        (["--register", "http://127.0.0.1:1"], DEFAULT_SECRET_ENV),
    ],
)
def test_what_cannot_start(
    arguments: list[str], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(DEFAULT_SECRET_ENV, raising=False)
    done = call_program("guard", *arguments)
    assert done.returncode == 2
    assert says in done.stderr


ROOT = Path(__file__).parents[2]


def test_the_examples_can_be_read(tmp_path: Path) -> None:
    example = ROOT / "examples" / "guard"
    config = GuardConfig.read(example / "guard.yaml")
    assert config.models["occupations"].protect == ("champion",)
    compose = yaml.safe_load((example / "compose.yaml").read_text("utf-8"))
    assert set(compose["services"]) == {"mlflow", "guard"}
    unit = (example / "biasbios-guard.service").read_text("utf-8")
    assert "KillMode=mixed" in unit


def test_the_docs_list_every_option() -> None:
    """To write the tables anew: python -m tests.guarding.test_config."""
    page = (ROOT / "docs" / "guard.md").read_text("utf-8")
    assert with_tables(page) == page


def with_tables(page: str) -> str:
    for mark, model in (("options", GuardConfig), ("model options", WatchedModel)):
        rows = ["| key | default | what it is |\n| --- | --- | --- |\n"]
        for name, field in model.model_fields.items():
            default = None if field.is_required() else field.get_default(call_default_factory=True)
            shown = "" if default in (None, (), {}) else f"`{default}`"
            rows.append(f"| `{name}` | {shown} | {field.description} |\n")
        begin, end = f"<!-- {mark}: begin -->\n", f"<!-- {mark}: end -->"
        head, rest = page.split(begin)
        page = f"{head}{begin}{''.join(rows)}{end}{rest.split(end, 1)[1]}"
    return page


if __name__ == "__main__":
    docs = ROOT / "docs" / "guard.md"
    docs.write_text(with_tables(docs.read_text("utf-8")), "utf-8")
