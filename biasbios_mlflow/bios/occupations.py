"""Occupations and genders: the benchmark's names, and how spellings of them are read."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
import numpy.typing as npt
import pandas as pd

from biasbios_mlflow.errors import invalid

if TYPE_CHECKING:
    from mlflow.exceptions import MlflowException

__all__ = [
    "GENDERS",
    "OCCUPATIONS",
    "SPELLINGS_OF_NA",
    "GenderValues",
    "Labels",
    "are_ids",
    "as_objects",
    "canonical",
    "encode_genders",
    "is_missing",
    "label_name",
    "label_order",
    "missing_cells",
    "replace_surrogates",
    "unknown_gender_error",
    "unknown_genders",
]

OCCUPATIONS: tuple[str, ...] = (
    "accountant",
    "architect",
    "attorney",
    "chiropractor",
    "comedian",
    "composer",
    "dentist",
    "dietitian",
    "dj",
    "filmmaker",
    "interior_designer",
    "journalist",
    "model",
    "nurse",
    "painter",
    "paralegal",
    "pastor",
    "personal_trainer",
    "photographer",
    "physician",
    "poet",
    "professor",
    "psychologist",
    "rapper",
    "software_engineer",
    "surgeon",
    "teacher",
    "yoga_teacher",
)
"""The benchmark's 28 occupations in the order of their ids (0 to 27)."""

GENDERS: tuple[str, str] = ("male", "female")
"""The two genders in the order of their ids (0 and 1)."""

_GENDER_SPELLINGS: dict[str, int] = {
    "male": 0, "m": 0, "man": 0, "0": 0, "female": 1, "f": 1, "woman": 1, "1": 1,
}  # fmt: skip

_LABEL_ID = re.compile(r"label_(\d+)")

# White space, underscores, and what Unicode has for hyphens, dashes and the minus sign.
_SEPARATORS = re.compile(r"[\s_\-\u058a\u05be\u2010-\u2015\u2212\u30a0]+")
# Characters that are not seen: soft hyphen, zero-width space, word joiner, byte order mark.
_INVISIBLE = re.compile("[\u00ad\u200b\u2060\ufeff]")
_WHOLE = re.compile(r"([+-]?[0-9]+)\.0*")

SPELLINGS_OF_NA = frozenset(
    {
        *("#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"),
        *("<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"),
    }
)
"""What `pandas.read_csv` takes for a missing value, beside an empty cell."""


def is_missing(value: object, *, spelled: bool = True) -> bool:
    """Tell whether a cell holds no value: the one notion of it, whatever the source.

    Parameters
    ----------
    value : object
        None, NaN, NaT, ``pandas.NA``, ``""`` and white space alone are missing.
    spelled : bool, default=True
        Whether pandas' spellings of a missing value (``"N/A"``, ``"null"``, …) are missing too, as
        in an occupation or a gender. In a text they are words.

    Examples
    --------
    >>> [is_missing(value) for value in (None, float("nan"), pd.NA, " ", "N/A", "nurse", 0)]
    [True, True, True, True, True, False, False]
    >>> is_missing("N/A", spelled=False)
    False
    """
    if isinstance(value, str):
        bare = value.strip()
        return not bare or (spelled and bare in SPELLINGS_OF_NA)
    scalar: Any = value
    return value is None or (pd.api.types.is_scalar(scalar) and bool(pd.isna(scalar)))


def missing_cells(values: Any, *, spelled: bool = True) -> npt.NDArray[np.bool_]:
    """Return of each of n cells whether it is missing (see `is_missing`).

    Examples
    --------
    >>> missing_cells(["nurse", "", None]).tolist()
    [False, True, True]
    """
    positions, distinct = _factorized(values)
    table = np.array([is_missing(value, spelled=spelled) for value in distinct], dtype=np.bool_)
    return table[positions] if len(table) else np.zeros(0, dtype=np.bool_)


