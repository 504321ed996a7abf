"""First names: a pairing by frequency, and where a name is a first name at all.

The names and their frequencies are those of the United States in Faker's ``en_US`` provider. The
most frequent male name is paired with the most frequent female one, and so on; names that both
genders bear are neutral and stay.
"""

from __future__ import annotations

import importlib
import re
from bisect import bisect_right
from collections.abc import Iterable
from functools import cache, lru_cache
from importlib import resources

from biasbios_mlflow.counterfactual.edits import FEMALE_TO_MALE, MALE_TO_FEMALE, Edit, in_case_of
from biasbios_mlflow.counterfactual.grammar import words_of
from biasbios_mlflow.counterfactual.lexicon import Forms
from biasbios_mlflow.counterfactual.proper import HONOURS, INSTITUTIONS, OPENERS, STATES, TITLES
from biasbios_mlflow.errors import missing_extra

__all__ = ["gendered_names", "name_edits"]

_PROVIDER = "faker.providers.person.en_US"
# Listed, but never told from what else they are: of religion, of language.
_NO_NAMES = words_of("An Christian Jesus Royal Son")
# First names that are as often a place or a plain word: a surname must follow.
_AMBIGUOUS = words_of("""
Amber Angel April Art August Austin Autumn Bill Bob Brandy Brook Brooke Buck Candy Carol Carolina
Chad Chance Charity Charlotte Chase Chelsea Cherry Christian Clay Cliff Crystal Daisy Dakota Dale
Dallas Dawn Dean Destiny Devon Diamond Dolly Drew Duke Earl Eve Faith Florence Frank Gay Gene
Georgia Ginger Glen Grace Grant Guy Harmony Hazel Heath Heather Holly Hope Hunter Iris Israel Ivory
Ivy Jack Jackson Jade Jasmine Jean Jewel Jose Joy June Justice Kay Lance Lane Lily Madison Major
Mark Marshall Mason Max May Melody Mercedes Mercy Miles Misty Norma Olive Opal Oscar Paris Pat
Pearl Penny Prince Ray Reed Rex Rich Rob Robin Rocky Rod Rose Royce Ruby Rusty Sandy Savannah
Serenity Sherry Sierra Sky Stacy Star Sterling Stone Storm Sue Summer Sunny Sydney Tony Trinity
Tiffany Victoria Violet Virginia Wade Ward Wesley Will Willow Wood Zion
""")
_IN_PLACES = words_of("at in near across around outside throughout")
_PLACE_BEFORE = _IN_PLACES | words_of("from of to North South East West New San Port")
# Directly before a name these make it that of a place, a saint or a sovereign.
_OF_PLACES = words_of("""
Camp Cape Ciudad Colonia Duke El Emperor Empress Fort Ft King La Lake Las Los Mount Mt O Our Point
Pope Port Prince Princess Puerto Queen Saint Sainte Saints San Santa Santo Sao St Ste Villa
""")
_BEHIND_PLACES = words_of("""
Arbor Arms Bluffs Canyon Coast Corner Crossing Ferry Forest Gap Green Grove Junction Lake Leone
Mountain Mountains Obispo Peninsula Shore Shores Vista
""")
_FUNCTION = words_of("at in on and where as with for before after he she")
_SAINTS = words_of("""
Agnes Andrew Anne Ann Anthony Bernard Catherine Charles Clare Elizabeth Francis George James
Jerome John Joseph Jude Lawrence Louis Luke Margaret Mark Martin Mary Matthew Michael Monica
Nicholas Patrick Paul Peter Rita Stephen Teresa Thomas Vincent
""")
_ROMAN = re.compile(r"[IVX]{2,6}|[VX]")
_PRIZE = re.compile(
    r"\s(?:[a-z]+\s){0,3}(?:awards?|prizes?|scholarships?|fellowships?|medals?|grants?|chair|lectures?"
    r"|professorship|foundation|hospital|college|school|bursary|residency|trophy|method|technique"
    r"|syndrome|disease|test|show|center|centre|building|library|fund|collection|estate|papers)\b"
)
_STATE = re.compile(r",\s([A-Z][A-Za-z]+)\b")
_ARTICLE = re.compile(
    r"\b(?:[Tt]he|[Aa]n?)\s(?:(?:\d{4}|\d{1,2}(?:st|nd|rd|th)|annual|first)\s)*\Z"
)
_OF_INSTITUTION = re.compile(r"\b([A-Z][a-z]+)\s(?:of|for)\s(?:the\s)?(?:[A-Z][a-z]+\sand\s)?\Z")
_WITH_ANOTHER = re.compile(r"\s(?:and|&)\s(?=[A-Z])")
_ADVERB = re.compile(r"[A-Z][a-z]{2,}ly")
_NEAR = 64
_MOST_NAMES = 6  # that a person bears


