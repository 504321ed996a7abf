"""What "her" and "his" are, by the words around them.

"her" stands for "him" (object) or "his" (possessive), "his" for "her" (before its noun) or "hers"
(alone). A few rules hold whatever the words mean; everything else is a linear model over the two
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
_SEPARATORS = frozenset(",/|")
_BREAKS = frozenset(",-–—")
_CURRENCIES = frozenset("$€£¥₹")
_AS_FEMININE = {
    form(word): form(new)
    for word, new in {
        "he": "she", "him": "her", "his": "her", "himself": "herself",
        "she": "he", "her": "him", "hers": "his", "herself": "himself",
    }.items()
    for form in (str.lower, str.capitalize)
}  # fmt: skip
_STOPS = frozenset(".!?;:)…")
_QUOTES = frozenset("'’\"”")
_ENDS = frozenset(["", *_STOPS, *_BREAKS, *_QUOTES])
_AUXILIARIES_TEXT = "is was are were has had does did would could should"
_AUXILIARIES = frozenset(
    verb + ending for verb in _AUXILIARIES_TEXT.split() for ending in ("", "n't")
)
_BRINGS_TEXT = """
accompanied accompany bring bringing brings brought carried carry drive drives driving drove escort
escorted invite invited send sending sent take taken takes taking took walked
"""
_BRINGS = frozenset(_BRINGS_TEXT.split())
# Finite verbs that are no nouns and nothing that stands between a possessive and its noun.
_FINITE_TEXT = """
allow allows appear appears arise arises arose arrive arrives ate became become becomes began begin
begins belong belongs bring brings broke came cannot chose come comes consist consists contain
contains continue continues depend depends deserve deserves differ differs disappear disappears
drove enable enables enjoy enjoys exist exists expire expires fell flew forgot gave get gets goes
got grew happen happens include includes involve involves knew know knows occur occurs prove proves
sang sat seem seemed seems sell sells shook speak speaks spoke stood suffice suffices tend tends
threw took vary varies went wore write writes wrote
"""
_FINITE = _AUXILIARIES | frozenset(_FINITE_TEXT.split())
_CLITICS = frozenset(("d", "ll", "ve"))  # "his'll do"
_PRONOUN_VERB = re.compile("(?:he|i|it|she|that|there|they|we|what|who|you)['’][a-z]+")
# Like words in -ed, verbs at the beginning: "His sold quickly."
_PASTS = frozenset(("cost", "held", "hit", "made", "paid", "ran", "rose", "sold", "won"))
_OPENINGS = frozenset(["", "that", *".!?"])
_NO_ADVERBS_TEXT = """
ally anomaly assembly belly brolly bully butterfly costly cowardly curly daily deadly doily dolly
early elderly family filly folly friendly gully heavenly hillbilly homily hourly jelly jolly lily
lively lolly lonely lovely manly monopoly monthly motherly orderly panoply potbelly quarterly rally
reply scholarly silly supply tally ugly underbelly weekly worldly yearly
"""
_NO_ADVERBS = frozenset(_NO_ADVERBS_TEXT.split())
# Never between a possessive and its noun.
_NO_ATTRIBUTES_TEXT = """
afraid alive alone anymore anywhere ashamed asleep awake aware elsewhere everywhere forever instead
nowhere sometimes somewhere today together tomorrow tonight yesterday
"""
_NO_ATTRIBUTES = frozenset(_NO_ATTRIBUTES_TEXT.split())
# Prepositions of two words.
_PREPOSITIONS = {
    "according": "to", "ahead": "of", "along": "with", "because": "of", "due": "to",
    "out": "of", "prior": "to", "rather": "than", "regardless": "of", "such": "as", "thanks": "to",
}  # fmt: skip
# Between them or behind an object, by what comes next.
_ADVERBS = frozenset(("anytime", "daily", "directly", "often", "online", "personally", "weekly"))
_AFTER_ADVERBS_TEXT = "and as at by for from here in on or through to via with"
_AFTER_ADVERBS = frozenset(["", ",", *_STOPS, *_AFTER_ADVERBS_TEXT.split()])
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

Neighbours = tuple[str, str, str, str]


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


def her_is_object(before: str, after: str) -> bool:
    """Tell whether the "her" between two pieces of text is an object ("him", not "his").

    Examples
    --------
    >>> her_is_object("They let ", " know."), her_is_object("They let ", " sister know.")
    (True, False)
    """
    word = _PLAIN.match(after)
    settled = _model().her_settled.get(word.group(1)) if word else None
    if settled is not None:
        return settled == 1
    return _her_is_object(neighbours(before, after))


def his_is_independent(before: str, after: str) -> bool:
    """Tell whether the "his" between two pieces of text stands alone ("hers", not "her").

    Examples
    --------
    >>> his_is_independent("A friend of ", " called."), his_is_independent("Of ", " wife, a poet.")
    (True, False)
    """
    word = _PLAIN.match(after)
    settled = _model().his_settled.get(word.group(1)) if word else None
    if settled is not None:
        return settled == 1
    return _his_is_independent(neighbours(before, after))


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
def _her_is_object(tokens: Neighbours) -> bool:
    earlier, previous, following, second = map(str.lower, tokens)
    if not following or following in _STOPS or (following in _QUOTES and second in _ENDS):
        return True
    if previous in _SEPARATORS and earlier in ("she", "he", "they") and following in "/,|]":
        return True  # she, her, hers
    if following in _BREAKS and previous != "or":
        return True
    if previous == "or" and earlier in ("him", "his"):
        return earlier == "him"
    if following in _NO_ATTRIBUTES or (following in _ADVERBS and second in _AFTER_ADVERBS):
        return True
    if following == "@" or _PREPOSITIONS.get(following) == second:
        return True
    if following in _FINITE or _PRONOUN_VERB.fullmatch(following):
        return True
    if following == "home" and previous in _BRINGS:
        return True
    if following in ("and", "&", "or", "/") and second in ("him", "them"):
        return True
    if following in ("or", "/") and second in ("his", "their"):
        return False
    model = _model()
    return _score(model.her, tokens, model.classes) > 0


@lru_cache(1 << 16)
def _his_is_independent(tokens: Neighbours) -> bool:
    earlier, previous, following, second = map(str.lower, tokens)
    if not following or following in _STOPS or (following in _QUOTES and second in _ENDS):
        return True
    if following.replace("’", "'") in _FINITE or _PRONOUN_VERB.fullmatch(following):
        return True
    if following in _QUOTES and second in _CLITICS:
        return True
    ends = not second or second in _STOPS
    if previous in _OPENINGS and (ends or _is_adverb(second)) and _is_past(following):
        return True  # His cleaned easily.
    if ends and tokens[2].islower() and _is_adverb(following):
        return True
    if earlier == "him" and (previous in ("/", "|") or (previous == following == ",")):
        return True  # he, him, his
    if following in ("or", "and", "/") and second in ("her", "their", "hers", "theirs"):
        return second in ("hers", "theirs")
    if following in _BREAKS and second not in ("and", "or", "her", "their", "my"):
        return True
    if tokens[2][0].isupper():
        return False  # his Emily
    model = _model()
    return _score(model.his, as_feminine(tokens), model.classes) > 0


def _is_adverb(word: str) -> bool:
    return word.endswith("ly") and len(word) > 4 and word not in _NO_ADVERBS


def _is_past(word: str) -> bool:
    return word in _PASTS or (word.endswith("ed") and len(word) > 4 and not word.endswith("eed"))


def forget_contexts() -> None:
    """Empty the memory of contexts that were decided before; results do not depend on it."""
    _her_is_object.cache_clear()
    _his_is_independent.cache_clear()


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
    if word in _FUNCTION_WORDS:
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
