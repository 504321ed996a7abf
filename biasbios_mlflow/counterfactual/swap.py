"""The gender swap: one pass over a text, every character outside a swapped word as it was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

import numpy as np
from numpy.typing import NDArray

from biasbios_mlflow.counterfactual.edits import Edit, apply
from biasbios_mlflow.counterfactual.pronouns import pronoun_edits
from biasbios_mlflow.errors import invalid, nearest

__all__ = ["DIRECTIONS", "SCOPES", "changed_words", "swap_gender", "swap_with_directions"]

SCOPES: tuple[str, ...] = ("pronouns", "titles", "words", "names")
DIRECTIONS: tuple[str, ...] = ("none", "male_to_female", "female_to_male", "mixed")


@overload
def swap_gender(text_or_texts: str, scope: str = "pronouns") -> str: ...


@overload
def swap_gender(text_or_texts: Sequence[str], scope: str = "pronouns") -> list[str]: ...


def swap_gender(text_or_texts: str | Sequence[str], scope: str = "pronouns") -> str | list[str]:
    """Exchange the gendered words of a text, or of many, for their counterparts."""
    if isinstance(text_or_texts, str):
        return apply(text_or_texts, _edits(text_or_texts, _check_scope(scope)))
    return swap_with_directions(text_or_texts, scope)[0]


def swap_with_directions(
    texts: Sequence[str], scope: str = "pronouns"
) -> tuple[list[str], NDArray[np.int8]]:
    """Swap many texts and tell which way each one went."""
    scope = _check_scope(scope)
    swapped = []
    directions = np.zeros(len(texts), dtype=np.int8)
    for index, text in enumerate(_check_texts(texts)):
        edits = _edits(text, scope)
        direction = 0
        for edit in edits:
            direction |= edit.direction
        directions[index] = direction
        swapped.append(apply(text, edits) if edits else text)
    return swapped, directions


def changed_words(text: str, scope: str = "pronouns") -> list[tuple[str, str]]:
    """List the words that the swap changes in ``text``, each with its counterpart, in order."""
    return [(text[e.start : e.end], e.new) for e in _edits(text, _check_scope(scope))]


def _edits(text: str, scope: str) -> list[Edit]:
    return pronoun_edits(text)


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
    if isinstance(texts, Sequence) and not isinstance(texts, (str, bytes)):
        items = list(texts)
    elif hasattr(texts, "to_list") and hasattr(texts, "index"):
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
                fix="drop or fill the missing texts first",
            )
    return items
