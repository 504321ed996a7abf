"""Sources: where bios lie, one file a format; each is walked in chunks, as often as needed."""

from __future__ import annotations

from biasbios_mlflow.bios.sources.opening import open_source
from biasbios_mlflow.bios.sources.source import Source

__all__ = ["Source", "open_source"]
