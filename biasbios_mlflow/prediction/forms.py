"""The forms in which a model may want its inputs, and how the right one is found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from mlflow.exceptions import MlflowException

from biasbios_mlflow.errors import invalid
from biasbios_mlflow.prediction.inputs import ModelInputs
from biasbios_mlflow.redaction import logger

__all__ = [
    "Form",
    "InputForms",
    "estimator_forms",
    "feature_forms",
    "input_schema",
    "raw_model",
    "text_forms",
]

_logger = logger(__name__)

Form = Callable[[ModelInputs], object]

_CHUNK = 200
"""So many characters of an error are shown."""


def _as_frame(inputs: ModelInputs) -> object:
    return inputs.insensitive()


def _as_text_frame(inputs: ModelInputs) -> object:
    return pd.DataFrame({inputs.text_column: inputs.texts})


def _as_list(inputs: ModelInputs) -> object:
    return list(inputs.texts)


def _as_array(inputs: ModelInputs) -> object:
    return np.array(inputs.texts, dtype=object)


def _as_strings(inputs: ModelInputs) -> object:
    return np.array(inputs.texts, dtype=str)


def _as_column(inputs: ModelInputs) -> object:
    return np.array(inputs.texts, dtype=object)[:, None]


def _as_string_column(inputs: ModelInputs) -> object:
    return np.array(inputs.texts, dtype=str)[:, None]


def _as_matrix(inputs: ModelInputs) -> object:
    return inputs.features


def _as_matrix_frame(inputs: ModelInputs) -> object:
    return pd.DataFrame(inputs.features)


def input_schema(model: Any) -> Any:
    """Return the schema of a loaded model's inputs, None where it has no signature."""
    metadata = getattr(model, "metadata", None)
    signature = getattr(metadata, "signature", None)
    return None if signature is None else signature.inputs


def raw_model(model: Any, loader: str) -> Any:
    """Return what a loaded pyfunc model of one flavor wraps; None for any other.

    Parameters
    ----------
    model : object
        Whatever is to be evaluated.
    loader : str
        The module that loads models of the flavor, such as ``"mlflow.sklearn"``.
    """
    if getattr(model, "loader_module", None) != loader:
        return None
    try:
        return model.get_raw_model()
    except NotImplementedError:  # a model served in its own environment
        return None


def text_forms(schema: Any) -> list[Form]:
    """Return the forms to try for a model that reads texts.

    Parameters
    ----------
    schema : mlflow.types.Schema or None
        A signature with named columns leaves one form.
    """
    if schema is None:
        return [_as_frame, _as_text_frame, _as_list, _as_array]
    if schema.is_tensor_spec():
        wide = len(schema.inputs[0].shape) == 2
        if wide:
            return [_as_column, _as_string_column]
        return [_as_strings, _as_array, _as_list]
    if not schema.has_input_names():
        return [_as_list, _as_text_frame, _as_array]
    required = [str(name) for name in schema.required_input_names()]
    optional = [str(name) for name in schema.optional_input_names()]

    def _as_named_columns(inputs: ModelInputs) -> object:
        return inputs.columns([*required, *(n for n in optional if n in inputs.available)])

    return [_as_named_columns]


def feature_forms(schema: Any) -> list[Form]:
    """Return the forms to try for a model that takes vectors."""
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


def estimator_forms(estimator: Any, schema: Any, *, features: bool) -> list[Form]:
    """Return the forms to try for a bare scikit-learn estimator.

    First those in which pyfunc hands over what the signature asks for, then those that an estimator
    can have been fitted on: nothing but the estimator knows whether it wants the frame of the
    signature, a column of it or its texts.

    Parameters
    ----------
    estimator : sklearn.base.BaseEstimator
    schema : mlflow.types.Schema or None
    features : bool
        Whether it takes vectors instead of texts.
    """
    names = getattr(estimator, "feature_names_in_", None)
    if features:
        named = schema is not None and schema.has_input_names()
        forms = [] if names is None or not named else feature_forms(schema)
        return [*forms, _as_matrix, _as_matrix_frame]
    forms = []
    if names is not None:
        wanted = [str(name) for name in names]

        def _as_fitted_columns(inputs: ModelInputs) -> object:
            return inputs.columns(wanted)

        forms.append(_as_fitted_columns)
    if schema is not None:
        forms += text_forms(schema)
    rest = [_as_list, _as_text_frame, _as_frame, _as_array, _as_column]
    return [*forms, *(form for form in rest if form not in forms)]


class InputForms:
    """Calls a model with the first form of its inputs that yields one prediction a bio.

    Parameters
    ----------
    forms : sequence of callable
        Each from `ModelInputs` to what the model is given.
    """

    def __init__(self, forms: Sequence[Form]) -> None:
        self._forms = list(forms)

    def call(self, function: Callable[[Any], Any], inputs: ModelInputs) -> Any:
        """Return the model's output for all rows.

        Parameters
        ----------
        function : callable
            The model.
        inputs : ModelInputs

        Raises
        ------
        MlflowException
            When no form yields one prediction a bio.
        """
        if len(self._forms) == 1:
            return function(self._forms[0](inputs))
        wanted = inputs
        # A model that counts the columns of a frame as bios would pass where there are as many.
        few = len(inputs) <= len(inputs.available)
        if few:
            inputs = inputs.take(np.arange(len(inputs.available) + 2) % len(inputs))
        failures: list[str] = []
        for form in self._forms:
            name = form.__name__.removeprefix("_as_").replace("_", " ")
            try:
                output = function(form(inputs))
            except Exception as error:
                _logger.debug("The model does not take a %s of bios.", name, exc_info=True)
                message = error.message if isinstance(error, MlflowException) else str(error)
                failures.append(f"as {name}: {type(error).__name__}: {message[:_CHUNK]}")
                continue
            rows = _rows(output)
            if rows == len(inputs):
                self._forms = [form]
                return function(form(wanted)) if few else output
            failures.append(f"as {name}: {rows} predictions")
        raise invalid(
            "model",
            found=f"no usable output for {len(inputs)} bios ({'; '.join(failures)})",
            expected="one prediction a bio",
            fix="log the model with a signature that names its text column, or mend its predict",
        )


def _rows(output: object) -> int:
    if isinstance(output, dict):
        output = next(iter(output.values()), [])
    if hasattr(output, "shape"):  # sparse matrices have no length
        return int(output.shape[0]) if output.shape else 1
    if isinstance(output, str) or not hasattr(output, "__len__"):
        return 1
    return len(output)
