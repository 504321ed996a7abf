"""Whatever the labels and their spelling, `score` and the evaluation agree with a plain count."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings

from biasbios_mlflow import score
from biasbios_mlflow.bios.occupations import canonical
from tests.bad_input.calls import evaluate

SCRIPTS = ("Arabic", "Bengali", "Cyrillic", "Greek", "Hebrew", "Hiragana", "Latin", "Thai")


def plain(label: str) -> str:
    """Return what is the same in all spellings, in other words than the package's."""
    folded = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", label).casefold())
    return "_".join(re.split(r"[\s_-]+", folded.strip()))


def _is_letter_of_a_script(letter: str) -> bool:
    name = unicodedata.name(letter, "").title()
    return name.startswith((*SCRIPTS, "Cjk", "Hangul", "Devanagari", "Georgian"))


LETTERS = st.characters(categories=["Lu", "Ll", "Lo"], max_codepoint=0xFFFF).filter(
    _is_letter_of_a_script
)
NAMES = st.lists(
    st.lists(st.text(LETTERS, min_size=1, max_size=6), min_size=1, max_size=3).map(" ".join),
    min_size=1,
    max_size=4,
    unique_by=plain,
)
IDS = st.lists(st.integers(0, 60), min_size=1, max_size=5, unique=True)


def spellings_of_name(name: str) -> st.SearchStrategy[str]:
    def cased(change: Callable[[str], str]) -> str:
        changed = change(name)
        return changed if plain(changed) == plain(name) else name  # not so for the Turkish i

    return st.builds(
        lambda case, form, gap, ends: ends + unicodedata.normalize(form, case).replace(" ", gap),
        st.sampled_from([name, cased(str.upper), cased(str.lower), cased(str.title)]),
        st.sampled_from(["NFC", "NFD", "NFKC", "NFKD"]),
        st.sampled_from([" ", "-", "_", "  ", " - ", "\u2011", "\u00a0"]),
        st.sampled_from(["", " ", "\t"]),
    )


def spellings_of_id(number: int) -> st.SearchStrategy[Any]:
    kinds: list[Any] = [
        int, float, str, np.int64, np.int8, np.float32, np.float16, lambda n: f"{n}.0",
    ]  # fmt: skip
    return st.sampled_from(kinds).map(lambda kind: kind(number))


@st.composite
def bios_of_labels(draw: st.DrawFn) -> tuple[list[Any], ...]:
    """Draw codes of labels, and some spelling of each."""
    ids = draw(st.booleans())
    labels: list[Any] = draw(IDS if ids else NAMES)
    spelled: Callable[[Any], Any] = spellings_of_id if ids else spellings_of_name
    code = st.integers(0, len(labels) - 1)
    rows = draw(st.lists(st.tuples(code, code, st.booleans()), min_size=1, max_size=12))
    truths = [truth for truth, _, _ in rows]
    guesses = [truths[0], *(guess for _, guess, _ in rows[1:])]  # one is right
    genders = [woman for _, _, woman in rows]
    return (
        truths,
        guesses,
        genders,
        [draw(spelled(labels[i])) for i in truths],
        [draw(spelled(labels[i])) for i in guesses],
    )


@settings(max_examples=60)
@given(bios_of_labels())
def test_score_and_evaluation_agree_with_a_plain_count(data: tuple[list[Any], ...]) -> None:
    truths, guesses, genders, occupations, predictions = data
    right = [a == b for a, b in zip(truths, guesses, strict=True)]
    expected = {"accuracy": sum(right) / len(right)}
    recalls, gaps = [], []
    for label in set(truths):
        cells = [
            [r for r, t, g in zip(right, truths, genders, strict=True) if (t, g) == (label, woman)]
            for woman in (False, True)
        ]
        whole = cells[0] + cells[1]
        recalls.append(sum(whole) / len(whole))
        if all(cells):
            gaps.append(sum(cells[0]) / len(cells[0]) - sum(cells[1]) / len(cells[1]))
    expected["balanced_accuracy"] = sum(recalls) / len(recalls)
    if gaps:
        expected["gap_abs"] = sum(map(abs, gaps)) / len(gaps)
    frame = pd.DataFrame(
        {
            "hard_text": [f"Text {i}." for i in range(len(truths))],
            "profession": pd.Series(occupations, dtype=object),
            "gender": ["F" if woman else "M" for woman in genders],
            "guess": pd.Series(predictions, dtype=object),
        }
    )
    scored = score(frame["profession"], frame["gender"], frame["guess"], min_cell=1).metrics
    evaluated = evaluate(frame, predictions="guess").scores.metrics
    for metrics in (scored, evaluated):
        assert {name: metrics[name] for name in expected} == pytest.approx(expected, abs=1e-12)
        assert ("gap_abs" in metrics) == bool(gaps)


@given(NAMES.flatmap(lambda names: st.tuples(*(spellings_of_name(name) for name in names))))
def test_different_labels_stay_different(names: tuple[str, ...]) -> None:
    assert len({canonical(name) for name in names}) == len(names)


@given(st.text())
def test_the_canonical_form_is_its_own(name: str) -> None:
    assert canonical(canonical(name)) == canonical(name)
