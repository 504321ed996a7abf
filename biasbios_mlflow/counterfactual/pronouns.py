"""Third-person pronouns: finding them, and telling "him" from "his" behind every "her"."""

from __future__ import annotations

import re

from biasbios_mlflow.counterfactual.context import her_is_object, his_is_independent
from biasbios_mlflow.counterfactual.edits import FEMALE_TO_MALE, MALE_TO_FEMALE, Edit, in_case_of
from biasbios_mlflow.counterfactual.grammar import words_of

__all__ = ["pronoun_edits"]

# The expression begins with a bare set of letters, so the engine skips to the next candidate at
# memory speed; what must not stand before the word is looked up behind that first letter.
_HYPHEN = "[-\u2010\u2011\u00ad]"
_NOT_BEFORE = (
    r"(?<!\w.)(?=[eEhHiI])"  # most candidates end here
    r"(?:(?<![@#$=\\/\u0300-\u036f].)|(?<=[Tt]he[ym]/.))"  # a handle, a path; but they/she
    rf"(?<![\w.)\]’']{_HYPHEN}.)"  # a hyphenated word
    r"(?<!\([sS]\).)"  # (s)he
    r"(?!(?:(?<=[DM][rs]\. H)|(?<=Mrs\. H)|(?<=Prof\. H))e\b)"  # Dr. He, a surname
    # A host or file; but "since 2010.She has".
    r"(?:(?<!\w\..)|(?:(?<=[a-z0-9)]\.[HS])|(?<=[A-Z]{2}\.[HS]))(?=[a-z]+[\s,'’]))"
)
_NOT_AFTER = (
    r"(?![\w@=\\\u0300-\u036f]"
    rf"|{_HYPHEN}\w"
    r"|\.(?![A-Z][a-z])\w"
    r"|/(?!(?:they|them|theirs?|xe|ze|ell[ae]|el|il)\b)\w)"
)
_WORD = "(?:[Hh](?:e|ers?|is|im|erself|imself)|H(?:E|ERS?|IS|IM|ERSELF|IMSELF)|[Ss]he|SHE)"
_REST = (  # _WORD without its first letter
    "(?:(?<=[hH])(?:er(?:s(?:elf)?)?|e|is|im(?:self)?)|(?<=[sS])he"
    "|(?<=H)(?:ER(?:S(?:ELF)?)?|Er|E|IS|Is|IM(?:SELF)?|Im)|(?<=S)H[eE])"  # SHe, shift held too long
)
_PRONOUN = re.compile(rf"[hHsS]{_NOT_BEFORE}{_REST}(?:/{_WORD})*{_NOT_AFTER}")

_MALE = {"he": "she", "him": "her", "himself": "herself"}
_FEMALE = {"she": "he", "hers": "his", "herself": "himself"}
_FIXED = {
    form(word): (form(new), direction)
    for table, direction in ((_MALE, MALE_TO_FEMALE), (_FEMALE, FEMALE_TO_MALE))
    for word, new in table.items()
    for form in (str.lower, str.capitalize, str.upper)
}
# What each can become: as an object or alone, and before its noun.
_HER = {form("her"): (form("him"), form("his")) for form in (str.lower, str.capitalize, str.upper)}
_HIS = {form("his"): (form("hers"), form("her")) for form in (str.lower, str.capitalize, str.upper)}
_SLIPS = frozenset(("SHe", "HEr", "HIs", "HIm"))
_SURNAMES = frozenset(("He", "She"))
_FULL_NAME = re.compile(
    r"(?:(?P<opens>\A\s{0,9}|[.!?:;(•\"“\n]\s{0,9}|\b(?:Dr|Mr|Ms|Mrs|Prof|Professor|Doctor)\.?\s)"
    r"(?:[A-Z]\.\s)?)?(?<!\w)(?P<full>(?P<name>[A-Z][a-z]{1,20}(?:-[A-Z][a-z]{1,20})?)\s(?:He|She))"
    r"(?![\w'’-])"
)
_NO_GIVEN_NAMES = words_of("""
About After Although And As At Because Before Besides But By During For From How However If In
Indeed Like Now Once Or Otherwise Perhaps Since So Soon Still That The Then There Though Through
Thus Till Today Tomorrow Unless Until What Whatever When Whenever Where Wherever Whether Which While
Who Whom Why With Yesterday Yet
He She His Her Hers Him Himself Herself
""")
_SUBJECTS = frozenset(("he", "she"))
_OBJECTS = frozenset(("him", "himself", "herself"))