@cache
def _pairs() -> dict[str, tuple[str, int]]:
    try:
        provider = importlib.import_module(_PROVIDER).Provider
    except ImportError:
        raise missing_extra("faker", "names", needed_for="scope 'names'") from None
    male: dict[str, float] = provider.first_names_male
    female: dict[str, float] = provider.first_names_female
    males = sorted(male.keys() - female.keys(), key=lambda name: (-male[name], name))
    females = sorted(female.keys() - male.keys(), key=lambda name: (-female[name], name))
    pairs = {}
    males = [name for name in males if name not in _NO_NAMES]
    females = [name for name in females if name not in _NO_NAMES]
    for names, others, direction in (
        (males, females, MALE_TO_FEMALE),
        (females, males, FEMALE_TO_MALE),
    ):
        for rank, name in enumerate(names):
            # The longer list's rarest names share the rarest names of the other.
            pairs[name] = (others[min(rank, 2 * len(others) - 1 - rank)], direction)
    return pairs | {name.upper(): pair for name, pair in pairs.items()}


def gendered_names() -> Forms:
    """Return the first names that have a counterpart."""
    return Forms(_pairs())


@cache
def _brands() -> dict[str, list[list[str]]]:
    """Read the brands, companies and works that begin with a first name."""
    table: dict[str, list[list[str]]] = {}
    rows = resources.files(__package__).joinpath("brands.tsv").read_text(encoding="utf-8")
    for row in rows.splitlines()[1:]:
        words = row.split()
        table.setdefault(words[0], []).append(words[1:])
    return table


def name_edits(text: str, found: Iterable[str], pronouns: list[Edit] | None = None) -> list[Edit]:
    """Find the gendered first names of a text and their counterparts.

    Parameters
    ----------
    text : str
        The text.
    found : iterable of str
        What to look for; words that are no first names are passed over.
    pronouns : list of edits, optional
        Those of the text's pronouns, all one way where they tell the bio's gender: the first names
        of the bio's own person that contradict them stay.

    Raises
    ------
    mlflow.exceptions.MlflowException
        When the extra ``names`` is not installed.

    Examples
    --------
    >>> text = "Michael James met Dr. James in Boston."
    >>> [new for _, _, new, _ in name_edits(text, ["Michael", "James"])]
    ['Jennifer']
    """
    pairs = _pairs()
    present = [name for name in found if name in pairs]
    if not present:
        return []
    runs = _capitalised_runs(text)
    surnames = {run[-1][2] for run in runs if len(run) > 1 and run[0][2] not in TITLES} | {
        run[1][2] for run in runs if len(run) == 2 and run[0][2] in TITLES
    }
    edits = []
    for run in runs:
        if len(run) == 1 and (run[0][2] not in pairs or run[0][2] in surnames):
            continue
        if not any(word in pairs for _, _, word in run) or _stands_for_more(text, run):
            continue
        for place, (start, end, word) in enumerate(run):
            if place == len(run) - 1 and place:
                break  # the surname
            if word in pairs and _is_first_name(text, run, place):
                new, direction = pairs[word]
                edits.append((start, end, in_case_of(word, new.lower()), direction))
            elif place and word not in pairs and len(word) > 1 and word not in TITLES:
                break  # what follows are middle and last names
    return _in_agreement(text, edits, pronouns or [])


_Word = tuple[int, int, str]
_CAPITALISED = re.compile(r"[^\W\d_a-z][^\W\d_]*")


def _capitalised_runs(text: str) -> list[list[_Word]]:
    """List the runs of capitalised words of a text; words that open a sentence are left out."""
    runs: list[list[_Word]] = []
    current: list[_Word] = []
    for match in _CAPITALISED.finditer(text):
        start, end = match.span()
        word = match.group()
        if not word[0].isupper() or text[start - 1 : start].isalpha():
            continue
        if current:
            _, last_end, last = current[-1]
            gap = text[last_end:start]
            joined = gap in (" ", "-", "\n") or (
                gap in (". ", ".") and (len(last) == 1 or last in TITLES or last in _OF_PLACES)
            )
            if not (joined or (gap in ("'s ", "’s ") and len(current) == 1)):
                runs.append(current)
                current = []
        if not current and (word.capitalize() in OPENERS or _is_opening_adverb(word)):
            continue
        current.append((start, end, word))
    if current:
        runs.append(current)
    return runs


def _is_opening_adverb(word: str) -> bool:
    return _ADVERB.fullmatch(word) is not None and word not in _pairs()


def _stands_for_more(text: str, run: list[_Word]) -> bool:
    start, end = run[0][0], run[-1][1]
    words = tuple(word for _, _, word in run)
    return _is_no_person(text[max(0, start - _NEAR) : start], words, text[end : end + _NEAR])


