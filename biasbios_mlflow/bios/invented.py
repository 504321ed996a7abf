"""Invented bios: a seeded generator with the benchmark's proportions.

Nobody in these texts exists. Every bio is put together from the phrases of ``phrases.tsv``, a
tab-separated table of kind, occupations that use the phrase (``*`` for all, ``not`` for all but
those named, ``physician.heart`` for one field of an occupation), the gender that uses it more
often (``only`` if the other never does) and the text. In a text, ``{kind}`` stands for a phrase of
that kind, ``[a|b]`` for one of the alternatives, ``{he}``, ``{him}``, ``{his}``, ``{hisn}`` (his
or hers) and ``{himself}`` for the pronouns, the other names in braces for facts that stay the same
within a bio, and ``a~`` for the right one of a and an.

``python -m biasbios_mlflow.bios.invented`` writes the embedded sample anew.
"""

from __future__ import annotations

import csv
import functools
import importlib.resources
import lzma
import math
import operator
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import pandas as pd

from biasbios_mlflow.bios.occupations import GENDERS, OCCUPATIONS
from biasbios_mlflow.errors import invalid

__all__ = ["BENCHMARK_BIOS", "SPLITS", "Split", "invent_bios", "sample_bytes"]

Split: TypeAlias = Literal["train", "test"]

BENCHMARK_BIOS: dict[str, tuple[int, int]] = {
    "accountant": (5652, 2081),
    "architect": (10113, 2398),
    "attorney": (32607, 12494),
    "chiropractor": (2598, 690),
    "comedian": (2799, 592),
    "composer": (5600, 918),
    "dentist": (14479, 5153),
    "dietitian": (3978, 3689),
    "dj": (1485, 211),
    "filmmaker": (7009, 2310),
    "interior_designer": (1463, 1183),
    "journalist": (19950, 9873),
    "model": (7502, 6214),
    "nurse": (18971, 17236),
    "painter": (7736, 3543),
    "paralegal": (1767, 1499),
    "pastor": (2532, 609),
    "personal_trainer": (1432, 654),
    "photographer": (24324, 8689),
    "physician": (38565, 19579),
    "poet": (7011, 3441),
    "professor": (118110, 53290),
    "psychologist": (18295, 11385),
    "rapper": (1407, 136),
    "software_engineer": (6906, 1089),
    "surgeon": (13273, 1972),
    "teacher": (16196, 9768),
    "yoga_teacher": (1663, 1406),
}
"""Bios, and women among them, of each occupation in the benchmark.

The 393,423 bios that Ravfogel et al. (2020, "Null It Out", ACL) released.
"""

SPLITS: dict[Split, tuple[int, int]] = {"train": (12000, 60), "test": (5000, 24)}
"""The sample's splits: bios before rounding up, and the least bios of an occupation and gender."""

# How often a phrase is chosen by the gender it leans to, by both if it leans to none, by the other.
_LEANING, _NEUTRAL, _OTHER = 5, 3, 2

_PRONOUNS = {
    "male": {"he": "he", "him": "him", "his": "his", "hisn": "his", "himself": "himself"},
    "female": {"he": "she", "him": "her", "his": "her", "hisn": "hers", "himself": "herself"},
    "first": {"he": "I", "him": "me", "his": "my", "hisn": "mine", "himself": "myself"},
}
_DOCTORS = {"chiropractor", "dentist", "physician", "professor", "psychologist", "surgeon"}
_YOUNG = {"comedian", "dj", "model", "personal_trainer", "rapper", "software_engineer"}
_FACTS = {"He", "His", "grad", "home", "later", "mail", "spouse", "web", "years"}

_GENDERED = re.compile(
    r"\{(?:he|him|his|hisn|himself|His|spouse|first|mail|web)\}"
    r"|\b(?:s?he|him|hers?|his|(?:grand)?(?:mother|father)s?|wife|mom|alumna|chair(?:wo)?man"
    r"|sons?|daughters?|sisters?|brothers?|uncle|aunt|nieces)\b"
)
# What the first person cannot say as it stands: a verb in the third person singular.
_THIRD_PERSON = re.compile(
    r"\{[hH]e\} (?:also |recently |once )?(?!(?:\w+ed|am|began|built|came|did|fell|felt|found|got"
    r"|grew|had|have|led|ran|set|spent|taught|took|was|went|won|wrote)\b)"
    r"| (?:and|but|who|now|which) (?:\w+ )?\w+s\b|^(?:holds|is)\b"
)
_NAME = re.compile(r"\{(\w+)\}")
_ARTICLE = re.compile(r"\b([Aa])~ (\W?)(\w+)")

_SUBJECT = {"male": ("He", "His"), "female": ("She", "Her")}

