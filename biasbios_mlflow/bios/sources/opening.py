"""From what a user names to a source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from biasbios_mlflow.bios.sample import SAMPLE_SPLITS, read_sample
from biasbios_mlflow.bios.sources.artifacts import is_artifact, open_artifact
from biasbios_mlflow.bios.sources.files import open_file, spellings, split_files, split_of
from biasbios_mlflow.bios.sources.frames import FrameSource
from biasbios_mlflow.bios.sources.hub import HubSource, load_hub
from biasbios_mlflow.bios.sources.parts import OneSplit, Together
from biasbios_mlflow.bios.sources.pickles import PickleSource
from biasbios_mlflow.bios.sources.source import Source
from biasbios_mlflow.errors import invalid
from biasbios_mlflow.redaction import redacted_uri

__all__ = ["open_source"]


def open_source(source: Any, split: str | None = None, *, mark_splits: bool = False) -> Source:
    """Open whatever holds bios, without reading it yet where the format allows.

    Parameters
    ----------
    source, split
        See `biasbios_mlflow.load_bios`.
    mark_splits : bool, default=False
        Where all splits of a release are read together, say in a column ``split`` which one each
        bio is of.

    Returns
    -------
    Source

    Raises
    ------
    MlflowException
        Where the source is not there, is of no known kind, or has no such split.
    """
    if isinstance(source, pd.DataFrame):
        return _one_split(FrameSource(source, "bios"), split)
    if isinstance(getattr(source, "df", None), pd.DataFrame):
        return _one_split(FrameSource(source.df, str(source.name)), split)
    if type(source).__name__ == "HuggingFaceDataset":  # of mlflow.data
        return _one_split(HubSource(source.ds, str(source.name), None), split)
    if type(source).__module__.startswith("datasets."):
        if isinstance(source, Mapping):
            parts = {name: HubSource(part, f"bios-{name}", None) for name, part in source.items()}
            return _of_splits(parts, "bios", None, split, mark_splits)
        if hasattr(source, "with_format") and hasattr(source, "column_names"):
            return _one_split(HubSource(source, "bios", None), split)
    if not isinstance(source, (str, Path)):
        raise invalid(
            "data",
            found=f"an object of type {type(source).__name__}",
            expected="'sample', the path of a file, a DataFrame or an MLflow dataset",
            fix="load the bios into a pandas DataFrame first",
        )
    name = str(source)
    if name == "sample":
        return _open_sample(split, mark_splits)
    if name.startswith("hub:"):
        short = name.rstrip("/").rpartition("/")[2].removeprefix("hub:")
        return _of_splits(load_hub(name.removeprefix("hub:")), short, name, split, mark_splits)
    if is_artifact(name):
        shown = redacted_uri(name)
        return open_artifact(name, lambda path: _open_path(path, shown, split, mark_splits))
    return _open_path(Path(source), name, split, mark_splits)


def _open_sample(split: str | None, mark_splits: bool) -> Source:
    if split is None and mark_splits:
        parts = {part: _open_sample(part, False) for part in SAMPLE_SPLITS}
        return _of_splits(parts, "biasbios-sample", None, None, True)
    if split is not None:
        split = next((known for known in spellings(split) if known in SAMPLE_SPLITS), split)
    name = "biasbios-sample" if split is None else f"biasbios-sample-{split}"
    return FrameSource(read_sample(split), name)


def _open_path(path: Path, shown: str, split: str | None, mark_splits: bool) -> Source:
    if path.is_dir() and (files := split_files(path)):
        parts = {part: _of_files(files[part], shown, path.name, part) for part in files}
        return _of_splits(parts, path.name, shown, split, mark_splits)
    opened = open_file(path, shown)
    if isinstance(opened, PickleSource) and opened.unsplit and (split or mark_splits):
        opened = opened.with_splits()
    elif split is not None and (own := split_of(path)) and "split" not in opened.columns:
        # One of several files, each of which is a split.
        return _of_splits({own: opened}, opened.name, shown, split, False)
    return _one_split(opened, split)


def _of_files(paths: Sequence[Path], shown: str, folder: str, split: str) -> Source:
    sources = [open_file(path, shown) for path in paths]
    source = sources[0] if len(sources) == 1 else Together(sources, sources[0].name, shown)
    if any(letter.isdigit() for letter in source.name):  # the number of a shard
        source.name = f"{folder}-{split}"
    return source


def _one_split(source: Source, split: str | None) -> Source:
    return source if split is None else OneSplit(source, split)


def _of_splits(
    parts: Mapping[str, Source], name: str, where: str | None, split: str | None, mark: bool
) -> Source:
    """Return one of the splits that a release keeps apart, or all of them."""
    if split is None:
        if len(parts) == 1 and not mark:
            return next(iter(parts.values()))
        return Together(list(parts.values()), name, where, splits=list(parts) if mark else None)
    for known in spellings(split):
        if known in parts:
            return parts[known]
    raise invalid(
        "split", found=repr(split), expected=f"one of {list(parts)}", fix="name one of these"
    )
