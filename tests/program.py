"""The command line: a program of its own, or called here where that makes no difference."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import warnings
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from unittest.mock import patch

import pytest

from biasbios_mlflow.cli import main

Done = subprocess.CompletedProcess


def run_program(
    *arguments: str, text: str | None = None, environment: Mapping[str, str] = os.environ
) -> Done[str]:
    """Run ``biasbios`` as CI would: a process, its output and its exit code."""
    return subprocess.run(
        [sys.executable, "-m", "biasbios_mlflow", *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        input=text,
        timeout=300,
        check=False,
        env={**environment, "PYTHONIOENCODING": "utf-8"},
    )


def call_program(*arguments: str) -> Done[str]:
    """Run ``biasbios`` without the seconds that a new process takes to import MLflow."""
    out, err = io.StringIO(), io.StringIO()
    with patch.dict(os.environ), warnings.catch_warnings():
        warnings.simplefilter("default")
        with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as ended:
            main(list(arguments), prog_name="biasbios")
    code = ended.value.code
    assert isinstance(code, int)
    return Done(arguments, code, out.getvalue(), err.getvalue())
