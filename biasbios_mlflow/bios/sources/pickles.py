"""The pickled releases, read by an unpickler that can build data and nothing else."""

from __future__ import annotations

import pickle
import pickletools
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pandas as pd
from mlflow.exceptions import MlflowException

from biasbios_mlflow.bios.drawing import draw_splits
from biasbios_mlflow.bios.sources.frames import FrameSource
from biasbios_mlflow.bios.sources.unpacking import opened, readable, stem
from biasbios_mlflow.errors import invalid

__all__ = ["PickleSource", "load_plain"]

_PIECE = 1 << 24

_PLAIN = """
    PROTO FRAME STOP MARK POP POP_MARK DUP NONE NEWTRUE NEWFALSE INT BININT BININT1 BININT2 LONG
    LONG1 FLOAT BINFLOAT STRING BINSTRING SHORT_BINSTRING BINBYTES SHORT_BINBYTES BINBYTES8 UNICODE
    BINUNICODE SHORT_BINUNICODE BINUNICODE8 EMPTY_LIST LIST APPEND APPENDS EMPTY_TUPLE TUPLE TUPLE1
    TUPLE2 TUPLE3 EMPTY_DICT DICT SETITEM SETITEMS EMPTY_SET ADDITEMS FROZENSET GET BINGET
    LONG_BINGET PUT BINPUT LONG_BINPUT MEMOIZE GLOBAL STACK_GLOBAL REDUCE BUILD
"""
"""The steps of a pickle that plain data needs. REDUCE and BUILD only reach what `find_class` gives:
sets, and the numbers of numpy."""


class _Steps(dict[int, Callable[[Any], None]]):
    """The allowed steps of an unpickler by their code."""

    def __missing__(self, code: int) -> Callable[[Any], None]:
        name = _NAMES.get(code)
        if name is None:
            raise pickle.UnpicklingError(f"no pickle (the byte {code:#04x})")
        raise _RefusedError(f"the pickle step {name}")


_CODES = {step.name: ord(step.code) for step in pickletools.opcodes}
_NAMES = {code: name for name, code in _CODES.items()}


class _RefusedError(pickle.UnpicklingError):
    """Something in a pickle that is more than data."""


class _NumpyType:
    """Stands in for a numpy dtype: what it is called, and its byte order."""

    def __init__(self, name: str, align: object = False, copy: object = True) -> None:
        self._name = str(name)
        self._swapped = False

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._swapped = state[1] == ">"

    def number(self, data: bytes | str = b"") -> Any:
        """Return the value of these bytes as a plain Python object."""
        dtype = np.dtype(self._name)
        if dtype.kind not in "biufSU":
            raise _RefusedError(f"a numpy value of type {self._name}")
        raw = data.encode("latin-1") if isinstance(data, str) else data
        dtype = dtype.newbyteorder(">" if self._swapped else "<")
        return np.frombuffer(raw, dtype=dtype, count=1)[0].item()


_PYTHONS = ("builtins", "__builtin__")

_BUILDERS: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy", "dtype"): _NumpyType,
    ("numpy.core.multiarray", "scalar"): _NumpyType.number,
    ("numpy._core.multiarray", "scalar"): _NumpyType.number,
    **{(module, kind.__name__): kind for module in _PYTHONS for kind in (set, frozenset)},
    # Python 3 writes the bytes of those numbers so in the old protocols.
    ("_codecs", "encode"): lambda text, encoding: str(text).encode("latin-1"),
}


class _PlainUnpickler(pickle._Unpickler):
    """Builds plain containers, strings and numbers.

    In Python and not in C, since the C unpickler cannot be kept from steps, and makes room for a
    memo as large as any number in the file says.
    """

    dispatch = _Steps(
        {_CODES[name]: pickle._Unpickler.dispatch[_CODES[name]] for name in _PLAIN.split()}
    )
    stack: list[Any]

    def find_class(self, module: str, name: str) -> Any:
        builder = _BUILDERS.get((module, name))
        if builder is None:
            raise _RefusedError(f"{module}.{name}")
        return builder

    def load_build(self) -> None:
        # The original sets attributes of whatever lies on the stack.
        state = self.stack.pop()
        if not isinstance(self.stack[-1], _NumpyType):
            raise _RefusedError("the pickle step BUILD")
        self.stack[-1].__setstate__(state)

    dispatch[_CODES["BUILD"]] = load_build


