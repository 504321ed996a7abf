"""What is logged: under names that MLflow takes, all of it or nothing."""

from __future__ import annotations

from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlflow.utils.validation import _validate_metric

import biasbios_mlflow
from biasbios_mlflow.tracking import metric_names
from tests.bad_input.calls import bios

ODD = ["Care // nursing", "IT/", "x" * 230, "医師", "教師", "../x", "R&D", "R+D", "शिक्षक"]


def odd_bios() -> pd.DataFrame:
    jobs = [job for job in ODD for _ in range(4)]
    return bios(len(ODD)).assign(profession=jobs)


def test_odd_occupations_are_logged(run: Any) -> None:
    result = biasbios_mlflow.evaluate(
        lambda frame: [ODD[i % len(ODD)] for i in range(len(frame))],
        odd_bios(),
        min_cell=1,
        n_replicates=100,
    )
    logged = mlflow.get_run(run.info.run_id).data.metrics
    assert logged == pytest.approx(result.metrics)
    gaps = [name for name in logged if "tpr_gap/" in name and "_ci_" not in name]
    assert len([name for name in gaps if name.startswith("biasbios/tpr_gap/")]) == len(ODD)
    assert {"biasbios/tpr_gap/医師", "biasbios/tpr_gap/教師"} <= set(gaps)
    history = mlflow.MlflowClient().get_metric_history(run.info.run_id, "biasbios/tpr_gap/医師")
    assert len(history) == 1


def test_a_failure_while_logging_leaves_nothing(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: Any, **options: Any) -> None:
        raise ConnectionError("the server went away")

    with monkeypatch.context() as patch:
        patch.setattr(mlflow.MlflowClient, "log_batch", broken)
        with pytest.raises(ConnectionError):
            biasbios_mlflow.evaluate(lambda frame: ["nurse"] * len(frame), bios(), min_cell=1)
    client = mlflow.MlflowClient()
    assert client.get_run(run.info.run_id).data.metrics == {}
    assert not client.list_artifacts(run.info.run_id, "biasbios")
    assert "biasbios/" not in client.get_run(run.info.run_id).data.tags.get(
        "mlflow.loggedArtifacts", ""
    )


@given(st.lists(st.text(min_size=1, max_size=300), min_size=1, max_size=8, unique=True))
def test_any_names_are_legal_and_stay_apart(labels: list[str]) -> None:
    labels = [label for label in labels if not label.endswith(("_ci_low", "_ci_high"))]
    values = {f"tpr_gap/{label}{bound}": 0.5 for label in labels for bound in ("", "_ci_low")}
    named = metric_names(values)
    assert len(named) == len(values)
    for name, value in named.items():
        _validate_metric(name, value, 0, 0)
        assert len(name) <= 250
        assert np.isfinite(value)
