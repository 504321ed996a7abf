"""Artifacts that MLflow can fetch: of runs and models, on a store, on the web."""

from __future__ import annotations

import shutil
import weakref
from collections.abc import Callable
from pathlib import Path

from biasbios_mlflow.bios.sources.source import Source
from biasbios_mlflow.bios.sources.web import fetch, is_on_the_web
from biasbios_mlflow.errors import invalid
from biasbios_mlflow.redaction import clean_error, redacted, redacted_uri
from biasbios_mlflow.temporary import make_folder

__all__ = ["is_artifact", "open_artifact"]

_SCHEMES = (
    *("runs:/", "models:/", "mlflow-artifacts:/", "file:"),
    *("s3://", "gs://", "wasbs://", "abfss://", "dbfs:/", "hdfs://", "ftp://", "sftp://"),
)


def is_artifact(source: str) -> bool:
    """Tell whether a name is a URI that MLflow can fetch."""
    return source.startswith(_SCHEMES) or is_on_the_web(source)


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
    folder = make_folder()
    try:
        path = fetch(uri, folder) if is_on_the_web(uri) else _download(uri, folder)
        source = open_path(path)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    source.where = redacted_uri(uri)
    weakref.finalize(source, shutil.rmtree, folder, ignore_errors=True)
    return source


def _download(uri: str, folder: Path) -> Path:
    from mlflow.artifacts import download_artifacts

    try:
        return Path(download_artifacts(artifact_uri=uri, dst_path=str(folder)))
    # Each kind of store has errors of its own.
    except Exception as error:
        clean_error(error, uri)
        why = redacted(f"{type(error).__name__}: {error}", uri)
        raise invalid(
            "data",
            found=f"{redacted_uri(uri)!r}, which cannot be fetched ({why})",
            expected="the URI of an artifact",
            fix="check the URI and the tracking server",
        ) from error
