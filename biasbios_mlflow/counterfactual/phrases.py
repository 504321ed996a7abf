"""Whether the words behind "her" make a noun phrase with it, by more of them than two.

The model of `biasbios_mlflow.counterfactual.context` sees two words on either side; that is too
little for "her once freelance business", "her off time" or "met her last year".
"""

from __future__ import annotations

import re

from biasbios_mlflow.counterfactual.grammar import FUNCTION_WORDS, is_adverb, words_of

__all__ = ["BEFORE_PERSONS", "DOUBTFUL", "is_person", "owns", "phrase_behind"]

_END = re.compile(r"[.,;:!?()\[\]\"“”—–/]|\n\n")

# Behind these, "her" is an object but for some terms of two or more words.
_TERMS = {
    "about": "me page us",
    "above": "average mentioned named",
    "alone": "time",
    "around": "the-clock the-world",
    "as": "yet",
    "at": "home risk",
    "away": "days game games matches time",
    "behind": "the-scenes",
    "come": "back",
    "do": "it-yourself",
    "down": "days home moments payment season time to-earth under",
    "go": "to",
    "in": "depth home house law office person store studio vitro",
    "know": "how",
    "make": "up",
    "made": "for to up",
    "off": "beat broadway camera campus court day days duty grid hours moments off road screen "
    "season seasons stage the-cuff time times white work year years",
    "on": "air call camera campus demand going line screen set site stage the-go",
    "out": "of-body of-control of-print of-pocket of-the of-town of-work patient",
    "over": "all the-top",
    "put": "on",
    "sit": "down in",
    "tell": "all",
    "through": "hike hikes hiking",
    "try": "out",
    "up": "and beat close front market to",
}
_WHOLE = frozenset(  # these need no noun behind them
    ["alone time", "as yet", "away days", "away time", "down time", "down days", "know how",
     "off days", "off day", "off duty", "off hours", "off season", "off time", "off year",
     "off years", "about page", "down payment", "off moments", "down moments", "away games"]
)  # fmt: skip
_ADVERBS = words_of("""
always almost already also ever forever formerly frequently just long never newly not now often
once otherwise perhaps previously quite rather seldom so sometimes somewhat soon still then thus
too twice usually very well yet
""")
_TIME_ADVERBS = words_of("""
again ago afterwards before daily earlier elsewhere everyday here later monthly online outside
regarding concerning including following pending since there today together tomorrow tonight
weekly yearly yesterday days hours minutes months weeks years monday tuesday wednesday thursday
friday saturday sunday
""")
_PREPOSITIONS = words_of("""
about above across after against along alongside amid among around at before behind below beneath
beside besides between beyond by despite during for from in inside into like near of on onto over
past per regarding through throughout to toward towards under upon via with within without
""")
_NUMBERS = words_of("""
two three four five six seven eight nine ten eleven twelve fifteen twenty thirty forty fifty sixty
dozen dozens hundred hundreds thousand several many
""")
_ABOUT = words_of("about almost approximately around nearly over roughly some under")
_SPANS = words_of("""
year years decade decades month months week weeks day days hour hours minutes seasons
""")
_MONEY = words_of("dollars pounds euros cents bucks rupees percent francs yen")
_COSTS = words_of("""
cost costs costing paid pay pays owe owed owes charge charged lend lent loaned offered fined saved
take takes taken taking took last lasted gave give gives given giving earned won brought sent
""")
# Verbs with a whole clause behind "her": let her quietly leave, made her completely happy.
_WITH_CLAUSES = words_of("""
help helped helping helps let lets letting make makes made making have having had keep keeps kept
keeping leave leaves left leaving find finds found finding see sees saw seen seeing watch watches
watched watching hear hears heard hearing feel felt get gets got getting render rendered call
called calls consider considers considered think thought deem deemed call declare declared prove
proved want wanted wants need needed wish wished
""")
_PERSON_VERBS = words_of("""
admired asked beat called call contact contacted date dated elected email emailed encountered
engaged greeted hire hired hires honored honoured interview interviewed invited joined know knew
known left married meet meeting meets met named nominated phoned photographed profiled promoted
recruited rescue rescued saw see seen sees signed taught text texted visit visited visiting
welcomed
""")
_TIMES = words_of("first last next")
_WHEN = words_of("""
day days evening fall autumn december february january july june march november october april
august september month months morning night season semester spring summer thing thursday friday
monday saturday sunday tuesday wednesday time week weekend winter year
""")
_EARNS = words_of("""
achieve achieved attain attained complete completed completing earn earned earning earns finish
finished gain gained get got hold holds obtain obtained obtaining pursue pursued pursuing receive
received receiving
""")
_DEGREES = words_of("""
aa aas accreditation adn apprenticeship arts as associate associates aud ba baccalaureate bachelor
bachelors bba bdes belt bfa board boards bs bsc bsn bsw cdl certificate certificates certification
certifications commission credential credentials cpa dc dds degree degrees diploma diplomas
diplomate dmd dnp do doctor doctoral doctorate doctorates dpt dvm edd eds esq fellowship
fellowships ged internship jd juris license licences licence licenses licensing licensure llb llm
ma magister major master masters matric mba mbbs md mdiv med mfa mph mpa ms msc msn msw nd
od pgce pharmd phd postdoc postgraduate psyd qualification qualifications registration residency
rn specialization stripes undergraduate wings
""")
_MADE = words_of("""
acting american appearance bed bones broadway british career carnegie case choice choices
comeback community concert confession conducting contribution contributions day debut decision
decisions directing directorial entrance entry european excuses exit feature fiction film first
fortune home homes hollywood international literary living london mark metropolitan millions mind
money move name national network new nest opera operatic orchestral peace point points
presence professional recital recording reputation return role screen solo stage stand start
statement television theatrical tv us way west wish
""")
_ADJECTIVES = words_of("""
abstract acclaimed active adorable advanced aging ailing amazing ambitious ample ancient annual
artistic autistic award-winning awesome basic beautiful beloved best-selling bestselling big bold
brave breathtaking brief bright brilliant broad broken bubbly busy calm careful caring charming
chronic classic classical clean clear clever clinical colorful colourful comic comedic complex
contemporary cool cosy cozy crazy creative crippling critical culinary current cute daily dark
dazzling dear debilitating deep delicate delicious deluxe detailed digital diverse domestic dramatic
dry dynamic eager early eclectic elaborate elderly elegant eloquent emotional enormous entire
entrepreneurial epic erotic ethnic evocative exact excellent exceptional exciting exotic expert
expressive extended extensive extraordinary fabulous faithful famous fantastic fascinating favorite
favourite fearless feisty fierce final fine firm flawless foreign formal former fresh fun funny
fuzzy generous gentle genuine giant gifted global golden good gorgeous graceful grand great green
growing handmade hands-on handsome hard heartfelt heavy hectic hidden high hilarious holistic
honest huge human iconic ideal imaginative immense important impressive incredible independent
infamous infectious innate innovative insatiable inspiring intense intimate intricate joyful keen
large late latest legendary legal lifelong light little live lively local lone long long-time
longtime loud lovable lovely low loyal lucky luminous lush luxurious magical magnetic main major
massive medical mental mild minimalist modern modest moving musical narrative national natural
newborn new nice noble old online opulent organic original outgoing outstanding painful
painstaking passionate patient perfect personal philosophical physical playful poetic poignant
polished poor popular positive powerful precise precious preferred previous private professional
prolific proper public quick quiet quirky radical rare raw real recent red regular relentless
remarkable retired rich rigorous romantic rough rural sad satirical scientific secret senior
serious severe sharp sheer short signature significant silent silly simple sincere skillful sleek
slick slow small smart smooth social soft solid soothing soulful special spectacular spiritual
stellar strange strict striking strong stunning stylish subtle sunny superb sweet swift tasty
technical tender terrific theatrical tiny tireless traditional true typical ultimate unborn
uncanny unconventional unique unlikely unparalleled unusual upbeat upcoming usual various vast
vibrant vivid vocal warm weekly whimsical whole wicked wild wise witty wonderful wry young younger
youthful zany
""")
_NATIONS = re.compile(
    r"[A-Z][a-z]+(?:ish|ese|i?an|ic|ench|utch|eek|wiss|elsh|sch)(?:-[A-Z][a-z]+)?|(?:Iraqi|Thai)"
)
_COUNT_NOUNS = words_of("""
assistant audience baby backpack bestie bike bio blog boat boyfriend bunny buddy cat class
classmate clinic clients coach colleague company cousin dad daughter day-job dog doggie family
farm fiance fiancé fiancée followers friend girlfriend guitar guy guys hubby husband instructor
kids kiddos kitten kitty kitties landlord lawyer mama mentor mom mum nephew niece novel office
parents partner patients pet physician podcast pooch pup puppy readers roommate sister spouse squad
sweetheart therapist toddler trainer tutor uncle wardrobe website wife
""")
_PERCEIVES = words_of("hear heard see saw seen watch watched")
_COMPANY = words_of("around before behind beside near under with")
BEFORE_PERSONS = _PERSON_VERBS | _COSTS | _PERCEIVES | _COMPANY
_BELOVED = words_of("beloved betrothed deceased intended")
_ACTS = words_of("act cook cry dance laugh paint ride skate swim")