def canonical(name: object) -> str:
    """Return the form under which spellings of one occupation are equal.

    Case, white space, hyphens, underscores and the Unicode form (NFC, NFD, full width) do not tell
    occupations apart, and whole numbers are the same number in every type.

    Examples
    --------
    >>> canonical(" Yoga Teacher") == canonical("yoga-teacher") == "yoga_teacher"
    True
    >>> canonical(7.0) == canonical(np.int64(7)) == canonical("7") == canonical("7.0")
    True
    >>> canonical("Médecin") == canonical("me\u0301decin")
    True
    """
    if isinstance(name, bytes):
        name = name.decode("utf-8", "replace")
    elif _is_whole(name):
        name = int(name)
    text = str(name)
    if not text.isascii():
        # Twice: folding case can undo the form, and the form can bring letters to fold.
        text = unicodedata.normalize("NFKC", _INVISIBLE.sub("", text)).casefold()
        text = unicodedata.normalize("NFKC", text)
    text = text.strip().casefold()
    whole = _WHOLE.fullmatch(text)
    return _SEPARATORS.sub("_", whole[1] if whole else text)


def _is_whole(value: object) -> TypeGuard[float]:
    if not isinstance(value, (float, np.floating, Decimal)):
        return False
    return math.isfinite(value) and value == int(value)


def are_ids(values: Iterable[Any]) -> bool:
    """Tell whether occupations are given as numbers, not names, whatever their type.

    Examples
    --------
    >>> are_ids([3, 4.0, "5"]), are_ids(["3", "nurse"]), are_ids([])
    (True, False, False)
    """
    found = [canonical(value) for value in values]
    return bool(found) and all(name.isascii() and name.isdigit() for name in found)


def label_order(value: object) -> tuple[bool, int, str]:
    """Return what labels are sorted by: whole numbers by size, then names as Python sorts them.

    Examples
    --------
    >>> sorted([10, 9, "b", "a", "8"], key=label_order)
    ['8', 9, 10, 'a', 'b']
    """
    key = canonical(value)
    digits = key.removeprefix("_")
    if digits.isascii() and digits.isdigit():
        number = int(digits)
        return False, -number if digits != key else number, ""
    return True, 0, label_name(value)


