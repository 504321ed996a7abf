"""What tells one model from another: for what is kept of its predictions, and for fingerprints."""

from __future__ import annotations

import functools
import hashlib
import pickle
import sys
import sysconfig
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from biasbios_mlflow.config import EvaluationConfig
from biasbios_mlflow.fingerprint import Identity, json_hash
from biasbios_mlflow.mlflow_private import loaded_configuration
from biasbios_mlflow.redaction import logger

__all__ = ["content_digest", "identify", "update_with_weights"]

_logger = logger(__name__)


def identify(model: Any, config: EvaluationConfig, *, encoder: str | None = "") -> Identity:
    """Return what identifies a model and its encoder.

    A logged model is known by its UUID and the configuration it was loaded with. Anything else,
    such as a function, is known by its content (see `content_digest`).

    Parameters
    ----------
    model : object
        The loaded model.
    config : EvaluationConfig
        ``loaded_with`` holds what the loaded model itself may not tell.
    encoder : str or None
        Hash of the content of its encoder, empty without one.
    """
    loaded = config.loaded_with or {}
    given = loaded.get("model_config") or loaded_configuration(model)
    return Identity(
        model=getattr(getattr(model, "metadata", None), "model_uuid", None)
        or content_digest(model),
        model_config=json_hash(dict(given)) if given else "",
        env_manager=str(loaded.get("env_manager") or getattr(model, "env_manager", "local")),
        encoder=encoder,
    )


def update_with_weights(digest: Any, module: Any) -> None:
    """Add the weights of a torch module, by name, to a hash."""
    for name, tensor in module.state_dict().items():
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        digest.update(_tensor_bytes(tensor))


def _tensor_bytes(tensor: Any) -> Any:
    import torch

    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy()


def content_digest(thing: Any) -> str | None:
    """Return a hash of what a function or an object is made of; None where it cannot be told.

    Of functions and classes outside of installed packages that is the code, the defaults, the
    variables they enclose and the globals they name, so that two closures of one factory differ;
    of those in packages, name and version. Of other objects it is what pickle takes of them.

    Examples
    --------
    >>> def scaled(by):
    ...     return lambda texts: [[len(text) * by] for text in texts]
    >>> content_digest(scaled(2)) == content_digest(scaled(2))
    True
    >>> content_digest(scaled(2)) == content_digest(scaled(3))
    False
    >>> import threading
    >>> content_digest(threading.Lock()) is None
    True
    """
    digest = hashlib.sha256()
    try:
        _Content(digest).dump(thing)
    except Exception:
        _logger.debug("%s cannot be told from others.", type(thing).__name__, exc_info=True)
        return None
    return digest.hexdigest()


class _Sink:
    """A file that only feeds a hash: what is pickled is never in memory as a whole."""

    def __init__(self, digest: Any) -> None:
        self._digest = digest

    def write(self, data: Any) -> int:
        # Large arrays come as buffers of their own, which have no length but their raw bytes.
        raw = data.raw() if isinstance(data, pickle.PickleBuffer) else data
        self._digest.update(raw)
        return len(raw)


class _Content(pickle.Pickler):
    """Pickles code by value, into a hash; nothing can be loaded from it."""

    def __init__(self, digest: Any) -> None:
        super().__init__(_Sink(digest), protocol=5)
        self._seen: dict[int, object] = {}  # kept, so that no id is used again

    def reducer_override(self, thing: Any) -> Any:
        """Replace what pickle would only name."""
        described: tuple[Any, ...] | None = None
        if thing is tuple:  # what it is made again with
            return NotImplemented
        if isinstance(thing, types.ModuleType):
            described = ("module", thing.__name__, _version(thing.__name__))
        elif isinstance(thing, (types.FunctionType, type)):
            module = getattr(thing, "__module__", None) or ""
            if _is_installed(module) and _importable(thing):
                described = ("named", module, thing.__qualname__, _version(module))
            elif id(thing) in self._seen:
                described = ("again", thing.__qualname__)
            else:
                self._seen[id(thing)] = thing
                described = tuple(_class(thing) if isinstance(thing, type) else _function(thing))
        elif type(thing).__module__.partition(".")[0] == "torch" and hasattr(thing, "detach"):
            described = (
                "tensor", str(thing.dtype), tuple(thing.shape), bytes(_tensor_bytes(thing)),
            )  # fmt: skip
        return NotImplemented if described is None else (tuple, (described,))


def _function(function: types.FunctionType) -> Iterator[Any]:
    code = function.__code__
    yield from ("function", function.__qualname__, _code(code))
    yield function.__defaults__
    yield function.__kwdefaults__
    yield from map(_enclosed, function.__closure__ or ())
    yield from _globals(_names(code), function.__globals__)


def _enclosed(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return "an empty cell"


def _globals(names: set[str], space: Mapping[str, Any]) -> Iterator[Any]:
    for name in sorted(names):
        if name not in space:
            continue
        value = space[name]
        yield from (name, value)
        if isinstance(value, types.ModuleType) and not _is_installed(value.__name__):
            yield from _globals(names - {name}, vars(value))


def _names(code: types.CodeType) -> set[str]:
    inner = [const for const in code.co_consts if isinstance(const, types.CodeType)]
    return set(code.co_names).union(*map(_names, inner))


def _code(code: types.CodeType) -> tuple[Any, ...]:
    consts = [
        _code(const)
        if isinstance(const, types.CodeType)
        # The order of a set of strings is another in each process.
        else ("set", *sorted(map(repr, const)))
        if isinstance(const, frozenset)
        else repr(const)
        for const in code.co_consts
    ]
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_argcount)
    return (code.co_code, *names, *consts)


def _class(kind: type) -> Iterator[Any]:
    yield from ("class", kind.__module__, kind.__qualname__, kind.__bases__)
    for name, value in sorted(vars(kind).items()):
        if isinstance(value, (staticmethod, classmethod)):
            value = value.__func__
        elif isinstance(value, property):
            value = (value.fget, value.fset)
        elif isinstance(value, functools.cached_property):
            value = value.func
        if isinstance(value, (*_PLAIN, types.FunctionType, tuple, list, dict)) and name not in (
            "__doc__",
            "__module__",
            "__firstlineno__",
            "__static_attributes__",
        ):
            yield from (name, value)


_PLAIN = (str, bytes, int, float, complex, type(None))


def _importable(thing: Any) -> bool:
    found: Any = sys.modules.get(thing.__module__)
    for part in thing.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is thing


def _version(module: str) -> str:
    return str(getattr(sys.modules.get(module.partition(".")[0]), "__version__", ""))


@functools.cache
def _is_installed(module: str) -> bool:
    """Tell whether a module is Python's own or of an installed package, this one included."""
    root = module.partition(".")[0]
    if root in ("biasbios_mlflow", "builtins") or root in sys.stdlib_module_names:
        return True
    file = getattr(sys.modules.get(module), "__file__", None)
    return file is not None and any(
        Path(file).is_relative_to(sysconfig.get_path(kind)) for kind in ("purelib", "platlib")
    )
