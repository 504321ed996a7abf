"""Finished windows on disk, so that a long evaluation survives a kill."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import stat
import time
import uuid
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from biasbios_mlflow.bios.checked import Bios
from biasbios_mlflow.errors import invalid
from biasbios_mlflow.fingerprint import Fingerprint
from biasbios_mlflow.prediction.outputs import OutputReader, Predictions
from biasbios_mlflow.prediction.predictor import PredictedPair
from biasbios_mlflow.redaction import logger

__all__ = ["WindowStore", "cell_bytes", "make_private", "read_sealed", "write_sealed"]

_logger = logger(__name__)

_FORMAT = b"biasbios window 3\n"
_DIGEST = hashlib.sha256().digest_size
_ASIDE = ".part"
_ABANDONED_SECONDS = 3600.0


def write_sealed(path: Path, kind: bytes, payload: bytes) -> None:
    """Write a file that holds a hash of its own content.

    It is written aside and moved: a kill leaves no half file under the final name. The hash is also
    over that name, so that a file that was put in the place of another is found out.

    Parameters
    ----------
    path : Path
    kind : bytes
        What the file begins with.
    payload : bytes

    Raises
    ------
    OSError
        When it cannot be written; nothing is left of it.
    """
    aside = path.with_name(f".{uuid.uuid4().hex}{_ASIDE}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
    try:
        with open(os.open(aside, flags, 0o600), "wb") as file:
            file.write(kind + _seal(path, payload) + payload)
        aside.replace(path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


def _seal(path: Path, payload: bytes) -> bytes:
    digest = hashlib.sha256(path.name.encode() + b"\n")
    digest.update(payload)
    return digest.digest()


def make_private(folder: Path, option: str) -> None:
    """Make a folder for files of `write_sealed` that others cannot read, where there is none.

    What a process that was killed has left half written there is removed.

    Parameters
    ----------
    folder : Path
    option : str
        Names it in messages.

    Raises
    ------
    MlflowException
        When it cannot be made or written to.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))
        for left in folder.glob(f".*{_ASIDE}"):
            if time.time() - left.lstat().st_mtime > _ABANDONED_SECONDS:
                left.unlink(missing_ok=True)
    except OSError as error:
        raise invalid(
            option,
            found=f"{str(folder)!r} ({error.strerror})",
            expected="a folder that can be written to",
            fix="name another folder",
        ) from error
    if folder.stat().st_mode & stat.S_IWOTH:
        _logger.warning(
            "biasbios: everybody can write to %s (%s): who does decides what is read from there.",
            folder,
            option,
        )


def read_sealed(path: Path, kind: bytes, *, otherwise: str) -> bytes | None:
    """Return the payload that `write_sealed` wrote, None where there is no such file.

    A file that is damaged, or of another kind, is not trusted; the log says so, and what happens
    ``otherwise``.
    """
    if path.is_symlink():
        _logger.warning("%s leads out of its folder; %s.", path, otherwise)
        return None
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        _logger.warning("%s cannot be read (%s); %s.", path, error.strerror, otherwise)
        return None
    head = len(kind) + _DIGEST
    payload = content[head:]
    if content[:head] != kind + _seal(path, payload):
        _logger.warning("%s is damaged; %s.", path, otherwise)
        return None
    return payload


