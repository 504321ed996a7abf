"""jsonl files: one object a line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from biasbios_mlflow.bios.occupations import replace_surrogates
from biasbios_mlflow.bios.sources.source import CHUNK_BYTES, CHUNK_ROWS, FileSource
from biasbios_mlflow.bios.sources.unpacking import opened, readable, stem

__all__ = ["LinesSource"]

_ESCAPED = re.compile(rb"\\u[dD][89a-fA-F]")
"""Half of a surrogate pair can only be there as an escape: the file is UTF-8."""


class LinesSource(FileSource):
    """A jsonl file, packed with gz or not.

    An object may lack keys: its cells are then empty. The columns are those of the first chunk, and
    from the second walk on those of all lines.

    Parameters
    ----------
    path : Path
    """

    def __init__(self, path: Path) -> None:
        super().__init__(stem(path), str(path))
        self._path = path

    def parse(self, types: dict[str, Any] | None) -> Iterator[pd.DataFrame]:
        """Yield chunks of lines."""
        with readable(self._path), opened(self._path) as file:
            records: list[dict[str, Any]] = []
            size, first = 0, True
            for number, line in enumerate(file, start=1):
                if not line.strip():
                    continue
                try:
                    record = json.loads(line)
                except ValueError as error:
                    raise ValueError(f"line {number}: {error}") from error
                if not isinstance(record, dict):
                    raise ValueError(f"line {number} is no object")
                if _ESCAPED.search(line):
                    record = {
                        replace_surrogates(key): replace_surrogates(cell)
                        if isinstance(cell, str)
                        else cell
                        for key, cell in record.items()
                    }
                records.append(record)
                size += len(line)
                if len(records) == CHUNK_ROWS or size >= CHUNK_BYTES:
                    yield pd.DataFrame.from_records(records)
                    records, size, first = [], 0, False
            if records or first:
                yield pd.DataFrame.from_records(records)
