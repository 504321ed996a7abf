"""Checked bios: columns found, occupations and genders encoded, missing values counted."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from biasbios_mlflow.bios.occupations import Labels, encode_genders
from biasbios_mlflow.errors import invalid, nearest

__all__ = ["Bios", "Columns", "RowHash", "check_bios", "check_not_empty", "find_columns"]

_TEXT_NAMES = ("hard_text", "text", "bio", "hard_text_untokenized", "biography")
_OCCUPATION_NAMES = ("profession", "occupation", "title", "p", "label", "target")
_GENDER_NAMES = ("gender", "g", "sex")
_ID_NAMES = ("id", "bio_id")

MISSING_LIMIT = 0.05
"""Largest share of bios that may lack a value without the user's ``allow_missing``."""


@dataclass(frozen=True)
class Columns:
    """The names of the columns that hold the parts of a bio."""

    text: str
    occupation: str
    gender: str
    id: str | None = None
    counterfactual: str | None = None

    def sensitive(self) -> set[str]:
        """Return the columns that no model sees unless its signature asks for them."""
        hidden = {self.occupation, self.gender}
        return hidden | {c for c in (self.id, self.counterfactual) if c is not None}


def find_columns(
    available: Sequence[str],
    *,
    text: str | None = None,
    occupation: str | None = None,
    gender: str | None = None,
    id: str | None = None,
    counterfactual: str | None = None,
) -> Columns:
    """Find the parts of a bio among the columns of a table.

    Parameters
    ----------
    available : sequence of str
        The columns there are.
    text, occupation, gender, id, counterfactual : str, optional
        Names the user chose; the usual names are tried for the first four where none is given.

    Returns
    -------
    Columns

    Raises
    ------
    MlflowException
        When a column is not there; the message lists those that are.

    Examples
    --------
    >>> find_columns(["bio", "gender", "profession"])
    Columns(text='bio', occupation='profession', gender='gender', id=None, counterfactual=None)
    """
    there = list(map(str, available))

    def find(option: str, chosen: str | None, usual: tuple[str, ...], needed: bool) -> str | None:
        if chosen is not None:
            if chosen in there:
                return chosen
            near = nearest(chosen, there)
            raise invalid(
                option,
                found=f"no column {chosen!r} among {there}",
                expected="the name of a column of the data",
                fix=f"use {option}={near!r}" if near else f"set {option} to one of these columns",
            )
        for name in usual:
            if name in there:
                return name
        if not needed:
            return None
        raise invalid(
            option,
            found=f"none of the usual columns {list(usual)} among {there}",
            expected="a column with the " + option.removesuffix("_column") + " of each bio",
            fix=f"name it: {option}='…'",
        )

    found_text = find("text_column", text, _TEXT_NAMES, True)
    found_occupation = find("occupation_column", occupation, _OCCUPATION_NAMES, True)
    found_gender = find("gender_column", gender, _GENDER_NAMES, True)
    assert found_text is not None
    assert found_occupation is not None
    assert found_gender is not None
    return Columns(
        text=found_text,
        occupation=found_occupation,
        gender=found_gender,
        id=find("id_column", id, _ID_NAMES, False),
        counterfactual=find("counterfactual_column", counterfactual, (), False),
    )


class RowHash:
    """A hash over all rows that does not depend on their order, so that parts can be added up.

    Each row is hashed with SHA-256 and the digests are added modulo 2**256 (a multiset hash,
    Clarke et al., ASIACRYPT 2003): two data sets with the same bios have the same hash, however
    they were cut into windows.

    Examples
    --------
    >>> a, b = RowHash.of([("x", "nurse", "male")]), RowHash.of([("y", "poet", "female")])
    >>> (a + b).hexdigest() == (b + a).hexdigest()
    True
    """

    def __init__(self, total: int = 0, rows: int = 0) -> None:
        self.total = total
        self.rows = rows

    @classmethod
    def of(cls, rows: Iterator[tuple[str, ...]] | Sequence[tuple[str, ...]]) -> RowHash:
        """Hash rows given as tuples of str."""
        total = count = 0
        for row in rows:
            # Lengths are part of what is hashed: ("ab", "c") and ("a", "bc") are different rows.
            head = ",".join([str(len(value)) for value in row])
            data = "\x00".join((head, *row)).encode("utf-8", "surrogatepass")
            total += int.from_bytes(hashlib.sha256(data).digest(), "little")
            count += 1
        return cls(total % (1 << 256), count)

    def __add__(self, other: RowHash) -> RowHash:
        return RowHash((self.total + other.total) % (1 << 256), self.rows + other.rows)

    def hexdigest(self) -> str:
        """Return 64 hexadecimal digits."""
        data = self.rows.to_bytes(8, "little") + self.total.to_bytes(32, "little")
        return hashlib.sha256(data).hexdigest()