def label_name(value: object) -> str:
    """Return the name of a label as users see it."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    elif _is_whole(value):
        value = int(value)
    return replace_surrogates(str(value)).strip()


def replace_surrogates(text: str) -> str:
    r"""Return a text that UTF-8 can hold: what is half a character becomes the mark for a bad one.

    Examples
    --------
    >>> ascii(replace_surrogates("caf" + chr(0xD800)))
    "'caf\\ufffd'"
    """
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        # Pairs of halves are a character; Python keeps them apart when they come apart.
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


class Labels:
    """A set of occupations in a fixed order: names to codes and back.

    Parameters
    ----------
    names : sequence of str
        The occupations; a code is a position in it.
    ids : bool, default=False
        Whether whole numbers (``7``, ``"7"``, ``"LABEL_7"``) stand for positions.

    Examples
    --------
    >>> labels = Labels(["nurse", "yoga_teacher"], ids=True)
    >>> labels.encode(["Yoga Teacher", "nurse", "LABEL_1", 0, "astronaut"]).tolist()
    [1, 0, 1, 0, 2]
    """

    def __init__(self, names: Sequence[str], *, ids: bool = False) -> None:
        self.names = tuple(names)
        self.ids = ids
        self._codes = {canonical(name): code for code, name in enumerate(self.names)}
        if len(self._codes) != len(self.names):
            twice = sorted(name for name in names if names.count(name) > 1) or list(names)
            raise invalid(
                "label names",
                found=f"the same occupation more than once in {twice}",
                expected="every occupation once (case, spaces, hyphens and underscores aside)",
                fix="remove the repeated names",
            )

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        return f"Labels({list(self.names)}, ids={self.ids})"

    @classmethod
    def of(cls, values: Iterable[Any], *, label_names: Sequence[str] | None = None) -> Labels:
        """Choose the label set that the occupations of some bios belong to.

        Parameters
        ----------
        values : iterable
            The distinct occupations found in the data: names or ids.
        label_names : sequence of str, optional
            The user's own names, in the order of their ids.

        Returns
        -------
        Labels
            ``label_names`` where given; the benchmark's 28 where they hold all values; else the
            values themselves, sorted (see `label_order`).

        Raises
        ------
        MlflowException
            When ``label_names`` lacks some of the values.

        Examples
        --------
        >>> len(Labels.of([0, 27]))
        28
        >>> Labels.of(["pilot", "Cabin crew"]).names
        ('Cabin crew', 'pilot')
        """
        values = list(values)
        if label_names is not None:
            labels = cls(label_names, ids=True)
            absent = [str(v) for v in values if labels.code(v) == len(labels)]
            if absent:
                raise invalid(
                    "label_names",
                    found=f"no {', '.join(sorted(absent)[:5])} among {list(labels.names)}",
                    expected="every occupation of the data",
                    fix="add the missing names, in the order of the model's ids",
                )
            return labels
        benchmark = cls(OCCUPATIONS, ids=True)
        if all(benchmark.code(value) < len(benchmark) for value in values):
            return benchmark
        own: dict[str, str] = {}
        for value in sorted(values, key=label_order):
            own.setdefault(canonical(value), label_name(value))
        return cls(tuple(own.values()))

    def code(self, value: object) -> int:
        """Return the code of one name or id; ``len(self)`` when it is none of them."""
        key = canonical(value)
        code = self._codes.get(key)
        if code is not None:
            return code
        if self.ids:
            match = _LABEL_ID.fullmatch(key)
            digits = match.group(1) if match else key
            if digits.isascii() and digits.isdigit() and int(digits) < len(self.names):
                return int(digits)
        return len(self.names)

    def encode(self, values: Any) -> npt.NDArray[np.int64]:
        """Return the codes of many names or ids, ``len(self)`` where unknown.

        Parameters
        ----------
        values : array-like of shape (n,)
            Names, ids or both.

        Returns
        -------
        ndarray of int64 of shape (n,)
        """
        positions, distinct = _factorized(values)
        table = np.array([self.code(value) for value in distinct], dtype=np.int64)
        return table[positions] if len(table) else np.empty(0, dtype=np.int64)

    def extended(self, names: Iterable[object]) -> Labels:
        """Return a label set with those of ``names`` at its end that it does not have yet."""
        more: dict[str, str] = {}
        for name in names:
            if self.code(name) == len(self):
                more.setdefault(canonical(name), label_name(name))
        return Labels([*self.names, *more.values()], ids=self.ids) if more else self


def as_objects(values: Any) -> npt.NDArray[np.object_]:
    """Return values of any one-dimensional container as an object array, types kept."""
    if isinstance(values, (pd.Series, pd.Index)):
        return values.to_numpy(dtype=object)
    if isinstance(values, np.ndarray):
        return values.astype(object)
    array = np.empty(len(values), dtype=object)
    array[:] = list(values)
    return array


def _factorized(values: Any) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.object_]]:
    """Return the distinct values of n cells, and which of them each holds, missing ones too."""
    positions, distinct = pd.factorize(as_objects(values), use_na_sentinel=False)
    return positions, distinct


GenderValues = Mapping[Any, str | None]
"""What the values of a gender column mean: ``"male"``, ``"female"``, or None for neither."""


def _gender_codes(values: Iterable[Any], gender_values: GenderValues | None) -> list[int]:
    """Return 0, 1, -1 (missing), -2 (left out) or -3 (unknown) for distinct values."""
    if gender_values is None:
        known: dict[str, int] = _GENDER_SPELLINGS
    else:
        known = {
            canonical(value): -2 if gender is None else _GENDER_SPELLINGS[canonical(gender)]
            for value, gender in gender_values.items()
        }
    codes = []
    for value in values:
        if is_missing(value, spelled=False):
            codes.append(-1)
        else:
            absent = -1 if is_missing(value) else -3
            codes.append(known.get(canonical(value), absent))
    return codes


def unknown_genders(
    values: Iterable[Any], *, gender_values: GenderValues | None = None
) -> list[Any]:
    """Return the values at which `encode_genders` fails.

    Examples
    --------
    >>> unknown_genders(["F", "frau", "male"])
    ['frau']
    """
    values = list(values)
    codes = _gender_codes(values, gender_values)
    return [value for value, code in zip(values, codes, strict=True) if code == -3]


def encode_genders(
    values: Any,
    *,
    gender_values: GenderValues | None = None,
    thing: str = "gender",
    rows: npt.NDArray[np.int64] | None = None,
) -> npt.NDArray[np.int8]:
    """Return 0 for male, 1 for female, -1 for a missing gender and -2 for one to leave out.

    Parameters
    ----------
    values : array-like of shape (n,)
        ``male``/``female``, ``M``/``F``, ``man``/``woman`` in any case, or the benchmark's 0/1.
    gender_values : mapping, optional
        What the values of the data mean, instead of these: ``"male"``, ``"female"``, or None for
        bios to leave out.
    thing : str
        What the values are, for messages.
    rows : ndarray of int64 of shape (n,), optional
        Position of each in the source, for messages.

    Returns
    -------
    ndarray of int8 of shape (n,)

    Raises
    ------
    MlflowException
        At a value that is none of these; the message lists all of them.

    Examples
    --------
    >>> encode_genders(["M", "female", None]).tolist()
    [0, 1, -1]
    >>> meaning = {"herr": "male", "frau": "female", "divers": None}
    >>> encode_genders(["herr", "frau", "divers"], gender_values=meaning).tolist()
    [0, 1, -2]
    """
    positions, distinct = _factorized(values)
    codes = _gender_codes(distinct, gender_values)
    unknown = [value for value, code in zip(distinct, codes, strict=True) if code == -3]
    if unknown:
        first = int(np.flatnonzero(np.isin(positions, np.flatnonzero(np.array(codes) == -3)))[0])
        row = first if rows is None else int(rows[first])
        raise unknown_gender_error(unknown, gender_values=gender_values, thing=thing, row=row)
    table = np.array(codes, dtype=np.int8)
    return table[positions] if len(table) else np.empty(0, dtype=np.int8)


_LISTED = 40
"""Most unknown values that a message lists: more are no genders."""


def unknown_gender_error(
    values: Sequence[Any],
    *,
    gender_values: GenderValues | None,
    thing: str,
    row: int | None = None,
) -> MlflowException:
    """Build the exception for values that mean neither gender (the caller raises it).

    Parameters
    ----------
    values : sequence
        The distinct values.
    gender_values, thing
        See `encode_genders`.
    row : int, optional
        Where the first of them is.
    """
    shown = [repr(label_name(value)) for value in sorted(values, key=label_order)]
    more = f" and {len(shown) - _LISTED} more" if len(shown) > _LISTED else ""
    where = "" if row is None else f", the first in row {row}"
    expected = "male/female, M/F, man/woman or 0/1"
    if gender_values is not None:
        expected = f"one of gender_values: {', '.join(repr(str(v)) for v in gender_values)}"
    return invalid(
        thing,
        found=f"the value(s) {', '.join(shown[:_LISTED])}{more}{where}",
        expected=expected,
        fix="leave other bios out or recode their gender"
        if thing == "genders"  # of arrays, which come without options
        else 'say what each value means, null for bios to leave out: gender_values={"…": '
        '"male", "…": "female", "…": null} (--gender-values "…=male,…=female,…=")',
    )
