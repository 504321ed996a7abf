"""One swapped word, and how a list of them is laid over a text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TypeAlias

__all__ = ["FEMALE_TO_MALE", "MALE_TO_FEMALE", "Edit", "apply", "in_case_of", "outside_addresses"]

# Bits, so that the direction of a text is the OR over its edits.
MALE_TO_FEMALE = 1
FEMALE_TO_MALE = 2

# Replace text[start:end] by a new text: start, end, new, direction. Millions are made: no class.
Edit: TypeAlias = tuple[int, int, str, int]

_ADDRESS = re.compile(r"(?:\b[a-zA-Z][a-zA-Z+.]{0,15}://|\bwww\.)\S+")


def apply(text: str, edits: Iterable[Edit]) -> str:
    """Return ``text`` with the edits made; they must be in order and must not overlap.

    Examples
    --------
    >>> apply("he sang", [(0, 2, "she", MALE_TO_FEMALE)])
    'she sang'
    """
    pieces = []
    at = 0
    for start, end, new, _ in edits:
        pieces.append(text[at:start])
        pieces.append(new)
        at = end
    pieces.append(text[at:])
    return "".join(pieces)


def in_case_of(word: str, new: str) -> str:
    """Return the lower-case word ``new`` in the case of ``word``: lower, Capitalised or UPPER.

    Examples
    --------
    >>> in_case_of("MOTHER", "father"), in_case_of("Mother", "father"), in_case_of("he", "she")
    ('FATHER', 'Father', 'she')
    """
    if word.islower():
        return new
    if len(word) > 1 and word.isupper():
        return new.upper()
    return new[0].upper() + new[1:]


def outside_addresses(text: str, edits: list[Edit]) -> list[Edit]:
    """Return the edits that lie in no web address.

    Examples
    --------
    >>> outside_addresses("https://host.example/+her+ page", [(22, 25, "him", FEMALE_TO_MALE)])
    []
    """
    if not edits or not ("://" in text or "www." in text):
        return edits
    kept = []
    addresses = (match.span() for match in _ADDRESS.finditer(text))
    low, high = next(addresses, (len(text), len(text)))
    for edit in edits:
        while high <= edit[0]:
            low, high = next(addresses, (len(text), len(text)))
        if edit[1] <= low:
            kept.append(edit)
    return kept
