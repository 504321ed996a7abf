"""Datasets of the Hugging Face hub, through the library that is made for them."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

import pandas as pd

from biasbios_mlflow.bios.sources.class_labels import named, names_in_features
from biasbios_mlflow.bios.sources.source import CHUNK_ROWS, FileSource
from biasbios_mlflow.errors import invalid, missing_extra

__all__ = ["HubSource"]


class HubSource(FileSource):
    """One split of a dataset of the hub, which lies on disk as Arrow tables.

    The ids of classes become the names that the dataset has for them.

    Parameters
    ----------
    data : datasets.Dataset
    name : str
    where : str or None
        None for one that came from code.
    """

    def __init__(self, data: Any, name: str, where: str | None) -> None:
        super().__init__(name, where)
        self.in_memory = where is None
        self._data = data
        self._names = names_in_features(data.features)

    def parse(self, types: dict[str, Any] | None) -> Iterator[pd.DataFrame]:
        """Yield chunks of rows."""
        frames = self._data.with_format("pandas")
        if len(frames) == 0:
            yield pd.DataFrame(columns=self._data.column_names)
        for chunk in frames.iter(batch_size=CHUNK_ROWS):
            yield named(chunk, self._names)


def load_hub(name: str) -> dict[str, HubSource]:
    """Load a dataset of the hub, by its name or from a local folder of the same layout.

    Parameters
    ----------
    name : str
        ``LabHC/bias_in_bios``, or the path of a folder.

    Returns
    -------
    dict of str to HubSource
        By split.

    Raises
    ------
    MlflowException
        Without the extra ``hub``, and where the dataset can be neither reached nor found on disk.
    """
    if importlib.util.find_spec("datasets") is None:
        raise missing_extra("datasets", "hub", needed_for=f"hub:{name}")
    import datasets

    try:
        splits = datasets.load_dataset(name)
    # No network, no such dataset, a broken file: the library has dozens of classes for these.
    except Exception as error:
        raise invalid(
            f"hub:{name}",
            found=f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}",
            expected="a dataset of the Hugging Face hub, or a network to reach it",
            fix="where there is a network, download it with `hf download --repo-type dataset "
            f"{name} --local-dir bias_in_bios`, copy the folder here, and name the folder instead",
        ) from error
    short = name.rstrip("/").rpartition("/")[2]
    return {
        split: HubSource(data, f"{short}-{split}", f"hub:{name}") for split, data in splits.items()
    }
