"""csv and tsv files, read by pandas in chunks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from biasbios_mlflow.bios.checked import check_distinct
from biasbios_mlflow.bios.sources.source import FileSource, rows_within_limit
from biasbios_mlflow.bios.sources.unpacking import opened, readable, stem

__all__ = ["SeparatedSource"]

_FIRST_ROWS = 16
"""Rows of the first chunk; the size of the next ones follows from the length of the cells."""


class SeparatedSource(FileSource):
    """A csv or tsv file, packed with gz or not.

    Parameters
    ----------
    path : Path
    separator : str, default=","
    """

    text_wins = True

    def __init__(self, path: Path, separator: str = ",") -> None:
        super().__init__(stem(path), str(path))
        self._path = path
        self._separator = separator

    def parse(self, types: dict[str, Any] | None) -> Iterator[pd.DataFrame]:
        """Yield chunks of rows, fewer where the cells are long."""
        # A column of truth values with gaps is of objects; told so, pandas would read words.
        told: dict[str, Any] | None = types and {
            name: str if name in self.words else dtype
            for name, dtype in types.items()
            if name in self.words or dtype.kind != "O"
        }
        with readable(self._path), opened(self._path) as file:
            # pandas would rename the second of two columns of one name.
            head = pd.read_csv(file, sep=self._separator, header=None, nrows=1, dtype=str)
            check_distinct(head.iloc[0].dropna())
        with readable(self._path), opened(self._path) as file:
            # Without low_memory=False, pandas would guess types for parts of a chunk.
            # Only an empty cell is missing: in a text, "NA" is a word. What is missing among
            # occupations and genders is decided in one place for all sources.
            reader = pd.read_csv(
                file,
                sep=self._separator,
                iterator=True,
                dtype=told,
                low_memory=False,
                keep_default_na=False,
                na_values=[""],
            )
            rows = _FIRST_ROWS
            chunk = reader.read(rows)
            while True:
                if not isinstance(chunk.index, pd.RangeIndex):
                    raise ValueError("the rows have more cells than the header has names")
                yield chunk
                rows = rows_within_limit(chunk)
                try:
                    chunk = reader.read(rows)
                except StopIteration:
                    return
