"""What the tests of sources share."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from biasbios_mlflow.bios.sources import columnar, frames, hub, lines, source

ChunkRows = Callable[[int], None]


@pytest.fixture
def chunk_rows(monkeypatch: pytest.MonkeyPatch) -> ChunkRows:
    """Set how many rows a chunk has."""

    def set_rows(rows: int) -> None:
        for module in (columnar, frames, hub, lines, source):
            monkeypatch.setattr(module, "CHUNK_ROWS", rows)

    return set_rows


@pytest.fixture
def small_chunks(chunk_rows: ChunkRows) -> None:
    """Chunks that no window is a multiple of."""
    chunk_rows(37)
