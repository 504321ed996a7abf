"""Checked bios: columns found, occupations and genders encoded, missing values counted."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from biasbios_mlflow.bios.occupations import (
    GenderValues,
    Labels,
    are_ids,
    as_objects,
    encode_genders,
    is_missing,
    missing_cells,
    replace_surrogates,
)
from biasbios_mlflow.errors import invalid, nearest

__all__ = [
    "LEFT_OUT",
    "Bios",
    "Columns",
    "RowHash",
    "Survey",
    "check_bios",
    "check_column",
    "check_distinct",
    "check_not_empty",
    "encode_bios",
    "find_columns",
]

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


def check_column(option: str, column: str, available: Iterable[object]) -> None:
    """Raise where the column that an option names is not there.

    Parameters
    ----------
    option : str
        Which option named it.
    column : str
    available : iterable
        The columns there are.

    Raises
    ------
    MlflowException
        The message lists the columns, and says which one was probably meant.
    """
    there = list(map(str, available))
    if column in there:
        return
    near = nearest(column, there)
    raise invalid(
        option,
        found=f"no column {column!r} among {there}",
        expected="the name of a column of the data",
        fix=f"use {option}={near!r}" if near else f"set {option} to one of these columns",
    )


def check_distinct(available: Iterable[object]) -> None:
    """Raise where two columns have one name.

    Raises
    ------
    MlflowException
        The message names them.
    """
    there = list(map(str, available))
    twice = sorted({name for name in there if there.count(name) > 1})
    if twice:
        raise invalid(
            "columns",
            found=f"more than one column of the name {', '.join(map(repr, twice))}",
            expected="every column under a name of its own",
            fix="rename or drop one of them",
        )


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
        When a column is not there; the message lists those that are. When two have one name.

    Examples
    --------
    >>> find_columns(["bio", "gender", "profession"])
    Columns(text='bio', occupation='profession', gender='gender', id=None, counterfactual=None)
    """
    there = list(map(str, available))
    check_distinct(there)

    def find(option: str, chosen: str | None, usual: tuple[str, ...], needed: bool) -> str | None:
        if chosen is not None:
            check_column(option, chosen, there)
            return chosen
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

    @property
    def occupation_ids(self) -> bool:
        """Whether the data gives occupations as numbers, not names."""
        return are_ids(pd.unique(as_objects(self.inputs[self.columns.occupation])))

    def counterfactuals(self) -> list[str] | None:
        """Return the user's own counterfactual texts, None where there is no such column.

        Where a cell is missing, the text of the bio itself (see `without_counterfactual`).
        """
        if self.columns.counterfactual is None:
            return None
        column = self.inputs[self.columns.counterfactual]
        return [
            original if is_missing(text, spelled=False) else replace_surrogates(text)
            for original, text in zip(self.texts, column, strict=True)
        ]

    def without_counterfactual(self) -> npt.NDArray[np.bool_] | None:
        """Return which bios lack a counterfactual; None where no column holds any."""
        if self.columns.counterfactual is None:
            return None
        column = self.inputs[self.columns.counterfactual]
        return np.array([is_missing(text, spelled=False) for text in column], dtype=np.bool_)

    def ids(self) -> npt.NDArray[np.object_] | None:
        """Return the user's own ids, None where there is no such column."""
        return None if self.columns.id is None else self.inputs[self.columns.id].to_numpy(object)

    def windows(self, size: int) -> Iterator[Bios]:
        """Yield slices of at most ``size`` bios, in order."""
        for start in range(0, len(self), size):
            yield self.part(slice(start, start + size))

    def part(self, rows: slice) -> Bios:
        """Return some of the bios."""
        return Bios(
            columns=self.columns,
            labels=self.labels,
            rows=self.rows[rows],
            texts=self.texts[rows],
            genders=self.genders[rows],
            occupations=self.occupations[rows],
            inputs=self.inputs.iloc[rows],
        )

    def hash(self) -> RowHash:
        """Return the content hash of these bios: text, occupation, gender, counterfactual."""
        names = np.array(self.labels.names, dtype=object)[self.occupations].tolist()
        genders = ["01"[g] for g in self.genders.tolist()]
        counterfactuals = self.counterfactuals()
        lacking = self.without_counterfactual()
        if counterfactuals is None or lacking is None:
            return RowHash.of(zip(self.texts, names, genders, strict=True))
        if lacking.any():
            pairs = zip(counterfactuals, lacking.tolist(), strict=True)
            counterfactuals = ["" if lacks else text for text, lacks in pairs]
        return RowHash.of(zip(self.texts, names, genders, counterfactuals, strict=True))


