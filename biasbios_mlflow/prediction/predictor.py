"""The one interface of all kinds of models, and the choice among them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from biasbios_mlflow.bios.checked import Bios
from biasbios_mlflow.prediction.inputs import ModelInputs
from biasbios_mlflow.prediction.outputs import OutputReader, Predictions

__all__ = ["Predictor", "find_predictor", "predict_pair"]


class Predictor(Protocol):
    """A kind of model: from inputs to the model's own outputs.

    Attributes
    ----------
    path : str
        What is called, for the log and the summary.
    classes : sequence or None
        What columns or integer outputs stand for, where the model says so.
    """

    path: str
    classes: Sequence[Any] | None

    def predict(self, inputs: ModelInputs) -> object:
        """Return the model's output for ``len(inputs)`` rows, in any form."""


def find_predictor(model: Any, *, prediction: str = "auto") -> Predictor:
    """Choose how to call a model.

    Parameters
    ----------
    model : mlflow.pyfunc.PyFuncModel or object with ``predict``
        The loaded model.
    prediction : {"auto", "pyfunc"}, default="auto"
        ``"auto"`` goes past pyfunc where that is faster or yields probabilities.

    Returns
    -------
    Predictor
    """
    from biasbios_mlflow.prediction.pyfunc import PyfuncPredictor
    from biasbios_mlflow.prediction.sklearn import SklearnPredictor

    if prediction == "auto":
        found = SklearnPredictor.of(model)
        if found is not None:
            return found
    return PyfuncPredictor(model)


def predict_pair(
    predictor: Predictor,
    reader: OutputReader,
    bios: Bios,
    counterfactuals: Sequence[str] | None,
) -> tuple[Predictions, Predictions | None, ModelInputs]:
    """Predict a window of bios and of their counterfactuals in one call.

    Texts that the swap left unchanged are predicted once.

    Returns
    -------
    original : Predictions
        For the n bios.
    counterfactual : Predictions or None
        For their swapped copies; None without ``counterfactuals``.
    inputs : ModelInputs
        What was predicted, with the flag ``changed`` of each bio.
    """
    inputs = ModelInputs(bios, counterfactuals)
    first_row = int(bios.rows[0]) if len(bios) else 0
    both = reader.read(predictor.predict(inputs), len(inputs), first_row=first_row)
    n = len(bios)
    original = Predictions(
        both.codes[:n],
        None if both.probabilities is None else both.probabilities[:n],
        both.unknown,
    )
    if inputs.changed is None:
        return original, None, inputs
    # Row of `both` that belongs to each counterfactual: its own, or the original's if unchanged.
    source = np.arange(n)
    source[inputs.changed] = n + np.arange(len(inputs) - n)
    return original, both[source], inputs
