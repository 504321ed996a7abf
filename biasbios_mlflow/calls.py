"""What every public call does around its work: import once, let no secret and no exit out."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, ParamSpec, TypeVar

from biasbios_mlflow.mlflow_private import switch_off_autologging
from biasbios_mlflow.redaction import clean_errors

__all__ = ["EndedBySignal", "import_all", "no_exit", "public_call", "unwinding_at_signals"]

_P = ParamSpec("_P")
_R = TypeVar("_R")

_lock = threading.RLock()
_imported: set[str] = set()
_running = 0
_undo: Callable[[], None] | None = None

# All that an evaluation of this package and of MLflow imports on its way, whatever the model is.
_MODULES = (
    "mlflow",
    "mlflow.artifacts",
    "mlflow.data.dataset_source_registry",
    "mlflow.data.pandas_dataset",
    "mlflow.deployments",
    "mlflow.models",
    "mlflow.models.evaluation",
    "mlflow.models.evaluation.artifacts",
    "mlflow.models.evaluation.base",
    "mlflow.models.evaluation.evaluator_registry",
    "mlflow.models.evaluation.utils.trace",
    "mlflow.pyfunc",
    "mlflow.pyfunc.scoring_server.client",
    "mlflow.sklearn",
    "mlflow.spark",
    "mlflow.store.artifact.artifact_repository_registry",
    "mlflow.store.artifact.http_artifact_repo",
    "mlflow.store.artifact.local_artifact_repo",
    "mlflow.store.artifact.mlflow_artifacts_repo",
    "mlflow.tracking.fluent",
    "mlflow.types.utils",
    "mlflow.utils.search_logged_model_utils",
    "matplotlib.backends.backend_agg",
    "matplotlib.figure",
    "PIL.BmpImagePlugin",
    "PIL.GifImagePlugin",
    "PIL.JpegImagePlugin",
    "PIL.PngImagePlugin",
    "PIL.PpmImagePlugin",
    "jinja2",
    "matplotlib.backends.backend_mixed",
    "matplotlib.backends.backend_svg",
    "pyarrow.dataset",
    "sklearn.pipeline",
    "biasbios_mlflow.evaluator",
    "biasbios_mlflow.pipeline",
    "biasbios_mlflow.prediction.predictor",
    "biasbios_mlflow.report.artifacts",
    "biasbios_mlflow.report.files",
    "biasbios_mlflow.tracking",
)
# What the flavors of a model are imported as, where that is another name.
_PACKAGES = {
    "sklearn": (
        "sklearn.compose",
        "sklearn.ensemble",
        "sklearn.feature_extraction.text",
        "sklearn.linear_model",
        "sklearn.naive_bayes",
        "sklearn.neural_network",
        "sklearn.svm",
    ),
    "pytorch": ("torch",),
    "transformers": ("torch", "transformers.pipelines"),
}


def import_all(model: Any = None) -> None:
    """Import all that an evaluation needs, one thread at a time.

    Python locks each module while it is imported, and MLflow takes a lock of its own at every
    import; threads that first meet inside of these wait for each other for ever. What has been
    imported before they meet needs no lock.

    Parameters
    ----------
    model : object, optional
        What is to be evaluated. Where other threads may be at it too, the packages of its flavors
        are imported here, and not while it is loaded.

    Examples
    --------
    >>> import_all()
    """
    with _lock:
        if not _imported:
            for name in _MODULES:
                with suppress(ImportError):  # other versions of MLflow name their insides otherwise
                    importlib.import_module(name)
            from mlflow import MlflowClient
            from mlflow.tracking.context.registry import resolve_tags

            resolve_tags()  # looks which notebook this is, by importing what notebooks have
            with suppress(Exception):  # the evaluation says what is wrong with the server
                MlflowClient()  # imports the kind of store there is
            _imported.add("")
        others = _running > 0 or threading.current_thread() is not threading.main_thread()
        if others and isinstance(model, str) and model not in _imported:
            _imported.add(model)
            for name in _packages_of(model):
                importlib.import_module(name)


def _packages_of(uri: str) -> Iterator[str]:
    from mlflow.models import get_model_info

    try:
        flavors = list(get_model_info(uri).flavors)
    except Exception:  # the evaluation says what is wrong with it
        return
    for flavor in flavors:
        for name in _PACKAGES.get(flavor, (flavor,)):
            if flavor.isidentifier() and importlib.util.find_spec(name.partition(".")[0]):
                yield name


class EndedBySignal(KeyboardInterrupt):
    """The system or a person asks this program to end."""


_ENDING = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP") if hasattr(signal, name)
)


@contextmanager
def unwinding_at_signals() -> Iterator[None]:
    """Let SIGTERM, SIGINT and SIGHUP raise in the block, so that all is put away.

    Runs end as failed, turns are given back, temporary folders go. A second signal does not disturb
    that. For programs only: a library leaves signals to whoever uses it.

    Raises
    ------
    EndedBySignal
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, frame: object) -> None:
        for each in _ENDING:
            signal.signal(each, signal.SIG_IGN)
        raise EndedBySignal(signal.Signals(number).name)

    before = {each: signal.signal(each, end) for each in _ENDING}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, signal.SIG_DFL if handler is None else handler)


@contextmanager
def no_exit(what: str) -> Iterator[None]:
    """Make an error of an attempt to end this process.

    A model that calls ``sys.exit(0)`` would else look like a gate that passed.

    Parameters
    ----------
    what : str
        Who calls it, for the message.

    Raises
    ------
    MlflowException
    """
    try:
        yield
    except SystemExit as error:
        from mlflow.exceptions import MlflowException

        raise MlflowException(
            f"{what} called sys.exit({error.code!r}) while it was loaded or predicted; nothing was "
            "decided on it."
        ) from error


def public_call(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Decorate a function that users call to evaluate a model.

    It imports what is needed once, raises no error that holds a secret, and is not ended by the
    model. The model is the function's first argument.
    """

    @functools.wraps(function)
    def called(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        global _running, _undo
        model = args[0] if args else kwargs.get("model", kwargs.get("model_uri"))
        import_all(model)
        with _lock:
            if not _running:
                _undo = switch_off_autologging()
            _running += 1
        try:
            with clean_errors(*args, *kwargs.values()), no_exit("the model"):
                return function(*args, **kwargs)
        finally:
            with _lock:
                _running -= 1
                if not _running and _undo is not None:
                    _undo()
                    _undo = None

    return called
