"""The files in the run: readable again, safe in a spreadsheet, never over another evaluation's."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import mlflow
import numpy as np
import pandas as pd
import pytest
from mlflow.models import EvaluationResult

import biasbios_mlflow
from biasbios_mlflow.pipeline import Evaluation
from biasbios_mlflow.report.files import write_files
from biasbios_mlflow.report.marks import visible
from tests.conftest import Registered

FILES = {
    "flips": "flips.csv",
    "flips_plot": "flips.png",
    "gap_parts_plot": "gap_parts.png",
    "occupation_gaps": "occupation_gaps.csv",
    "occupation_gaps_plot": "occupation_gaps.png",
    "occupation_gaps_table": "occupation_gaps.json",
    "predictions": "predictions.parquet",
    "report": "report.html",
    "summary": "summary.json",
}


@pytest.fixture(scope="module")
def result(registered: Registered, bios: pd.DataFrame) -> EvaluationResult:
    return biasbios_mlflow.evaluate(registered.uri, bios, min_cell=2)


def test_every_artifact_is_in_the_run_and_has_content(result: EvaluationResult) -> None:
    assert {name.removeprefix("biasbios/") for name in result.artifacts} == set(FILES)
    listed = mlflow.MlflowClient().list_artifacts(result.run_id, "biasbios")
    assert {Path(item.path).name for item in listed} == set(FILES.values())
    content = {name: result.artifacts[f"biasbios/{name}"].content for name in FILES}
    assert content["report"].startswith("<!DOCTYPE html>")
    assert min(content["occupation_gaps_plot"].size) > 500
    assert len(content["occupation_gaps"]) == 28
    # The table is the csv, to the last digit.
    table = pd.DataFrame(**content["occupation_gaps_table"]).infer_objects()
    pd.testing.assert_frame_equal(
        table, content["occupation_gaps"], check_dtype=False, rtol=1e-14, atol=1e-15
    )


def test_a_saved_result_loads_with_all_its_contents(
    result: EvaluationResult, tmp_path: Path
) -> None:
    result.save(str(tmp_path))
    loaded = EvaluationResult.load(str(tmp_path))
    assert loaded.metrics == result.metrics
    assert set(loaded.artifacts) == set(result.artifacts)
    for name, artifact in result.artifacts.items():
        ours, theirs = artifact.content, loaded.artifacts[name].content
        if isinstance(ours, pd.DataFrame):
            pd.testing.assert_frame_equal(ours, theirs)
        elif name.endswith("_plot"):
            assert np.array_equal(np.asarray(ours), np.asarray(theirs))
        else:
            assert ours == theirs


def test_mlflow_knows_the_table(result: EvaluationResult) -> None:
    table = mlflow.load_table("biasbios/occupation_gaps.json", run_ids=[result.run_id])
    assert list(table["occupation"]) == list(
        result.artifacts["biasbios/occupation_gaps"].content["occupation"]
    )


def test_evaluations_into_one_run_do_not_overwrite_each_other(
    registered: Registered, bios: pd.DataFrame
) -> None:
    with mlflow.start_run() as run:
        first = biasbios_mlflow.evaluate(registered.uri, bios)
        second = biasbios_mlflow.evaluate(registered.uri, bios[:150])
        third = biasbios_mlflow.evaluate(registered.uri, bios[:200], metric_prefix="dev_")
    folders = {}
    for name, one in (("biasbios", first), ("biasbios-2", second), ("biasbios/dev_", third)):
        run_id = one.run_id
        assert run_id == run.info.run_id
        summary = mlflow.artifacts.load_dict(f"runs:/{run_id}/{name}/summary.json")
        folders[name] = summary["data"]["bios"]
        prefix = "dev_" if name.endswith("dev_") else ""
        for artifact_name, file in FILES.items():
            uri = one.artifacts[f"{prefix}biasbios/{artifact_name}"].uri
            assert uri.endswith(f"/{name}/{file}")
    assert folders == {"biasbios": len(bios), "biasbios-2": 150, "biasbios/dev_": 200}
    tag = json.loads(mlflow.get_run(run.info.run_id).data.tags["mlflow.loggedArtifacts"])
    assert [entry["path"] for entry in tag] == [f"{name}/occupation_gaps.json" for name in folders]


def test_csv_holds_text_that_no_spreadsheet_runs(
    hostile_evaluation: Evaluation, tmp_path: Path
) -> None:
    write_files(hostile_evaluation, tmp_path, model={"versions": [], "uri": None, "model_id": None},
                data={"name": "x", "digest": "y"})  # fmt: skip
    flips = pd.read_csv(tmp_path / "flips.csv")
    sample = hostile_evaluation.result.flips.sample
    assert len(flips) == len(sample)
    for column in ("id", "occupation", "prediction", "text", "counterfactual_text"):
        assert not flips[column].str.match(r"\s*[=+\-@\t]").any()
        shown = [visible(str(getattr(flip, column))) for flip in sample]
        assert flips[column].str.removeprefix("'").tolist() == shown
    assert (flips["text"].str.startswith("'=HYPERLINK")).any()
    with (tmp_path / "flips.csv").open(encoding="utf-8", newline="") as file:
        changes = [float(row["change"] or "nan") for row in csv.DictReader(file)]
    assert changes == pytest.approx([flip.change for flip in sample], abs=0, nan_ok=True)
    gaps = pd.read_csv(tmp_path / "occupation_gaps.csv")
    assert "'=1+1" in set(gaps["occupation"])
    assert (gaps["tpr_gap"].dropna() < 0).any()  # numbers stay numbers


def test_texts_do_not_leave_the_process(registered: Registered, bios: pd.DataFrame) -> None:
    result = biasbios_mlflow.evaluate(registered.uri, bios, log_texts=False)
    folder = mlflow.artifacts.download_artifacts(f"runs:/{result.run_id}/biasbios")
    phrases = [" ".join(text.split()[3:8]) for text in bios["hard_text"]]
    for path in Path(folder).iterdir():
        if path.suffix in {".html", ".csv", ".json"}:
            written = path.read_text("utf-8")
            assert not [phrase for phrase in phrases if phrase in written], path.name