def phrase_behind(after: str) -> list[str]:
    """Return up to six words behind a pronoun, up to the next punctuation.

    Examples
    --------
    >>> phrase_behind(" once freelance tailoring, and more")
    ['once', 'freelance', 'tailoring']
    """
    end = _END.search(after)
    return (after[: end.start()] if end else after).split(None, 6)[:6]


def owns(previous: str, words: list[str]) -> bool:
    """Tell whether a noun phrase of "her" follows where less context says that it is an object.

    Parameters
    ----------
    previous : str
        The word before, in lower case.
    words : list of str
        Of :func:`phrase_behind`.

    Examples
    --------
    >>> owns("of", ["once", "freelance", "tailoring"]), owns("to", ["once", "again"])
    (True, False)
    """
    if not words:
        return False
    first, *rest = (word.lower() for word in words)
    second = rest[0] if rest else ""
    if previous in _EARNS and _is_degree(first, rest):
        return True
    if first in _TERMS and previous not in _WITH_CLAUSES:
        return _is_term(first, rest, previous)
    if _is_amount(first, rest):
        return previous in _PREPOSITIONS or (previous not in _COSTS and "of" in rest)
    if previous in _WITH_CLAUSES:
        if previous in ("make", "makes", "made", "making"):
            return first in _MADE and second not in FUNCTION_WORDS - _PREPOSITIONS - {"a", "when"}
        return first in _ADJECTIVES and _is_noun(second) and previous in ("see", "saw", "watch")
    if first in _ADVERBS or is_adverb(first):
        place = next((at for at, word in enumerate(rest) if not _is_any_adverb(word)), None)
        if place is None:
            return False
        if rest[place] in ("daily", "monthly", "weekly", "yearly"):
            place += 1  # her twice weekly column
        return place < len(rest) and _is_noun(rest[place])
    if first in _COUNT_NOUNS:
        return True
    if previous in _COSTS:
        return False
    if (first in _ADJECTIVES or _NATIONS.fullmatch(words[0])) and _is_noun(second):
        return True
    if previous not in _PREPOSITIONS or not words[0].islower() or first.endswith("ing"):
        return False  # wrote to her saying
    return _is_noun(first) and not _cheered(words)