# Shares of bios: without any gendered word, up to there or in the first person, with the name in
# place of most pronouns, about nothing in particular, about another occupation's matters, up to
# there or with one sentence about them, with typographic quotes.
_NO_GENDER, _FIRST_PERSON, _BY_NAME = 0.015, 0.03, 0.03
_VAGUE, _ELSEWHERE, _TWO_TOPICS, _TYPOGRAPHIC = 0.01, 0.1, 0.175, 0.35
# Shares of sentences about the work, in any bio and in a vague one, and of those that only this
# occupation would say; bounds that share out most of the other sentences.
_WORK, _VAGUE_WORK, _OWN = 0.66, 0.1, 0.24
_ASIDES = (("hobby", 0.1), ("career", 0.3), ("personal", 0.5), ("contact", 0.6))
# The order in a bio, beneath the first sentence; all else comes before.
_ORDER = {"career": 2, "hobby": 3, "personal": 3, "contact": 4}


class _Fact(str):
    """The name of a fact of the bio's subject, to be filled in when the bio is written."""


_Phrase: TypeAlias = "tuple[str | _Fact | list[_Phrase], ...]"


class _Entry(NamedTuple):
    """One line of ``phrases.tsv``."""

    occupations: frozenset[str]
    lean: str
    text: str


@functools.cache
def _table() -> dict[str, list[_Entry]]:
    """Read ``phrases.tsv``: the entries of each kind."""
    source = importlib.resources.files("biasbios_mlflow.bios") / "phrases.tsv"
    table: dict[str, list[_Entry]] = {}
    with source.open(encoding="utf-8") as file:
        for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
            names = row["occupations"].split()
            if names[0] in ("*", "not"):
                names = [name for name in OCCUPATIONS if name not in names]
            entry = _Entry(frozenset(names), row["lean"], row["text"])
            table.setdefault(row["kind"], []).append(entry)
    return table


def _in_voice(text: str, voice: str) -> str | None:
    """Return the text as that voice would have it, or None if the voice cannot say it."""
    if voice == "none":
        return None if _GENDERED.search(text) else text
    if voice == "first":
        text = re.sub(r"(\{[hH]e\}) has\b", r"\1 have", text)
        text = re.sub(r"(\{[hH]e\})(?: is\b|'s\b)", r"\1 am", text)
        if _THIRD_PERSON.search(text):
            return None
    return text


def _weight(lean: str, gender: str) -> int:
    """Return how often a phrase is there for a gender to choose."""
    leaning, _, only = lean.partition(" ")
    if not leaning:
        return _NEUTRAL
    return _LEANING if leaning == gender else 0 if only else _OTHER


@functools.cache
def _is_plain(kind: str) -> bool:
    """Tell whether the phrases of a kind are the same for every occupation, gender and voice."""
    return all(
        not entry.lean
        and len(entry.occupations) == len(OCCUPATIONS)
        and all(name in _table() and _is_plain(name) for name in _NAME.findall(entry.text))
        for entry in _table()[kind]
    )


@functools.cache
def _phrases(kind: str, about: str, gender: str, voice: str) -> list[_Phrase]:
    """Return the phrases of a kind, each as often as its lean to the gender says."""
    plain = (kind, OCCUPATIONS[0], GENDERS[0], "third")
    if _is_plain(kind) and (kind, about, gender, voice) != plain:
        return _phrases(*plain)
    weights: dict[str, int] = {}
    for entry in _table()[kind]:
        known = about in entry.occupations or about.partition(".")[0] in entry.occupations
        text = _in_voice(entry.text, voice) if known else None
        if text is not None:
            weights[text] = max(_weight(entry.lean, gender), weights.get(text, 0))
    options: list[_Phrase] = []
    for text, weight in weights.items():
        phrase = _parse(text, about, gender, voice)
        if [] not in phrase:
            options += [phrase] * weight
    return options


def _parse(text: str, about: str, gender: str, voice: str) -> _Phrase:
    """Turn a phrase's text into literals, facts and lists of alternatives."""
    pronouns = _PRONOUNS["first" if voice == "first" else gender]
    # The alternatives being read, the innermost last; the outermost has only one.
    levels: list[list[list[str | _Fact | list[_Phrase]]]] = [[[]]]
    for token in re.split(r"(\{\w+\}|[\[|\]])", text):
        name = token[1:-1]
        if token == "[":
            levels.append([[]])
        elif token == "|":
            levels[-1].append([])
        elif token == "]":
            alternatives = [tuple(nodes) for nodes in levels.pop()]
            levels[-1][-1].append(alternatives)
        elif not token.startswith("{"):
            levels[-1][-1].append(token)
        elif name in pronouns:
            levels[-1][-1].append(pronouns[name])
        elif name in _FACTS:
            levels[-1][-1].append(_Fact(name))
        else:
            levels[-1][-1].append(_phrases(name, about, gender, voice))
    return tuple(levels[0][0])


