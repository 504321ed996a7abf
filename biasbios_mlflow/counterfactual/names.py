"""First names: a pairing by frequency, and where a name is a first name at all.

The names and their frequencies are those of the United States in Faker's ``en_US`` provider. The
most frequent male name is paired with the most frequent female one, and so on; names that both
genders bear are neutral and stay.
"""

from __future__ import annotations

import importlib
from functools import cache
from itertools import accumulate

from biasbios_mlflow.counterfactual.edits import FEMALE_TO_MALE, MALE_TO_FEMALE, Edit, in_case_of
from biasbios_mlflow.counterfactual.lexicon import Forms
from biasbios_mlflow.errors import missing_extra

__all__ = ["gendered_names", "name_edits"]

_PROVIDER = "faker.providers.person.en_US"
_TITLES_TEXT = """
Dr Mr Mrs Ms Miss Prof Professor Doctor Sir Lord Lady Dame Judge Justice Senator Coach Captain
President Chairman St Saint
"""
_TITLES = frozenset(_TITLES_TEXT.split())
# A run of capitalised words with one of these is no person.
_INSTITUTIONS_TEXT = """
Academy Airport Associates Avenue Award Awards Bank Bay Beach Board Book Books Building
Cathedral Center Centre Chapel Chapter Church City Clinic Club College Commonwealth Company
Conference Corporation Council County Court Department Drive Fellow Fellowship Festival
Foundation Fund Gallery Games Group Hall Health High Hospital House Inc Institute Institution
Island Journal Laboratory Law Library LLC LLP Magazine Medal Medical Memorial Middle Museum
Network News Observatory Orchestra Park Post Press Prize Publishing Records Review River Road
School Schools Scholar Scholarship Society State Street Studio Studios Symphony Tech Theater
Theatre Times Trust Tribune University Valley
"""
_INSTITUTIONS = frozenset(_INSTITUTIONS_TEXT.split())
# First names that are as often a place or a plain word: a surname must follow.
_AMBIGUOUS_TEXT = """
April Art August Austin Autumn Bill Brook Brooke Carolina Chad Charlotte Chase Chelsea Christian
Dale Dallas Dawn Destiny Drew Faith Florence Frank Gene Georgia Grace Grant Heather Hope Hunter
Iris Israel Jack Jackson Jade Jasmine Jose Joy June Lily Madison Mark Mason Max May Melody Miles
Olive Paris Pat Penny Rich Robin Rod Rose Ruby Savannah Sierra Summer Sydney Victoria Virginia
Will Zion
"""
_AMBIGUOUS = frozenset(_AMBIGUOUS_TEXT.split())
_PLACE_BEFORE = frozenset(
    ["at", "from", "in", "near", "of", "to", "North", "South", "East", "West", "New", "San", "Port"]
)
_OPENERS_TEXT = """
A About After Although An And As At Because Before Besides Both But By During For From He Her
His How However I If In It Its Like Meet My On Once Our Originally Over She Since So That The
Their Then They Through To Today Together Under Until We What When Where While With Yes You Your
"""
_OPENERS = frozenset(_OPENERS_TEXT.split())


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


def name_edits(pieces: list[str]) -> list[Edit]:
    """Find the gendered first names of a text (see ``split_words``) and their counterparts.

    Raises
    ------
    mlflow.exceptions.MlflowException
        When the extra ``names`` is not installed.

    Examples
    --------
    >>> from biasbios_mlflow.counterfactual.lexicon import split_words
    >>> [new for _, _, new, _ in name_edits(split_words("Michael James met Dr. James in Boston."))]
    ['Jennifer']
    """
    pairs = _pairs()
    runs = _capitalised_runs(pieces)
    surnames = {
        pieces[run[-1]] for run in runs if len(run) > 1 and pieces[run[0]] not in _TITLES
    } | {pieces[run[1]] for run in runs if len(run) == 2 and pieces[run[0]] in _TITLES}
    ends = list(accumulate(map(len, pieces)))
    edits = []
    for run in runs:
        if any(pieces[index] in _INSTITUTIONS for index in run):
            continue
        for index in run[:-1] if len(run) > 1 else run:
            name = pieces[index]
            if name in pairs and _is_first_name(pieces, index, run, surnames):
                new, direction = pairs[name]
                edits.append(
                    (ends[index - 1], ends[index], in_case_of(name, new.lower()), direction)
                )
    return edits


def _capitalised_runs(pieces: list[str]) -> list[list[int]]:
    """List the runs of capitalised words, each the places of its words; openers are left out."""
    runs: list[list[int]] = []
    current: list[int] = []
    for index in range(1, len(pieces), 2):
        word, gap = pieces[index], pieces[index - 1]
        joined = gap in (" ", "-") or (
            gap in (". ", ".")
            and current
            and (len(pieces[current[-1]]) == 1 or pieces[current[-1]] in _TITLES)
        )
        if current and not (joined and word[0].isupper()):
            runs.append(current)
            current = []
        if word[0].isupper() and not (not current and word.capitalize() in _OPENERS):
            current.append(index)
    if current:
        runs.append(current)
    return runs


def _is_first_name(pieces: list[str], index: int, run: list[int], surnames: set[str]) -> bool:
    name, gap_before, gap_after = pieces[index], pieces[index - 1], pieces[index + 1]
    if gap_before and (gap_before[-1] in "@#$_=\\/" or gap_before[-1].isdigit()):
        return False
    if gap_after and (gap_after[0] in "@_=\\/" or gap_after[0].isdigit()):
        return False
    if gap_after == "." and index + 2 < len(pieces) and pieces[index + 2].islower():
        return False
    previous = pieces[index - 2] if index > 1 else ""
    if name.capitalize() in _AMBIGUOUS and (previous in _PLACE_BEFORE or len(run) == 1):
        return False
    if len(run) == 1:
        return name not in surnames
    return True
