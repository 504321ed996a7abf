"""What "her" and "his" are, by the words around them."""

from __future__ import annotations

import re

__all__ = ["her_is_object", "his_is_independent"]

_TOKEN = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?|\d+|[^\w\s]")
_FUNCTION = frozenset(
    "a an the this that these those and or but nor because if when while where who whom which whose"
    " as at about after against among around before behind below beneath beside between beyond by"
    " down during for from in inside into like near of off on onto out outside over past since so"
    " through to toward towards under until unless up upon via with within without than then there"
    " here how what why whether is was are were be been has had have did do does will would can"
    " could should may might must shall not no never always again also too even just only once"
    " today yesterday tomorrow tonight now soon i you he she it we they me him us them my your its"
    " our their know feel go come see get become take make give tell think understand find learn"
    " one two three four five six seven eight nine ten".split()
)


def her_is_object(before: str, after: str) -> bool:
    """Tell whether the "her" between two pieces of text is an object ("him", not "his")."""
    tokens = _TOKEN.findall(after)
    if not tokens:
        return True
    first = tokens[0].lower()
    if first in _FUNCTION or not (first[0].isalnum() or first in "\"“'‘("):
        return bool(before.strip()) or first in ","
    return False


def his_is_independent(before: str, after: str) -> bool:
    """Tell whether the "his" between two pieces of text stands alone ("hers", not "her")."""
    tokens = _TOKEN.findall(after)
    if not tokens:
        return True
    first = tokens[0].lower()
    return (not first[0].isalnum() and first not in "\"“'‘($") or first in _FUNCTION - {
        "one",
        "two",
        "three",
        "four",
        "five",
        "six",
        "seven",
        "eight",
        "nine",
        "ten",
        "then",
        "like",
        "know",
        "past",
        "inside",
        "outside",
    }
