"""Parts of sources, and sources in parts: splits, and rows that were drawn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from biasbios_mlflow.bios.sources.files import spellings
from biasbios_mlflow.bios.sources.source import Source
from biasbios_mlflow.errors import invalid

__all__ = ["ChosenRows", "OneSplit", "Together"]


class Together(Source):
    """Several sources, one after the other.

    Parameters
    ----------
    sources : sequence of Source
    name : str
    where : str or None
    splits : sequence of str, optional
        Which split each of them is: it stands in the column ``split``.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        name: str,
        where: str | None,
        *,
        splits: Sequence[str] | None = None,
    ) -> None:
        super().__init__(name, where)
        self._sources = sources
        self._splits = splits
        self.in_memory = all(source.in_memory for source in sources)

    def chunks(self) -> Iterator[pd.DataFrame]:
        """Yield all rows in order; see `Source.chunks`."""
        start = 0
        for number, source in enumerate(self._sources):
            for chunk in source.chunks():
                if self._splits is not None:
                    chunk = chunk.assign(split=self._splits[number])
                yield chunk.set_axis(pd.RangeIndex(start, start + len(chunk)))
                start += len(chunk)


class OneSplit(Source):
    """The rows whose column ``split`` names one split.

    Parameters
    ----------
    source : Source
    split : str
        As the column spells it, or one of the official names.

    Raises
    ------
    MlflowException
        Where there is no such column; on the first walk, where no row is of that split.
    """

    def __init__(self, source: Source, split: str) -> None:
        super().__init__(f"{source.name}-{split}", source.where)
        if "split" not in source.columns:
            raise invalid(
                "split",
                found=f"{split!r}, and no column 'split' among {source.columns}",
                expected="a column that says which split a bio belongs to",
                fix="leave split out",
            )
        self.in_memory = source.in_memory
        self._source = source
        self._split = split

    def chunks(self) -> Iterator[pd.DataFrame]:
        """Yield the rows in order, under their positions in the whole source."""
        others: set[str] = set()
        any_row = False
        for chunk in self._source.chunks():
            part = chunk[chunk["split"].map(_plain).isin(spellings(self._split))]
            if len(part) < len(chunk):
                others.update(map(str, chunk["split"].unique()))
            any_row = any_row or len(part) > 0
            yield part
        if not any_row:
            raise invalid(
                "split",
                found=f"{self._split!r}",
                expected=f"one of {sorted(others)}",
                fix="name one of these",
            )


class ChosenRows(Source):
    """Some rows of a source.

    Parameters
    ----------
    source : Source
    chosen : array of bool of shape (rows of the source,)
        By the position in the source, whether a row is chosen.
    name : str
    """

    def __init__(self, source: Source, chosen: npt.NDArray[np.bool_], name: str) -> None:
        super().__init__(name, source.where)
        self.in_memory = source.in_memory
        self._source = source
        self._chosen = chosen

    def chunks(self) -> Iterator[pd.DataFrame]:
        """Yield the chosen rows in order, under their positions in the source."""
        for chunk in self._source.chunks():
            yield chunk[self._chosen[chunk.index.to_numpy()]]


def _plain(split: object) -> str:
    return str(split).strip().lower()
