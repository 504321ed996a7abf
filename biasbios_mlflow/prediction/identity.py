"""What tells one model from another, for the windows kept on disk."""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path
from typing import Any

from biasbios_mlflow.config import EvaluationConfig

__all__ = ["identify"]

_logger = logging.getLogger(__name__)


def identify(model: Any, config: EvaluationConfig) -> str | None:
    """Return what identifies a model and its encoder; None where nothing does.

    A logged model is known by its UUID and the settings it was loaded with. Anything else, such as
    a function, is known by its pickled content.

    Parameters
    ----------
    model : object
        The loaded model.
    config : EvaluationConfig
    """
    parts = [_identify(model), ""]
    encoder = config.encoder
    if callable(encoder):
        parts[1] = _identify(encoder)
    elif encoder is not None and Path(encoder).is_dir():
        files = sorted(path for path in Path(encoder).rglob("*") if path.is_file())
        parts[1] = repr([(str(f), f.stat().st_size, f.stat().st_mtime_ns) for f in files])
    return None if None in parts else repr(parts)


def _identify(thing: Any) -> str | None:
    uuid = getattr(getattr(thing, "metadata", None), "model_uuid", None)
    if uuid is not None:
        settings = getattr(getattr(thing, "_model_impl", None), "model_config", None)
        return f"{uuid} {sorted((settings or {}).items())}"
    import cloudpickle  # type: ignore[import-untyped]

    try:
        return hashlib.sha256(cloudpickle.dumps(thing)).hexdigest()
    except Exception:
        _logger.debug("%s cannot be pickled.", type(thing).__name__, exc_info=True)
        return None
