"""Vectors of texts, computed once: an encoder with a cache on disk."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from mlflow.environment_variables import MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR
from tqdm.auto import tqdm

from biasbios_mlflow.config import EvaluationConfig
from biasbios_mlflow.prediction.features import SentenceModel
from biasbios_mlflow.prediction.store import make_private, read_sealed, write_sealed
from biasbios_mlflow.redaction import logger

__all__ = ["CachedEncoder", "default_cache"]

_logger = logger(__name__)

FloatArray = npt.NDArray[np.float32]

_KIND = b"biasbios features 2\n"
_CHUNK = 1024
"""Texts in one file of the cache: what is lost at a kill."""


def default_cache() -> Path:
    """Return the user's folder for vectors: ``$XDG_CACHE_HOME``, or ``~/.cache``, and below."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "biasbios-mlflow" / "features"


class CachedEncoder:
    """Turns texts into vectors, and keeps the vectors.

    A file of the cache holds the vectors of some texts, and no text. It is named by a hash of the
    texts and of all that their vectors depend on: the encoder's weights, its tokenizer and
    settings, the device and the versions of the packages. What is damaged is computed again.

    Parameters
    ----------
    name : str
        Name or path of a model of the Hugging Face or sentence-transformers kind.
    config : EvaluationConfig
        ``device``, ``dtype``, ``max_length`` and ``token_budget`` hold.
    cache : path, optional
        Folder; None keeps nothing.

    Raises
    ------
    MlflowException
        When there is no such model, or the folder cannot be made.
    """

    def __init__(self, name: str, config: EvaluationConfig, cache: Path | None) -> None:
        self.sentence_model = SentenceModel.load(name)
        self._encoder = self.sentence_model.encoder(config)
        running = self.sentence_model.running(config)
        self.max_length = running.max_length
        self.identity = _identify(self.sentence_model, running)
        self._cache = cache
        if cache is not None:
            make_private(cache, "cache")

    def __call__(self, texts: Sequence[str], *, what: str = "bios") -> FloatArray:
        """Return the matrix of shape (n, d) of n texts.

        Parameters
        ----------
        texts : sequence of str
        what : str, default="bios"
            What they are, for the progress bar.
        """
        # None: no bar where the output is not a terminal.
        disable = None if MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR.get() else True
        parts = []
        with (
            tqdm(total=len(texts), desc=f"encoding {what}", unit=" texts", disable=disable) as bar,
            self._encoder.session(),
        ):
            for start in range(0, len(texts), _CHUNK):
                chunk = texts[start : start + _CHUNK]
                parts.append(self._chunk(chunk, np.arange(start, start + len(chunk))))
                bar.update(len(chunk))
        return np.concatenate(parts)

    def _chunk(self, texts: Sequence[str], rows: npt.NDArray[np.int64]) -> FloatArray:
        def encode() -> FloatArray:
            return self._encoder(texts, rows)[0].astype(np.float32, copy=False)

        if self._cache is None:
            return encode()
        path = self._cache / f"{self._key(texts)}.features"
        kept = read_sealed(path, _KIND, otherwise="its texts are encoded again")
        matrix = None if kept is None else self._sound(kept, len(texts))
        if matrix is not None:
            return matrix
        matrix = encode()
        buffer = io.BytesIO()
        np.save(buffer, matrix, allow_pickle=False)
        try:
            write_sealed(path, _KIND, buffer.getvalue())
        except OSError as error:
            _logger.warning("biasbios: vectors cannot be kept in %s: %s", path, error.strerror)
        return matrix

    def _sound(self, kept: bytes, n: int) -> FloatArray | None:
        """Return vectors from the cache; None where they are not such as this encoder makes."""
        try:
            matrix = np.load(io.BytesIO(kept), allow_pickle=False)
        except (ValueError, OSError, EOFError):
            matrix = np.empty(0)
        width = getattr(self.sentence_model.model.config, "hidden_size", matrix.shape[-1])
        sound = matrix.shape == (n, width) and matrix.dtype == np.float32
        if sound and np.isfinite(matrix).all():
            return matrix
        _logger.warning("biasbios: kept vectors are not what an encoder makes; encoding again.")
        return None

    def _key(self, texts: Sequence[str]) -> str:
        digest = hashlib.sha256(_KIND + self.identity.encode())
        for text in texts:
            data = text.encode("utf-8", "surrogatepass")
            digest.update(len(data).to_bytes(8, "little"))
            digest.update(data)
        return digest.hexdigest()


def _identify(model: SentenceModel, running: Any) -> str:
    """Return a hash of all that vectors depend on beside the texts."""
    settings = (
        model.pooling,
        model.normalize,
        running.max_length,
        running.device.type,
        str(running.dtype),
        *(metadata.version(package) for package in ("torch", "transformers", "tokenizers")),
    )
    digest = hashlib.sha256(repr(settings).encode())
    model.update(digest)
    return digest.hexdigest()
