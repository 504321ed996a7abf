"""Where a dataset came from, in the form in which MLflow stores it with a run."""

from __future__ import annotations

from typing import Any

from mlflow.data.dataset_source import DatasetSource
from mlflow.data.filesystem_dataset_source import FileSystemDatasetSource

from biasbios_mlflow.redaction import redacted_uri

__all__ = ["ArtifactSource", "dataset_source"]

_SCHEMES = ("runs:/", "models:/", "mlflow-artifacts:/")


class ArtifactSource(FileSystemDatasetSource):
    """An artifact of a run or a model, for which MLflow has no source of its own.

    Parameters
    ----------
    uri : str
    """

    def __init__(self, uri: str) -> None:
        self._uri = uri

    @property
    def uri(self) -> str:
        """``runs:/…``, ``models:/…`` or ``mlflow-artifacts:/…``."""
        return self._uri

    @staticmethod
    def _get_source_type() -> str:
        return "mlflow-artifact"

    def load(self, dst_path: str | None = None) -> str:
        """Fetch it and return the path of the copy."""
        from mlflow.artifacts import download_artifacts

        return download_artifacts(artifact_uri=self._uri, dst_path=dst_path)

    @staticmethod
    def _can_resolve(raw_source: Any) -> bool:
        return isinstance(raw_source, str) and raw_source.startswith(_SCHEMES)

    @classmethod
    def _resolve(cls, raw_source: Any) -> ArtifactSource:
        return cls(raw_source)

    def to_dict(self) -> dict[str, Any]:
        """Return what MLflow stores."""
        return {"uri": self._uri}

    @classmethod
    def from_dict(cls, source_dict: dict[str, Any]) -> ArtifactSource:
        """Read back what `to_dict` returned."""
        return cls(source_dict["uri"])


def dataset_source(where: str | None) -> DatasetSource | str | None:
    """Return what MLflow's datasets take for a source.

    Parameters
    ----------
    where : str or None
        The path or URI; None for data that came from code. Secrets in it are left out.
    """
    if where is None:
        return None
    where = redacted_uri(where)
    if where.startswith("hub:"):
        from mlflow.data.huggingface_dataset_source import HuggingFaceDatasetSource

        return HuggingFaceDatasetSource(where.removeprefix("hub:"))
    return ArtifactSource(where) if where.startswith(_SCHEMES) else where
