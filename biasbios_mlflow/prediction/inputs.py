"""What a model is given: its own columns, with the bio or its counterfactual as the text."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import pandas as pd

from biasbios_mlflow.bios.checked import Bios
from biasbios_mlflow.errors import invalid

__all__ = ["ModelInputs"]


class ModelInputs:
    """The rows of one call to a model: all originals, then the counterfactuals that differ.

    Parameters
    ----------
    bios : Bios
        A window of n bios.
    counterfactuals : sequence of str of length n
        Their gender-swapped texts.

    Attributes
    ----------
    texts : list of str
        n originals, then one text for each bio that the swap changed.
    changed : ndarray of bool of shape (n,)
        Which bios those are.
    """

    def __init__(self, bios: Bios, counterfactuals: Sequence[str]) -> None:
        self._bios = bios
        self.changed = np.array(
            [a != b for a, b in zip(bios.texts, counterfactuals, strict=True)], dtype=bool
        )
        self.texts = [
            *bios.texts,
            *(text for text, changed in zip(counterfactuals, self.changed, strict=True) if changed),
        ]

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def text_column(self) -> str:
        """Name of the column that holds the bio in the data."""
        return self._bios.columns.text

    @property
    def available(self) -> list[str]:
        """Names of the columns of the data."""
        return [str(name) for name in self._bios.inputs.columns]

    @cached_property
    def frame(self) -> pd.DataFrame:
        """All columns of the data, the text column holding ``texts``."""
        frame = self._bios.inputs
        both = pd.concat([frame, frame[self.changed]], ignore_index=True)
        return both.assign(**{self.text_column: self.texts})

    @property
    def insensitive(self) -> list[str]:
        """Columns for a model that does not say what it wants: no gender, no occupation."""
        hidden = self._bios.columns.sensitive()
        return [name for name in self.available if name not in hidden]

    def columns(self, names: Sequence[str]) -> pd.DataFrame:
        """Return exactly the columns a model asks for.

        A model that names one column that the data lacks, and not the bio's own column, gets the
        bio under that name.

        Raises
        ------
        MlflowException
            When columns are missing, or none of them would hold the bio: a model that never sees
            the swapped text would look perfectly fair.
        """
        absent = [name for name in names if name not in self.available]
        if self.text_column in names and not absent:
            return self.frame[list(names)]
        if self.text_column not in names and len(absent) == 1:
            return self.frame.rename(columns={self.text_column: absent[0]})[list(names)]
        if absent:
            raise invalid(
                "data",
                found=f"no column(s) {absent} among {self.available}",
                expected=f"the columns the model asks for: {list(names)}",
                fix="add them to the data",
            )
        raise invalid(
            "text_column",
            found=f"{self.text_column!r}, which the model does not ask for",
            expected=f"one of the columns it asks for: {list(names)}",
            fix="set text_column to the one that holds the bio",
        )
