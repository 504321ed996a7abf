"""Every row of the table, on this machine; the docs hold the same table."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mlflow.exceptions import MlflowException

from tests.bad_input.calls import namespace
from tests.bad_input.document import document
from tests.bad_input.table import TABLE, Case

DOCUMENT = Path(__file__).parents[2] / "docs" / "bad_input.md"


def outcome(case: Case, folder: Path) -> tuple[str, str]:
    """Make the call; return what came of it, and all that it said."""
    try:
        value = eval(case.call, namespace(folder))
    except MlflowException as error:
        if error.error_code != "INVALID_PARAMETER_VALUE":
            raise
        return "error", " ".join(str(error.message).split())
    if case.kind == "says":
        return "says", str(value)
    if isinstance(value, np.generic):
        value = value.item()
    return "gives", value if isinstance(value, str) else repr(value)


@pytest.mark.parametrize("case", TABLE, ids=lambda case: case.call[:70])
def test_row(case: Case, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    kind, text = outcome(case, tmp_path)
    assert kind == case.kind, text
    if kind == "gives":
        assert text == case.outcome
        return
    if kind == "error":  # the thing, what was found, what was expected, the fix
        assert ": found " in text
        assert ", expected " in text
        assert ". Fix: " in text
    for part in case.outcome.split("…"):
        assert part.strip() in text
        text = text[text.index(part.strip()) :]


def test_table_is_large() -> None:
    calls = [case.call for case in TABLE]
    assert len(set(calls)) == len(calls) >= 120


def test_docs_are_current() -> None:
    assert DOCUMENT.read_text("utf-8") == document()


def test_registries_and_servers(mlflow_server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import biasbios_mlflow
    from biasbios_mlflow.api import resolve_model_uri

    for uri, says in {
        "models:/nobody/1": "nobody",
        "models:/nobody@champion": "nobody",
        "models:/m-0123456789": "m-0123456789",
        "runs:/0123456789abcdef0123456789abcdef/model": "0123456789abcdef",
        "models:/": "models:/",
    }.items():
        with pytest.raises(MlflowException, match=says):
            _evaluate(resolve_model_uri(uri)[0])
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    with pytest.raises(MlflowException, match="cannot be fetched"):
        biasbios_mlflow.load_bios("mlflow-artifacts://127.0.0.1:9/bios.csv")


def _evaluate(uri: str) -> Any:
    import biasbios_mlflow

    return biasbios_mlflow.evaluate(uri, namespace(Path())["bios"]())
