"""What the integers of a dataset mean, where it says so itself: ``ClassLabel`` of `datasets`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pandas as pd

from biasbios_mlflow.errors import invalid

__all__ = ["ClassNames", "named", "names_in_features", "names_in_metadata"]

ClassNames = Mapping[str, tuple[str, ...]]
"""By column, the names in the order of their ids."""


def names_in_features(features: Any) -> ClassNames:
    """Return the class names of a dataset's ``features``.

    Parameters
    ----------
    features : datasets.Features
        By column; those with ``names`` are classes.

    Examples
    --------
    >>> class ClassLabel:
    ...     names = ["female", "male"]
    >>> names_in_features({"gender": ClassLabel(), "hard_text": None})
    {'gender': ('female', 'male')}
    """
    return {
        column: tuple(feature.names)
        for column, feature in (features or {}).items()
        if getattr(feature, "names", None)
    }


def names_in_metadata(metadata: Mapping[bytes, bytes] | None) -> ClassNames:
    """Return the class names that `datasets` puts into the metadata of a parquet file.

    Examples
    --------
    >>> about = {"features": {"gender": {"names": ["female", "male"], "_type": "ClassLabel"}}}
    >>> names_in_metadata({b"huggingface": json.dumps({"info": about}).encode()})
    {'gender': ('female', 'male')}
    """
    packed = (metadata or {}).get(b"huggingface")
    if packed is None:
        return {}
    try:
        features = json.loads(packed)["info"]["features"]
        return {
            str(column): tuple(map(str, feature["names"]))
            for column, feature in features.items()
            if isinstance(feature, dict) and feature.get("_type") == "ClassLabel"
        }
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}  # of another kind than `datasets` writes: it says nothing


def named(chunk: pd.DataFrame, names: ClassNames) -> pd.DataFrame:
    """Put the names of classes in the place of their ids.

    Parameters
    ----------
    chunk : DataFrame
    names : mapping
        Columns that are not there, or hold no integers, stay as they are.

    Raises
    ------
    MlflowException
        At an id without a name. -1 is no class, as `datasets` has it: a missing value.

    Examples
    --------
    >>> named(pd.DataFrame({"gender": [0, 1, -1]}), {"gender": ("female", "male")})[
    ...     "gender"
    ... ].tolist()
    ['female', 'male', None]
    """
    changed: dict[str, Any] = {}
    for column, classes in names.items():
        if column not in chunk.columns or not pd.api.types.is_numeric_dtype(chunk[column]):
            continue
        ids = chunk[column]
        wrong = ids.notna() & ~ids.isin(range(-1, len(classes)))
        if wrong.any():
            raise invalid(
                f"column {column!r}",
                found=f"the id {ids[wrong].iloc[0]}",
                expected=f"0 to {len(classes) - 1}, for which the dataset has names",
                fix="mend the dataset, or load it yourself and pass a DataFrame",
            )
        table = {**dict(enumerate(classes)), -1: None}
        cells = [None if pd.isna(i) else table[int(i)] for i in ids]
        changed[column] = pd.Series(cells, index=chunk.index, dtype=object)
    return chunk.assign(**changed) if changed else chunk
