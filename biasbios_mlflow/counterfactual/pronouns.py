"""Third-person pronouns: finding them, and telling "him" from "his" behind every "her"."""

from __future__ import annotations

import re

from biasbios_mlflow.counterfactual.context import (
    AFTER_WIDTH,
    BEFORE_WIDTH,
    her_is_object,
    his_is_independent,
)
from biasbios_mlflow.counterfactual.edits import FEMALE_TO_MALE, MALE_TO_FEMALE, Edit, in_case_of

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
    r"(?:(?<!\w\..)|(?<=[a-z0-9)]\.[HS])(?=[a-z]+\s))"  # a host or file; but "since 2010.She has"
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
    "|(?<=H)(?:ER(?:S(?:ELF)?)?|E|IS|IM(?:SELF)?)|(?<=S)HE)"
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
_SUBJECTS = frozenset(("he", "she"))
_OBJECTS = frozenset(("him", "himself", "herself"))
_UPPER_WORD = re.compile(r"\W*[^\W\d_a-z]{2}")


def pronoun_edits(text: str) -> list[Edit]:
    """Find every third-person pronoun of ``text`` and its counterpart.

    Examples
    --------
    >>> [new for _, _, new, _ in pronoun_edits("She said her work made him proud.")]
    ['He', 'his', 'her']
    """
    edits = []
    for match in _PRONOUN.finditer(text):
        word = match.group()
        start, end = match.span()
        fixed = _FIXED.get(word)
        if fixed is not None:
            edits.append((start, end, *fixed))
            continue
        before = text[max(0, start - BEFORE_WIDTH) : start]
        after = text[end : end + AFTER_WIDTH]
        if word.isupper() and _UPPER_WORD.match(after):  # all in capitals: they tell nothing
            before, after = before.lower(), after.lower()
        lower = word.lower()
        if lower == "her":
            new = "him" if her_is_object(before, after) else "his"
            edits.append((start, end, in_case_of(word, new), FEMALE_TO_MALE))
        elif lower == "his":
            new = "hers" if his_is_independent(before, after) else "her"
            edits.append((start, end, in_case_of(word, new), MALE_TO_FEMALE))
        else:
            edits.extend(_slashed(word, start))
    return edits


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
