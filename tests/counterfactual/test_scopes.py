"""The wider scopes: titles, gendered nouns, first names."""

from __future__ import annotations

import itertools
import sys

import pytest
from mlflow.exceptions import MlflowException

from biasbios_mlflow.counterfactual import SCOPES, changed_words, names, swap_gender
from biasbios_mlflow.counterfactual.lexicon import _words

TITLES = [
    ("Mr. Ito and Ms. Wu met Dr. Lind.", "Ms. Ito and Mr. Wu met Dr. Lind."),
    ("Mr Ito", "Ms Ito"),
    ("Mrs. Aro teaches.", "Mr. Aro teaches."),
    ("Mr. and Mrs. Aro", "Mrs. and Mr. Aro"),
    ("MR. ITO AND MRS. ARO", "MS. ITO AND MR. ARO"),
    ("Miss Aro sings.", "Mr. Aro sings."),
    ("Mister Aro sings.", "Miss Aro sings."),
    ("Dear Sir or Madam,", "Dear Madam or Sir,"),
    ("Yes, sir. No, ma'am. No, ma’am.", "Yes, madam. No, sir. No, sir."),
    ("Sir Tomas Brandt and Dame Ines Brandt", "Dame Tomas Brandt and Sir Ines Brandt"),
    ("Lord Brandt and Lady Brandt", "Lady Brandt and Lord Brandt"),
    ("Mr. President, Madam Speaker", "Madam President, Mr. Speaker"),
    ("Madame Aro and Señor Paz", "Monsieur Aro and Señora Paz"),
    ("Mr. Aro is proud of his son.", "Ms. Aro is proud of her son."),
]
NO_TITLES = [
    "Dr. Lind, Prof. Wu and Mx. Paz met.",
    "We miss Oslo and hit or miss.",
    "An MS in Biology, an M.S., a Mr without a name.",
    "Miss America, Miss Universe, Miss India",
    "She praised the Lord Jesus and the House of Lords.".replace("She", "They"),
    "Notre Dame Cathedral and Our Lady of Lourdes",
    "lord of the manor, lady luck",
    "mr.example and @sir",
]
WORDS = [
    ("Her mother and father met two women.", "His father and mother met two men."),
    ("The actress and the chairman", "The actor and the chairwoman"),
    ("alumna, alumnus, Professor Emerita", "alumnus, alumna, Professor Emeritus"),
    ("Chairwoman of the board", "Chairman of the board"),
    ("A mother of two, an aunt of three", "A father of two, an uncle of three"),
    ("Mother of two, she paints.", "Father of two, he paints."),
    ("Mothers know.", "Fathers know."),
    ("HER MOTHER PAINTS", "HIS FATHER PAINTS"),
    ("sons and daughters, nephews and nieces", "daughters and sons, nieces and nephews"),
    ("his wife's studio, the wives’ club", "her husband's studio, the husbands’ club"),
    (
        "a mother-in-law, an ex-wife, a co-chairman",
        "a father-in-law, an ex-husband, a co-chairwoman",
    ),
    ("my fiancée, née Aro", "my fiancé, né Aro"),
    ("the king and the queens", "the queen and the kings"),
    ("ladies and gentlemen", "gentlemen and ladies"),
    ("men, women, policemen, spokeswomen", "women, men, policewomen, spokesmen"),
    ("the stewardess, a hostess", "the steward, a host"),
    ("the steward, a host, a guy, a comedian", "the steward, a host, a guy, a comedian"),
    ("the male voice, feminine rhyme", "the female voice, masculine rhyme"),
]
NO_WORDS = [
    "Duke University and King College",
    "They moved to Queens, NY and Prince George.",
    "King writes every day. Mr King does not.".replace("Mr ", "Dr. "),
    "Mother Jones and Mother Teresa",
    "a lady bug, a ladybug, lady luck",
    "Hey guys, you guys!",
    "the Boy Scouts, Girls Who Code, Big Brothers Big Sisters",
    "the Man Booker Prize, Iron Man, Spider-Man",
    "the Daughters of the American Revolution, Sons of Anarchy, Brandt & Sons",
    "mother nature, her.mother.example".replace("her.", ""),
    "their sister city, its sister team and the mother tongue",
    "state actors, threat actors, the Screen Actors Guild",
    "to man the desk, a man-made lake",
    "maternal health and maternal-fetal medicine",
    "mother@mail.example, #girlpower, @women, girl_1, boy2, wife.jpg",
    "https://host.example/women/mother",
    "manage, manner, sonnet, personal, womanizer, boycott, kingdom",
    "a husband-and-wife team, a mother-daughter duo",
    "a bachelor's degree and a master's degree",
    "black widow spiders, king size, queen bee",
]  # fmt: skip


