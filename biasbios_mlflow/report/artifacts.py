"""Artifacts of an `mlflow.models.EvaluationResult` that MLflow has no class for."""

from __future__ import annotations

import shutil
from pathlib import Path

import pandas as pd
from mlflow.artifacts import download_artifacts
from mlflow.models.evaluation.base import EvaluationArtifact

__all__ = ["HtmlArtifact", "PredictionsArtifact"]


class HtmlArtifact(EvaluationArtifact):
    """``report.html``: its content is the page as str."""

    def _load_content_from_file(self, local_artifact_path: str) -> str:
        page = Path(local_artifact_path).read_text("utf-8")
        self._content = page
        return page

    def _save(self, output_artifact_path: str) -> None:
        Path(output_artifact_path).write_text(self.content, "utf-8")


class PredictionsArtifact(EvaluationArtifact):
    """``predictions.parquet``: as large as the data, so it is fetched only when asked for."""

    def _load_content_from_file(self, local_artifact_path: str) -> pd.DataFrame:
        self._content = pd.read_parquet(local_artifact_path)
        return self._content

    def _save(self, output_artifact_path: str) -> None:
        # The file itself, whose metadata holds the labels.
        folder = Path(output_artifact_path).parent
        fetched = Path(download_artifacts(artifact_uri=self.uri, dst_path=str(folder)))
        if fetched != Path(output_artifact_path):
            shutil.move(fetched, output_artifact_path)