def check_not_empty(rows: int) -> None:
    """Raise where there are no bios at all."""
    if rows == 0:
        raise invalid(
            "data", found="no rows", expected="at least one bio", fix="check the source and split"
        )


LEFT_OUT = "gender_left_out"
"""Under this name are counted the bios whose gender the user's ``gender_values`` leave out."""


@dataclass(frozen=True, eq=False)
class _Parts:
    """The parts of n bios of which some may be missing."""

    texts: list[Any]
    genders: npt.NDArray[np.int8]
    complete: npt.NDArray[np.bool_]
    missing: dict[str, int]

    @classmethod
    def of(
        cls,
        frame: pd.DataFrame,
        columns: Columns,
        gender_values: GenderValues | None,
        rows: npt.NDArray[np.int64],
    ) -> _Parts:
        texts, no_text = _texts(
            frame[columns.text], rows, "set text_column to the column that holds the bios"
        )
        for part in (columns.occupation, columns.gender):
            _check_scalar(frame[part], rows)
        no_occupation = missing_cells(frame[columns.occupation])
        genders = encode_genders(
            frame[columns.gender],
            gender_values=gender_values,
            thing=f"gender (column {columns.gender!r})",
            rows=rows,
        )
        missing = {
            "text": int(no_text.sum()),
            "occupation": int(no_occupation.sum()),
            "gender": int((genders == -1).sum()),
        }
        complete = ~(no_text | no_occupation | (genders < 0))
        if (genders == -2).any():
            missing[LEFT_OUT] = int((genders == -2).sum())
        if columns.counterfactual is not None:
            _, lacking = _texts(
                frame[columns.counterfactual],
                rows,
                "set counterfactual_column to a column of texts, empty where there is none",
            )
            missing["counterfactual"] = int((lacking & complete).sum())
        return cls(texts=texts, genders=genders, complete=complete, missing=missing)


def _texts(
    column: pd.Series[Any], rows: npt.NDArray[np.int64], fix: str
) -> tuple[list[Any], npt.NDArray[np.bool_]]:
    """Return the texts of a column, fit for UTF-8, and which are missing."""
    texts = column.tolist()
    missing = np.zeros(len(texts), dtype=np.bool_)
    for i, text in enumerate(texts):
        if isinstance(text, str):
            if not text or text.isspace():
                missing[i] = True
            elif not text.isascii():
                texts[i] = replace_surrogates(text)
        elif is_missing(text):
            missing[i] = True
        else:
            raise invalid(
                f"column {str(column.name)!r}, row {rows[i]}",
                found=f"{type(text).__name__} {text!r:.60}",
                expected="a text",
                fix=fix,
            )
    return texts, missing


def _check_scalar(column: pd.Series[Any], rows: npt.NDArray[np.int64]) -> None:
    """Raise where a cell holds several values instead of one."""
    if column.dtype != object:
        return
    for row, value in zip(rows, column, strict=True):
        if not isinstance(value, (str, bytes)) and not pd.api.types.is_scalar(value):
            raise invalid(
                f"column {str(column.name)!r}, row {row}",
                found=f"{type(value).__name__} {value!r:.60}",
                expected="one name or number a bio",
                fix="hand in a column with one value a cell",
            )


