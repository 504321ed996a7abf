"""What "her" and "his" are, by the words around them.

"her" stands for "him" (object) or "his" (possessive), "his" for "her" (before its noun) or "hers"
(alone). Rules of grammar decide what they can (`grammar`); the rest is a linear model over the two
words before and the two after. Its weights were learned offline by ``benchmarks/train_swap.py``
and are whole numbers, so a decision is the same on every machine.
"""

from __future__ import annotations

import json
import lzma
import re
from functools import cache, lru_cache
from importlib import resources
from itertools import repeat
from typing import NamedTuple

from biasbios_mlflow.counterfactual.grammar import (
    FUNCTION_WORDS,
    Neighbours,
    her_by_rule,
    his_by_rule,
)
from biasbios_mlflow.counterfactual.phrases import (
    BEFORE_PERSONS,
    DOUBTFUL,
    is_person,
    owns,
    phrase_behind,
)

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
_NEXT = re.compile(rf"(?:[^\S\n]*\n?[^\S\n]*({_ONE}))?" * 2)  # none beyond an empty line
_PLAIN = re.compile(r" ([a-z]+)(?![\w'’-])")
_UPPER_WORD = re.compile(r"\W*[^\W\d_a-z]{2}")
_SURE = 50  # score that a "his" before what may be its noun needs, to stand alone
_CURRENCIES = frozenset("$€£¥₹")
_AS_FEMININE = {
    form(word): form(new)
    for word, new in {
        "he": "she", "him": "her", "his": "her", "himself": "herself",
        "she": "he", "her": "him", "hers": "his", "herself": "himself",
    }.items()
    for form in (str.lower, str.capitalize)
}  # fmt: skip


class Model(NamedTuple):
    """The learned tables: word classes, and for either question words that settle it and weights.

    A plain word right behind the pronoun settles the question when it did so in all but a few of
    a thousand contexts, whatever else there was; the weight of the feature "" is the bias.
    """

    classes: dict[str, int]
    her_settled: dict[str, int]
    her: dict[str, int]
    his_settled: dict[str, int]
    his: dict[str, int]


def her_is_object(text: str, start: int, end: int) -> bool:
    """Tell whether the "her" at ``text[start:end]`` is an object ("him", not "his").

    Examples
    --------
    >>> her_is_object("They let her know.", 9, 12), her_is_object("They let her sister in.", 9, 12)
    (True, False)
    """
    word = _PLAIN.match(text, end)
    settled = None
    if word is not None:
        settled = _model().her_settled.get(word[1])
        if settled is not None and not (
            settled and (word[1] in DOUBTFUL or word[1].endswith("ly"))
        ):
            return settled == 1
    return _her_between(*_around(text, start, end), bool(settled))


@lru_cache(1 << 12)
def _her_between(before: str, after: str, settled: bool) -> bool:
    """Decide where the word behind does not; ``settled`` if it speaks for an object."""
    tokens = neighbours(before, after)
    # Where a rule does not know, more words may correct the model.
    ruled, answer = (False, True) if settled else _her_is_object(tokens)
    if ruled:
        return answer
    previous = tokens[1].lower()
    if answer:
        return not owns(previous, phrase_behind(after))
    return previous in BEFORE_PERSONS and is_person(previous, phrase_behind(after))


def his_is_independent(text: str, start: int, end: int) -> bool:
    """Tell whether the "his" at ``text[start:end]`` stands alone ("hers", not "her").

    Examples
    --------
    >>> his_is_independent("A friend of his called.", 12, 15)
    True
    >>> his_is_independent("Of his wife, a poet.", 3, 6)
    False
    """
    word = _PLAIN.match(text, end)
    settled = None if word is None else _model().his_settled.get(word[1])
    if settled is not None:
        return settled == 1
    return _his_between(*_around(text, start, end))


@lru_cache(1 << 12)
def _his_between(before: str, after: str) -> bool:
    return _his_is_independent(neighbours(before, after))


def _around(text: str, start: int, end: int) -> tuple[str, str]:
    """Return what stands before and after a pronoun, as far as it is read."""
    before = text[max(0, start - BEFORE_WIDTH) : start]
    after = text[end : end + AFTER_WIDTH]
    if text[start:end].isupper() and _UPPER_WORD.match(after):
        return before.lower(), after.lower()  # all in capitals: they tell nothing
    return before, after


