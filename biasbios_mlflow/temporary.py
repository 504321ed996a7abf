"""Temporary folders that do not outlive their process for long, whatever ends it."""

from __future__ import annotations

import atexit
import os
import shutil
import stat
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

if sys.platform != "win32":  # there nothing is locked, and nothing abandoned is removed
    import fcntl

__all__ = ["make_folder", "remove_abandoned", "temporary_folder"]

_PREFIX = "biasbios-"
_LOCK = ".lock"


class _Root:
    """The folder of a process, in which its temporary folders lie.

    A file in it is locked as long as the process lives, by the system: where the lock can be had,
    the process is gone and the folder can go.
    """

    def __init__(self) -> None:
        self.path: Path | None = None
        self._mutex = threading.Lock()
        self._earlier: list[Path] = []
        self._locked: list[IO[str]] = []

    def get(self) -> Path:
        with self._mutex:
            if self.path is not None and self.path.parent != Path(tempfile.gettempdir()):
                self._earlier.append(self.path)
                self.path = None
            while self.path is None or not (self.path / _LOCK).is_file():
                remove_abandoned()
                self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
                file = (self.path / _LOCK).open("w")
                self._locked.append(file)
                with suppress(OSError):  # another process took it for abandoned: once more
                    _lock(file)
            return self.path

    def remove(self) -> None:
        for path in (*self._earlier, self.path):
            if path is not None:
                shutil.rmtree(path, ignore_errors=True)
        for file in self._locked:
            file.close()

    def forget(self) -> None:
        """Leave the folder to the parent: this is a process that was forked from it."""
        for file in self._locked:
            file.close()
        self.__init__()  # type: ignore[misc]


def _lock(file: IO[str]) -> None:
    """Lock a file until it is closed; raises where another process has it."""
    if sys.platform != "win32":
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


_root = _Root()
atexit.register(_root.remove)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_root.forget)


def make_folder() -> Path:
    """Make a temporary folder that only this user can read; the caller removes it.

    Whatever is left of it goes when the process ends, or, after a kill, with the next process that
    makes one.
    """
    return Path(tempfile.mkdtemp(dir=_root.get()))


@contextmanager
def temporary_folder() -> Iterator[str]:
    """Make a temporary folder that is gone after the block."""
    folder = make_folder()
    try:
        yield str(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_abandoned() -> list[str]:
    """Remove the folders of processes that were killed, and return their names."""
    removed: list[str] = []
    if sys.platform == "win32":
        return removed
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):
            about = path.lstat()
            if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.getuid():
                continue
            with (path / _LOCK).open("r+") as file:
                _lock(file)
                shutil.rmtree(path)
                removed.append(path.name)
    return removed
