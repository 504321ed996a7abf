"""Finished windows on disk, so that a long evaluation survives a kill."""

from __future__ import annotations

import hashlib
import io
import json
import os
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

__all__ = ["WindowStore", "cell_bytes", "read_sealed", "write_sealed"]

_logger = logger(__name__)

_FORMAT = b"biasbios window 2\n"
_DIGEST = hashlib.sha256().digest_size


def write_sealed(path: Path, kind: bytes, payload: bytes) -> None:
    """Write a file that holds a hash of its own content.

    It is written aside and moved: a kill leaves no half file under the final name.

    Parameters
    ----------
    path : Path
    kind : bytes
        What the file begins with.
    payload : bytes
    """
    aside = path.with_suffix(f".{os.getpid()}")
    aside.write_bytes(kind + hashlib.sha256(payload).digest() + payload)
    aside.replace(path)


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
    head = len(kind) + _DIGEST
    payload = content[head:]
    if content[:head] != kind + hashlib.sha256(payload).digest():
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
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise invalid(
                "resume_dir",
                found=f"{str(folder)!r} ({error.strerror})",
                expected="a folder that can be written to",
                fix="name another folder",
            ) from error
        self._folder = folder
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
        with np.load(io.BytesIO(payload), allow_pickle=False) as arrays:
            about = json.loads(str(arrays["about"]))
            state = about["reader"]
            if about["key"] != key or not _sound(arrays, n) or not reader.learn(state):
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
        """Keep the predictions for a window."""
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
        write_sealed(self._path(key), _FORMAT, buffer.getvalue())

    def _path(self, key: str) -> Path:
        return self._folder / f"{key}.window"


def _sound(arrays: Mapping[str, npt.NDArray[Any]], n: int) -> bool:
    """Tell whether arrays hold something for each of n bios, and numbers where they must."""
    parts = {name: array for name, array in arrays.items() if name != "about"}
    return all(
        len(array) == n and (array.dtype.kind != "f" or bool(np.isfinite(array).all()))
        for array in parts.values()
    )


def _update(digest: Any, data: bytes) -> None:
    digest.update(len(data).to_bytes(8, "little"))
    digest.update(data)


def cell_bytes(cell: object) -> bytes:
    """Return bytes that tell a cell of the data from others."""
    if isinstance(cell, np.ndarray):
        return repr((cell.dtype, cell.shape)).encode() + cell.tobytes()
    return repr(cell).encode("utf-8", "surrogatepass")