def neighbours(before: str, after: str) -> Neighbours:
    """Return the two tokens before and the two after; "" where the paragraph ends.

    Examples
    --------
    >>> neighbours("Students call ", ' "the general".')
    ('Students', 'call', '"', 'the')
    """
    following = _NEXT.match(after, 0, AFTER_WIDTH)
    words = before.rsplit(None, 2)[-2:]
    if len(words) < 2 or not (words[0].isalpha() and words[1].isalpha()) or "\n\n" in before:
        near = before[max(len(before) - BEFORE_WIDTH, before.rfind("\n\n"), 0) :]
        words = ["", "", *_TOKEN.findall(near)][-2:]
    first, second = following.groups("") if following else ("", "")
    return words[0], words[1], first, second


@lru_cache(1 << 16)
def _her_is_object(tokens: Neighbours) -> tuple[bool, bool]:
    """Return whether a rule decided, and what."""
    ruled = her_by_rule(tokens)
    if ruled is not None:
        return True, ruled
    model = _model()
    return False, _score(model.her, tokens, model.classes) > 0


@lru_cache(1 << 16)
def _his_is_independent(tokens: Neighbours) -> bool:
    ruled = his_by_rule(tokens)
    if ruled is not None:
        return ruled
    model = _model()
    score = _score(model.his, as_feminine(tokens), model.classes)
    noun = tokens[2].isalpha() and tokens[2].lower() not in FUNCTION_WORDS
    # But for "a friend of his", a word that may be its noun is most likely that.
    return score > (_SURE if noun and tokens[1].lower() != "of" else 0)


def forget_contexts() -> None:
    """Empty the memory of contexts that were decided before; results do not depend on it."""
    for decided in (_her_between, _his_between, _her_is_object, _his_is_independent):
        decided.cache_clear()


def as_feminine(tokens: Neighbours) -> Neighbours:
    """Exchange the genders of the pronouns around "his", so that all contexts are those of "her".

    Examples
    --------
    >>> as_feminine(("He", "knew", "where", "she"))
    ('She', 'knew', 'where', 'he')
    """
    q, p, t, u = tokens
    get = _AS_FEMININE.get
    return get(q, q), get(p, p), get(t, t), get(u, u)


def _score(weights: dict[str, int], tokens: Neighbours, classes: dict[str, int]) -> int:
    get = weights.get
    return get("", 0) + sum([get(feature, 0) for feature in features(tokens, classes)])


def features(tokens: Neighbours, classes: dict[str, int]) -> list[str]:
    """Name what a linear model may look at: words, endings, word classes and pairs of them.

    Parameters
    ----------
    tokens : tuple of four str
        From :func:`neighbours`.
    classes : dict of str to int
        Word to word class; other words go by their ending.

    Returns
    -------
    list of str
        Always of the same length, one name for each template.
    """
    words = [_normal(token) for token in tokens]
    _, word_p, word_1, _ = words
    q, p, t, u = map(_kind, tokens, words, repeat(classes))
    ending = word_1[-3:]
    return [
        f"a{word_1}",
        f"b{word_p}",
        f"c{word_1}|{u}",
        f"d{t}",
        f"e{t}|{u}",
        f"f{word_p}|{word_1}",
        f"g{word_p}|{t}",
        f"h{word_p}|{u}",
        f"i{p}|{word_1}",
        f"j{p}|{t}|{u}",
        f"k{word_p}|{t}|{u}",
        f"l{q}|{word_p}",
        f"m{ending}",
        f"n{ending}|{u}",
    ]


def _normal(token: str) -> str:
    if token.isalpha():
        return token.lower()
    if token[:1].isdigit():
        return "####" if len(token) == 4 else "#"
    if token in _CURRENCIES:
        return "$"
    return token.lower().replace("’", "'")


def _kind(token: str, word: str, classes: dict[str, int]) -> str:
    if not token:
        return "$"
    if word in FUNCTION_WORDS:
        return word
    first = token[0]
    if first.isdigit():
        return "#"
    if not first.isalpha():
        return word
    known = classes.get(word)
    ending = f"~{word[-2:]}" if known is None else str(known)
    return "C" + ending if first.isupper() else ending


@cache
def _model() -> Model:
    packed = resources.files(__package__).joinpath("context.json.xz").read_bytes()
    tables = json.loads(lzma.decompress(packed))
    return Model(**tables)
