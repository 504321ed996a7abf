"""Titles and gendered nouns: what each becomes, and where it is no gendered word at all."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable
from functools import cache, lru_cache
from importlib import resources
from typing import NamedTuple

from biasbios_mlflow.counterfactual.edits import FEMALE_TO_MALE, MALE_TO_FEMALE, Edit, in_case_of
from biasbios_mlflow.counterfactual.grammar import words_of
from biasbios_mlflow.counterfactual.proper import HONOURS, INSTITUTIONS, OPENERS, ends_sentence

__all__ = [
    "Forms",
    "gendered_titles",
    "gendered_words",
    "title_edits",
    "word_edits",
]

_LETTERS = re.compile(r"[^\W\d_]+")
_LETTERS_OR_DIGITS = re.compile(r"[^\W_]+")
_BEHIND = re.compile(rf"([\W\d_]*)({_LETTERS.pattern})")
_BEFORE = re.compile(rf"({_LETTERS.pattern})([\W\d_]*)")
_LETTERS_ONLY = bytes(
    code if chr(code).isalpha() and code < 128 else ord(" ") for code in range(256)
)
_NEAR = 64
_SENTENCE = 160
_FULL_STOP = re.compile(r"[.!?]\s|\n\n")
_APOSTROPHES = ("'", "’")
_QUOTES = ('"', "“", "‘", "'")
_PREFIXES = words_of("""
adoptive be birth co ex foster former future god grand great half home late longtime new now once
proud single step still then twin vice working would
""")
_COUNTS = words_of("one two three four five six seven eight nine ten")
_SOLOS = words_of(
    "act band comedy drama exhibit exhibition exhibitions musical play plays production show shows"
)
_DETERMINERS = words_of("a an the his her its my our their your this that")
# Before these "maternal" is kinship; otherwise it is of pregnancy or part of a name.
_RELATIVES = words_of("""
ancestors ancestry aunt aunts branch cousin cousins family grandfather grandfathers grandmother
grandmothers grandparent grandparents grandson granddaughter great half heritage instinct instincts
kin line lineage love relatives roots side uncle uncles
""")
_MUMMYS = words_of("busy her his loving my new our proud single their working your yummy")
_KIN = words_of("""
aunt brother brothers dad daddy dads daughter daughters father fathers godfather godmother
granddad granddaughter granddaughters grandfather grandma grandmother grandpa grandson grandsons
husband husbands mama mom mommy moms mother mothers mum mums nephew nephews niece nieces papa sister
sisters son sons stepfather stepmother uncle wife wives widow widower
""")
_QUALITIES = words_of("beloved devoted happy loving new proud single working")
_BEFORE_KIN = _QUALITIES | words_of("a an and as being becoming her his my or our their your")
_ADJECTIVES = words_of("female feminine male masculine manly womanly")
_BEFORE_OFFICES = words_of("""
Acting Assistant Associate Best Board City Co Committee Company Conference Corporate County Deputy
Department Distinguished Division Elected Executive Former Founding Group Honorary Immediate Interim
Lead Leading National Non Past Professor President Regional Senior State Supporting The Town U.S US
Vice Village Director Dean Chair Chairman Principal
""")
_OFFICES_OF_BOTH = words_of(
    "actor alumnus batsman confidant emeritus headmaster maestro protégé protege"
)
_OTHER_MEN = words_of("""
brother daughter father grandfather granddaughter he him his husband married marries mr nephew niece
son uncle widow wife
""")
# People who may be patients or a topic; beside these words the counterpart would be nonsense.
_PEOPLE = words_of("""
female females gentleman gentlemen girl girls ladies lady male males man men mom moms mother mothers
mum mums motherhood woman women womanhood father fathers dad dads fatherhood boy boys
""")
_BIRTHS = words_of("""
abortion antenatal antepartum birth births birthing breastfeed breastfeeding caesarean cesarean
cervical childbearing childbirth colposcopy conceive contraception contraceptive contraceptives
doula eclampsia endometriosis endometrial expectant fertility fetal fibroid fibroids foetal fetus
gestational gyn gynaecologic gynaecological gynaecologist gynaecology gynecologic gynecological
gynecologist gynecologists gynecology hysterectomies hysterectomy infertility intrapartum ivf
labor lactating lactation mammogram mammograms mammography mastectomy maternity menopausal menopause
menstrual menstruation midwife midwifery midwives miscarriage miscarriages ob obgyn obstetric
obstetrical obstetrician obstetricians obstetrics ovarian ovary ovaries ovulation pcos
perimenopause perinatal postmenopausal postnatal postpartum preconception preeclampsia pregnancies
pregnancy pregnant prenatal prostate reproductive stillbirth surrogacy testicular trimester
urogynecologist urogynecology uterine uterus vaginal vasectomy vulvar
""") - {"labor", "ob", "birth", "births"}
_BIRTH_FORMS = frozenset(
    form(word) for word in _BIRTHS for form in (str.lower, str.capitalize, str.upper)
) | {"OB", "birth", "births", "Birth"}
_OWNERS = words_of("her his my our their your two three four five six 2 3 4 5 6 married")
_OF_NUMBER = re.compile(
    r"\s?(?:of|to)\s(?:\d|one|two|three|four|five|six|seven|eight|nine|ten|a\s|twin)"
)
_TWO = r"(?P<word>[^\W\d_]+)"
_AND_BEHIND = re.compile(rf"\s?(?:and|or|&|/|,|nor)\s?{_TWO}")
_AND_BEFORE = re.compile(rf"(?<![^\W\d_]){_TWO}\s?(?:\b(?:and|or|nor)\b|&|/|,)\s?\Z")


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


@cache
def _fixed_terms() -> dict[str, list[tuple[list[str], list[str]]]]:
    """Read the fixed terms: what stands before and behind each of their gendered words."""
    table: dict[str, list[tuple[list[str], list[str]]]] = {}
    rows = resources.files(__package__).joinpath("fixed.tsv").read_text(encoding="utf-8")
    for row in rows.splitlines()[1:]:
        words = row.split()
        for place, word in enumerate(words):
            if len(word) > 1:
                table.setdefault(word, []).append((words[:place], words[place + 1 :]))
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
    """Return every form that the lexicon holds, and the words beside which some stay."""
    return Forms(_words()) | Forms(_BIRTH_FORMS)


@cache
def gendered_titles() -> Forms:
    """Return every word that may be a gendered title."""
    return Forms(_TITLE_WORDS)


def word_edits(text: str, found: Iterable[str], gender: int = 0) -> list[Edit]:
    """Find the gendered nouns and adjectives of a text and their counterparts.

    Parameters
    ----------
    text : str
        The text.
    found : iterable of str
        What to look for; words that are not in the lexicon are passed over.
    gender : int, default=0
        The way the bio's own pronouns go, 0 where they do not tell. A woman who is called
        "Chairman" stays one when she becomes a man.

    Examples
    --------
    >>> text = "The actress met two women; Mother Jones met a lady bug."
    >>> [new for _, _, new, _ in word_edits(text, ["actress", "Mother", "lady", "women"])]
    ['actor', 'men']
    >>> word_edits("She treats pregnant women.", ["women", "pregnant"])
    []
    """
    table = _words()
    edits = []
    births: list[int] | None = None
    for word in found:
        entry = table.get(word)
        if entry is None:
            continue
        start = text.find(word)
        while start >= 0:
            end = start + len(word)
            if not (text[start - 1 : start].isalpha() or text[end : end + 1].isalpha()):
                before, after = text[max(0, start - _NEAR) : start], text[end : end + _NEAR]
                meant = _meant(word, before, after)
                if meant and word.lower() in _PEOPLE:
                    births = _births(text, found) if births is None else births
                    meant = not (births and _is_beside(text, start, births)) or _is_kin(
                        before, after
                    )
                if meant and gender == FEMALE_TO_MALE and entry.direction == MALE_TO_FEMALE:
                    meant = not _is_own_office(word.lower(), before)
                if meant:
                    edits.append((start, end, in_case_of(word, entry.new), entry.direction))
            start = text.find(word, end)
    return sorted(edits)


def _births(text: str, found: Iterable[str]) -> list[int]:
    """Return where the words of pregnancy, birth and gynaecology stand."""
    places = []
    for word in _BIRTH_FORMS.intersection(found):
        at = text.find(word)
        while at >= 0:
            places.append(at)
            at = text.find(word, at + len(word))
    return sorted(places)


def _is_beside(text: str, start: int, births: list[int]) -> bool:
    """Tell whether such a word stands in the same sentence, and near."""
    at = bisect_left(births, start)
    for place in births[max(0, at - 1) : at + 1]:
        if abs(place - start) <= _SENTENCE:
            between = text[min(place, start) : max(place, start)]
            if not _FULL_STOP.search(between):
                return True
    return False


def _is_kin(before: str, after: str) -> bool:
    """Tell whether the person is one's own: "her mother", "a mother of two", "two sons"."""
    words = _LETTERS_OR_DIGITS.findall(before.lower())[-3:]
    return not _OWNERS.isdisjoint(words) or _OF_NUMBER.match(after) is not None


