"""What holds for every text: hypothesis draws scripts, punctuation and gendered words."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from biasbios_mlflow.counterfactual import SCOPES, changed_words, swap_gender, swap_with_directions

PRONOUNS = ("he", "she", "him", "her", "his", "hers", "himself", "herself")
UNIQUE = ("he", "she", "himself", "herself")
OTHERS = (
    "nurse", "work", "proud", "of", "to", "the", "is", "and", "Lima", "café", "they", "mother",
    "Mr.", "Sir", "Queens", "King", "actress", "guys", "Michael", "www.host.example", "x@y.example",
    "https://host.example/she", "#her", "file_he.txt", "s/he", "(s)he", "hero", "shed", "2010",
    "St.", "Mr./Mrs.", "women", "pregnant", "<b>", "</b>", "&nbsp;", "_", "*", "Chairman", "man",
    "\ud800", "\udfff", "\u200b", "\ufeff", "&#1114112;", "&#55296;", "Don’t", "the", "Hospital",
    "女", "ﬁn", "ßhe", "ſhe", "İs", "e\u0301", "\u0301", "👩\u200d⚕️", "הוא", "\U0001d4d7\U0001d4ee",
)  # fmt: skip
GAPS = (
    " ", "  ", "\n", "\n\n", "\t", "", "/", "-", "—", "–", ".", ". ", ", ", "'", "’", "’s ", "\"",
    "“", "(", ") ", "_", "@", "#", "\\", "\u00a0", "\u200d", "\u00ad", "\u2011", ":", "=", "\x00",
)  # fmt: skip
QUICK = settings(max_examples=300, deadline=None, derandomize=True, database=None)
FORMS = tuple(form(word) for word in PRONOUNS for form in (str.lower, str.capitalize, str.upper))
ONLY_UNIQUE = tuple(form for form in FORMS if form.lower() in UNIQUE)


def mixtures(*pieces: str) -> st.SearchStrategy[str]:
    """Texts of these pieces, of others and of single characters of any script."""
    known = st.sampled_from((*pieces, *OTHERS, *GAPS))
    return st.lists(st.one_of(known, known, st.characters()), max_size=16).map("".join)


TEXTS = mixtures(*FORMS)


@QUICK
@given(TEXTS)
def test_outside_the_changed_words_nothing_moves(text: str):
    swapped = swap_gender(text)
    words = changed_words(text)
    at = new_at = 0
    for word, new in words:
        start, new_start = at, new_at
        # The stretch between two changed words is the same in both texts.
        while not (text.startswith(word, at) and swapped.startswith(new, new_at)
                   and word.lower() in PRONOUNS and _stands_alone(text, at, len(word))
                   and text[start:at] == swapped[new_start:new_at]):  # fmt: skip
            at += 1
            new_at += 1
            assert at <= len(text)
        assert new.lower() in PRONOUNS
        assert _case(new) == _case(word)
        at += len(word)
        new_at += len(new)
    assert text[at:] == swapped[new_at:]


def _stands_alone(text: str, start: int, length: int) -> bool:
    return not (
        re.match(r"[^\W_]", text[start - 1 : start])
        or re.match(r"[^\W_]", text[start + length :][:1])
    )


def _case(word: str) -> str:
    return "lower" if word.islower() else "upper" if word.isupper() else "capitalised"


@QUICK
@given(mixtures())
def test_a_text_without_a_pronoun_comes_back(text: str):
    if not re.search(r"(?i)\b(?:he|she|him|her|hers|his|himself|herself)\b", text):
        assert swap_gender(text) is text or swap_gender(text) == text
        assert changed_words(text) == []


@QUICK
@given(mixtures(*ONLY_UNIQUE))
def test_twice_is_the_original_where_counterparts_are_unique(text: str):
    if not re.search(r"(?i)\b(?:him|her|hers|his)\b", text):
        assert swap_gender(swap_gender(text)) == text


@QUICK
@given(st.lists(TEXTS, max_size=4))
def test_a_text_alone_and_in_a_list_are_swapped_alike(texts: list[str]):
    swapped, directions = swap_with_directions(texts)
    assert swapped == swap_gender(texts) == [swap_gender(text) for text in texts]
    assert [code == 0 for code in directions] == [
        new == text for new, text in zip(swapped, texts, strict=True)
    ]


@QUICK
@given(st.one_of(TEXTS, st.text()), st.sampled_from(SCOPES))
def test_no_scope_ever_fails(text: str, scope: str):
    swapped = swap_gender(text, scope)
    words = changed_words(text, scope)
    assert (swapped != text) == bool(words)
    assert len(swapped) - len(text) == sum(len(new) - len(word) for word, new in words)
    assert swap_gender(text, scope) == swapped


@settings(QUICK, max_examples=150)
@given(st.text(st.characters(exclude_categories=["L"], codec=None)), st.sampled_from(SCOPES))
def test_without_a_letter_nothing_changes_in_any_scope(text: str, scope: str):
    assert swap_gender(text, scope) == text


@settings(QUICK, max_examples=150)
@given(
    mixtures(*FORMS), st.sampled_from(["<i>{}</i>", "\u2060{}\u2060", "&nbsp;{}&nbsp;", " {}  "])
)
def test_what_is_looked_through_stays(text: str, frame: str):
    marks = re.findall(r"<[^<>]*>|&[^;]*;|\s|\u2060", frame.format(text))
    swapped = swap_gender(frame.format(text), "words")
    assert re.findall(r"<[^<>]*>|&[^;]*;|\s|\u2060", swapped) == marks


@settings(QUICK, max_examples=150)
@given(st.lists(st.sampled_from((*FORMS, "work", "to", "oslo", "a")), min_size=1))
def test_plain_pronouns_are_all_swapped(words: list[str]):
    text = " ".join(words)
    assume(not re.search(r"\w (He|She)\b", text))  # inside of a sentence it can be a surname
    count = sum(word.lower() in PRONOUNS for word in words)
    assert len(changed_words(text)) == count


@pytest.mark.parametrize("scope", ["pronouns", "names"])
@pytest.mark.parametrize(
    "piece",
    [
        "She gave him her book, and the prize is his. ",
        "her/",
        "her",
        "her ",
        "-her",
        "Her.he.",
        "h",
        "his’",
        "mother-",
        "https://",
        "her" + "\u0301",
        "Aro He ",
        "Michael and ",
        "Mr./Mrs. ",
        "pregnant women ",
        "_a_ [a](<b",
    ],
)
def test_time_grows_with_length_alone(piece: str, scope: str):
    swap_gender("her mother", scope)  # loads the tables

    def seconds(size: int) -> float:
        text = piece * (size // len(piece))
        times = []
        for _ in range(2):
            start = time.process_time()
            swap_gender(text, scope)
            times.append(time.process_time() - start)
        return min(times)

    # Ten times the text takes about ten times as long; a hundred times if it were quadratic.
    assert seconds(100_000) < 30 * max(seconds(10_000), 1e-3)
