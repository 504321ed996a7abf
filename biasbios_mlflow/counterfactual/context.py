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
    "as_feminine",
    "features",
    "forget_contexts",
    "her_is_object",
    "his_is_independent",
    "neighbours",
]

# What is left of the text on either side is read up to this many characters.
BEFORE_WIDTH, AFTER_WIDTH = 40, 64
_ONE = r"[^\W\d_]+(?:[-'’][^\W\d_]+)*|\d+(?:[.,]\d+)*|[^\w\s]|_"
_TOKEN = re.compile(_ONE)
_NEXT = re.compile(rf"(?:[^\S\n]*\n?[^\S\n]*({_ONE}))?" * 3)  # none beyond an empty line
_SEPARATORS = frozenset(",/|")
_BREAKS = frozenset(",-–—")
_AS_FEMININE = {
    form(word): form(new)
    for word, new in {
        "he": "she", "him": "her", "his": "her", "himself": "herself",
        "she": "he", "her": "him", "hers": "his", "herself": "himself",
    }.items()
    for form in (str.lower, str.capitalize)
}  # fmt: skip
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
    """The learned tables: word classes, and for either question words that settle it and weights.

    A word right behind the pronoun settles the question when it did so in all but a few of a
    thousand contexts; the weight of the feature "" is the bias.
    """

    classes: dict[str, int]
    her_settled: dict[str, int]
    her: dict[str, int]
    his_settled: dict[str, int]
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
    following = _NEXT.match(after, 0, AFTER_WIDTH)
    words = before.rsplit(None, 2)[-2:]
    if len(words) < 2 or not (words[0].isalpha() and words[1].isalpha()) or "\n\n" in before:
        near = before[max(len(before) - BEFORE_WIDTH, before.rfind("\n\n"), 0) :]
        words = ["", "", *_TOKEN.findall(near)][-2:]
    first, second, third = following.groups("") if following else ("", "", "")
    return words[0], words[1], first, second, third


@lru_cache(1 << 16)
def _her_is_object(tokens: Neighbours) -> bool:
    earlier, previous, following, second, _ = map(str.lower, tokens)
    if not following or following in _STOPS:
        return True
    if previous in _SEPARATORS and earlier in ("she", "he", "they") and following in "/,|]":
        return True  # she, her, hers
    if previous == "or" and earlier in ("him", "his"):
        return earlier == "him"
    if following in ("or", "/") and second in ("him", "his", "them", "their"):
        return second in ("him", "them")
    model = _model()
    settled = model.her_settled.get(following)
    if settled is not None:
        return settled == 1
    return _score(model.her, tokens, model.classes) > 0


@lru_cache(1 << 16)
def _his_is_independent(tokens: Neighbours) -> bool:
    earlier, previous, following, second, _ = map(str.lower, tokens)
    if not following or following in _STOPS or following.replace("’", "'") in _AUXILIARIES:
        return True
    if previous in _SEPARATORS and earlier == "him":
        return True  # he, him, his
    if following in ("or", "and", "/") and second in ("her", "their", "hers", "theirs"):
        return second in ("hers", "theirs")
    if following in _BREAKS and second not in ("and", "or", "her", "their", "my"):
        return True
    model = _model()
    settled = model.his_settled.get(following)
    if settled is not None:
        return settled == 1
    return _score(model.his, as_feminine(tokens), model.classes) > 0


def forget_contexts() -> None:
    """Empty the memory of contexts that were decided before; results do not depend on it."""
    _her_is_object.cache_clear()
    _his_is_independent.cache_clear()


def as_feminine(tokens: Neighbours) -> Neighbours:
    """Exchange the genders of the pronouns around "his", so that all contexts are those of "her".

    Examples
    --------
    >>> as_feminine(("He", "knew", "where", "she", "was"))
    ('She', 'knew', 'where', 'he', 'was')
    """
    q, p, t, u, v = tokens
    get = _AS_FEMININE.get
    return get(q, q), get(p, p), get(t, t), get(u, u), get(v, v)


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
    word_p, word_1 = _normal(tokens[1]), _normal(tokens[2])
    q, p, t, u, v = [_kind(token, classes) for token in tokens]
    return [
        f"a{word_1}",
        f"b{u}|{v}",
        f"c{word_p}",
        f"d{q}",
        f"e{word_1}|{u}",
        f"f{t}",
        f"g{word_1[-3:]}",
        f"h{t}|{u}",
        f"i{word_p}|{word_1}",
        f"j{word_p}|{t}",
        f"k{word_p}|{u}",
        f"l{p}|{word_1}",
        f"m{p}|{t}|{u}",
        f"n{p}|{t}",
        f"o{word_p}|{t}|{u}",
        f"p{q}|{word_p}",
        f"q{t}|{u}|{v}",
    ]


def _normal(token: str) -> str:
    if token[:1].isdigit():
        return "####" if len(token) == 4 else "#"
    return token.lower().replace("’", "'")


def _kind(token: str, classes: dict[str, int]) -> str:
    if not token:
        return "$"
    word = _normal(token)
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
    return Model(**tables)