class _Writer:
    """Writes one bio: knows its subject's facts and what was said already."""

    def __init__(self, draw: Callable[[], float], occupation: str, gender: str) -> None:
        self.draw, self.occupation, self.gender = draw, occupation, gender
        self.said: set[int] = set()
        self.facts: dict[str, str] = {}
        self.about = occupation
        self.about = self._with_field(occupation)
        first, last = self.phrase(f"{gender}_first"), self.phrase("surname")
        spouse = "wife" if gender == "male" else "husband"
        partner = self.phrase("female_first" if gender == "male" else "male_first")
        self.surname = last
        self.graduated = (1998 if occupation in _YOUNG else 1984) + int(draw() * 16)
        self.facts = {
            "home": self.phrase("town"),
            "spouse": f"{spouse} {partner}",
            "grad": str(self.graduated),
            "years": str(max(5, 2019 - self.graduated - int(draw() * 6))),
            "web": (first + last).lower(),
            "mail": f"{first}.{last}@{last}.example".lower(),
        }
        if draw() < 0.4:
            self.name = first
        elif occupation in _DOCTORS:
            self.name = f"Dr. {last}"
        else:
            self.name = f"Mr. {last}" if gender == "male" else f"Ms. {last}"

    def _with_field(self, occupation: str) -> str:
        """Choose a field of the occupation, if it has any: its phrases join the occupation's."""
        fields = _phrases("field", occupation, self.gender, "third")
        return f"{occupation}.{self._choose(fields)[0]}" if fields else occupation

    def phrase(self, kind: str, voice: str = "third", about: str | None = None) -> str:
        """Write a phrase of a kind."""
        about = about or self.about
        options = _phrases(kind, about, self.gender, voice)
        # Some kinds have nothing to say without a gender; the work always has.
        options = options or _phrases("work", about, self.gender, voice)
        words: list[str] = []
        self._write(self._choose(options), words)
        return "".join(words)

    def _choose(self, options: list[_Phrase]) -> _Phrase:
        """Choose an option, one that this bio has not had if there is one."""
        start = int(self.draw() * len(options))
        option = options[start]
        if id(option) in self.said:
            for option in options[start + 1 :] + options[:start]:
                if id(option) not in self.said:
                    break
        self.said.add(id(option))
        return option

    def _write(self, phrase: _Phrase, words: list[str]) -> None:
        for node in phrase:
            if type(node) is str:
                words.append(node)
            elif isinstance(node, list):
                self._write(self._choose(node), words)
            else:
                words.append(self.facts[node])

    def bio(self) -> str:
        """Write the bio."""
        draw = self.draw
        # "third" is the third person with pronouns, "none" with no word that tells the gender.
        style = draw()
        voice = "none" if style < _NO_GENDER else "first" if style < _FIRST_PERSON else "third"
        name_rate = 0.8 if style > 1 - _BY_NAME else 0.2
        work = _VAGUE_WORK if draw() < _VAGUE else _WORK
        # A few bios tell of another occupation altogether, and some more in one sentence.
        second = occupation = self.occupation
        while second == occupation:
            second = self.phrase("second")
        another = self._with_field(second)
        aside = draw()
        if aside < _ELSEWHERE:
            self.about = another
        length = 42 + 34 * draw()

        kinds: list[str] = []
        sentences: list[tuple[int, str]] = []
        count = 0
        while count < length:
            if not kinds:
                kind = "work" if draw() < work else "education"
            elif aside < _TWO_TOPICS and "switch" not in kinds:
                kind = "switch"
            else:
                kind = self._next_kind(work, kinds)
            off_topic = kind == "work" and kinds[-1:] == ["switch"]
            introduced = voice == "first" and not kinds and draw() < 0.5
            speaker = "third" if introduced else voice
            self._new_sentence(speaker, named=bool(kinds) and draw() < name_rate)
            sentence = self.phrase(kind, speaker, another if off_topic else self.about)
            count += sentence.count(" ") + 1
            sentences.append((_ORDER.get(kind, 1) if kinds else 0, sentence))
            kinds.append(kind)
        sentences.sort(key=operator.itemgetter(0))
        text = " ".join(sentence for _, sentence in sentences)
        if "~" in text:
            text = _ARTICLE.sub(_article, text)
        if draw() < _TYPOGRAPHIC:
            return text.replace("'", "’")
        return text.replace("“", '"').replace("”", '"')

    def _new_sentence(self, voice: str, *, named: bool) -> None:
        """Decide what the sentence calls its subject if it begins with it, and its year."""
        if voice == "first":
            subject = ("I", "My")
        elif voice == "none":
            subject = (self.surname, f"{self.surname}'s")
        elif named:
            subject = (self.name, f"{self.name}'s")
        else:
            subject = _SUBJECT[self.gender]
        self.facts["He"], self.facts["His"] = subject
        self.facts["later"] = str(min(2018, self.graduated + 2 + int(self.draw() * 20)))

    def _next_kind(self, work: float, before: list[str]) -> str:
        share = self.draw()
        if share < work:
            return "own" if share < work * _OWN else "work"
        share = self.draw()
        for kind, bound in _ASIDES:
            if share < bound and kind not in before:
                return kind
        return "filler"


