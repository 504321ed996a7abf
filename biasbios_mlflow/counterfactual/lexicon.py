"""Titles and gendered nouns: what each becomes, and where it is no gendered word at all."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from importlib import resources
from typing import NamedTuple

from biasbios_mlflow.counterfactual.edits import FEMALE_TO_MALE, MALE_TO_FEMALE, Edit, in_case_of

__all__ = [
    "Forms",
    "gendered_titles",
    "gendered_words",
    "split_words",
    "title_edits",
    "word_edits",
]

_LETTERS = re.compile(r"[^\W\d_]+")
_BEHIND = re.compile(rf"([\W\d_]*)({_LETTERS.pattern})?")
_LETTERS_ONLY = bytes(
    code if chr(code).isalpha() and code < 128 else ord(" ") for code in range(256)
)
_NEAR = 40
_WORD = re.compile(rf"({_LETTERS.pattern})")
_PREFIXES = frozenset(["co", "ex", "foster", "great", "half", "step", "vice"])
_SENTENCE_END = re.compile(r"[.!?:;\n•\"“]")


class Entry(NamedTuple):
    """One form of a gendered noun."""

    new: str
    direction: int
    capitals: str
    not_before: frozenset[str]
    not_after: frozenset[str]


@cache
def _words() -> dict[str, Entry]:
    """Read the lexicon, one entry for each form in lower, Capitalised and UPPER case."""
    table: dict[str, Entry] = {}
    rows = resources.files(__package__).joinpath("words.tsv").read_text(encoding="utf-8")
    for row in rows.splitlines()[1:]:
        male, female, males, females, capitals, way, not_before, not_after = row.split("\t")
        for one, other in ((male, female), (males, females)):
            for word, new, direction, skipped in (
                (one, other, MALE_TO_FEMALE, "female"),
                (other, one, FEMALE_TO_MALE, "male"),
            ):
                if not word or way == skipped:
                    continue
                entry = Entry(
                    new,
                    direction,
                    capitals,
                    frozenset(not_before.split()),
                    frozenset(not_after.split()),
                )
                table[word] = table[word.capitalize()] = table[word.upper()] = entry
    return table


class Forms:
    """A set of words, and a quick look at which of them a text may hold.

    Examples
    --------
    >>> sorted(Forms(["mother", "Mr", "née"]).among("Mr. Lee-Mr and a mother’s words"))
    ['Mr', 'mother']
    """

    def __init__(self, words: Iterable[str]) -> None:
        self._words = frozenset(words)
        self._plain = frozenset(word.encode() for word in self._words if word.isascii())
        self._accented = [word for word in self._words if not word.isascii()]

    def __or__(self, other: Forms) -> Forms:
        """Return the forms of both."""
        return Forms(self._words | other._words)

    def among(self, text: str) -> set[str]:
        """Return every form that is a word of ``text``, and at times one that is part of a word.

        Bytes are used because they are split three times as fast as text.
        """
        words = text.encode("ascii", "replace").translate(_LETTERS_ONLY).split()
        found = {word.decode() for word in self._plain.intersection(words)}
        if not text.isascii():
            found.update(word for word in self._accented if word in text)
        return found


@cache
def gendered_words() -> Forms:
    """Return every form that the lexicon holds."""
    return Forms(_words())


@cache
def gendered_titles() -> Forms:
    """Return every word that may be a gendered title."""
    return Forms(_TITLE_WORDS)


def split_words(text: str) -> list[str]:
    """Split a text into what lies between its words (even places) and the words (odd places).

    Examples
    --------
    >>> split_words("Mr. Lee")
    ['', 'Mr', '. ', 'Lee', '']
    """
    return _WORD.split(text)


def word_edits(text: str, found: Iterable[str]) -> list[Edit]:
    """Find the gendered nouns and adjectives of a text and their counterparts.

    Parameters
    ----------
    text : str
        The text.
    found : iterable of str
        What to look for; words that are not in the lexicon are passed over.

    Examples
    --------
    >>> text = "The actress met two women; Mother Jones met a lady bug."
    >>> [new for _, _, new, _ in word_edits(text, ["actress", "Mother", "lady", "women"])]
    ['actor', 'men']
    """
    table = _words()
    edits = []
    for word in found:
        entry = table.get(word)
        if entry is None:
            continue
        start = text.find(word)
        while start >= 0:
            end = start + len(word)
            if not (text[start - 1 : start].isalpha() or text[end : end + 1].isalpha()) and (
                _is_meant(word, *_surroundings(text, start, end), entry)
            ):
                edits.append((start, end, in_case_of(word, entry.new), entry.direction))
            start = text.find(word, end)
    return sorted(edits)


def _surroundings(text: str, start: int, end: int) -> tuple[str, str, str, str]:
    """Return the word before, the gap to it, the gap to the word behind, and that word."""
    low = max(0, start - _NEAR)
    gap_start = start
    while gap_start > low and not text[gap_start - 1].isalpha():
        gap_start -= 1
    word_start = gap_start
    while word_start > low and text[word_start - 1].isalpha():
        word_start -= 1
    behind = _BEHIND.match(text, end, end + _NEAR)
    gap_after, following = behind.groups("") if behind else ("", "")
    return text[word_start:gap_start], text[gap_start:start], gap_after, following


def _is_meant(
    word: str, previous: str, gap_before: str, gap_after: str, following: str, entry: Entry
) -> bool:
    """Tell whether the word is the noun of the lexicon, and not part of a name or an address."""
    if gap_before and (gap_before[-1] in "@#$_=\\" or gap_before[-1].isdigit()):
        return False
    if gap_after and (gap_after[0] in "@_=\\" or gap_after[0].isdigit()):
        return False
    if following and gap_after == "." and following.islower():  # a host or file name
        return False
    if previous and gap_before == "." and word.islower():
        return False
    if previous and gap_before == "-" and previous.lower() not in _PREFIXES:
        return False
    if following and gap_after == "-" and following != "in":  # mother-in-law
        return False
    if gap_after == " " and following.lower() in entry.not_before:
        return False
    if gap_before == " " and previous.lower() in entry.not_after:
        return False
    if word.islower() or entry.capitals == "any":
        return True
    if entry.capitals == "lower":
        return False
    if word.isupper():
        return any(len(near) > 1 and near.isupper() for near in (previous, following))
    starts = not previous or _SENTENCE_END.search(gap_before) is not None
    named = gap_after == " " and following[:1].isupper() and following != "I"
    return starts and not named


_OFFICES = "(?:President|Speaker|Secretary|Chair|Justice|Ambassador|Mayor|Vice|Prime|Chancellor)"
_PAGEANTS = (
    "(?:America|American|Universe|World|USA|Teen|Earth|International|Congeniality|Saigon|India"
    "|France|England|Canada|Venezuela|Philippines|Brazil|Mexico|Texas|California|Puerto|Great)"
)
_TITLE = re.compile(
    r"(?<![\w@#$=\\/.\-])(?:"
    r"(?P<pair>Mr(?=\.? (?:and|&|or) Mrs\b))"
    rf"|(?P<office>Mr\.?(?= {_OFFICES}\b))"
    r"|(?P<mr>Mr(?=\.|\s+[A-Z])|MR(?=\.))"
    r"|(?P<mrs>Mrs(?=\.|\s+[A-Z])|MRS(?=\.)|Ms(?=\.|\s+[A-Z])|MS(?=\. [A-Z]{2}))"
    rf"|(?P<madam_office>Madam(?= {_OFFICES}\b))"
    rf"|(?P<miss>(?:Miss|MISS)(?=\s+(?!{_PAGEANTS}\b)[A-Z]))"
    r"|(?P<mister>(?:Mister|MISTER)(?=\s+[A-Z]))"
    r"|(?P<knight>Sir(?=\s+[A-Z][a-z]))"
    r"|(?P<dame>(?<!Notre )(?<!Notre-)Dame(?=\s+[A-Z][a-z]))"
    r"|(?P<lord>(?<![Tt]he )(?<![Oo]ur )(?<![Oo]f )(?<![Gg]ood )"
    r"Lord(?=\s+(?!God\b|Jesus\b|Christ\b|Almighty\b|Krishna\b|Shiva\b|Ganesha?\b)[A-Z][a-z]))"
    r"|(?P<lady>(?<!First )(?<!Our )(?<!Old )(?<!Young )(?<!Pink )"
    r"Lady(?=\s+(?!Gaga\b|Bird\b|Bug\b|Luck\b|Justice\b|Liberty\b|Vols\b|A\b)[A-Z][a-z]))"
    r"|(?P<sir>Sir|SIR|sir)|(?P<madam>Madam|MADAM|madam|[Mm]a['’]am)"
    r"|(?P<abroad>Monsieur|Madame|Señora?|Senora?|Signora?|Herr|Frau)(?=\s+[A-Z])"
    r")(?![\w@=\\-]|\.[a-z])"
)
_TITLES = {
    "pair": ("mrs", MALE_TO_FEMALE),
    "office": ("madam", MALE_TO_FEMALE),
    "mr": ("ms", MALE_TO_FEMALE),
    "mrs": ("mr", FEMALE_TO_MALE),
    "madam_office": ("mr.", FEMALE_TO_MALE),
    "miss": ("mr.", FEMALE_TO_MALE),
    "mister": ("miss", MALE_TO_FEMALE),
    "knight": ("dame", MALE_TO_FEMALE),
    "dame": ("sir", FEMALE_TO_MALE),
    "lord": ("lady", MALE_TO_FEMALE),
    "lady": ("lord", FEMALE_TO_MALE),
    "sir": ("madam", MALE_TO_FEMALE),
    "madam": ("sir", FEMALE_TO_MALE),
}
_ABROAD = {
    "monsieur": ("madame", MALE_TO_FEMALE),
    "madame": ("monsieur", FEMALE_TO_MALE),
    "señor": ("señora", MALE_TO_FEMALE),
    "señora": ("señor", FEMALE_TO_MALE),
    "senor": ("senora", MALE_TO_FEMALE),
    "senora": ("senor", FEMALE_TO_MALE),
    "signor": ("signora", MALE_TO_FEMALE),
    "signora": ("signor", FEMALE_TO_MALE),
    "herr": ("frau", MALE_TO_FEMALE),
    "frau": ("herr", FEMALE_TO_MALE),
}

_TITLE_WORDS = frozenset(
    form
    for word in ("mr", "mrs", "ms", "miss", "mister", "dame", "lord", "lady", "sir", "madam", "ma")
    for form in (word, word.capitalize(), word.upper())
) | {word.capitalize() for word in _ABROAD}


def title_edits(text: str, found: Iterable[str]) -> list[Edit]:
    """Find the gendered titles of ``text`` and their counterparts; "Dr." and "Mx." have none.

    Parameters
    ----------
    text : str
        The text.
    found : iterable of str
        Words of the text, as for :func:`word_edits`; without a title among them there is no look.

    Examples
    --------
    >>> text = "Mr. and Mrs. Oyelaran thanked Dr. Lind and Miss Aro."
    >>> [new for _, _, new, _ in title_edits(text, ["Mr", "Mrs", "Miss"])]
    ['Mrs', 'Mr', 'Mr.']
    """
    edits: list[Edit] = []
    for title in _TITLE_WORDS.intersection(found):
        start = text.find(title)
        while start >= 0:
            end = start + len(title)
            match = None if text[end : end + 1].isalpha() else _TITLE.match(text, start)
            if match:
                kind = match.lastgroup or ""
                word = match.group()
                new, direction = _ABROAD[word.lower()] if kind == "abroad" else _TITLES[kind]
                edits.append((start, match.end(), in_case_of(word, new), direction))
            start = text.find(title, end)
    return sorted(edits)