class WindowStore:
    """Keeps the predictions for windows of bios in a folder, one file each, without any text.

    A file is named by a hash of all that its predictions depend on (model, options, the window's
    data), and holds a hash of its own content: what is damaged, or belongs to something else, is
    predicted again.

    Parameters
    ----------
    folder : Path
        Made where it does not exist.
    fingerprint : Fingerprint
        Of all windows: of model, options, swap and packages.

    Raises
    ------
    MlflowException
        When the folder cannot be made.
    """

    def __init__(self, folder: Path, fingerprint: Fingerprint) -> None:
        make_private(folder, "resume_dir")
        self._folder = folder
        self._told = False
        options = {k: v for k, v in fingerprint.options.items() if k != "scoring"}
        self._about = replace(fingerprint, options=options).sha256()

    def key(self, bios: Bios, counterfactuals: Sequence[str]) -> str:
        """Return what identifies a window: 64 hexadecimal digits."""
        digest = hashlib.sha256(_FORMAT + self._about.encode())
        for texts in (bios.texts, counterfactuals):
            for text in texts:
                _update(digest, text.encode("utf-8", "surrogatepass"))
        # A model may ask for any other column too.
        for name in bios.inputs.columns:
            _update(digest, str(name).encode("utf-8", "surrogatepass"))
            if name != bios.columns.text:
                for cell in bios.inputs[name].tolist():
                    _update(digest, cell_bytes(cell))
        digest.update(bios.rows.tobytes())
        return digest.hexdigest()

    def load(self, key: str, reader: OutputReader, n: int) -> PredictedPair | None:
        """Return the predictions for a window of n bios, None where they are not there.

        The reader learns from them as it would have from the model's output.
        """
        path = self._path(key)
        payload = read_sealed(path, _FORMAT, otherwise="its bios are predicted again")
        if payload is None:
            return None
        try:
            with np.load(io.BytesIO(payload), allow_pickle=False) as file:
                arrays = dict(file)
            about = json.loads(str(arrays.pop("about")))
            sound = about["key"] == key and _sound(arrays, about, n, len(reader.labels.names))
            if not sound or not reader.learn(about["reader"]):
                raise ValueError("of another evaluation")
        # Whatever is wrong with a file that somebody else wrote, its bios can be predicted.
        except (AttributeError, KeyError, TypeError, ValueError, OSError, zipfile.BadZipFile):
            _logger.warning("%s is of another evaluation; its bios are predicted again.", path)
            return None
        codes = reader.encode(about["names"])

        def predictions(prefix: str) -> Predictions | None:
            if f"{prefix}codes" not in arrays:
                return None
            matrix = arrays.get(f"{prefix}probabilities")
            return Predictions(
                codes[arrays[f"{prefix}codes"]],
                None if matrix is None else matrix.astype(np.float64),
            )

        original = predictions("")
        assert original is not None
        changed = arrays.get("changed")
        return PredictedPair(original, predictions("counterfactual_"), changed, about["cut"])

    def save(self, key: str, reader: OutputReader, pair: PredictedPair) -> None:
        """Keep the predictions for a window.

        Where the disk is full they are not kept, and the log says so: the evaluation goes on.
        """
        about = {"key": key, "names": reader.names, "reader": reader.state(), "cut": pair.cut}
        arrays: dict[str, npt.NDArray[Any]] = {"about": np.array(json.dumps(about))}
        for prefix, part in (("", pair.original), ("counterfactual_", pair.counterfactual)):
            if part is None:
                continue
            arrays[f"{prefix}codes"] = part.codes
            if part.probabilities is not None:
                single = part.probabilities.astype(np.float32)
                exact = bool((single == part.probabilities).all())
                arrays[f"{prefix}probabilities"] = single if exact else part.probabilities
        if pair.changed is not None:
            arrays["changed"] = pair.changed
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, **arrays)
        try:
            write_sealed(self._path(key), _FORMAT, buffer.getvalue())
        except OSError as error:
            if not self._told:
                self._told = True
                _logger.warning(
                    "biasbios: windows cannot be kept in resume_dir (%s): %s. After a kill they "
                    "would be predicted again.",
                    self._folder,
                    error.strerror,
                )

    def _path(self, key: str) -> Path:
        return self._folder / f"{key}.window"


def _sound(
    arrays: Mapping[str, npt.NDArray[Any]], about: Mapping[str, Any], n: int, labels: int
) -> bool:
    """Tell whether arrays hold what `WindowStore.save` writes for n bios, of the right shapes."""
    shapes: dict[str, tuple[int, ...]] = {"codes": (n,), "probabilities": (n, labels)}
    kinds = {"codes": "iu", "probabilities": "f", "changed": "b"}
    for name, array in arrays.items():
        part = name.removeprefix("counterfactual_")
        if array.dtype.kind not in kinds[part] or array.shape != shapes.get(part, (n,)):
            return False
        if part == "probabilities" and not np.isfinite(array).all():
            return False
        if part == "codes" and n and not 0 <= array.min() <= array.max() < len(about["names"]):
            return False
    names, cut = about["names"], about["cut"]
    return (
        "codes" in arrays
        and all(isinstance(name, str) for name in names)
        and isinstance(cut, int)
        and 0 <= cut <= n
    )


def _update(digest: Any, data: bytes) -> None:
    digest.update(len(data).to_bytes(8, "little"))
    digest.update(data)


def cell_bytes(cell: object) -> bytes:
    """Return bytes that tell a cell of the data from others."""
    if isinstance(cell, np.ndarray):
        return repr((cell.dtype, cell.shape)).encode() + cell.tobytes()
    return repr(cell).encode("utf-8", "surrogatepass")