@dataclass(frozen=True, eq=False)
class Bios:
    """Bios ready to be evaluated, as parallel arrays of length n.

    Attributes
    ----------
    columns : Columns
        Where the parts were found.
    labels : Labels
        The label set of ``occupations``.
    rows : ndarray of int64
        Position of each bio in the source, missing ones counted.
    texts : list of str
    genders : ndarray of int8
        0 male, 1 female.
    occupations : ndarray of int64
        Codes into ``labels``.
    inputs : DataFrame
        All columns of the source, from which a model gets those it asks for.
    missing : dict of str to int
        How many bios were left out for want of which part.
    """

    columns: Columns
    labels: Labels
    rows: npt.NDArray[np.int64]
    texts: list[str]
    genders: npt.NDArray[np.int8]
    occupations: npt.NDArray[np.int64]
    inputs: pd.DataFrame
    missing: Mapping[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.texts)

    def counterfactuals(self) -> list[str] | None:
        """Return the user's own counterfactual texts, None where there is no such column."""
        if self.columns.counterfactual is None:
            return None
        column = self.inputs[self.columns.counterfactual]
        return [
            original if missing else str(text)
            for original, text, missing in zip(self.texts, column, column.isna(), strict=True)
        ]

    def ids(self) -> npt.NDArray[np.object_] | None:
        """Return the user's own ids, None where there is no such column."""
        return None if self.columns.id is None else self.inputs[self.columns.id].to_numpy(object)

    def windows(self, size: int) -> Iterator[Bios]:
        """Yield slices of at most ``size`` bios, in order."""
        for start in range(0, len(self), size):
            part = slice(start, start + size)
            yield Bios(
                columns=self.columns,
                labels=self.labels,
                rows=self.rows[part],
                texts=self.texts[part],
                genders=self.genders[part],
                occupations=self.occupations[part],
                inputs=self.inputs.iloc[part],
            )

    def hash(self) -> RowHash:
        """Return the content hash of these bios: text, occupation, gender, counterfactual."""
        names = np.array(self.labels.names, dtype=object)[self.occupations].tolist()
        genders = ["01"[g] for g in self.genders.tolist()]
        counterfactuals = self.counterfactuals()
        if counterfactuals is None:
            return RowHash.of(zip(self.texts, names, genders, strict=True))
        return RowHash.of(zip(self.texts, names, genders, counterfactuals, strict=True))


def check_not_empty(frame: pd.DataFrame) -> None:
    """Raise where there are no bios at all."""
    if len(frame) == 0:
        raise invalid(
            "data", found="no rows", expected="at least one bio", fix="check the source and split"
        )


def check_bios(
    frame: pd.DataFrame,
    columns: Columns,
    *,
    label_names: Sequence[str] | None = None,
    gender_values: Mapping[Any, str] | None = None,
    allow_missing: bool = False,
) -> Bios:
    """Check a table of bios and encode it.

    Parameters
    ----------
    frame : DataFrame
        One row a bio.
    columns : Columns
        From `find_columns`.
    label_names, gender_values
        See `Labels.of` and `encode_genders`.
    allow_missing : bool, default=False
        Go on when more than 5 % of the bios lack their text, occupation or gender.

    Returns
    -------
    Bios
        Without the bios that lack a part, which are counted in ``missing``.

    Raises
    ------
    MlflowException
        No bios, too many incomplete ones, unknown gender values, a text that is not a string.

    Examples
    --------
    >>> frame = pd.DataFrame(
    ...     {"text": ["He heals.", None], "profession": ["nurse", "poet"], "gender": ["M", "F"]}
    ... )
    >>> bios = check_bios(frame, find_columns(list(frame)), allow_missing=True)
    >>> len(bios), bios.missing
    (1, {'text': 1, 'occupation': 0, 'gender': 0})
    """
    check_not_empty(frame)
    texts = frame[columns.text]
    no_text = texts.isna().to_numpy(dtype=bool, copy=True)
    text_list = texts.tolist()
    for row, text in enumerate(text_list):
        if not isinstance(text, str):
            if no_text[row]:
                continue
            raise invalid(
                f"column {columns.text!r}, row {row}",
                found=f"{type(text).__name__} {text!r:.60}",
                expected="a text",
                fix="set text_column to the column that holds the bios",
            )
        if not text or text.isspace():
            no_text[row] = True
    no_occupation = frame[columns.occupation].isna().to_numpy(dtype=bool)
    genders = encode_genders(frame[columns.gender], gender_values=gender_values)
    no_gender = genders < 0
    missing = {
        "text": int(no_text.sum()),
        "occupation": int(no_occupation.sum()),
        "gender": int(no_gender.sum()),
    }
    complete = ~(no_text | no_occupation | no_gender)
    left_out = len(frame) - int(complete.sum())
    if left_out == len(frame) or (left_out > MISSING_LIMIT * len(frame) and not allow_missing):
        parts = ", ".join(f"{count} without {part}" for part, count in missing.items() if count)
        raise invalid(
            "data",
            found=f"{left_out} incomplete bios of {len(frame)} ({parts})",
            expected=f"at most {MISSING_LIMIT:.0%} incomplete bios",
            fix="mend the data, or leave them out with allow_missing=True"
            if left_out < len(frame)
            else "check the names of the columns",
        )
    rows = np.arange(len(frame), dtype=np.int64)
    if left_out:
        rows = rows[complete]
        frame = frame[complete]
        genders = genders[complete]
        text_list = [text for text, keep in zip(text_list, complete, strict=True) if keep]
    occupations = frame[columns.occupation]
    labels = Labels.of(occupations.unique(), label_names=label_names)
    return Bios(
        columns=columns,
        labels=labels,
        rows=rows,
        texts=text_list,
        genders=genders,
        occupations=labels.encode(occupations),
        inputs=frame,
        missing=missing,
    )