def _is_own_office(word: str, before: str) -> bool:
    """Tell whether a man's word of office is that of the woman the bio is about."""
    if not (
        word in _OFFICES_OF_BOTH or (word.endswith("man") and word not in ("man", "gentleman"))
    ):
        return False
    sentence = re.split(r"[.!?;]\s|\n", before)[-1].lower()
    return _OTHER_MEN.isdisjoint(_LETTERS.findall(sentence))


@lru_cache(1 << 14)
def _meant(word: str, before: str, after: str) -> bool:
    """Tell whether the word is meant, and so is its counterpart where both go together."""
    if not _is_meant(word, before, after):
        return False
    pair = _AND_BEHIND.match(after)
    if pair and _is_counterpart(word, pair["word"]):
        rest = f"{before}{word}{after[: pair.start('word')]}"[-_NEAR:]
        return _is_meant(pair["word"], rest, after[pair.end() :])
    pair = _AND_BEFORE.search(before)
    if pair and _is_counterpart(word, pair["word"]):
        return _is_meant(
            pair["word"], before[: pair.start()], f"{before[pair.end('word') :]}{word}{after}"
        )
    return True


def _is_counterpart(word: str, other: str) -> bool:
    entry = _words().get(other)
    return entry is not None and entry.new == word.lower()


