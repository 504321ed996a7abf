"""The one interface of all kinds of models, and the choice among them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from biasbios_mlflow.bios.checked import Bios
from biasbios_mlflow.config import EvaluationConfig
from biasbios_mlflow.errors import invalid
from biasbios_mlflow.prediction.inputs import ModelInputs
from biasbios_mlflow.prediction.outputs import OutputReader, Predictions
from biasbios_mlflow.prediction.pyfunc import PyfuncPredictor
from biasbios_mlflow.prediction.sklearn import SklearnPredictor
from biasbios_mlflow.prediction.static import StaticPredictions

__all__ = ["PredictedPair", "Predictor", "find_predictor", "predict_pair"]


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


def find_predictor(model: Any, config: EvaluationConfig) -> Predictor | StaticPredictions:
    """Choose how to call a model.

    Parameters
    ----------
    model : mlflow.pyfunc.PyFuncModel or object with ``predict`` or None
        The loaded model; None for predictions that stand in the data.
    config : EvaluationConfig
        ``prediction="auto"`` goes past pyfunc where that is faster or yields probabilities.

    Returns
    -------
    Predictor or StaticPredictions

    Raises
    ------
    MlflowException
        Without a model and without a column of predictions.
    """
    if model is None:
        if config.predictions is None:
            raise invalid(
                "predictions",
                found="neither a model nor a column of predictions",
                expected="one of them",
                fix="pass predictions='…', the column that holds the predicted occupation",
            )
        return StaticPredictions(config.predictions, config.counterfactual_predictions)
    if config.prediction == "auto":
        found = SklearnPredictor.of(model)
        if found is not None:
            return found
    return PyfuncPredictor(model)


@dataclass(frozen=True, eq=False)
class PredictedPair:
    """The predictions for n bios and for their swapped copies.

    Attributes
    ----------
    original : Predictions
    counterfactual : Predictions or None
        None where there are none.
    changed : ndarray of bool of shape (n,) or None
        Which texts the swap changed, where that is known.
    """

    original: Predictions
    counterfactual: Predictions | None
    changed: npt.NDArray[np.bool_] | None


def predict_pair(
    predictor: Predictor,
    reader: OutputReader,
    bios: Bios,
    counterfactuals: Sequence[str],
) -> PredictedPair:
    """Predict a window of n bios and their counterfactuals in one call.

    Texts that the swap left unchanged are predicted once.
    """
    inputs = ModelInputs(bios, counterfactuals)
    both = reader.read(
        predictor.predict(inputs), len(inputs), first_row=int(bios.rows[0]) if len(bios) else 0
    )
    n = len(bios)
    # Row that belongs to each counterfactual: its own, or the original's where it is unchanged.
    source = np.arange(n)
    source[inputs.changed] = n + np.arange(len(inputs) - n)
    return PredictedPair(both[:n], both[source], inputs.changed)
