"""Readers: from where bios lie to a dataset that MLflow knows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

# Before `origin`, which MLflow loads by its entry point while it is imported: were it first
# imported from there, it would find a module that is not complete yet, and warn.
import mlflow.data  # noqa: F401
import pandas as pd

from biasbios_mlflow.bios.checked import (
    LEFT_OUT,
    Columns,
    check_bios,
    check_not_empty,
    find_columns,
)
from biasbios_mlflow.bios.occupations import GENDERS, GenderValues, encode_genders, missing_cells
from biasbios_mlflow.bios.origin import dataset_source
from biasbios_mlflow.bios.sources import open_source
from biasbios_mlflow.bios.stream import sample_rows
from biasbios_mlflow.redaction import logger

__all__ = ["as_dataset", "load_bios"]

_logger = logger(__name__)

COLUMNS = ("hard_text", "profession", "gender")
"""The columns that every loaded dataset begins with."""


def load_bios(
    source: Any = "sample",
    split: str | None = None,
    *,
    sample: int | None = None,
    seed: int = 0,
    text_column: str | None = None,
    occupation_column: str | None = None,
    gender_column: str | None = None,
    label_names: Sequence[str] | None = None,
    gender_values: GenderValues | None = None,
) -> Any:
    """Load bios as an MLflow dataset.

    Parameters
    ----------
    source : str, Path, DataFrame or mlflow.data dataset, default="sample"
        ``"sample"`` is the embedded, invented sample; ``"hub:LabHC/bias_in_bios"`` the dataset of
        the Hugging Face hub; a dataset of its library is taken too. A path names a csv, tsv, jsonl
        or parquet file, one of the pickled releases (each also with .gz), a folder as the hub has
        it, with one file a split, or a folder of parquet files. A URI names one of these as an
        MLflow artifact (``runs:/…``, ``models:/…``, ``s3://…``).
    split : {"train", "dev", "test"}, optional
        Which part of a release; of other sources, the rows whose column ``split`` says so. By
        default all, and where a release has several splits, the column ``split`` says which.
    sample : int, optional
        Draw so many bios, every gender and occupation by its share.
    seed : int, default=0
        Seed of that draw.
    text_column, occupation_column, gender_column : str, optional
        Columns with the parts of a bio; by default the usual names are tried.
    label_names : sequence of str, optional
        Occupations in the order of their ids; by default the names that the data has for its ids,
        else the benchmark's.
    gender_values : mapping, optional
        What the values of the gender column mean (``"male"``, ``"female"``), instead of the usual
        ones; bios of those that are None are left out, which a warning tells.

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
    >>> dataset = load_bios("sample", split="test", sample=100)
    >>> list(dataset.df.columns), len(dataset.df)
    (['hard_text', 'profession', 'gender'], 100)
    """
    opened = open_source(source, split, mark_splits=True)
    columns = find_columns(
        opened.columns, text=text_column, occupation=occupation_column, gender=gender_column
    )
    if sample is not None:
        opened = sample_rows(opened, columns, sample, seed=seed, gender_values=gender_values)
    return as_dataset(
        _tidy(opened.read(), columns, label_names, gender_values),
        targets="profession",
        name=opened.name,
        source=opened.where,
    )


def _tidy(
    frame: pd.DataFrame,
    columns: Columns,
    label_names: Sequence[str] | None,
    gender_values: GenderValues | None,
) -> pd.DataFrame:
    """Give the columns their usual names and order, and the values their usual spelling."""
    usual = {columns.text: "hard_text", columns.occupation: "profession", columns.gender: "gender"}
    # What else has one of these names is another thing, such as the text before the benchmark's.
    frame = frame.drop(columns=[c for c in COLUMNS if c in frame.columns and c not in usual])
    named = frame.rename(columns=usual)
    named = named[[*COLUMNS, *(c for c in named.columns if c not in COLUMNS)]].copy()
    bios = check_bios(
        named,
        find_columns(list(named.columns), text="hard_text", occupation="profession"),
        label_names=label_names,
        gender_values=gender_values,
        allow_missing=True,
    )
    for place, part in enumerate(COLUMNS):
        cells = named[part].astype(object)
        named[part] = cells.mask(missing_cells(cells, spelled=place > 0), None)
    labels = bios.labels.names
    named.iloc[bios.rows, 0] = bios.texts
    named.iloc[bios.rows, 1] = [labels[code] for code in bios.occupations.tolist()]
    named.iloc[bios.rows, 2] = [GENDERS[code] for code in bios.genders.tolist()]
    if left_out := bios.missing.get(LEFT_OUT, 0):
        _logger.warning("biasbios: gender_values leaves out %d bios of %d.", left_out, len(named))
        codes = encode_genders(frame[columns.gender], gender_values=gender_values)
        named = named[codes != -2].reset_index(drop=True)
    return named.infer_objects()


def as_dataset(frame: pd.DataFrame, *, targets: str, name: str, source: str | None) -> Any:
    """Return a frame as the dataset under which MLflow lists it with the run."""
    from mlflow.data.pandas_dataset import from_pandas

    check_not_empty(len(frame))  # MLflow's digest fails on an empty frame with an error of its own
    origin = dataset_source(source)
    options: dict[str, Any] = {} if origin is None else {"source": origin}
    return from_pandas(frame, targets=targets, name=name, **options)