def _is_meant(word: str, before: str, after: str) -> bool:
    """Tell whether the word is the noun of the lexicon, and not part of a name or fixed term."""
    entry = _words()[word]
    lower = word.lower()
    behind = _BEHIND.findall(after)
    gap_after, following = behind[0] if behind else (after, "")
    preceding = _BEFORE.findall(before)
    previous, gap_before = preceding[-1] if preceding else ("", before)
    if gap_before and (gap_before[-1] in "@#$_=\\" or gap_before[-1].isdigit()):
        return False
    if gap_after and (gap_after[0] in "@_=\\" or gap_after[0].isdigit()):
        return False
    if following and gap_after == "." and following.islower():  # a host or file name
        return False
    if previous and gap_before == "." and word.islower():
        return False
    if previous and gap_before == "-" and not _may_follow_hyphen(previous, lower, following):
        return False
    if gap_after == "-" and following and not _may_precede_hyphen(word, following, behind):
        return False
    # The noun behind "women's" matters, not its s.
    noun, noun_gap = following, gap_after
    if following in ("s", "S") and gap_after in _APOSTROPHES and len(behind) > 1:
        noun_gap, noun = behind[1]
    if noun_gap.isspace() and noun.lower() in entry.not_before:
        return False
    if gap_before.isspace() and previous.lower() in entry.not_after:
        return False
    if lower in _fixed_terms() and _is_fixed(lower, preceding, behind):
        return False
    if lower == "man" and previous == "to" and following.lower() in _DETERMINERS:  # to man a desk
        return False
    if lower in ("maternal", "paternal"):
        return following.lower() in _RELATIVES and (word.islower() or following.islower())
    if lower in ("mummy", "mummies"):
        return previous.lower() in _MUMMYS
    if lower in ("fraternity", "sorority") and previous[:1].isupper() and gap_before.isspace():
        return False  # of that name
    if word.islower():
        return True
    if entry.capitals == "lower" and not word.isupper():
        return False
    if word.isupper() and len(word) > 1:
        return entry.capitals != "lower" and any(
            len(near) > 1 and near.isupper() for near in (previous, following)
        )
    return _is_no_name(lower, entry, preceding, behind)