class _Pieces:
    """Reads a file in pieces, so that no length in it makes room for what does not come."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.readline = file.readline

    def read(self, size: int) -> bytes:
        if size <= _PIECE:
            return self._file.read(size)
        pieces = []
        while size > 0 and (piece := self._file.read(min(size, _PIECE))):
            pieces.append(piece)
            size -= len(piece)
        return b"".join(pieces)


def load_plain(file: BinaryIO, name: str) -> Any:
    """Load a pickle that holds only plain containers, strings and numbers.

    Parameters
    ----------
    file : binary file
    name : str
        What it is called, for messages.

    Raises
    ------
    MlflowException
        At anything else, before any of it is built or run; at a file that is no pickle, or not
        whole.

    Examples
    --------
    >>> import io
    >>> load_plain(io.BytesIO(pickle.dumps([{"p": "nurse", "n": np.float64(0.5)}])), "bios.pkl")
    [{'p': 'nurse', 'n': 0.5}]
    """
    try:
        return _PlainUnpickler(_Pieces(file), encoding="utf-8").load()
    except _RefusedError as error:
        raise invalid(
            f"data file {name}",
            found=f"{error}, which is not plain data and can run code",
            expected="a pickle of plain containers, strings and numbers",
            fix="if you trust the file, load it yourself and save it as csv or parquet",
        ) from error
    except MlflowException:
        raise
    # Unpickling what is no pickle may raise anything, as the documentation of pickle says.
    except Exception as error:
        raise invalid(
            f"data file {name}",
            found=f"{type(error).__name__}: {error}",
            expected="a whole pickle of plain containers, strings and numbers",
            fix="check that the file is whole",
        ) from error


class PickleSource(FrameSource):
    """A pickled release: ``BIOS.pkl``, or a file of the release by Ravfogel et al.

    A pickle is one object, so all of it is in memory at once. What is kept of a bio is its text
    after the sentence that names the occupation, its occupation and its gender: the rest (the
    name, the whole text, the text without gender) would tell a model what it must not know.

    Parameters
    ----------
    path : Path

    Attributes
    ----------
    unsplit : bool
        Whether it is the release that comes without splits, ``BIOS.pkl``.
    """

    def __init__(self, path: Path) -> None:
        with readable(path), opened(path) as file:
            records = load_plain(file, path.name)
        frame, self.unsplit = _frame(records, path.name)
        super().__init__(frame, stem(path), str(path))

    def with_splits(self) -> FrameSource:
        """Return the bios with a column ``split`` (see `draw_splits`)."""
        frame = self.read()
        splits = draw_splits(frame["hard_text"].tolist(), frame["profession"].tolist())
        return FrameSource(frame.assign(split=splits), self.name, self.where)


def _frame(records: Any, name: str) -> tuple[pd.DataFrame, bool]:
    if not isinstance(records, list) or not all(isinstance(r, dict) for r in records):
        kind = type(records).__name__
        raise _foreign(
            name, f"a {kind}" + (" of other things than dicts" if kind == "list" else "")
        )
    known = set().union(*records[:100])
    unsplit = {"raw", "start_pos", "title", "gender"} <= known
    if unsplit:
        text, occupation, gender = _after_start("raw", "start_pos"), "title", "gender"
    elif {"g", "p"} <= known and known & {"hard_text_untokenized", "hard_text"}:
        # Where both are there, hard_text is a list of tokens joined by spaces.
        tokenized = "hard_text_untokenized" not in known
        column = "hard_text" if tokenized else "hard_text_untokenized"
        text, occupation, gender = _cell(column), "p", "g"
    elif {"g", "p", "text", "start"} <= known:
        text, occupation, gender = _after_start("text", "start"), "p", "g"
    else:
        raise _foreign(name, f"dicts with the keys {sorted(map(str, known))}")
    frame = pd.DataFrame(
        {
            "hard_text": [text(record) for record in records],
            "profession": [record.get(occupation) for record in records],
            "gender": [record.get(gender) for record in records],
        }
    )
    return frame, unsplit


def _cell(key: str) -> Callable[[dict[str, Any]], Any]:
    return lambda record: record.get(key)


def _after_start(key: str, start_key: str) -> Callable[[dict[str, Any]], Any]:
    def text(record: dict[str, Any]) -> Any:
        whole, start = record.get(key), record.get(start_key)
        if not isinstance(whole, str) or not isinstance(start, int):
            return None
        return whole[start:]

    return text


def _foreign(name: str, found: str) -> Exception:
    return invalid(
        f"data file {name}",
        found=found,
        expected="a list of dicts with the keys raw, start_pos, title, gender (BIOS.pkl), or "
        "g, p, and hard_text or hard_text_untokenized",
        fix="save the bios as csv or parquet with the columns hard_text, profession, gender",
    )
