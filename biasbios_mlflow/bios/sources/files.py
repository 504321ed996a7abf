"""Files and folders on disk: the format follows from the name."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from biasbios_mlflow.bios.sources.columnar import ParquetSource
from biasbios_mlflow.bios.sources.lines import LinesSource
from biasbios_mlflow.bios.sources.pickles import PickleSource
from biasbios_mlflow.bios.sources.separated import SeparatedSource
from biasbios_mlflow.bios.sources.source import Source
from biasbios_mlflow.errors import invalid

__all__ = ["SPLIT_SPELLINGS", "open_file", "spellings", "split_files", "split_of"]

_FORMATS: dict[str, Callable[[Path], Source]] = {
    ".csv": SeparatedSource,
    ".tsv": lambda path: SeparatedSource(path, "\t"),
    ".jsonl": LinesSource,
    ".parquet": ParquetSource,
    ".pq": ParquetSource,
    ".pkl": PickleSource,
    ".pickle": PickleSource,
}

SPLIT_SPELLINGS = {
    "train": ("train", "training"),
    "dev": ("dev", "val", "valid", "validation"),
    "test": ("test",),
}
"""The official splits, and what releases call them."""

_SPLIT_FILE = re.compile(
    r"(?:.*[-_.])?(?P<split>{})(?:-\d+-of-\d+)?\.[a-z.]+".format(
        "|".join(spelling for spellings in SPLIT_SPELLINGS.values() for spelling in spellings)
    )
)


def _kind(path: Path) -> str:
    return path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix


def open_file(path: Path, shown: str) -> Source:
    """Open a file, or a folder of parquet files.

    Parameters
    ----------
    path : Path
    shown : str
        What the user named, for messages.

    Raises
    ------
    MlflowException
        Where there is no such file, or its name tells of no known format.
    """
    kind = _kind(path)
    if path.is_dir() and (kind == ".parquet" or any(path.rglob("*.parquet"))):
        return ParquetSource(path)
    if kind not in _FORMATS or not path.is_file():
        what = "" if path.is_file() else ", which is no file"
        if path.is_dir():
            what = ", a folder without parquet files and without one file a split"
        raise invalid(
            "data",
            found=f"{shown!r}{what}",
            expected="'sample', 'hub:LabHC/bias_in_bios', an artifact URI, a folder, or a file "
            f"that ends in {', '.join(_FORMATS)} (or .gz after these)",
            fix="check the path",
        )
    return _FORMATS[kind](path)


def spellings(split: str) -> tuple[str, ...]:
    """Return all that may stand for a split, as named first.

    Examples
    --------
    >>> spellings("validation")[:2], spellings("holdout")
    (('validation', 'dev'), ('holdout',))
    """
    known = next((names for names in SPLIT_SPELLINGS.values() if split in names), ())
    return tuple(dict.fromkeys((split, *known)))


def split_files(folder: Path) -> dict[str, list[Path]]:
    """Find the files of a folder that are named after splits, as releases are laid out.

    Parameters
    ----------
    folder : Path
        It, or its subfolder ``data``, is looked through.

    Returns
    -------
    dict of str to list of Path
        By official split; empty where there are none.
    """
    for place in (folder, folder / "data"):
        found: dict[str, list[Path]] = {}
        for path in sorted(place.iterdir()) if place.is_dir() else ():
            split = split_of(path)
            if split is not None and _kind(path) in _FORMATS and path.is_file():
                found.setdefault(split, []).append(path)
        if found:
            return {split: found[split] for split in SPLIT_SPELLINGS if split in found}
    return {}


def split_of(path: Path) -> str | None:
    """Return the split that a file is named after.

    Examples
    --------
    >>> split_of(Path("validation.pickle")), split_of(Path("biasbios_test.pq"))
    ('dev', 'test')
    >>> split_of(Path("data/train-00000-of-00002.parquet")), split_of(Path("contest.csv"))
    ('train', None)
    """
    match = _SPLIT_FILE.fullmatch(path.name)
    if match is None:
        return None
    return next(split for split, known in SPLIT_SPELLINGS.items() if match["split"] in known)