@lru_cache(1 << 12)
def _is_no_person(before: str, words: tuple[str, ...], behind: str) -> bool:
    """Tell whether a run of capitalised words is an institution, a place, a prize or a work."""
    if not INSTITUTIONS.isdisjoint(words) or not HONOURS.isdisjoint(words[1:]):
        return True
    if _ARTICLE.search(before) or any(_ROMAN.fullmatch(word) for word in words[1:]):
        return True
    previous = before.split()[-1] if before.split() else ""
    if len(words) > 1 and (not _BEHIND_PLACES.isdisjoint(words[1:]) and previous in _PLACE_BEFORE):
        return True
    state = _STATE.match(behind)
    if state and state[1] in STATES and (previous in _PLACE_BEFORE or not previous):
        return True
    if len(words) == 1 and state and state[1] in STATES and len(state[1]) > 2:
        return True
    if len(words) > 1 and _PRIZE.match(behind):
        return True
    institution = _OF_INSTITUTION.search(before)
    if institution and institution[1] in INSTITUTIONS:
        return True
    if not before.strip() and behind[:2] in ("'s", "’s") and words[0] in _SAINTS:
        return behind[2:].split()[:1] == [] or behind[2:].split()[0] in _FUNCTION
    if len(words) == 1 and previous in _IN_PLACES:
        return True
    if len(words) > 1 and before[-1:] in ('"', "“") and behind[:1] in ('"', "”"):
        return True  # a work
    joint = _WITH_ANOTHER.match(behind)
    if joint:  # George and Cynthia Moor Distinguished Chair
        rest = behind[joint.end() :]
        name = _NAME_BEHIND.match(rest)
        if name and len(words) <= 3:
            parts = name.group().split()
            if not (INSTITUTIONS | HONOURS).isdisjoint(parts[1:]):
                return True
    return False


_NAME_BEHIND = re.compile(r"(?:[A-Z][\w'’.-]*\s?)+")


def _is_first_name(text: str, run: list[_Word], place: int) -> bool:
    start, end, name = run[place]
    before, after = text[start - 1 : start], text[end : end + 3]
    if before and (before in "@#$_=\\/" or before.isdigit()):
        return False
    if after[:1] and (after[0] in "@_=\\/" or after[0].isdigit()):
        return False
    if before in ("'", "’") and text[start - 2 : start - 1].isalpha():  # O'Henry
        return False
    if after[:1] in ("'", "’") and after[1:2].isalpha() and after[1:2] not in ("s", "S"):  # Don't
        return False
    if after[:1] == "." and after[1:2].islower():
        return False
    if (before == "-" and start > 1) or (after[:1] == "-" and after[1:2].isupper()):
        return False  # Jean-Philippe
    if after[:1] == "-" and after[1:2].islower():  # Oscar-winning
        return False
    earlier = [word for _, _, word in run[max(0, place - _MOST_NAMES) : place]]
    later = [word for _, _, word in run[place + 1 : place + 3]]
    if name.isupper() and len(name) > 1:  # an acronym, if all around it is not upper case too
        near = earlier[-1:] + later[:1]
        if not any(len(word) > 1 and word.isupper() for word in near):
            return False
    for rest in _brands().get(name, ()):
        if later[: len(rest)] == rest:
            return False
    if len(run) == 1 and name.capitalize() in _AMBIGUOUS:
        return False
    if earlier and earlier[-1] in _OF_PLACES:
        return False
    # A first name begins its run, but for titles, initials and other first names.
    known = _pairs()
    if not all(
        word in TITLES or len(word) == 1 or word in known or (word.isupper() and len(word) == 2)
        for word in earlier
    ):
        return False
    if name.capitalize() in _AMBIGUOUS:
        previous = text[max(0, start - _NEAR) : start].split()[-1:]
        return not (previous and previous[0] in _PLACE_BEFORE)
    return True


def _in_agreement(text: str, edits: list[Edit], pronouns: list[Edit]) -> list[Edit]:
    """Leave the names of the bio's own person out where its pronouns are of the other gender."""
    directions = {edit[3] for edit in pronouns}
    if len(directions) != 1 or not edits:
        return edits
    (gender,) = directions
    at = {edit[0]: edit for edit in edits}
    contradicting = set()
    for start, end, _, direction in edits:
        if direction == gender:
            continue
        opens = not text[max(0, start - 12) : start].strip() or _OPENS.search(
            text[max(0, start - 12) : start]
        )
        if opens and _is_followed(text, end, pronouns, at):
            contradicting.add(text[start:end])
    if not contradicting:
        return edits
    return [edit for edit in edits if text[edit[0] : edit[1]] not in contradicting]


_OPENS = re.compile(r"(?:[.!?]\s|\n)(?:Dr\.?\s|Meet\s)?\Z|\A(?:Dr\.?\s|Meet\s)\Z")


def _is_followed(text: str, end: int, pronouns: list[Edit], names: dict[int, Edit]) -> bool:
    """Tell whether the next person named or meant behind a name is the bio's own."""
    at = bisect_right(pronouns, (end, 0, "", 0))
    if at == len(pronouns) or pronouns[at][0] - end > 200:
        return False
    new = pronouns[at][2].lower()
    subject = new in ("he", "she") or (new in ("his", "her") and pronouns[at][2][0].isupper())
    return subject and not any(end < place < pronouns[at][0] for place in names)
