"""The gender swap: one pass over a text, every character outside a swapped word as it was."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, overload

import numpy as np
from numpy.typing import NDArray

from biasbios_mlflow.counterfactual.edits import (
    FEMALE_TO_MALE,
    MALE_TO_FEMALE,
    Edit,
    apply,
    outside_addresses,
)
from biasbios_mlflow.counterfactual.lexicon import (
    Forms,
    gendered_titles,
    gendered_words,
    title_edits,
    word_edits,
)
from biasbios_mlflow.counterfactual.names import gendered_names, name_edits
from biasbios_mlflow.counterfactual.pronouns import pronoun_edits
from biasbios_mlflow.counterfactual.surface import surface_of
from biasbios_mlflow.errors import invalid, nearest

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["DIRECTIONS", "SCOPES", "changed_words", "swap_gender", "swap_with_directions"]

SCOPES: tuple[str, ...] = ("pronouns", "titles", "words", "names")
DIRECTIONS: tuple[str, ...] = ("none", "male_to_female", "female_to_male", "mixed")


@overload
def swap_gender(text_or_texts: str, scope: str = "pronouns") -> str: ...  # type: ignore[overload-overlap]


@overload
def swap_gender(
    text_or_texts: Sequence[str] | pd.Series[str], scope: str = "pronouns"
) -> list[str]: ...


def swap_gender(
    text_or_texts: str | Sequence[str] | pd.Series[str], scope: str = "pronouns"
) -> str | list[str]:
    """Exchange the gendered words of a text, or of many, for their counterparts.

    Parameters
    ----------
    text_or_texts : str, sequence of str or pandas Series of str
        The text or the texts.
    scope : {"pronouns", "titles", "words", "names"}, default="pronouns"
        What is swapped; each scope adds to the one before it. ``"pronouns"`` is the benchmark's.

    Returns
    -------
    str or list of str
        A str for a str, a list for anything else. Every character outside the swapped words is
        kept; a text without gendered words comes back as it is.

    Raises
    ------
    mlflow.exceptions.MlflowException
        For an unknown scope, for something that is no text, and for the scope ``"names"`` without
        the extra of that name.

    Examples
    --------
    >>> swap_gender("She said her work made him proud.")
    'He said his work made her proud.'
    >>> swap_gender(["His wife teaches.", "Mr. Abara paints."], scope="words")
    ['Her husband teaches.', 'Ms. Abara paints.']
    """
    if isinstance(text_or_texts, str):
        return apply(text_or_texts, _edits(text_or_texts, _check_scope(scope)))
    return swap_with_directions(text_or_texts, scope)[0]


def swap_with_directions(
    texts: Sequence[str] | pd.Series[str], scope: str = "pronouns"
) -> tuple[list[str], NDArray[np.int8]]:
    """Swap many texts and tell which way each one went.

    Parameters
    ----------
    texts : sequence of str or pandas Series of str, n of them
        The texts.
    scope : {"pronouns", "titles", "words", "names"}, default="pronouns"
        What is swapped, as in :func:`swap_gender`.

    Returns
    -------
    swapped : list of str, length n
        As :func:`swap_gender` returns them.
    directions : numpy.ndarray of int8, shape (n,)
        Places in ``DIRECTIONS``: 0 unchanged, 1 male words became female, 2 female words became
        male, 3 both.

    Raises
    ------
    mlflow.exceptions.MlflowException
        As :func:`swap_gender`.

    Examples
    --------
    >>> swapped, directions = swap_with_directions(["He paints.", "Paints.", "Her cat and his."])
    >>> [DIRECTIONS[code] for code in directions]
    ['male_to_female', 'none', 'mixed']
    """
    scope = _check_scope(scope)
    checked = _check_texts(texts)
    swapped = []
    directions = np.zeros(len(checked), dtype=np.int8)
    for row, text in enumerate(checked):
        edits = _edits(text, scope)
        direction = 0
        for edit in edits:
            direction |= edit[3]
        directions[row] = direction
        swapped.append(apply(text, edits) if edits else text)
    return swapped, directions


def changed_words(text: str, scope: str = "pronouns") -> list[tuple[str, str]]:
    """List the words that the swap changes in a text, each with its counterpart, in order.

    Raises
    ------
    mlflow.exceptions.MlflowException
        As :func:`swap_gender`.

    Examples
    --------
    >>> changed_words("She said her work made him proud.")
    [('She', 'He'), ('her', 'his'), ('him', 'her')]
    """
    edits = _edits(_check_texts([text])[0], _check_scope(scope))
    return [(text[start:end], new) for start, end, new, _ in edits]


def _edits(text: str, scope: str) -> list[Edit]:
    surface = surface_of(text)
    if surface is None:
        return _surface_edits(text, scope)
    return [surface.written(edit) for edit in _surface_edits(surface.text, scope)]


def _surface_edits(text: str, scope: str) -> list[Edit]:
    edits = pronoun_edits(text)
    if scope != "pronouns" and (found := _gendered(scope).among(text)):
        further = title_edits(text, found)
        if scope != "titles":
            further += word_edits(text, found, _own_gender(edits))
        if scope == "names":
            further += name_edits(text, found, edits)
        if further:
            edits = _in_order(edits + further)
    return outside_addresses(text, edits)


def _own_gender(edits: list[Edit]) -> int:
    """Return the way that most of a bio's pronouns go, 0 where both ways are common or none is."""
    male = sum(edit[3] == MALE_TO_FEMALE for edit in edits)
    female = len(edits) - male
    if female > 2 * male:
        return FEMALE_TO_MALE
    return MALE_TO_FEMALE if male > 2 * female else 0


@cache
def _gendered(scope: str) -> Forms:
    """Return every word at which a scope beyond the pronouns looks more closely."""
    if scope == "titles":
        return gendered_titles()
    if scope == "words":
        return gendered_titles() | gendered_words()
    return _gendered("words") | gendered_names()


def _in_order(edits: list[Edit]) -> list[Edit]:
    """Sort the edits; of two that meet, the one that begins first stays."""
    kept = []
    last_end = 0
    for edit in sorted(edits):
        if edit[0] >= last_end:
            kept.append(edit)
            last_end = edit[1]
    return kept


def _check_scope(scope: str) -> str:
    if scope in SCOPES:
        return scope
    guess = nearest(str(scope), SCOPES)
    raise invalid(
        "scope",
        found=repr(scope),
        expected="one of " + ", ".join(SCOPES),
        fix=f"use {guess!r}" if guess else "use 'pronouns', the benchmark's own",
    )


def _check_texts(texts: object) -> list[str]:
    if isinstance(texts, Sequence) and not isinstance(texts, (str, bytes, bytearray)):
        items = list(texts)
    elif hasattr(texts, "to_list") and hasattr(texts, "iloc"):
        items = texts.to_list()
    else:
        raise invalid(
            "texts",
            found=type(texts).__name__,
            expected="a str, a sequence of str or a pandas Series of them",
            fix="pass the column of texts, for example df['hard_text']",
        )
    for row, item in enumerate(items):
        if not isinstance(item, str):
            raise invalid(
                f"text {row}",
                found=f"{item!r:.60} ({type(item).__name__})",
                expected="a str",
                fix="leave missing texts out, and make texts of everything else, first",
            )
    return items
