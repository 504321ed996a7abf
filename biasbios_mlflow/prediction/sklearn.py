"""scikit-learn models: probabilities straight from the estimator, without pyfunc's checks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from biasbios_mlflow.fingerprint import Identity
from biasbios_mlflow.prediction.inputs import ModelInputs

__all__ = ["SklearnPredictor"]


class SklearnPredictor:
    """Calls ``predict_proba`` of a fitted estimator, else ``decision_function``, else ``predict``.

    Parameters
    ----------
    estimator : sklearn.base.BaseEstimator
        A fitted classifier: a pipeline from texts, or from a frame with named columns.
    """

    identity: Identity | None = None

    def __init__(self, estimator: Any) -> None:
        self.classes: Sequence[Any] | None = (
            list(estimator.classes_) if hasattr(estimator, "classes_") else None
        )
        for method in ("predict_proba", "decision_function", "predict"):
            if hasattr(estimator, method):
                break
        self._method = method
        self._call = getattr(estimator, method)
        names = getattr(estimator, "feature_names_in_", None)
        self._columns = None if names is None else [str(name) for name in names]
        self.path = f"sklearn.{method}"

    @classmethod
    def of(cls, model: Any) -> SklearnPredictor | None:
        """Unwrap a pyfunc model of the sklearn flavor; None for any other."""
        if getattr(model, "loader_module", None) != "mlflow.sklearn":
            return None
        try:
            estimator = model.get_raw_model()
        except NotImplementedError:  # a model served in its own environment
            return None
        return cls(estimator) if hasattr(estimator, "predict") else None

    def session(self) -> AbstractContextManager[None]:
        """Do nothing: the model is where it belongs."""
        return nullcontext()

    def predict(self, inputs: ModelInputs) -> Iterator[tuple[slice, object]]:
        """Yield the matrix of shape (rows, classes), or the labels, of all rows at once."""
        output = self._call(self._table(inputs))
        if self._method == "decision_function" and np.ndim(output) == 1:
            # Two classes come as one margin; as logits it stands against 0.
            output = np.column_stack([np.zeros(len(output)), output])
        yield slice(None), output

    def _table(self, inputs: ModelInputs) -> Any:
        if inputs.features is not None:
            return inputs.features
        return inputs.texts if self._columns is None else inputs.columns(self._columns)