def _is_no_name(
    lower: str, entry: Entry, preceding: list[tuple[str, str]], behind: list[tuple[str, str]]
) -> bool:
    """Tell whether a capitalised word is not part of a proper name."""
    previous, gap_before = preceding[-1] if preceding else ("", "")
    gap_after, following = behind[0] if behind else ("", "")
    after_name = gap_after.isspace() and following[:1].isupper() and following != "I"
    second_gap, second = behind[1] if len(behind) > 1 else ("", "")
    if following in ("s", "S") and gap_after in _APOSTROPHES:  # Women's Way
        after_name = second_gap.isspace() and second[:1].isupper()
    if following in ("and", "of", "for") and second[:1].isupper() and gap_before[-1:] in _QUOTES:
        return False  # "Ladies of Calder Court"
    if following in INSTITUTIONS and gap_after.isspace():
        return False
    starts = ends_sentence(previous, gap_before)
    within = gap_before.isspace() or gap_before in ("-", " & ")
    before_name = not starts and within and previous[:1].isupper() and previous not in OPENERS
    if before_name and previous.lower() in _QUALITIES:
        before_name = False
    if entry.capitals == "any" and lower not in _ADJECTIVES:
        if after_name and second in INSTITUTIONS:
            return False
        return (
            not before_name or previous in _BEFORE_OFFICES or following in ("Emeritus", "Emerita")
        )
    if after_name and following.lower() not in ("of", "to", "and", "in"):
        return False
    if before_name:
        return False
    if starts or lower in _ADJECTIVES:
        return True
    if lower not in _KIN:
        return False
    if following == "of" and second[:1].isupper():  # Sons of Anarchy
        return False
    listed = "," in gap_before and previous[:1].isupper()
    of_some = following == "to" or (following == "of" and second in _COUNTS)
    return listed or of_some or (previous.lower() in _BEFORE_KIN and within)


def _may_follow_hyphen(previous: str, lower: str, following: str) -> bool:
    if lower in ("man", "woman"):
        return previous.lower() == "one" and following.lower() in _SOLOS
    return previous.lower() in _PREFIXES


def _may_precede_hyphen(word: str, following: str, behind: list[tuple[str, str]]) -> bool:
    second = behind[1] if len(behind) > 1 else ("", "")
    if following in ("in", "to", "of"):  # mother-in-law, husband-to-be, mother-of-two
        return second[0] == "-" and (second[1] in ("law", "laws", "be") or second[1] in _COUNTS)
    return word.islower() and following[:1].isupper() and word in _KIN  # a dash


def _is_fixed(lower: str, preceding: list[tuple[str, str]], behind: list[tuple[str, str]]) -> bool:
    before = [word.lower() for word, _ in preceding]
    after = [word.lower() for _, word in behind]
    return any(
        before[len(before) - len(left) :] == left and after[: len(right)] == right
        for left, right in _fixed_terms()[lower]
    )


