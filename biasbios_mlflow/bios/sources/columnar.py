"""parquet files, and folders of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.dataset as pads  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from biasbios_mlflow.bios.checked import check_distinct
from biasbios_mlflow.bios.sources.class_labels import named, names_in_metadata
from biasbios_mlflow.bios.sources.source import CHUNK_BYTES, CHUNK_ROWS, FileSource
from biasbios_mlflow.bios.sources.unpacking import readable, stem, unpacked

__all__ = ["ParquetSource", "parquet_files"]

_BUFFER = 1 << 20


class ParquetSource(FileSource):
    """A parquet file, or a folder of parquet files of one schema, read page by page.

    In a folder, ``name=value`` in the path of a file is a column, as Spark and Hive write it; files
    of other kinds are left aside. Where `datasets` wrote the file, the ids of classes become names.

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
                data = pads.dataset(
                    parquet_files(path) if path.is_dir() else path,
                    format="parquet",
                    partitioning="hive",
                    partition_base_dir=str(path) if path.is_dir() else None,
                )
                check_distinct(data.schema.names)
                names = names_in_metadata(data.schema.metadata)
                none = named(data.schema.empty_table().to_pandas(), names)
                yield none
                for fragment in data.get_fragments():
                    keys = pads.get_partition_keys(fragment.partition_expression)
                    for chunk in _chunks(fragment.path):
                        yield chunk.assign(**keys).reindex(columns=none.columns)
            except pa.ArrowException as error:
                raise ValueError(str(error)) from error


def _chunks(path: str) -> Iterator[pd.DataFrame]:
    # A buffered file is read page by page; a dataset would hold whole row groups, and what pandas
    # writes is one.
    with pq.ParquetFile(path, buffer_size=_BUFFER, pre_buffer=False) as file:
        groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
        size = sum(group.total_byte_size for group in groups) // max(file.metadata.num_rows, 1)
        rows = max(1, min(CHUNK_ROWS, CHUNK_BYTES // max(size, 1)))
        names = names_in_metadata(file.schema_arrow.metadata)
        for batch in file.iter_batches(batch_size=rows):
            yield named(batch.to_pandas(), names)


def parquet_files(folder: Path) -> list[str]:
    """Return the parquet files in a folder and those in it, without hidden ones."""
    return sorted(
        str(path)
        for path in folder.rglob("*")
        if path.suffix.lower() in (".parquet", ".pq")
        and not any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)
    )
