"""The examples of README and docs run as they stand."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import mlflow
import pandas as pd
import pytest

from biasbios_mlflow.config import EvaluationConfig
from tests.conftest import Registered
from tests.program import call_program

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text("utf-8"), re.M | re.S)


@pytest.fixture
def folder(
    registered: Registered, bios: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """Where an example runs: bios.csv, gate.yaml (docs/gate.md), models:/occupations@candidate."""
    bios.to_csv(tmp_path / "bios.csv", index=False)
    policy = blocks(ROOT / "docs" / "gate.md", "yaml")[0]
    (tmp_path / "gate.yaml").write_text(policy, "utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_python_examples(page: Path, folder: Path) -> None:
    namespace: dict[str, Any] = {"__name__": "__main__"}
    try:
        for number, code in enumerate(blocks(page, "python"), start=1):
            exec(compile(code, f"{page.name}, example {number}", "exec"), namespace)
    finally:
        mlflow.end_run()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands(page: Path, folder: Path) -> None:
    for block in blocks(page, "sh"):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words and words[0] == "biasbios":
                done = call_program(*words[1:])
                assert done.returncode == 0, f"{line}\n{done.stderr}"


def test_the_console_script_is_installed() -> None:
    script = shutil.which("biasbios", path=str(Path(sys.executable).parent))
    assert script is not None
    done = subprocess.run([script, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("biasbios, version ")


def test_readme_lists_every_option() -> None:
    """To write the table anew: python -m tests.test_docs."""
    assert options_table() in (ROOT / "README.md").read_text("utf-8")


def options_table() -> str:
    lines = ["| option | default | what it is |", "| --- | --- | --- |"]
    for name, field in EvaluationConfig.model_fields.items():
        default = field.get_default(call_default_factory=True)
        shown = "" if default is None else f"`{default!r}`"
        lines.append(f"| `{name}` | {shown} | {field.description} |")
    return "\n".join(lines)


if __name__ == "__main__":
    readme = ROOT / "README.md"
    begin, end = "<!-- options: begin -->\n", "<!-- options: end -->"
    head, rest = readme.read_text("utf-8").split(begin)
    readme.write_text(f"{head}{begin}{options_table()}\n{end}{rest.split(end)[1]}", "utf-8")
