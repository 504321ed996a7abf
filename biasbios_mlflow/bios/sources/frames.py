"""Sources that are in memory: DataFrames, MLflow datasets, the embedded sample."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from biasbios_mlflow.bios.checked import check_distinct
from biasbios_mlflow.bios.occupations import replace_surrogates
from biasbios_mlflow.bios.sources.source import CHUNK_ROWS, Source

__all__ = ["FrameSource"]


class FrameSource(Source):
    """A DataFrame.

    Parameters
    ----------
    frame : DataFrame
        Its index is left aside.
    name : str
    where : str, optional
    """

    in_memory = True

    def __init__(self, frame: pd.DataFrame, name: str, where: str | None = None) -> None:
        super().__init__(name, where)
        check_distinct(frame.columns)
        self._frame = _in_utf8(frame)

    def chunks(self) -> Iterator[pd.DataFrame]:
        """Yield all rows in order; see `Source.chunks`."""
        for start in range(0, max(len(self._frame), 1), CHUNK_ROWS):
            chunk = self._frame.iloc[start : start + CHUNK_ROWS]
            yield chunk.set_axis(pd.RangeIndex(start, start + len(chunk)))

    def read(self) -> pd.DataFrame:
        """Return the DataFrame itself."""
        return self._frame


def _in_utf8(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a frame whose strings UTF-8 can hold, as every file and MLflow's digest need it."""
    changed = {}
    for name in frame.columns:
        column = frame[name]
        if column.dtype != object:  # others cannot hold half a character
            continue
        whole = [replace_surrogates(cell) if isinstance(cell, str) else cell for cell in column]
        if any(a is not b for a, b in zip(whole, column, strict=True)):
            changed[name] = pd.Series(whole, index=frame.index, dtype=object)
    return frame.assign(**changed) if changed else frame
