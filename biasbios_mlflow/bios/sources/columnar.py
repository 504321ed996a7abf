"""parquet files, and folders of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.dataset as pads  # type: ignore[import-untyped]

from biasbios_mlflow.bios.sources.source import CHUNK_ROWS, FileSource
from biasbios_mlflow.bios.sources.unpacking import readable, stem, unpacked

__all__ = ["ParquetSource"]


class ParquetSource(FileSource):
    """A parquet file, or a folder of parquet files of one schema, read by row groups.

    In a folder, ``name=value`` in the path of a file is a column, as Spark and Hive write it.

    Parameters
    ----------
    path : Path
    """

    def __init__(self, path: Path) -> None:
        super().__init__(stem(path), str(path))
        self._path = path

    def parse(self, types: dict[str, Any] | None) -> Iterator[pd.DataFrame]:
        """Yield chunks of rows."""
        with readable(self._path), unpacked(self._path) as path:
            try:
                data = pads.dataset(path, format="parquet", partitioning="hive")
                yield data.schema.empty_table().to_pandas()
                # One batch ahead, not sixteen of each of four files.
                batches = data.to_batches(
                    batch_size=CHUNK_ROWS, batch_readahead=1, fragment_readahead=1
                )
                for batch in batches:
                    if batch.num_rows:
                        yield batch.to_pandas()
            except pa.ArrowException as error:
                raise ValueError(str(error)) from error
