"""Readers: from where bios lie to a dataset that MLflow knows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from biasbios_mlflow.bios.checked import Columns, check_bios, check_not_empty, find_columns
from biasbios_mlflow.bios.occupations import GENDERS
from biasbios_mlflow.bios.sample import read_sample
from biasbios_mlflow.errors import invalid

__all__ = ["as_dataset", "load_bios", "read_bios"]

COLUMNS = ("hard_text", "profession", "gender")
"""The columns that every loaded dataset begins with."""

_FILES: dict[str, Callable[[Path], pd.DataFrame]] = {
    ".csv": lambda path: pd.read_csv(path),
    ".tsv": lambda path: pd.read_csv(path, sep="\t"),
    ".jsonl": lambda path: pd.read_json(path, lines=True, dtype=False),
    ".parquet": lambda path: pd.read_parquet(path),
}


def load_bios(source: Any = "sample", split: str | None = None) -> Any:
    """Load bios as an MLflow dataset.

    Parameters
    ----------
    source : str, Path, DataFrame or mlflow.data dataset, default="sample"
        ``"sample"`` is the embedded, invented sample. A path names a csv, tsv, jsonl (each also
        with .gz) or parquet file.
    split : {"train", "test"}, optional
        Which part of the sample; of other sources, the rows whose column ``split`` says so.

    Returns
    -------
    mlflow.data.pandas_dataset.PandasDataset
        Targets ``profession``. Its ``df`` has the columns ``hard_text`` (str), ``profession``
        (occupation name) and ``gender`` ("male"/"female"), then what else the source has. Bios that
        lack one of these keep an empty cell, for the evaluation to count.

    Raises
    ------
    MlflowException
        When the source is not there, cannot be read, or has no such columns.

    Examples
    --------
    >>> dataset = load_bios("sample", split="test")
    >>> list(dataset.df.columns)
    ['hard_text', 'profession', 'gender']
    """
    frame, name, where = read_bios(source, split)
    columns = find_columns(list(frame.columns))
    return as_dataset(_tidy(frame, columns), targets="profession", name=name, source=where)


def read_bios(source: Any, split: str | None = None) -> tuple[pd.DataFrame, str, str | None]:
    """Read bios as they are, without renaming anything.

    Parameters
    ----------
    source, split
        See `load_bios`.

    Returns
    -------
    frame : DataFrame
    name : str
        A name for the dataset.
    where : str or None
        The file it came from.
    """
    if isinstance(source, pd.DataFrame):
        return _split(source, split), "bios", None
    if hasattr(source, "df") and isinstance(source.df, pd.DataFrame):
        return _split(source.df, split), str(source.name), None
    if source == "sample":
        name = "biasbios-sample" if split is None else f"biasbios-sample-{split}"
        return read_sample(split), name, None
    if not isinstance(source, (str, Path)):
        raise invalid(
            "data",
            found=f"an object of type {type(source).__name__}",
            expected="'sample', the path of a file, a DataFrame or an MLflow dataset",
            fix="load the bios into a pandas DataFrame first",
        )
    path = Path(source)
    kind = path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
    if kind not in _FILES or not path.is_file():
        raise invalid(
            "data",
            found=f"{str(source)!r}" + ("" if path.is_file() else ", which is no file"),
            expected=f"'sample' or a file that ends in {', '.join(_FILES)}",
            fix="check the path",
        )
    try:
        frame = _FILES[kind](path)
    except (ValueError, OSError) as error:
        raise invalid(
            f"data file {path.name}",
            found=f"{type(error).__name__}: {error}",
            expected=f"a readable {kind} file",
            fix="check that the file is whole and in UTF-8",
        ) from error
    return _split(frame, split), path.stem, str(path)


def _split(frame: pd.DataFrame, split: str | None) -> pd.DataFrame:
    if split is None:
        return frame
    if "split" not in frame.columns:
        raise invalid(
            "split",
            found=f"{split!r}, and no column 'split' among {list(map(str, frame.columns))}",
            expected="a column that says which split a bio belongs to",
            fix="leave split out",
        )
    part = frame[frame["split"] == split]
    if len(part) == 0:
        raise invalid(
            "split",
            found=f"{split!r}",
            expected=f"one of {sorted(map(str, frame['split'].unique()))}",
            fix="name one of these",
        )
    return part.reset_index(drop=True)


def _tidy(frame: pd.DataFrame, columns: Columns) -> pd.DataFrame:
    """Give the columns their usual names and order, and the values their usual spelling."""
    named = frame.rename(
        columns={
            columns.text: "hard_text",
            columns.occupation: "profession",
            columns.gender: "gender",
        }
    )
    named = named[[*COLUMNS, *(c for c in named.columns if c not in COLUMNS)]].copy()
    bios = check_bios(named, find_columns(list(named.columns)), allow_missing=True)
    named["profession"] = named["profession"].astype(object)
    named["gender"] = named["gender"].astype(object)
    labels = bios.labels.names
    named.iloc[bios.rows, 1] = [labels[code] for code in bios.occupations.tolist()]
    named.iloc[bios.rows, 2] = [GENDERS[code] for code in bios.genders.tolist()]
    return named.infer_objects()


def as_dataset(frame: pd.DataFrame, *, targets: str, name: str, source: str | None) -> Any:
    """Return a frame as the dataset under which MLflow lists it with the run."""
    from mlflow.data.pandas_dataset import from_pandas

    check_not_empty(len(frame))  # MLflow's digest fails on an empty frame with an error of its own
    options = {} if source is None else {"source": source}
    return from_pandas(frame, targets=targets, name=name, **options)
