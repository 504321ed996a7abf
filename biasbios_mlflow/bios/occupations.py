"""Occupations and genders: the benchmark's names, and how spellings of them are read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from biasbios_mlflow.errors import invalid

__all__ = [
    "GENDERS",
    "OCCUPATIONS",
    "Labels",
    "as_objects",
    "canonical",
    "encode_genders",
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

_SEPARATORS = re.compile(r"[\s\-_]+")
_LABEL_ID = re.compile(r"label_(\d+)")


def canonical(name: object) -> str:
    """Return the form under which spellings of one occupation are equal.

    Case, white space, hyphens and underscores do not tell occupations apart, and whole numbers are
    the same number in every type.

    Examples
    --------
    >>> canonical(" Yoga Teacher") == canonical("yoga-teacher") == "yoga_teacher"
    True
    >>> canonical(7.0) == canonical(np.int64(7)) == canonical("7")
    True
    """
    if isinstance(name, (float, np.floating)) and float(name).is_integer():
        name = int(name)
    return _SEPARATORS.sub("_", str(name).strip().lower())


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
            values themselves, sorted.

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
        for value in sorted(values, key=str):
            own.setdefault(canonical(value), str(value))
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
        positions, distinct = pd.factorize(as_objects(values), use_na_sentinel=False)
        table = np.array([self.code(value) for value in distinct], dtype=np.int64)
        return table[positions] if len(table) else np.empty(0, dtype=np.int64)

    def extended(self, names: Iterable[object]) -> Labels:
        """Return a label set with those of ``names`` at its end that it does not have yet."""
        more: dict[str, str] = {}
        for name in names:
            if self.code(name) == len(self):
                more.setdefault(canonical(name), str(name))
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


def _gender_spellings(gender_values: Mapping[Any, str] | None) -> dict[str, int]:
    own = {canonical(v): _GENDER_SPELLINGS[gender] for v, gender in (gender_values or {}).items()}
    return {**_GENDER_SPELLINGS, **own}


def unknown_genders(
    values: Iterable[Any], *, gender_values: Mapping[Any, str] | None = None
) -> list[Any]:
    """Return the values at which `encode_genders` fails.

    Examples
    --------
    >>> unknown_genders(["F", "frau", "male"])
    ['frau']
    """
    spellings = _gender_spellings(gender_values)
    return [v for v in values if not pd.isna(v) and canonical(v) not in spellings]


def encode_genders(
    values: Any, *, gender_values: Mapping[Any, str] | None = None
) -> npt.NDArray[np.int8]:
    """Return 0 for male, 1 for female and -1 for a missing gender.

    Parameters
    ----------
    values : array-like of shape (n,)
        ``male``/``female``, ``M``/``F``, ``man``/``woman`` in any case, or the benchmark's 0/1.
    gender_values : mapping, optional
        Further values of the data to ``"male"`` or ``"female"``.

    Returns
    -------
    ndarray of int8 of shape (n,)

    Raises
    ------
    MlflowException
        At a value that is none of these.

    Examples
    --------
    >>> encode_genders(["M", "female", None]).tolist()
    [0, 1, -1]
    >>> encode_genders(["herr", "frau"], gender_values={"herr": "male", "frau": "female"}).tolist()
    [0, 1]
    """
    positions, distinct = pd.factorize(as_objects(values), use_na_sentinel=True)
    spellings = _gender_spellings(gender_values)
    table = np.array([spellings.get(canonical(v), -2) for v in distinct], dtype=np.int8)
    unknown = [str(v) for v, code in zip(distinct, table, strict=True) if code == -2]
    if unknown:
        raise invalid(
            "gender",
            found=f"the value(s) {', '.join(map(repr, sorted(unknown)[:5]))}",
            expected="male/female, M/F or 0/1",
            fix='say what they mean: gender_values={"…": "male", "…": "female"}',
        )
    codes = np.full(len(positions), -1, dtype=np.int8)
    known = positions >= 0
    codes[known] = table[positions[known]]
    return codes
