"""Predictions that stand in the data: no model is called."""

from __future__ import annotations

import pandas as pd

from biasbios_mlflow.bios.checked import Bios, check_column
from biasbios_mlflow.config import EvaluationConfig
from biasbios_mlflow.errors import invalid
from biasbios_mlflow.fingerprint import Identity
from biasbios_mlflow.prediction.outputs import OutputReader, Predictions

__all__ = ["StaticPredictions"]


class StaticPredictions:
    """Reads predictions from columns of the data.

    A cell holds whatever a model can return for one bio: a name or an id, a list of probabilities
    in label order, a dict of class to probability.

    Parameters
    ----------
    config : EvaluationConfig
        Names the columns: ``predictions``, ``counterfactual_predictions``, and where those hold
        labels, ``probabilities`` and ``counterfactual_probabilities`` beside them.
    """

    classes = None
    identity = Identity("static")  # the hash over the data's columns tells the rest

    def __init__(self, config: EvaluationConfig) -> None:
        self.path = "static predictions"
        self._config = config
        # Probabilities are of another form than labels, and so is their reader.
        self._matrix_reader: OutputReader | None = None

    def read(self, reader: OutputReader, bios: Bios) -> tuple[Predictions, Predictions | None]:
        """Return the predictions for a window of bios and, where given, for their copies."""
        original = self._read(reader, bios, "predictions", "probabilities")
        assert original is not None
        return original, self._read(
            reader, bios, "counterfactual_predictions", "counterfactual_probabilities"
        )

    def _read(
        self, reader: OutputReader, bios: Bios, labels: str, probabilities: str
    ) -> Predictions | None:
        cells = self._cells(bios, labels)
        matrix = self._cells(bios, probabilities)
        if cells is None:
            if matrix is None:
                return None
            raise invalid(
                labels,
                found=f"no column, but one for {probabilities}",
                expected="both",
                fix=f"set {labels} too",
            )
        predictions = reader.read(cells, len(bios), rows=bios.rows)
        if matrix is None:
            return predictions
        if self._matrix_reader is None:
            self._matrix_reader = OutputReader(bios.labels)
        read = self._matrix_reader.read(matrix, len(bios), rows=bios.rows)
        if read.probabilities is None:
            raise invalid(
                probabilities,
                found=f"labels in the column {getattr(self._config, probabilities)!r}",
                expected="a list of probabilities in each cell, or a dict by class",
                fix="name the column with the probabilities",
            )
        # Classes that only the column of probabilities knows have no label here.
        return Predictions(predictions.codes, read.probabilities[:, : len(reader.labels)])

    def _cells(self, bios: Bios, option: str) -> pd.Series | None:
        column = getattr(self._config, option)
        if column is None:
            return None
        check_column(option, column, bios.inputs.columns)
        return bios.inputs[column]