def _article(match: re.Match[str]) -> str:
    """Write "a~" before a word as "a" or "an", by the sound the word begins with."""
    article, quote, word = match.groups()
    vowel = (
        word[0] in "AEFHILMNORSX"
        if word.isupper() or len(word) == 1
        else word[0].lower() in "aeiou" and not word.lower().startswith(("uni", "one", "eu", "use"))
    )
    return f"{article}{'n' if vowel else ''} {quote}{word}"


def _cells(n: int | None, split: Split) -> list[tuple[str, str, int]]:
    """Return how many bios each occupation and gender gets."""
    total = sum(bios for bios, _ in BENCHMARK_BIOS.values())
    if n is None:
        size, least = SPLITS[split]
        cells = []
        for occupation, (bios, women) in BENCHMARK_BIOS.items():
            share = women / bios
            count = max(round(size * bios / total), math.ceil(least / min(share, 1 - share)))
            female = round(count * share)
            cells += [(occupation, "male", count - female), (occupation, "female", female)]
        return cells
    # Largest remainders: the counts sum to n and are each within one of the exact share.
    exact = [
        (occupation, gender, n * (bios - women if gender == "male" else women))
        for occupation, (bios, women) in BENCHMARK_BIOS.items()
        for gender in GENDERS
    ]
    missing = n - sum(count // total for _, _, count in exact)
    by_remainder = sorted(range(len(exact)), key=lambda i: (-(exact[i][2] % total), i))
    rounded_up = set(by_remainder[:missing])
    return [
        (occupation, gender, count // total + (i in rounded_up))
        for i, (occupation, gender, count) in enumerate(exact)
    ]


def invent_bios(n: int | None = None, *, seed: int = 0, split: Split = "train") -> pd.DataFrame:
    """Invent bios with the benchmark's occupations and shares of women.

    Parameters
    ----------
    n : int, optional
        Number of bios, shared out in the benchmark's proportions. By default as many as the
        embedded sample has in that split: the benchmark's proportions, but in every occupation
        as many bios as it takes for at least 60 (train) or 24 (test) of each gender.
    seed : int, default 0
        The same seed gives the same bios on every platform and Python version.
    split : {"train", "test"}, default "train"
        Different splits are different bios.

    Returns
    -------
    pandas.DataFrame
        Columns ``hard_text`` (str, 40 to 90 words), ``profession`` (a name of ``OCCUPATIONS``)
        and ``gender`` ("male" or "female"), in random order, without duplicates.

    Raises
    ------
    mlflow.exceptions.MlflowException
        If ``n`` is negative or ``split`` unknown.

    Examples
    --------
    >>> bios = invent_bios(1000)
    >>> bios["profession"].value_counts().idxmax()
    'professor'
    """
    if split not in SPLITS:
        raise invalid("split", found=repr(split), expected="'train' or 'test'", fix="use one")
    if n is not None and n < 0:
        raise invalid("n", found=n, expected="a number of bios, 0 or more", fix="ask for more")
    # Only random() gives the same numbers in every Python version.
    draw = random.Random(f"{seed}/{split}").random
    cells = [cell for *cell, count in _cells(n, split) for _ in range(count)]
    order = [draw() for _ in cells]
    rows = []
    texts: set[str] = set()
    for _, (occupation, gender) in sorted(zip(order, cells, strict=True), key=lambda row: row[0]):
        title = occupation.replace("_", " ")
        while True:
            text = _Writer(draw, occupation, gender).bio()
            if (
                text not in texts
                and text.count(" ") < 90
                and title not in text[: text.index(". ")].lower()
            ):
                break
        texts.add(text)
        rows.append((text, occupation, gender))
    return pd.DataFrame(rows, columns=["hard_text", "profession", "gender"])


def sample_bytes() -> bytes:
    """Return the sample's two splits as tab-separated lines: split, occupation, gender, text."""
    lines = [
        f"{split}\t{occupation}\t{gender}\t{text}"
        for split in SPLITS
        for text, occupation, gender in invent_bios(split=split).to_numpy()
    ]
    return ("\n".join(lines) + "\n").encode()


def main() -> None:
    """Write the embedded sample anew."""
    path = Path(__file__).with_name("sample.tsv.xz")
    path.write_bytes(lzma.compress(sample_bytes(), preset=9 | lzma.PRESET_EXTREME))
    print(f"{path.name}: {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