def pronoun_edits(text: str) -> list[Edit]:
    """Find every third-person pronoun of ``text`` and its counterpart.

    Examples
    --------
    >>> [new for _, _, new, _ in pronoun_edits("She said her work made him proud.")]
    ['He', 'his', 'her']
    """
    edits: list[Edit] = []
    full_names: frozenset[int] | None = None
    for match in _PRONOUN.finditer(text):
        word = match[0]
        start, end = match.span()
        if word in _SLIPS:
            word = word.capitalize()
        fixed = _FIXED.get(word)
        if fixed is not None:
            # Only behind a word with nothing but a blank between them "He" may be a surname.
            if (
                word in _SURNAMES
                and start > 1
                and text[start - 2].isalpha()
                and match[0] == word
                and _is_named(text, start)
            ):
                full_names = _full_names(text) if full_names is None else full_names
                if start in full_names:
                    continue
            new, direction = fixed
            edits.append((start, end, new, direction))
        elif word in _HER:
            as_object, before_noun = _HER[word]
            new = as_object if her_is_object(text, start, end) else before_noun
            edits.append((start, end, new, FEMALE_TO_MALE))
        elif word in _HIS:
            alone, before_noun = _HIS[word]
            new = alone if his_is_independent(text, start, end) else before_noun
            edits.append((start, end, new, MALE_TO_FEMALE))
        else:
            edits.extend(_slashed(word, start))
    return edits


def _is_named(text: str, start: int) -> bool:
    """Tell whether a capitalised word stands before ``start``."""
    at = text.rfind(" ", max(0, start - 44), start - 1) + 1
    return text[at : at + 1].isupper()


def _full_names(text: str) -> frozenset[int]:
    """Return where in ``text`` "He" or "She" is the surname of "Jing He".

    It is when the name before it begins a sentence or follows a title, when what follows does not
    go on as a sentence of "he", or when the same full name is so elsewhere in the text.
    """
    found = []
    known = set()
    for match in _FULL_NAME.finditer(text):
        name = match["name"]
        if name in _NO_GIVEN_NAMES or name.endswith("ly"):
            continue
        found.append((match.end(), match["full"]))
        if match["opens"] is not None or text[match.end() : match.end() + 1] in (",", ";", ")"):
            known.add(match["full"])
    return frozenset(end - len(full.rsplit(None, 1)[1]) for end, full in found if full in known)


def _slashed(run: str, start: int) -> list[Edit]:
    """Swap a run such as "he/she", "his/her" or "she/her/hers", each word by its neighbours."""
    words = run.split("/")
    lower = [word.lower() for word in words]
    edits = []
    for index, word in enumerate(words):
        previous = lower[index - 1] if index else ""
        following = lower[index + 1] if index + 1 < len(words) else ""
        if word in _FIXED:
            new, direction = _FIXED[word]
        elif lower[index] == "her":
            is_object = previous in _SUBJECTS or not _OBJECTS.isdisjoint((previous, following))
            new = in_case_of(word, "him" if is_object else "his")
            direction = FEMALE_TO_MALE
        else:
            independent = "hers" in (previous, following) or previous == "him"
            new = in_case_of(word, "hers" if independent else "her")
            direction = MALE_TO_FEMALE
        edits.append((start, start + len(word), new, direction))
        start += len(word) + 1
    return edits
