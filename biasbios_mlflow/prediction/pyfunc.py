"""Any model with ``predict``: pyfunc classes and functions, every flavor, served models."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import pandas as pd

from biasbios_mlflow.errors import invalid
from biasbios_mlflow.fingerprint import Identity
from biasbios_mlflow.prediction.inputs import ModelInputs

__all__ = ["PyfuncPredictor", "ServedPredictor"]

_logger = logging.getLogger(__name__)

_Form = Callable[[ModelInputs], object]

_FIRST_CHUNK = 32
_SHARE_OF_TIMEOUT = 0.25
_GROWTH = 4


def _as_frame(inputs: ModelInputs) -> object:
    return inputs.insensitive()


def _as_text_frame(inputs: ModelInputs) -> object:
    return pd.DataFrame({inputs.text_column: inputs.texts})


def _as_list(inputs: ModelInputs) -> object:
    return list(inputs.texts)


def _as_array(inputs: ModelInputs) -> object:
    return np.array(inputs.texts, dtype=object)


def _as_matrix(inputs: ModelInputs) -> object:
    return inputs.features


def _as_matrix_frame(inputs: ModelInputs) -> object:
    return pd.DataFrame(inputs.features)


class PyfuncPredictor:
    """Calls a model's own ``predict`` with the input its signature asks for.

    Where the signature leaves the input open (there is none, or it names no column), the forms a
    text model can want are tried on the first bios, and the first that yields one prediction a bio
    is kept.

    Parameters
    ----------
    model : object with ``predict``
        A loaded ``PyFuncModel``, or MLflow's wrapper of a function.
    features : bool, default=False
        Whether it eats vectors instead of texts.
    """

    classes: Sequence[Any] | None = None
    identity: Identity | None = None

    def __init__(self, model: Any, *, features: bool = False) -> None:
        self.path = "pyfunc.predict"
        self._predict: Callable[[object], object] = model.predict
        forms = _feature_forms if features else _text_forms
        self._forms = forms(_schema(model))

    def session(self) -> AbstractContextManager[None]:
        """Do nothing: the model is where it belongs."""
        return nullcontext()

    def predict(self, inputs: ModelInputs) -> Iterator[tuple[slice, object]]:
        """Yield the model's output for all rows at once."""
        yield slice(None), self._call(inputs)

    def _call(self, inputs: ModelInputs) -> object:
        if len(self._forms) == 1:
            return self._predict(self._forms[0](inputs))
        failures: list[str] = []
        output: object = None
        for form in self._forms:
            name = form.__name__.removeprefix("_as_").replace("_", " ")
            try:
                output = self._predict(form(inputs))
            except Exception as error:
                _logger.debug("The model does not take a %s of bios.", name, exc_info=True)
                failures.append(f"as {name}: {type(error).__name__}: {str(error)[:200]}")
                continue
            rows = _rows(output)
            if rows == len(inputs):
                self._forms = [form]
                return output
            failures.append(f"as {name}: {rows} predictions")
        raise invalid(
            "model",
            found=f"no usable output for {len(inputs)} bios ({'; '.join(failures)})",
            expected="one prediction a bio",
            fix="log the model with a signature that names its text column, or mend its predict",
        )


class ServedPredictor(PyfuncPredictor):
    """Calls a model that MLflow serves from its own environment, over HTTP.

    A request may take no longer than the server's time-out, so rows go in chunks that are made to
    fit a quarter of it, and one that fails is cut in two and sent again.

    Parameters
    ----------
    model : mlflow.pyfunc._ServedPyFuncModel
    features : bool, default=False
    """

    def __init__(self, model: Any, *, features: bool = False) -> None:
        from mlflow.environment_variables import MLFLOW_SCORING_SERVER_REQUEST_TIMEOUT

        super().__init__(model, features=features)
        self.path = f"pyfunc.predict, served ({getattr(model, 'env_manager', 'own environment')})"
        self._seconds = _SHARE_OF_TIMEOUT * float(MLFLOW_SCORING_SERVER_REQUEST_TIMEOUT.get())
        self._chunk = _FIRST_CHUNK
        client = getattr(model, "_client", None)
        if client is not None:
            # The model's own predict keeps the first column only: probabilities would be lost.
            self._predict = lambda data: client.invoke(data).get_predictions()

    @staticmethod
    def serves(model: Any) -> bool:
        """Tell whether a model is served from an environment of its own."""
        return type(model).__name__ == "_ServedPyFuncModel"

    def predict(self, inputs: ModelInputs) -> Iterator[tuple[slice, object]]:
        """Yield the model's output chunk by chunk."""
        start = 0
        while start < len(inputs):
            part = slice(start, start + self._chunk)
            before = time.perf_counter()
            try:
                output = self._call(inputs[part])
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


def _schema(model: Any) -> Any:
    metadata = getattr(model, "metadata", None)
    signature = getattr(metadata, "signature", None)
    return None if signature is None else signature.inputs


def _text_forms(schema: Any) -> list[_Form]:
    if schema is None:
        return [_as_frame, _as_text_frame, _as_list, _as_array]
    if schema.is_tensor_spec():
        return [_as_array, _as_list]
    if not schema.has_input_names():
        return [_as_list, _as_text_frame, _as_array]
    required = [str(name) for name in schema.required_input_names()]
    optional = [str(name) for name in schema.optional_input_names()]

    def _as_named_columns(inputs: ModelInputs) -> object:
        return inputs.columns([*required, *(n for n in optional if n in inputs.available)])

    return [_as_named_columns]


def _feature_forms(schema: Any) -> list[_Form]:
    if schema is None:
        return [_as_matrix, _as_matrix_frame]
    if schema.is_tensor_spec():
        dtype = schema.input_types()[0]

        def _as_tensor(inputs: ModelInputs) -> object:
            assert inputs.features is not None
            return inputs.features.astype(dtype, copy=False)

        return [_as_tensor]
    if not schema.has_input_names():
        return [_as_matrix_frame, _as_matrix]
    names = [str(name) for name in schema.input_names()]

    def _as_named_features(inputs: ModelInputs) -> object:
        matrix = inputs.features
        assert matrix is not None
        if len(names) == matrix.shape[1]:
            return pd.DataFrame(matrix, columns=names)
        if len(names) == 1:
            return pd.DataFrame({names[0]: matrix.tolist()})
        raise invalid(
            "features",
            found=f"vectors of length {matrix.shape[1]}",
            expected=f"the {len(names)} columns of the model's signature",
            fix="use the encoder that the model was trained with",
        )

    return [_as_named_features]


def _rows(output: object) -> int:
    if isinstance(output, dict):
        output = next(iter(output.values()), [])
    if isinstance(output, str) or not hasattr(output, "__len__"):
        return 1
    return len(output)
