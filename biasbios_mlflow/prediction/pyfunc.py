"""Any model with ``predict``: pyfunc classes and functions, every flavor, served models."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from biasbios_mlflow.mlflow_private import is_served, served_client
from biasbios_mlflow.prediction.base import Predictor
from biasbios_mlflow.prediction.forms import (
    Form,
    InputForms,
    feature_forms,
    input_schema,
    text_forms,
)
from biasbios_mlflow.prediction.inputs import ModelInputs
from biasbios_mlflow.prediction.outputs import Returns
from biasbios_mlflow.redaction import logger

__all__ = ["PyfuncPredictor", "ServedPredictor"]

_logger = logger(__name__)

_FIRST_CHUNK = 32
_SHARE_OF_TIMEOUT = 0.25
_GROWTH = 4


class PyfuncPredictor(Predictor):
    """Calls a model's own ``predict`` with the input its signature asks for.

    Where the signature leaves the input open (there is none, or it names no column), the forms a
    text model can want are tried on the first bios, and the first that yields one prediction a bio
    is kept.

    Parameters
    ----------
    model : object with ``predict``
        A loaded ``PyFuncModel``, or MLflow's wrapper of a function.
    returns : Returns, optional
        What is known of its outputs.
    features : bool, default=False
        Whether it takes vectors instead of texts.
    forms : sequence of callable, optional
        The forms of its inputs to try, where more than its signature is known.
    """

    options = frozenset({"answers", "predictions"})

    def __init__(
        self,
        model: Any,
        *,
        returns: Returns | None = None,
        features: bool = False,
        forms: Sequence[Form] | None = None,
    ) -> None:
        self.path = "pyfunc.predict"
        self.returns = returns or Returns()
        self._predict: Callable[[Any], Any] = model.predict
        if forms is None:
            forms = (feature_forms if features else text_forms)(input_schema(model))
        self._forms = InputForms(forms)

    def predict(self, inputs: ModelInputs) -> Iterator[tuple[slice, object]]:
        """Yield the model's output for all rows at once."""
        yield slice(None), self._forms.call(self._predict, inputs)


class ServedPredictor(PyfuncPredictor):
    """Calls a model that MLflow serves from its own environment, over HTTP.

    A request may take no longer than the server's time-out, so rows go in chunks that are made to
    fit a quarter of it, and one that fails is cut in two and sent again.

    Parameters
    ----------
    model : mlflow.pyfunc._ServedPyFuncModel
    returns : Returns, optional
    features : bool, default=False
    """

    def __init__(
        self, model: Any, *, returns: Returns | None = None, features: bool = False
    ) -> None:
        from mlflow.environment_variables import MLFLOW_SCORING_SERVER_REQUEST_TIMEOUT

        super().__init__(model, returns=returns, features=features)
        self.path = f"pyfunc.predict, served ({getattr(model, 'env_manager', 'own environment')})"
        self._seconds = _SHARE_OF_TIMEOUT * float(MLFLOW_SCORING_SERVER_REQUEST_TIMEOUT.get())
        self._chunk = _FIRST_CHUNK
        client = served_client(model)
        if client is not None:
            # The model's own predict keeps the first column only: probabilities would be lost.
            self._predict = lambda data: client.invoke(data).get_predictions()

    @staticmethod
    def serves(model: Any) -> bool:
        """Tell whether a model is served from an environment of its own."""
        return is_served(model)

    def predict(self, inputs: ModelInputs) -> Iterator[tuple[slice, object]]:
        """Yield the model's output chunk by chunk."""
        start = 0
        while start < len(inputs):
            part = slice(start, start + self._chunk)
            before = time.perf_counter()
            try:
                output = self._forms.call(self._predict, inputs[part])
            except Exception as error:
                if self._chunk == 1 or not _is_timeout(error):
                    raise
                self._chunk = max(1, self._chunk // 2)
                self._seconds /= 2
                _logger.warning("Request timed out; going on with %d bios each.", self._chunk)
                continue
            seconds = max(time.perf_counter() - before, 1e-6)
            yield slice(start, min(part.stop, len(inputs))), output
            start = part.stop
            self._chunk = max(1, int(self._chunk * min(_GROWTH, self._seconds / seconds)))


def _is_timeout(error: Exception) -> bool:
    message = str(error).lower()
    return any(sign in message for sign in ("504", "timeout", "timed out", "time exceeded"))
