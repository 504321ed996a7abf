"""What a model is given: its own columns, with the bio or its counterfactual as the text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from biasbios_mlflow.bios.checked import Bios
from biasbios_mlflow.bios.occupations import as_objects
from biasbios_mlflow.errors import invalid

__all__ = ["ModelInputs", "differ"]


def differ(texts: Sequence[str], others: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Tell for each of n texts whether its counterpart is another one."""
    return np.array([a != b for a, b in zip(texts, others, strict=True)], dtype=bool)


class ModelInputs:
    """Rows to be predicted: all originals of a window, then the counterfactuals that differ.

    Parameters
    ----------
    bios : Bios
        The window.
    source : ndarray of int64 of shape (rows,)
        Which bio of the window each row comes from.
    texts : list of str of length rows
    features : ndarray of shape (rows, d), optional
        For models that take features: one vector a row.

    Attributes
    ----------
    cut : ndarray of bool of shape (rows,) or None
        Which texts were longer than the model can take; None where none was, or no one looked.
    """

    def __init__(
        self,
        bios: Bios,
        source: npt.NDArray[np.int64],
        texts: list[str],
        features: npt.NDArray[Any] | None = None,
    ) -> None:
        self.bios = bios
        self.source = source
        self.texts = texts
        self.features = features
        self.cut: npt.NDArray[np.bool_] | None = None

    @classmethod
    def of(
        cls, bios: Bios, counterfactuals: Sequence[str], changed: npt.NDArray[np.bool_]
    ) -> ModelInputs:
        """Put the n bios of a window before those of their counterfactuals that differ.

        Parameters
        ----------
        bios : Bios
            A window of n bios.
        counterfactuals : sequence of str of length n
        changed : ndarray of bool of shape (n,)
            Which of them differ.
        """
        positions = np.flatnonzero(changed)
        texts = [*bios.texts, *(counterfactuals[i] for i in positions.tolist())]
        return cls(bios, np.concatenate([np.arange(len(bios)), positions]), texts)

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, part: slice) -> ModelInputs:
        """Return some of the rows."""
        features = None if self.features is None else self.features[part]
        return ModelInputs(self.bios, self.source[part], self.texts[part], features)

    def take(self, positions: npt.NDArray[np.int64]) -> ModelInputs:
        """Return the rows at some positions, in this order."""
        features = None if self.features is None else self.features[positions]
        texts = [self.texts[i] for i in positions.tolist()]
        return ModelInputs(self.bios, self.source[positions], texts, features)

    @property
    def rows(self) -> npt.NDArray[np.int64]:
        """The row of the data that each row comes from."""
        return self.bios.rows[self.source]

    @property
    def text_column(self) -> str:
        """Name of the column that holds the bio in the data."""
        return self.bios.columns.text

    @property
    def available(self) -> list[str]:
        """Names of the columns of the data."""
        return [str(name) for name in self.bios.inputs.columns]

    def insensitive(self) -> pd.DataFrame:
        """Return all columns but the sensitive ones, for a model that does not say what it wants.

        No gender, no occupation.
        """
        hidden = self.bios.columns.sensitive()
        return self._frame({name: name for name in self.available if name not in hidden})

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
            return self._frame({name: name for name in names})
        if self.text_column not in names and len(absent) == 1:
            (unknown,) = absent
            return self._frame({n: self.text_column if n == unknown else n for n in names})
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

    def _frame(self, columns: Mapping[str, str]) -> pd.DataFrame:
        """Return the named columns, each from a column of the data, ``texts`` in the bio's."""
        frame = self.bios.inputs
        return pd.DataFrame(
            {
                # As objects: a model would take strings out of pandas' own string type one by one.
                name: as_objects(self.texts)
                if column == self.text_column
                else frame[column].take(self.source).array
                for name, column in columns.items()
            }
        )
