"""The command line: a program of its own, or called here where that makes no difference."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import warnings
from contextlib import redirect_stderr, redirect_stdout

from biasbios_mlflow.cli import main

Done = subprocess.CompletedProcess


def run_program(*arguments: str, text: str | None = None) -> Done[str]:
    """Run ``biasbios`` as CI would: a process, its output and its exit code."""
    return subprocess.run(
        [sys.executable, "-m", "biasbios_mlflow", *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        input=text,
        timeout=300,
        check=False,
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
    )


def call_program(*arguments: str) -> Done[str]:
    """Run ``biasbios`` without the seconds that a new process takes to import MLflow."""
    out, err = io.StringIO(), io.StringIO()
    environment = dict(os.environ)
    code: int | str | None = 0
    try:
        with redirect_stdout(out), redirect_stderr(err), warnings.catch_warnings():
            warnings.simplefilter("default")
            main(list(arguments), prog_name="biasbios")
    except SystemExit as ended:
        code = ended.code
    finally:
        os.environ.clear()
        os.environ.update(environment)
    assert isinstance(code, int)
    return Done(arguments, code, out.getvalue(), err.getvalue())
