"""Rules of grammar for "her" and "his", and the words they go by.

Every rule looks at the two tokens before the pronoun and the two behind it; where none applies, the
learned model decides (`biasbios_mlflow.counterfactual.context`).
"""

from __future__ import annotations

import re
from typing import TypeAlias

__all__ = [
    "FUNCTION_WORDS",
    "Neighbours",
    "her_by_rule",
    "his_by_rule",
    "is_adverb",
    "words_of",
]

Neighbours: TypeAlias = tuple[str, str, str, str]
"""The two tokens before a pronoun and the two behind it; "" where the paragraph ends."""


def words_of(text: str) -> frozenset[str]:
    """Return the words of a text as a set.

    Examples
    --------
    >>> sorted(words_of("to and fro"))
    ['and', 'fro', 'to']
    """
    return frozenset(text.split())


_SEPARATORS = frozenset(",/|")
_BREAKS = frozenset(",-–—")
_STOPS = frozenset(".!?;:)…")
_QUOTES = frozenset("'’\"”")
_ENDS = frozenset(["", *_STOPS, *_BREAKS, *_QUOTES])

FUNCTION_WORDS = words_of("""
a an the this that these those and or but nor because if when while where who whom which whose
as at about after against among around before behind below beneath beside besides between beyond
by down during for from in inside into like near of off on onto out outside over past since so
through throughout to toward towards under until unless up upon via with within without than
then there here how what why whether is was are were be been being am has had have having did do
does will would can could should may might must shall not no never always again also too even
just only once i you he she it we they me him us them my your its our their his her mine hers
ours theirs yours own all both each any some every either first last next other another more
most very much many few several same such one two three four five six seven eight nine ten
""")
_DETERMINERS = words_of("a an his its my our the their these this those your")
# Prepositions of two words.
_PREPOSITIONS = {
    "according": "to", "ahead": "of", "along": "with", "because": "of", "due": "to",
    "out": "of", "prior": "to", "rather": "than", "regardless": "of", "such": "as", "thanks": "to",
}  # fmt: skip

# Between a possessive and its noun, or behind an object, by what comes next.
_ADVERBS = words_of("anytime daily directly often online personally weekly")
_AFTER_ADVERBS = words_of("and as at by for from here in on or through to via with") | {
    "",
    ",",
    *_STOPS,
}
_NO_ADVERBS = words_of("""
ally anomaly assembly belly brolly bully butterfly costly cowardly curly daily deadly doily dolly
early elderly family filly folly friendly gully heavenly hillbilly homily hourly jelly jolly lily
lively lolly lonely lovely manly monopoly monthly motherly orderly panoply potbelly quarterly rally
reply scholarly silly supply tally ugly underbelly weekly worldly yearly
""")
# Never between a possessive and its noun.
_NO_ATTRIBUTES = words_of("""
afraid alive alone anymore anywhere ashamed asleep awake aware elsewhere everywhere forever instead
nowhere somewhere today together tomorrow tonight yesterday
""")
_ATTRIBUTES = words_of("complete current entire full latest newest recent undivided")

_AUXILIARIES = frozenset(
    verb + ending
    for verb in words_of("is was are were has had does did would could should")
    for ending in ("", "n't")
)
# Verbs that are no nouns and nothing that stands between a possessive and its noun.
_VERBS = _AUXILIARIES | words_of("""
achieve allow allows appear appears appreciate arise arises arose arrive arrives ate became become
becomes began begin begins belong belongs bring brings broke came cannot chose come comes
communicate connect consist consists contain contains continue continues create decide deliver
depend depends deserve deserves develop differ differs disappear disappears discover drove enable
enables engage enjoy enjoys ensure establish evolve exist exists expire expires explain fell flew
forgot gave get gets goes got grew grow happen happens identify improve include includes inspire
involve involves knew know knows learn maintain navigate occur occurs overcome prove proves provide
provides pursue realize receive recognize relate remember said sang sat says seem seemed seems sell
sells shook speak speaks spoke stood succeed suffice suffices tend tends threw took understand
understands varies vary went won wore write writes wrote
""")
_PRONOUN_VERB = re.compile("(?:he|i|it|she|that|there|they|we|what|who|you)['’][a-z]+")
_CLITICS = words_of("d ll ve")  # "his'll do"
# Like words in -ed, verbs at the beginning: "His sold quickly."
_PASTS = words_of("cost held hit made paid ran rose sold")
_AFTER_VERBS = _DETERMINERS | words_of("at by from in into on out to up with")
_OPENINGS = frozenset(["", "that", *".!?"])

