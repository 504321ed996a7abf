"""What all sources of bios are: a name, columns, and bounded chunks of rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.types import infer_dtype

__all__ = ["CHUNK_BYTES", "CHUNK_ROWS", "FileSource", "Source", "rows_within_limit"]

CHUNK_ROWS = 4096
"""Most rows of a chunk."""

CHUNK_BYTES = 8 << 20
"""About how much text a chunk holds; with long cells it has fewer rows."""


class Source(ABC):
    """A table of bios that is read in chunks.

    Parameters
    ----------
    name : str
        A name for the dataset.
    where : str or None
        The path or URI it came from.

    Attributes
    ----------
    in_memory : bool
        Whether all of it is in memory anyway, so that nothing is won by chunks.
    """

    in_memory = False

    def __init__(self, name: str, where: str | None) -> None:
        self.name = name
        self.where = where

    @abstractmethod
    def chunks(self) -> Iterator[pd.DataFrame]:
        """Yield all rows in order, in DataFrames whose index holds the rows' positions.

        At least one, which may be empty. Each call walks the source again from the start.

        Raises
        ------
        MlflowException
            Where the source turns out to be unreadable.
        """

    @cached_property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(map(str, next(iter(self.chunks())).columns))

    def read(self) -> pd.DataFrame:
        """Return all rows as one DataFrame, numbered from 0."""
        chunks = list(self.chunks())
        if len({tuple(chunk.dtypes.items()) for chunk in chunks}) > 1:
            chunks = list(self.chunks())  # types are known now, see FileSource
        return pd.concat(chunks, ignore_index=True)


class FileSource(Source):
    """A source whose format says nothing, or not enough, about the types of its columns.

    What a chunk holds decides the types of its columns, so they can differ between chunks. The
    first walk notes them; from then on a column has one type in all chunks: that which it would
    have, had all rows been read at once.

    Attributes
    ----------
    text_wins : bool
        Whether a column of numbers and words holds words only, as in files of text, and not both.
    """

    text_wins = False

    def __init__(self, name: str, where: str | None) -> None:
        super().__init__(name, where)
        self._types: dict[str, Any] | None = None
        self.words: set[str] = set()  # columns that hold text, once that is known

    @abstractmethod
    def parse(self, types: dict[str, Any] | None) -> Iterator[pd.DataFrame]:
        """Yield chunks as the format gives them.

        Parameters
        ----------
        types : dict of str to dtype, optional
            Types that the columns are known to have; those whose chunks differ can be cast
            afterwards, but a format may read them rightly from the start.
        """

    def chunks(self) -> Iterator[pd.DataFrame]:
        """Yield all rows in order; see `Source.chunks`."""
        types, seen = self._types, _Types(self.text_wins)
        start = 0
        for chunk in self.parse(types):
            if types is None:
                seen.note(chunk)
            else:
                chunk = _cast(chunk, types)
            chunk.index = pd.RangeIndex(start, start + len(chunk))
            start += len(chunk)
            yield chunk
        if types is None:
            self._types, self.words = seen.types, seen.words


class _Types:
    """Finds the type of each column from those it has in each chunk."""

    def __init__(self, text_wins: bool) -> None:
        self.types: dict[str, Any] = {}
        self.words: set[str] = set()
        self._text_wins = text_wins
        self._empty: set[str] = set()  # columns without any value so far

    def note(self, chunk: pd.DataFrame) -> None:
        for column, dtype in chunk.dtypes.items():
            name = str(column)
            known = self.types.get(name)
            # numpy holds None to be equal to float64.
            same = known is not None and known == dtype
            if _is_text(chunk[column]):
                self.words.add(name)
            if same and name not in self._empty:
                continue
            empty = bool(chunk[column].isna().all())
            if known is None or same:
                self.types[name] = dtype
            elif _is_number(known) and _is_number(dtype):
                self.types[name] = np.result_type(known, dtype)
            elif name in self._empty:
                self.types[name] = dtype
            elif not empty:
                self.types[name] = self._mixed(known, dtype)
            elif not isinstance(known, pd.StringDtype):
                self.types[name] = np.dtype(object)
            if not empty:
                self._empty.discard(name)
            elif known is None:
                self._empty.add(name)

    def _mixed(self, first: Any, second: Any) -> Any:
        strings = [dtype for dtype in (first, second) if isinstance(dtype, pd.StringDtype)]
        return strings[0] if strings and self._text_wins else np.dtype(object)


def _is_text(column: pd.Series[Any]) -> bool:
    if isinstance(column.dtype, pd.StringDtype):
        return True
    # So does pandas hold strings before version 3.
    return column.dtype == object and infer_dtype(column) == "string"


def _is_number(dtype: Any) -> bool:
    return isinstance(dtype, np.dtype) and dtype.kind in "iuf"


def _cast(chunk: pd.DataFrame, types: dict[str, Any]) -> pd.DataFrame:
    if list(chunk.columns) != list(types):
        chunk = chunk.reindex(columns=list(types))
    differ = {name: dtype for name, dtype in types.items() if chunk[name].dtype != dtype}
    return chunk.astype(differ) if differ else chunk


def rows_within_limit(chunk: pd.DataFrame) -> int:
    """Return how many rows like those of a chunk make the next one, so that it fits in memory.

    Examples
    --------
    >>> rows_within_limit(pd.DataFrame({"hard_text": ["She heals."]}))
    4096
    >>> rows_within_limit(pd.DataFrame({"hard_text": ["x" * (1 << 20)] * 3}))
    8
    """
    size = sum(_size(chunk[column]) for column in chunk.columns)
    return max(1, min(CHUNK_ROWS, CHUNK_BYTES * len(chunk) // max(size, 1)))


def _size(column: pd.Series[Any]) -> int:
    if isinstance(column.dtype, pd.StringDtype):
        return int(column.str.len().sum())
    if column.dtype == object:
        return sum(len(cell) for cell in column if isinstance(cell, str))
    return 0