_OFFICES = "(?:President|Speaker|Secretary|Chair|Justice|Ambassador|Mayor|Vice|Prime|Chancellor)"
_PAGEANTS = (
    "(?:America|American|Universe|World|USA|Teen|Earth|International|Congeniality|Saigon|India"
    "|France|England|Canada|Venezuela|Philippines|Brazil|Mexico|Texas|California|Puerto|Great"
    "|Black|Junior|Northern|Southern|Eastern|Western|North|South|East|West|New|Australia|Ireland"
    "|Scotland|Wales|Britain|Asia|Africa|Europe|Jamaica|Nigeria|Ghana|Kenya|Italy|Spain|Germany"
    "|Florida|Georgia|Ohio|Alabama|Mississippi|Tennessee|Kentucky|Louisiana|Oklahoma|Kansas|Iowa"
    "|Michigan|Illinois|Indiana|Virginia|Oregon|Utah|Nevada|Arizona|Colorado|Hawaii|Maryland"
    "|Minnesota|Missouri|Nebraska|Pennsylvania|Washington|Wisconsin|Wyoming|Galaxy|Globe|Grand"
    "|Supranational|Marple|Manners|Daisy|Julie|Sunshine|Havisham|Piggy|Independent|Fitness|Olympia"
    "|Bikini|Continental|United|Latina|Asian|Plus|Petite|Deaf|Wheelchair|Rodeo)"
)
# The rest of the name behind a title, and what shows that the whole is no person's.
_NAME = re.compile(r"\s(?:[A-Z][\w'’-]*\.?(?:\s(?:and|&|of|the)(?=\s[A-Z]))?\s?){1,7}")
_CONTEST_BEFORE = re.compile(
    r"\b(?:crowned|won|titled|reigning|former|ex|little|competed\s(?:in|for)|title\sof|winner\sof"
    r"|pageant|judged|hosted|named)\s(?:as\s)?(?:the\s)?(?:first\s)?\Z",
    re.IGNORECASE,
)
_CONTEST_BEHIND = re.compile(
    r"\s(?:[A-Z][\w'’-]*\s){1,4}(?:contests?|pageants?|competitions?|crown|title|titleholder|finalist"
    r"|organi[sz]ation|scholarship|beauty|\d{4})\b"
)
_TEAM = re.compile(r"\s[A-Z][a-z]+s\b(?!\s[A-Z])")  # the Lady Tigers
_TITLE = re.compile(
    r"(?:(?<![\w@#$=\\/.\-])|(?<=[a-z0-9)]\.)(?=M(?:rs?|s|iss)[.\s]))(?:"
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
    r"Lady(?=\s+(?!Gaga\b|Antebellum\b|Macbeth\b|Chatterley|Windermere|Bird\b|Bug\b|Luck\b|Justice\b|Liberty\b|Vols\b|A\b)[A-Z][a-z]))"
    r"|(?P<sir>Sir|SIR|sir)|(?P<madam>Madam|MADAM|madam|[Mm]a['’]am)"
    r"|(?P<abroad>Monsieur|Madame(?!\s(?:Tussaud|Butterfly|Bovary|Curie))|Señora?|Senora?|Signora?|Herr|Frau)(?=\s+[A-Z])"
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

_THE = re.compile(r"\b(?:the|for|vs\.?|by|of)\s\Z", re.IGNORECASE)
_ONE = "Mrs|Mr|Ms|Miss|Madam|Sir|MRS|MR|MS|madam|sir"
_MALE_TITLES = frozenset(["Mr", "MR", "Sir", "sir"])
_PAIR = re.compile(
    rf"(?<![\w@/.-])(?P<one>{_ONE})\.?(?:/|\s(?:or|and|&)\s|\s/\s)(?P<two>{_ONE})"
    rf"(?:\.?(?:/|\s(?:or|and|&)\s|\s/\s)(?P<three>{_ONE}|Mx)\b|(?![\w@-]))"
)

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
    titles = _TITLE_WORDS.intersection(found)
    if not titles:
        return []
    edits: list[Edit] = []
    paired: set[int] = set()
    if len(titles) > 1:
        for pair in _PAIR.finditer(text):
            paired.update(pair.span(place)[0] for place in ("one", "two", "three"))
            edits.extend(_pair_edits(pair))
    for title in titles:
        start = text.find(title)
        while start >= 0:
            end = start + len(title)
            hit = None if text[end : end + 1].isalpha() else _TITLE.match(text, start)
            if hit and start not in paired:
                kind = hit.lastgroup or ""
                word = hit.group()
                behind = text[hit.end() : hit.end() + _NEAR]
                if not _is_named_after(kind, text[max(0, start - _NEAR) : start], behind):
                    new, direction = _ABROAD[word.lower()] if kind == "abroad" else _TITLES[kind]
                    edits.append((start, hit.end(), in_case_of(word, new), direction))
            start = text.find(title, end)
    return sorted(edits)


def _pair_edits(match: re.Match[str]) -> list[Edit]:
    """Exchange the titles of a pair such as "Mr./Mrs."; three of them stand for all people."""
    one, two = match["one"], match["two"]
    if match["three"] or (one in _MALE_TITLES) == (two in _MALE_TITLES):
        return []
    directions = [MALE_TO_FEMALE if word in _MALE_TITLES else FEMALE_TO_MALE for word in (one, two)]
    return [(*match.span("one"), two, directions[0]), (*match.span("two"), one, directions[1])]


@lru_cache(1 << 12)
def _is_named_after(kind: str, before: str, behind: str) -> bool:
    """Tell whether a title belongs to the name of a hospital, a chair, a contest or a team."""
    if kind in ("sir", "madam", "pair", "office", "madam_office"):
        return False
    name = _NAME.match(behind.replace(".", ""))
    if name and not INSTITUTIONS.isdisjoint(words := name.group().split()):
        return kind in ("knight", "dame", "lord", "lady") or len(words) > 2
    if name and not HONOURS.isdisjoint(words[1:]):
        return True
    if kind == "miss":
        return bool(_CONTEST_BEFORE.search(before) or _CONTEST_BEHIND.match(behind))
    return kind == "lady" and bool(_TEAM.match(behind)) and bool(_THE.search(before))
