"""Artifacts that MLflow can fetch: of runs and models, on a store, on the web."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path

from biasbios_mlflow.bios.sources.source import Source
from biasbios_mlflow.errors import invalid

__all__ = ["is_artifact", "open_artifact"]

_SCHEMES = (
    *("runs:/", "models:/", "mlflow-artifacts:/", "file:", "http://", "https://"),
    *("s3://", "gs://", "wasbs://", "abfss://", "dbfs:/", "hdfs://", "ftp://", "sftp://"),
)


def is_artifact(source: str) -> bool:
    """Tell whether a name is a URI that MLflow can fetch."""
    return source.startswith(_SCHEMES)


def open_artifact(uri: str, open_path: Callable[[Path], Source]) -> Source:
    """Fetch an artifact and open it; the copy is removed with the source.

    Parameters
    ----------
    uri : str
    open_path : callable
        Opens a file or folder.

    Raises
    ------
    MlflowException
        Where there is no such artifact, or it cannot be reached.
    """
    from mlflow.artifacts import download_artifacts

    folder = tempfile.mkdtemp(prefix="biasbios-")
    try:
        try:
            path = Path(download_artifacts(artifact_uri=uri, dst_path=folder))
        # Each kind of store has errors of its own.
        except Exception as error:
            raise invalid(
                "data",
                found=f"{uri!r}, which cannot be fetched ({type(error).__name__}: {error})",
                expected="the URI of an artifact",
                fix="check the URI and the tracking server",
            ) from error
        source = open_path(path)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    source.where = uri
    weakref.finalize(source, shutil.rmtree, folder, ignore_errors=True)
    return source
