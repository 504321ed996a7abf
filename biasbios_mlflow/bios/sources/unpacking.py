"""Files and gz files, opened so that no small file can fill memory or disk."""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from biasbios_mlflow.errors import invalid
from biasbios_mlflow.temporary import temporary_folder

__all__ = ["opened", "readable", "stem", "unpacked"]

_PIECE = 1 << 20
_FREE = 64 << 20
"""So many bytes may come out of any gz file; from then on the ratio counts."""

_RATIO = 100
"""Text is packed to a third or a tenth; only what is made to do harm goes beyond this."""


class _Unpacking(io.RawIOBase):
    """Reads a gz file and stops where it unpacks to far more than a file of text can."""

    def __init__(self, packed: BinaryIO, name: str) -> None:
        self._packed = packed
        self._name = name
        self._stream = gzip.GzipFile(fileobj=packed)
        self._out = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        piece = self._stream.read(min(len(buffer), _PIECE))
        self._out += len(piece)
        packed = self._packed.tell()
        if self._out > _FREE and self._out > _RATIO * packed:
            raise invalid(
                f"data file {self._name}",
                found=f"{self._out >> 20} MiB in the first {packed >> 10} KiB of packed data",
                expected=f"text, which unpacks to less than {_RATIO} times its packed size",
                fix="check where the file comes from; if you trust it, unpack it yourself first",
            )
        buffer[: len(piece)] = piece
        return len(piece)


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open a file for reading bytes, unpacked where its name ends in .gz."""
    with path.open("rb") as file:
        if path.suffix.lower() == ".gz":
            yield io.BufferedReader(_Unpacking(file, path.name), _PIECE)
        else:
            yield file


@contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """Give the path of an unpacked copy of a gz file, of others their own."""
    if path.suffix.lower() != ".gz":
        yield path
        return
    with temporary_folder() as folder:
        copy = Path(folder) / path.stem
        with opened(path) as packed, copy.open("wb") as file:
            while piece := packed.read(_PIECE):
                file.write(piece)
        yield copy


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn what goes wrong in the block, while a file is read, into a user error."""
    try:
        yield
    except (ValueError, OSError, EOFError, MemoryError, zlib.error) as error:
        raise invalid(
            f"data file {path.name}",
            found=f"{type(error).__name__}: {error}",
            expected=f"a readable {path.name.removeprefix(stem(path))} file",
            fix="check that the file is whole and in UTF-8",
        ) from error


def stem(path: Path) -> str:
    """Return the name of a file without what tells its format.

    Examples
    --------
    >>> stem(Path("data/test.v2.csv.gz"))
    'test.v2'
    """
    name = path.name
    return Path(name[:-3] if name.lower().endswith(".gz") else name).stem
