"""Files and folders on disk: the format follows from the name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from biasbios_mlflow.bios.sources.columnar import ParquetSource, parquet_files
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
    ".json": LinesSource,
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

_SPLITS = "|".join(spelling for names in SPLIT_SPELLINGS.values() for spelling in names)
_SPLIT_FILE = re.compile(
    rf"(?:.*[-_.])?(?P<split>{_SPLITS})"
    r"(?P<shard>-(?P<number>\d+)-of-(?P<of>\d+))?(?:-[0-9a-f]{8,})?(?P<suffix>\.[a-z.]+)"
)
_PREFERRED = (".parquet", ".pq", ".jsonl", ".json", ".csv", ".tsv", ".pkl", ".pickle")
"""Which format is read where a release has a split in several."""

_DEPTH = 3  # the hub's own layouts: test-….parquet, data/test-…, default/test/0000.parquet


def _kind(path: Path) -> str:
    packed = path.suffix.lower() == ".gz"
    return (path.with_suffix("").suffix if packed else path.suffix).lower()


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
    if path.is_dir() and parquet_files(path):
        return ParquetSource(path)
    if kind not in _FORMATS or not path.is_file():
        what = "" if path.is_file() else ", which is no file"
        if path.is_dir():
            what = ", a folder without parquet files and without one file a split"
        elif not path.exists() and not path.is_absolute():
            what += f" in {Path.cwd()}"
        in_project = not path.exists() and not path.is_absolute() and Path("MLproject").is_file()
        raise invalid(
            "data",
            found=f"{shown!r}{what}",
            expected="'sample', 'hub:LabHC/bias_in_bios', an artifact URI, a folder, or a file "
            f"that ends in {', '.join(_FORMATS)} (or .gz after these)",
            fix="check the path; `mlflow run` works in the project's folder: give it the whole path"
            if in_project
            else "check the path",
        )
    return _FORMATS[kind](path)


def spellings(split: str) -> tuple[str, ...]:
    """Return all that may stand for a split, as named first.

    Examples
    --------
    >>> spellings("Validation")[:2], spellings("holdout")
    (('validation', 'dev'), ('holdout',))
    """
    split = split.strip().lower()
    known = next((names for names in SPLIT_SPELLINGS.values() if split in names), ())
    return tuple(dict.fromkeys((split, *known)))


def split_files(folder: Path) -> dict[str, list[Path]]:
    """Find the files of a folder that are named after splits, as releases are laid out.

    Parameters
    ----------
    folder : Path
        With files such as ``test.csv``, ``data/test-00000-of-00001-<hash>.parquet`` or
        ``default/test/0000.parquet``; what else lies there (a README, the same bios in another
        format) is left aside.

    Returns
    -------
    dict of str to list of Path
        By official split; empty where there are none.

    Raises
    ------
    MlflowException
        Where there are several sets of splits, or a split lacks some of its files.
    """
    sets: dict[str, dict[str, dict[str, list[Path]]]] = {}
    for path in _files(folder, _DEPTH):
        place = path.relative_to(folder).parts[:-1]
        if any("=" in part for part in place):  # as Spark and Hive write it
            return {}
        split = split_of(path)
        if split is None and place and (split := _official(place[-1])):
            place = place[:-1]
        if split is not None:
            formats = sets.setdefault("/".join(place), {}).setdefault(split, {})
            formats.setdefault(_kind(path), []).append(path)
    if not sets:
        return {}
    chosen = next((name for name in ("", "data", "default") if name in sets), None)
    if chosen is None and len(sets) > 1:
        raise invalid(
            "data",
            found=f"several sets of splits in {str(folder)!r}: {', '.join(sorted(sets))}",
            expected="one",
            fix=f"name one of these folders, e.g. {str(folder / min(sets))!r}",
        )
    found = sets[next(iter(sets)) if chosen is None else chosen]
    splits = {}
    for split in SPLIT_SPELLINGS:
        if split in found:
            kind = min(found[split], key=_PREFERRED.index)
            splits[split] = sorted(found[split][kind])
            _check_shards(split, splits[split])
    return splits


def _files(folder: Path, depth: int) -> Iterator[Path]:
    """Yield the files of known formats in a folder and those in it, down to some depth."""
    for path in sorted(folder.iterdir()):
        if path.name.startswith((".", "_")):
            continue
        if path.is_dir():
            if depth > 1:
                yield from _files(path, depth - 1)
        elif _kind(path) in _FORMATS:
            yield path


def _check_shards(split: str, paths: Sequence[Path]) -> None:
    """Raise where the names of the files say that there are more of them."""
    matches = [_SPLIT_FILE.fullmatch(path.name.lower()) for path in paths]
    shards = [match for match in matches if match is not None and match["shard"]]
    if not shards:
        return
    expected = {int(match["of"]) for match in shards}
    numbers = sorted(int(match["number"]) for match in shards)
    if len(expected) > 1 or numbers != list(range(max(expected))):
        raise invalid(
            f"split {split!r}",
            found=f"the files {', '.join(path.name for path in paths)}",
            expected=f"{max(expected)} files, each once",
            fix="download the folder anew",
        )


def split_of(path: Path) -> str | None:
    """Return the split that a file is named after.

    Examples
    --------
    >>> split_of(Path("validation.pickle")), split_of(Path("biasbios_test.pq"))
    ('dev', 'test')
    >>> split_of(Path("data/train-00000-of-00002.parquet")), split_of(Path("contest.csv"))
    ('train', None)
    >>> split_of(Path("data/test-00000-of-00001-1f0a5b6c7d8e9f00.parquet"))
    'test'
    """
    match = _SPLIT_FILE.fullmatch(path.name.lower())
    return None if match is None else _official(match["split"])


def _official(name: str) -> str | None:
    known = (split for split, names in SPLIT_SPELLINGS.items() if name.lower() in names)
    return next(known, None)
