"""Predictions that stand in the data: no model is called."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from biasbios_mlflow.bios.checked import Bios, check_column
from biasbios_mlflow.config import EvaluationConfig
from biasbios_mlflow.errors import invalid
from biasbios_mlflow.fingerprint import Identity
from biasbios_mlflow.prediction.base import Predictor, Variants
from biasbios_mlflow.prediction.inputs import ModelInputs
from biasbios_mlflow.prediction.outputs import Output, Returns

__all__ = ["StaticPredictions"]


class StaticPredictions(Predictor):
    """Reads predictions from columns of the data.

    A cell holds whatever a model can return for one bio: a name or an id, a list of probabilities
    in label order, a dict of class to probability.

    Parameters
    ----------
    config : EvaluationConfig
        Names the columns: ``predictions``, ``counterfactual_predictions``, and where those hold
        labels, ``probabilities`` and ``counterfactual_probabilities`` beside them.
    """

    options = frozenset(
        {
            "answers",
            "predictions",
            "counterfactual_predictions",
            "probabilities",
            "counterfactual_probabilities",
        }
    )
    swaps = False
    identity = Identity("static")  # the hash over the data's columns tells the rest

    def __init__(self, config: EvaluationConfig) -> None:
        self.path = "static predictions"
        self.returns = Returns()
        self._config = config

    def variants(self, bios: Bios, counterfactuals: Sequence[str]) -> Variants:
        """Return the rows of the bios, and once more for their copies where these are given."""
        n = len(bios)
        own = np.arange(n)
        if not self._has(bios, "counterfactual_predictions", "counterfactual_probabilities"):
            return Variants(ModelInputs(bios, own, list(bios.texts)), None, None)
        both = ModelInputs(bios, np.tile(own, 2), [*bios.texts, *counterfactuals])
        return Variants(both, n + own, None)

    def predict(self, inputs: ModelInputs) -> Iterator[tuple[slice, object]]:
        """Yield what the columns hold."""
        bios = inputs.bios
        n = len(bios)
        self._has(bios, "predictions", "probabilities")
        yield slice(0, n), self._output(bios, "predictions", "probabilities")
        if len(inputs) > n:
            names = ("counterfactual_predictions", "counterfactual_probabilities")
            yield slice(n, 2 * n), self._output(bios, *names)

    def _output(self, bios: Bios, labels: str, probabilities: str) -> object:
        cells, scores = self._cells(bios, labels), self._cells(bios, probabilities)
        if scores is None:
            return cells
        first = next((cell for cell in scores if cell is not None and cell is not pd.NA), None)
        if not isinstance(first, list | tuple | dict | np.ndarray):
            raise invalid(
                probabilities,
                found=f"labels in the column {getattr(self._config, probabilities)!r}",
                expected="a list of probabilities in each cell, or a dict by class",
                fix="name the column with the probabilities",
            )
        return Output(cells, scores)

    def _has(self, bios: Bios, labels: str, probabilities: str) -> bool:
        if getattr(self._config, labels) is not None:
            return True
        if getattr(self._config, probabilities) is None:
            return False
        raise invalid(
            labels,
            found=f"no column, but one for {probabilities}",
            expected="both",
            fix=f"set {labels} too",
        )

    def _cells(self, bios: Bios, option: str) -> pd.Series | None:
        column = getattr(self._config, option)
        if column is None:
            return None
        check_column(option, column, bios.inputs.columns)
        return bios.inputs[column]