@pytest.mark.parametrize(("text", "swapped"), TITLES)
def test_titles(text: str, swapped: str):
    assert swap_gender(text, scope="titles") == swapped


@pytest.mark.parametrize("text", NO_TITLES)
def test_no_titles(text: str):
    assert swap_gender(text, scope="titles") == text


@pytest.mark.parametrize(("text", "swapped"), WORDS)
def test_words(text: str, swapped: str):
    assert swap_gender(text, scope="words") == swapped


@pytest.mark.parametrize("text", NO_WORDS)
def test_false_friends(text: str):
    assert swap_gender(text, scope="words") == text


def test_each_scope_adds_to_the_one_before():
    text = "Mr. Michael Aro is his own boss, and his wife paints."
    swaps = [changed_words(text, scope) for scope in SCOPES]
    assert [len(swap) for swap in swaps] == [2, 3, 4, 5]
    for narrow, wide in itertools.pairwise(swaps):
        assert set(narrow) <= set(wide)


def test_the_lexicon_is_large_and_consistent():
    table = _words()
    pairs = {
        frozenset((word, entry.new))
        for word, entry in table.items()
        if word.islower() and entry.new in table and table[entry.new].new == word
    }
    assert len(pairs) >= 150
    one_way = [w for w, entry in table.items() if w.islower() and entry.new not in table]
    assert {"hostess", "stewardess", "gals"} <= set(one_way)
    assert all(entry.capitals in ("any", "common", "lower") for entry in table.values())


@pytest.mark.parametrize(
    ("text", "swapped"),
    [
        ("Michael Aro paints.", "Jennifer Aro paints."),
        ("Jennifer Aro paints.", "Michael Aro paints."),
        ("Michael paints, and Michael sings.", "Jennifer paints, and Jennifer sings."),
        ("MICHAEL ARO", "JENNIFER ARO"),
        ("J. Michael Aro", "J. Jennifer Aro"),
        ("Before Michael moved,", "Before Jennifer moved,"),
    ],
)
def test_names(text: str, swapped: str):
    assert swap_gender(text, scope="names") == swapped


@pytest.mark.parametrize(
    "text",
    [
        "Dr. James and Professor Thomas",
        "Aro James, then James again",
        "Jordan Aro, Taylor Aro and Casey Aro",
        "Elizabeth Street, Virginia Tech, the James Aro Foundation",
        "They live in Charlotte, near Austin.",
        "April and May, will and mark, Mark my words",
        "michael@mail.example, @Michael, michael",
    ],
)
def test_no_names(text: str):
    assert swap_gender(text, scope="names") == text


def test_name_pairs_are_by_frequency_and_go_back():
    pairs = names._pairs()
    lower = {name: new for name, (new, _) in pairs.items() if not name.isupper()}
    back = [name for name, new in lower.items() if lower[new] == name]
    assert len(back) >= 2 * 300
    assert lower["Michael"] == "Jennifer"
    assert not {"Jordan", "Taylor", "Kelly"} & lower.keys()


def test_names_without_the_extra(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "faker.providers.person.en_US", None)
    names._pairs.cache_clear()
    with pytest.raises(MlflowException, match=r"pip install 'biasbios-mlflow\[names\]'"):
        swap_gender("Michael", scope="names")
    monkeypatch.undo()
    names._pairs.cache_clear()
