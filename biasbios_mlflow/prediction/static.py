"""Predictions that stand in the data: no model is called."""

from __future__ import annotations

import pandas as pd

from biasbios_mlflow.bios.checked import Bios
from biasbios_mlflow.errors import invalid
from biasbios_mlflow.prediction.outputs import OutputReader, Predictions

__all__ = ["StaticPredictions"]


class StaticPredictions:
    """Reads predictions from columns of the data.

    A cell holds whatever a model can return for one bio: a name or an id, a list of probabilities
    in label order, a dict of class to probability.

    Parameters
    ----------
    column : str
        Column with the predictions for the bios.
    counterfactual_column : str, optional
        Column with those for their swapped copies.
    """

    classes = None

    def __init__(self, column: str, counterfactual_column: str | None = None) -> None:
        self.path = "static predictions"
        self._column = column
        self._counterfactual_column = counterfactual_column

    def read(self, reader: OutputReader, bios: Bios) -> tuple[Predictions, Predictions | None]:
        """Return the predictions for a window of bios and, where given, for their copies."""
        original = self._read(reader, bios, self._column, "predictions")
        if self._counterfactual_column is None:
            return original, None
        return original, self._read(
            reader, bios, self._counterfactual_column, "counterfactual_predictions"
        )

    @staticmethod
    def _read(reader: OutputReader, bios: Bios, column: str, option: str) -> Predictions:
        if column not in bios.inputs.columns:
            raise invalid(
                option,
                found=f"no column {column!r} among {list(map(str, bios.inputs.columns))}",
                expected="the name of a column of the data",
                fix=f"set {option} to the column that holds the predictions",
            )
        cells: pd.Series = bios.inputs[column]
        return reader.read(cells, len(bios), rows=bios.rows)
