"""scikit-learn models: probabilities straight from the estimator, without pyfunc's checks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs  # type: ignore[import-untyped]

from biasbios_mlflow.prediction.inputs import ModelInputs

__all__ = ["SklearnPredictor"]


class SklearnPredictor:
    """Calls ``predict_proba`` of a fitted estimator, else ``decision_function``, else ``predict``.

    Parameters
    ----------
    estimator : sklearn.base.BaseEstimator
        A fitted classifier: a pipeline from texts, or from a frame with named columns.
    n_jobs : int, default=1
        Processes among which the rows are shared out, as in joblib.
    """

    identity: str | None = None

    def __init__(self, estimator: Any, *, n_jobs: int = 1) -> None:
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
        self._jobs = effective_n_jobs(n_jobs)
        self._pool: Parallel | None = None

    @classmethod
    def of(cls, model: Any, *, n_jobs: int = 1) -> SklearnPredictor | None:
        """Unwrap a pyfunc model of the sklearn flavor; None for any other."""
        if getattr(model, "loader_module", None) != "mlflow.sklearn":
            return None
        try:
            estimator = model.get_raw_model()
        except (NotImplementedError, AttributeError):  # a model served in its own environment
            return None
        return cls(estimator, n_jobs=n_jobs) if hasattr(estimator, "predict") else None

    @contextmanager
    def session(self) -> Iterator[None]:
        """Keep the processes until the block ends."""
        if self._jobs == 1 or self._pool is not None:
            yield
            return
        with Parallel(n_jobs=self._jobs) as self._pool:
            try:
                yield
            finally:
                self._pool = None

    def predict(self, inputs: ModelInputs) -> Iterator[tuple[slice, object]]:
        """Yield the matrix of shape (rows, classes), or the labels, part by part."""
        with self.session():
            size = -(-len(inputs) // self._jobs)
            parts = [slice(at, at + size) for at in range(0, len(inputs), size)]
            tables = [self._table(inputs[part]) for part in parts]
            if self._pool is None:
                outputs = [self._call(table) for table in tables]
            else:
                outputs = self._pool(delayed(self._call)(table) for table in tables)
        for part, output in zip(parts, outputs, strict=True):
            if self._method == "decision_function" and np.ndim(output) == 1:
                # Two classes come as one margin; as logits it stands against 0.
                output = np.column_stack([np.zeros(len(output)), output])
            yield part, output

    def _table(self, inputs: ModelInputs) -> Any:
        if inputs.features is not None:
            return inputs.features
        return inputs.texts if self._columns is None else inputs.columns(self._columns)