# Verbs with "her" behind them, and what then tells that it is their object.
_BRINGS = words_of("""
accompanied accompany bring bringing brings brought carried carry drive drives driving drove escort
escorted invite invited send sending sent take taken takes taking took walked
""")
_EARNS = words_of("""
earn earned earning earns gained garnered gave give gives giving granted landed secured win
winning wins won
""")
_QUANTITIES = words_of("countless enough many multiple numerous several")
_YEARS = words_of("decades years")
_TAKES = words_of("cost take taken takes taking took")
_PRAISE = words_of("acclaim accolades fame praise recognition")
_GIVES = _EARNS | words_of("bring bringing brings brought given offered")
_FEELINGS = words_of("""
comfort confidence courage fulfillment happiness headaches hope inspiration joy peace pleasure
purpose satisfaction solace strength
""")
_GRANTED = words_of("access authority control credit custody power responsibility")
_HELPS = words_of("help helped helping helps let lets letting")
_NAMES = words_of("appoint appointed crowned declared dubbed elected named nominated voted")
_OFFICES = words_of("""
ambassador captain chair chairman chairwoman chancellor chief dean director governor head judge
leader mayor president principal professor secretary senator vice
""")
_KEEPS = words_of("keep keeping keeps kept leave leaves left")
_FINDS = _KEEPS | words_of("catch caught find finding finds found spot spotted")
_MAKES = _FINDS | words_of("consider considered considers made make makes making render rendered")
_STATES = words_of("""
accountable better braver brilliant calm caring curious easy energetic fit free funny grounded
happier happy healthier healthy helpful humble inspired invisible kind motivated organized proud
sane smarter sick speechless strong stronger thorough triumphant unhappy warm wiser young younger
""")
_STATE_ENDINGS = ("able", "eous", "ible", "ious", "less")
_ANOTHER = words_of("and but to")
_NO_PARTICIPLES = words_of("""
beginning blessing building calling clothing drawing dwelling earring existing feeling filing
finding footing growing handwriting lighting listing loving meaning missing offering opening
painting posting rating reading recording remaining saying schooling setting training understanding
upbringing wedding wording writing
""")
_PASTIMES = words_of("drawing painting reading writing")  # as often participles as nouns


def her_by_rule(tokens: Neighbours) -> bool | None:
    """Tell whether "her" is an object ("him") and not a possessive ("his"); None without a rule.

    Examples
    --------
    >>> her_by_rule(("who", "met", "became", "friends")), her_by_rule(("She", "sold", "art", "in"))
    (True, None)
    """
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
    if tokens[2] in _VERBS or _PRONOUN_VERB.fullmatch(following):  # not "her SAT"
        return True
    if following in ("and", "&", "or", "/") and second in ("him", "them"):
        return True
    if following in ("or", "/") and second in ("his", "their"):
        return False
    behind_verb = _her_behind_verb(previous, tokens[2], second)
    if behind_verb is None and len(following) > 1 and tokens[2].isupper():
        return False  # her MSW degree
    return behind_verb


def _her_behind_verb(previous: str, word: str, second: str) -> bool | None:
    following = word.lower()
    ends = not second or second in _STOPS
    found: bool | None = None
    if following in _ATTRIBUTES and second.isalpha() and second not in FUNCTION_WORDS:
        found = previous in _GIVES and second in _GRANTED  # see her full bio
    elif second in _YEARS and (following in _QUANTITIES or following.isdigit()):
        found = previous in _TAKES or previous in _EARNS
    elif following == "most":
        found = True if ends or second in FUNCTION_WORDS else None
    elif ends and word.islower() and is_adverb(following):
        found = True
    elif previous in _GIVES:
        earned = previous in _EARNS and (following in _QUANTITIES or second in _PRAISE)
        given = following in _FEELINGS and (ends or second in _AUXILIARIES)
        found = earned or given or None
    elif previous in _HELPS:
        # let her work speak; helped her land a job
        found = False if second in _VERBS else second in _DETERMINERS or None
    elif previous in _NAMES:
        found = word[0].isupper() or following in _OFFICES or None
    elif previous in _BRINGS:
        found = following == "home" or None
    elif previous in _FINDS and following.endswith("ing") and len(following) > 5:
        if following in _NO_PARTICIPLES:
            found = following in _PASTIMES and ends
        elif ends or second in FUNCTION_WORDS:
            found = True
        elif previous in _KEEPS and second.isalpha():
            found = False  # left her nursing career
    elif previous in _MAKES:
        state = following in _STATES and (ends or second in _ANOTHER)
        found = state or (ends and following.endswith(_STATE_ENDINGS)) or None
    return found


def his_by_rule(tokens: Neighbours) -> bool | None:
    """Tell whether "his" stands alone ("hers") and not before a noun ("her"); None without a rule.

    Examples
    --------
    >>> his_by_rule(("novel", "of", "sells", "well")), his_by_rule(("He", "sold", "Rembrandt", "."))
    (True, False)
    """
    earlier, previous, following, second = map(str.lower, tokens)
    if not following or following in _STOPS or (following in _QUOTES and second in _ENDS):
        return True
    if tokens[2] in _VERBS or _PRONOUN_VERB.fullmatch(following):
        return True
    if following.replace("’", "'") in _AUXILIARIES:
        return True
    if following in _NO_ATTRIBUTES or (following in _QUOTES and second in _CLITICS):
        return True
    ends = not second or second in _STOPS
    if _is_past(following) and (
        (previous in _OPENINGS and (ends or is_adverb(second)))  # His cleaned easily.
        or (previous == "of" and (ends or second in _AFTER_VERBS))  # A friend of his won a prize.
    ):
        return True
    if following == "all" and previous in _GIVES:
        return False
    if ends and tokens[2].islower() and is_adverb(following):
        return True
    if earlier == "him" and (previous in ("/", "|") or (previous == following == ",")):
        return True  # he, him, his
    if following in ("or", "and", "/") and second in ("her", "their", "hers", "theirs"):
        return second in ("hers", "theirs")
    if following in _BREAKS and second not in ("and", "or", "her", "their", "my"):
        return True
    return False if tokens[2][0].isupper() else None  # his Emily


def is_adverb(word: str) -> bool:
    """Tell an adverb in -ly from adjectives and nouns that end alike.

    Examples
    --------
    >>> is_adverb("deeply"), is_adverb("family")
    (True, False)
    """
    return word.endswith("ly") and len(word) > 4 and word not in _NO_ADVERBS


def _is_past(word: str) -> bool:
    return word in _PASTS or (word.endswith("ed") and len(word) > 4 and not word.endswith("eed"))