def is_person(previous: str, words: list[str]) -> bool:
    """Tell whether "her" is somebody met, paid or seen where less context says that it owns.

    Examples
    --------
    >>> is_person("met", ["last", "year"]), is_person("finished", ["last", "year"])
    (True, False)
    >>> is_person("paid", ["20", "dollars"]), is_person("saw", ["dance"])
    (True, True)
    """
    if len(words) == 1:
        cheered = previous in _COMPANY and _cheered(words)
        return cheered or (previous in _PERCEIVES and words[0] in _ACTS)
    if not words:
        return False
    second = words[1].lower()
    if previous in _COSTS and second in _MONEY:
        return True
    behind = words[2].lower() if len(words) > 2 else ""
    return (
        previous in _PERSON_VERBS
        and words[0] in _TIMES
        and second in _WHEN
        and behind not in ("of", "at", "as")
    )


def _cheered(words: list[str]) -> bool:
    """Tell whether a verb alone follows: "the ones with her cheered"."""
    return len(words) == 1 and words[0].endswith("ed") and words[0] not in _BELOVED


def _is_degree(first: str, rest: list[str]) -> bool:
    if first == "honorary":
        return False
    for word in (first, *rest):
        if word in FUNCTION_WORDS and word not in ("and", "first", "second"):
            return False
        bare = re.sub(r"['’]s?$|\W", "", word)
        if bare in _DEGREES or bare.endswith("degree"):
            return True
    return False


def _is_term(first: str, rest: list[str], previous: str) -> bool:
    if first == "over" and _is_amount(first, rest):
        return previous not in _COSTS
    for term in _TERMS[first].split():
        parts = term.split("-")
        if rest[: len(parts)] != parts:
            continue
        if f"{first} {term}" in _WHOLE:
            return True
        behind = rest[len(parts) :]
        if term == "of-the":
            behind = behind[1:]
        elif first == "up" and term == "and":
            return behind[:1] == ["coming"]
        elif first == "up" and term == "to":
            return behind[:1] == ["date"]
        if not behind or not _is_noun(behind[0]):
            return first in ("make",) and previous not in _PERSON_VERBS
        return previous not in _PERSON_VERBS
    return False


def _is_amount(first: str, rest: list[str]) -> bool:
    """Tell whether this is a number of years or the like, with "over" or "more than" before it."""
    words = [first, *rest]
    if words[:2] in (["more", "than"], ["less", "than"], ["close", "to"], ["up", "to"]):
        words = words[2:]
    elif first in _ABOUT:
        words = words[1:]
    else:
        return False
    number, unit = [*words, "", ""][:2]
    return (number[:1].isdigit() or number in _NUMBERS) and unit not in ("", *_MONEY)


def _is_any_adverb(word: str) -> bool:
    return word in _ADVERBS or is_adverb(word)


def _is_noun(word: str) -> bool:
    """Tell whether a word may be a noun or an adjective: none of the closed classes."""
    return (
        word.replace("-", "").replace("’", "'").replace("'", "").isalpha()
        and word not in FUNCTION_WORDS
        and word not in _TIME_ADVERBS
        and not is_adverb(word)
    )


DOUBTFUL = (
    frozenset(_TERMS) | _ADVERBS | _TIMES | words_of("more less close over almost nearly some")
)