@dataclass(frozen=True, eq=False)
class Survey:
    """What must be known of all bios before the first of them is predicted; surveys add up.

    Attributes
    ----------
    rows, complete : int
        Bios, and those of them that lack nothing.
    missing : dict of str to int
        How many lack which part.
    occupations : tuple
        The distinct occupations of the complete bios, as the data spells them.

    Examples
    --------
    >>> frame = pd.DataFrame(
    ...     {"text": ["He heals.", None], "profession": ["nurse", "poet"], "gender": ["M", "F"]}
    ... )
    >>> survey = Survey.of(frame, find_columns(list(frame)))
    >>> (survey + survey).rows, survey.occupations
    (4, ('nurse',))
    """

    rows: int
    complete: int
    missing: Mapping[str, int]
    occupations: tuple[Any, ...]

    @property
    def occupation_ids(self) -> bool:
        """Whether the occupations are numbers, not names."""
        return are_ids(self.occupations)

    @classmethod
    def of(
        cls,
        frame: pd.DataFrame,
        columns: Columns,
        *,
        gender_values: GenderValues | None = None,
        rows: npt.NDArray[np.int64] | None = None,
    ) -> Survey:
        """Survey a table of n bios.

        Parameters
        ----------
        frame, columns, gender_values
            See `check_bios`.
        rows : ndarray of int64 of shape (n,), optional
            Position of each bio in the source, for messages.

        Raises
        ------
        MlflowException
            Unknown gender values, a text that is not a string.
        """
        rows = np.arange(len(frame), dtype=np.int64) if rows is None else rows
        parts = _Parts.of(frame, columns, gender_values, rows)
        return cls._of_parts(frame[columns.occupation], parts)

    @classmethod
    def _of_parts(cls, occupations: pd.Series, parts: _Parts) -> Survey:
        complete = int(parts.complete.sum())
        whole = complete == len(occupations)
        kept = as_objects(occupations if whole else occupations[parts.complete])
        return cls(
            rows=len(occupations),
            complete=complete,
            missing=parts.missing,
            occupations=tuple(pd.unique(kept)),
        )

    def __add__(self, other: Survey) -> Survey:
        return Survey(
            rows=self.rows + other.rows,
            complete=self.complete + other.complete,
            missing={
                part: self.missing.get(part, 0) + other.missing.get(part, 0)
                for part in (*self.missing, *other.missing)
            },
            occupations=tuple(dict.fromkeys((*self.occupations, *other.occupations))),
        )

    def check(self, *, allow_missing: bool = False) -> None:
        """Raise where too many bios are incomplete.

        Raises
        ------
        MlflowException
            No bios, none complete, or more than 5 % incomplete without ``allow_missing``.
        """
        check_not_empty(self.rows)
        excluded = self.missing.get(LEFT_OUT, 0)
        rows = self.rows - excluded
        incomplete = rows - self.complete
        lacking = self.missing.get("counterfactual", 0)
        if self.complete and allow_missing:
            return
        if self.complete and incomplete <= MISSING_LIMIT * rows:
            if lacking <= MISSING_LIMIT * self.complete:
                return
            raise invalid(
                "counterfactual_column",
                found=f"{lacking} missing texts for {self.complete} bios",
                expected=f"at most {MISSING_LIMIT:.0%} without a counterfactual",
                fix="fill them, or leave these bios out of the counterfactual metrics with "
                "allow_missing=True",
            )
        parts = ", ".join(
            f"{self.missing[part]} without {part}"
            for part in ("text", "occupation", "gender")
            if self.missing[part]
        )
        if rows == 0:
            raise invalid(
                "gender_values",
                found=f"values that leave out all {excluded} bios",
                expected="men and women among the bios",
                fix="say which values mean male and female",
            )
        raise invalid(
            "data",
            found=f"{incomplete} incomplete bios of {rows} ({parts})",
            expected=f"at most {MISSING_LIMIT:.0%} incomplete bios",
            fix="mend the data, or leave them out with allow_missing=True"
            if self.complete
            else "check the names of the columns",
        )

    def labels(self, label_names: Sequence[str] | None = None) -> Labels:
        """Return the label set that the occupations belong to (see `Labels.of`)."""
        return Labels.of(self.occupations, label_names=label_names)


def check_bios(
    frame: pd.DataFrame,
    columns: Columns,
    *,
    label_names: Sequence[str] | None = None,
    gender_values: GenderValues | None = None,
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
    check_not_empty(len(frame))
    rows = np.arange(len(frame), dtype=np.int64)
    parts = _Parts.of(frame, columns, gender_values, rows)
    survey = Survey._of_parts(frame[columns.occupation], parts)
    survey.check(allow_missing=allow_missing)
    return _encode(frame, columns, survey.labels(label_names), parts, rows)


def encode_bios(
    frame: pd.DataFrame,
    columns: Columns,
    labels: Labels,
    *,
    gender_values: GenderValues | None = None,
    rows: npt.NDArray[np.int64] | None = None,
) -> Bios:
    """Encode a table of n bios, a part of data that has been surveyed as a whole.

    Parameters
    ----------
    frame, columns, gender_values
        See `check_bios`.
    labels : Labels
        Of the whole data, from `Survey.labels`.
    rows : ndarray of int64 of shape (n,), optional
        Position of each bio in the source.

    Returns
    -------
    Bios
        Without the bios that lack a part; possibly none.
    """
    rows = np.arange(len(frame), dtype=np.int64) if rows is None else rows
    parts = _Parts.of(frame, columns, gender_values, rows)
    return _encode(frame, columns, labels, parts, rows)


def _encode(
    frame: pd.DataFrame,
    columns: Columns,
    labels: Labels,
    parts: _Parts,
    rows: npt.NDArray[np.int64],
) -> Bios:
    texts, genders, complete = parts.texts, parts.genders, parts.complete
    if not complete.all():
        rows, frame, genders = rows[complete], frame[complete], genders[complete]
        texts = [text for text, keep in zip(texts, complete, strict=True) if keep]
    return Bios(
        columns=columns,
        labels=labels,
        rows=rows,
        texts=texts,
        genders=genders,
        occupations=labels.encode(frame[columns.occupation]),
        inputs=frame,
        missing=parts.missing,
    )
