"""A model on its way to the executors: fetched once by the driver, sent by Spark."""

from __future__ import annotations

import hashlib
import os
import shutil
import weakref
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mlflow.artifacts
from mlflow.models import Model

from biasbios_mlflow.errors import invalid
from biasbios_mlflow.temporary import make_folder, temporary_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["ShippedModel", "ship_model"]

# The archives that each session has, by name: Spark takes each only once.
_shipped: weakref.WeakKeyDictionary[Any, set[str]] = weakref.WeakKeyDictionary()

_EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class ShippedModel:
    """A model that every executor has in its folder of files.

    Attributes
    ----------
    archive : str
        Name of the folder under the root of the executor's files, made from the content.
    model_id : str or None
        Id of the LoggedModel.
    loader_module : str
        The flavor, as MLflow names it.
    """

    archive: str
    model_id: str | None
    loader_module: str


def ship_model(uri: str, session: SparkSession) -> ShippedModel:
    """Fetch a model and send it to the executors of a session.

    The archive goes the way of Spark's own dependencies, so that executors need neither the
    tracking server's address nor its password, and only one copy a machine is fetched.

    Parameters
    ----------
    uri : str
        Of the model.
    session : SparkSession

    Raises
    ------
    MlflowException
        When the URI does not lead to a pyfunc model.
    """
    with temporary_folder() as fetched:
        folder = Path(mlflow.artifacts.download_artifacts(uri, dst_path=fetched))
        about = Model.load(str(folder))
        flavor: Mapping[str, Any] | None = about.flavors.get("python_function")
        if flavor is None:
            raise invalid(
                "model URI",
                found=f"{uri!r}, whose flavors are {sorted(about.flavors)}",
                expected="a model with the flavor python_function",
                fix="log it with one of MLflow's flavors that can predict in Python",
            )
        # Spark reads it from where it lies when an executor first needs it.
        kept = make_folder()
        weakref.finalize(session, shutil.rmtree, kept, ignore_errors=True)
        packed = kept / "packed.zip"
        archive = packed.rename(kept / f"biasbios-{_pack(folder, packed)}.zip")
    there = _shipped.setdefault(session, set())
    if archive.name in there:
        archive.unlink()
    else:
        session.addArtifacts(str(archive), archive=True)
        there.add(archive.name)
    return ShippedModel(archive.name, about.model_id, str(flavor["loader_module"]))


def _pack(folder: Path, target: Path) -> str:
    """Write the files of a folder into a zip; returns a hash of names and contents."""
    digest = hashlib.sha256()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as packed:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            name = path.relative_to(folder).as_posix()
            entry = zipfile.ZipInfo(name, _EPOCH)
            digest.update(f"{len(name)} {name} {os.path.getsize(path)} ".encode())
            with path.open("rb") as source, packed.open(entry, "w", force_zip64=True) as sink:
                while block := source.read(1 << 20):
                    digest.update(block)
                    sink.write(block)
    return digest.hexdigest()[:32]
