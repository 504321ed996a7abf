"""The swap's version follows its files, and nothing else."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import biasbios_mlflow
from biasbios_mlflow.counterfactual import swap_version

PACKAGE = Path(biasbios_mlflow.__file__).parent
CODE = (
    "from biasbios_mlflow.counterfactual.version import swap_version; import biasbios_mlflow;"
    "print(swap_version(), biasbios_mlflow.__file__)"
)


def version_of(root: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path = {[str(root), *sys.path]}; {CODE}"],
        capture_output=True, text=True, check=False, cwd=root,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    version, file = done.stdout.split()
    assert Path(file).is_relative_to(root)
    return version


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    ignored = shutil.ignore_patterns("__pycache__", "sample*")
    shutil.copytree(PACKAGE, tmp_path / "biasbios_mlflow", ignore=ignored)
    return tmp_path


def test_it_is_the_same_elsewhere_and_changes_with_the_files_of_the_swap_alone(copy: Path):
    room = copy / "biasbios_mlflow" / "counterfactual"
    assert version_of(copy) == swap_version()  # __pycache__ is there by now
    rows = (room / "words.tsv").read_bytes()
    (room / "words.tsv").write_bytes(rows.replace(b"\n", b"\r\n"))
    (copy / "biasbios_mlflow" / "rows.py").write_text("")
    assert version_of(copy) == swap_version()
    (room / "words.tsv").write_bytes(rows + rows.splitlines()[-1].replace(b"yes", b"no") + b"\n")
    other = version_of(copy)
    assert other != swap_version()
    (room / "words.tsv").write_bytes(rows)
    rules = (room / "grammar.py").read_text()
    (room / "grammar.py").write_text(rules.replace("complete current", "current"))
    assert len({version_of(copy), other, swap_version()}) == 3
