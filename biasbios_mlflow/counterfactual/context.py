"""What "her" and "his" are, by the words around them.

"her" stands for "him" (object) or "his" (possessive), "his" for "her" (before its noun) or "hers"
(alone). A few rules hold whatever the words mean; everything else is a linear model over the two
words before and the three after. Its weights were learned offline by ``benchmarks/train_swap.py``
and are whole numbers, so a decision is the same on every machine.
"""

from __future__ import annotations

import json
import lzma
import re
from functools import cache, lru_cache
from importlib import resources
from typing import NamedTuple

__all__ = [
    "AFTER_WIDTH",
    "BEFORE_WIDTH",
    "Model",
    "features",
    "her_is_object",
    "his_is_independent",
    "neighbours",
]

# What is left of the text on either side is read up to this many characters.
BEFORE_WIDTH, AFTER_WIDTH = 40, 64
_TOKEN = re.compile(r"[^\W\d_]+(?:[-'’][^\W\d_]+)*|\d+(?:[.,]\d+)*|[^\w\s]|_")
_STOPS = frozenset(".!?;:)…")
_AUXILIARIES = frozenset(
    f"{verb}{no}"
    for verb in (
        "is",
        "was",
        "are",
        "were",
        "has",
        "had",
        "does",
        "did",
        "would",
        "could",
        "should",
    )
    for no in ("", "n't")
)
_FUNCTION_WORDS_TEXT = """
a an the this that these those and or but nor because if when while where who whom which whose
as at about after against among around before behind below beneath beside besides between beyond
by down during for from in inside into like near of off on onto out outside over past since so
through throughout to toward towards under until unless up upon via with within without than
then there here how what why whether is was are were be been being am has had have having did do
does will would can could should may might must shall not no never always again also too even
just only once i you he she it we they me him us them my your its our their his her mine hers
ours theirs yours own all both each any some every either first last next other another more
most very much many few several same such one two three four five six seven eight nine ten
"""
_FUNCTION_WORDS = frozenset(_FUNCTION_WORDS_TEXT.split())

Neighbours = tuple[str, str, str, str, str]


class Model(NamedTuple):
    """The learned tables: word classes, and for either question a bias and feature weights."""

    classes: dict[str, int]
    her: dict[str, int]
    his: dict[str, int]


def her_is_object(before: str, after: str) -> bool:
    """Tell whether the "her" between two pieces of text is an object ("him", not "his").

    Examples
    --------
    >>> her_is_object("They let ", " know."), her_is_object("They let ", " sister know.")
    (True, False)
    """
    return _her_is_object(neighbours(before, after))


def his_is_independent(before: str, after: str) -> bool:
    """Tell whether the "his" between two pieces of text stands alone ("hers", not "her").

    Examples
    --------
    >>> his_is_independent("A friend of ", " called."), his_is_independent("Of ", " wife, a poet.")
    (True, False)
    """
    return _his_is_independent(neighbours(before, after))


def neighbours(before: str, after: str) -> Neighbours:
    """Return the two tokens before and the three after; "" where the paragraph ends.

    Examples
    --------
    >>> neighbours("Students call ", ' "the general".')
    ('Students', 'call', '"', 'the', 'general')
    """
    if "\n\n" in before:
        before = before[before.rindex("\n\n") :]
    if "\n\n" in after:
        after = after[: after.index("\n\n")]
    left = ["", "", *_TOKEN.findall(before[-BEFORE_WIDTH:])]
    right = [*_TOKEN.findall(after[:AFTER_WIDTH])[:3], "", "", ""]
    return left[-2], left[-1], right[0], right[1], right[2]


@lru_cache(1 << 16)
def _her_is_object(tokens: Neighbours) -> bool:
    _, previous, following, second, _ = (token.lower() for token in tokens)
    if not following or (following in _STOPS and following != ")"):
        return True
    if previous in ("or", "/", "and") and (other := tokens[0].lower()) in ("him", "his"):
        if previous != "and":
            return other == "him"
        if other == "his":
            return False
    if following in ("or", "/") and second in ("him", "his", "their", "them"):
        return second in ("him", "them")
    model = _model()
    return _score(model.her, tokens, model.classes) > 0


@lru_cache(1 << 16)
def _his_is_independent(tokens: Neighbours) -> bool:
    _, _, following, second, _ = (token.lower().replace("’", "'") for token in tokens)
    if not following or following in _STOPS or following in _AUXILIARIES:
        return True
    if following in ("or", "and", "/") and second in ("her", "their", "hers", "theirs"):
        return second in ("hers", "theirs")
    model = _model()
    return _score(model.his, tokens, model.classes) > 0


def _score(weights: dict[str, int], tokens: Neighbours, classes: dict[str, int]) -> int:
    get = weights.get
    return get("", 0) + sum([get(feature, 0) for feature in features(tokens, classes)])


def features(tokens: Neighbours, classes: dict[str, int]) -> list[str]:
    """Name what a linear model may look at: words, endings, word classes and pairs of them.

    Parameters
    ----------
    tokens : tuple of five str
        From :func:`neighbours`.
    classes : dict of str to int
        Word to word class; other words go by their ending.

    Returns
    -------
    list of str
        Always of the same length, one name for each template.
    """
    word_q, word_p, word_1, word_2, word_3 = map(_normal, tokens)
    q, p, t, u, v = (
        _kind(token, word, classes)
        for token, word in zip(tokens, (word_q, word_p, word_1, word_2, word_3), strict=True)
    )
    ending = word_1[-3:]
    return [
        f"a{word_1}",
        f"b{u}|{v}",
        f"c{u}",
        f"d{word_p}",
        f"e{q}",
        f"f{word_q}",
        f"g{word_1}|{u}",
        f"h{t}",
        f"i{ending}",
        f"j{word_1[-4:]}",
        f"k{t}|{u}",
        f"l{ending}|{u}",
        f"m{word_p}|{word_1}",
        f"n{word_p}|{t}",
        f"o{word_p}|{u}",
        f"p{p}|{word_1}",
        f"q{p}|{t}|{u}",
        f"r{p}|{t}",
        f"s{word_p}|{t}|{u}",
        f"t{q}|{word_p}",
        f"u{q}|{p}|{t}",
        f"v{word_2}",
        f"w{t}|{u}|{v}",
        f"x{p}",
    ]


def _normal(token: str) -> str:
    if token[:1].isdigit():
        return "####" if len(token) == 4 else "#"
    return token.lower().replace("’", "'")


def _kind(token: str, word: str, classes: dict[str, int]) -> str:
    if not token:
        return "$"
    if word in _FUNCTION_WORDS:
        return word
    first = token[0]
    if first.isdigit():
        return "#"
    if not first.isalpha():
        return first
    known = classes.get(word)
    ending = f"~{word[-2:]}" if known is None else str(known)
    return "C" + ending if first.isupper() else ending


@cache
def _model() -> Model:
    packed = resources.files(__package__).joinpath("context.json.xz").read_bytes()
    tables = json.loads(lzma.decompress(packed))
    return Model(tables["classes"], tables["her"], tables["his"])
