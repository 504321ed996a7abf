"""Any model with ``predict``: pyfunc classes and functions, every flavor, served models."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from biasbios_mlflow.errors import invalid
from biasbios_mlflow.prediction.inputs import ModelInputs

__all__ = ["PyfuncPredictor"]

_logger = logging.getLogger(__name__)

_Form = Callable[[ModelInputs], object]


def _as_frame(inputs: ModelInputs) -> object:
    return inputs.frame[inputs.insensitive]


def _as_text_frame(inputs: ModelInputs) -> object:
    return pd.DataFrame({inputs.text_column: inputs.texts})


def _as_list(inputs: ModelInputs) -> object:
    return list(inputs.texts)


def _as_array(inputs: ModelInputs) -> object:
    return np.array(inputs.texts, dtype=object)


class PyfuncPredictor:
    """Calls a model's own ``predict`` with the input its signature asks for.

    Where the signature leaves the input open (there is none, or it names no column), the forms a
    text model can want are tried on the first bios, and the first that yields one prediction a bio
    is kept.

    Parameters
    ----------
    model : object with ``predict``
        A loaded ``PyFuncModel``, a served one, or MLflow's wrapper of a function.
    """

    classes: Sequence[Any] | None = None

    def __init__(self, model: Any) -> None:
        self.path = "pyfunc.predict"
        self._model = model
        self._forms = _forms(_schema(model))

    def predict(self, inputs: ModelInputs) -> Iterator[tuple[slice, object]]:
        """Yield the model's output for all rows at once."""
        yield slice(None), self._call(inputs)

    def _call(self, inputs: ModelInputs) -> object:
        if len(self._forms) == 1:
            return self._model.predict(self._forms[0](inputs))
        failures: list[str] = []
        output: object = None
        for form in self._forms:
            name = form.__name__.removeprefix("_as_").replace("_", " ")
            try:
                output = self._model.predict(form(inputs))
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


def _schema(model: Any) -> Any:
    metadata = getattr(model, "metadata", None)
    signature = getattr(metadata, "signature", None)
    return None if signature is None else signature.inputs


def _forms(schema: Any) -> list[_Form]:
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


def _rows(output: object) -> int:
    if isinstance(output, dict):
        output = next(iter(output.values()), [])
    if isinstance(output, str) or not hasattr(output, "__len__"):
        return 1
    return len(output)
