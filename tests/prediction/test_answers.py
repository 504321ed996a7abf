"""Answers in words are read as the table says, and never more is read than was said."""

from __future__ import annotations

import json
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from biasbios_mlflow.bios.occupations import OCCUPATIONS
from biasbios_mlflow.prediction.answers import (
    NO_ANSWER,
    NOT_NAMED,
    SEVERAL_NAMED,
    AnswerReader,
    is_chat_shaped,
    looks_written,
)
from tests.prediction.answers_table import ANSWERS, KINDS

READER = AnswerReader(OCCUPATIONS)
WHY = {"": NO_ANSWER, "-": NOT_NAMED, "+": SEVERAL_NAMED}


def read(answer: object, reader: AnswerReader = READER, names: Any = OCCUPATIONS) -> str | None:
    found = reader.read(answer)
    return found.why if found.code is None else names[found.code]


@pytest.mark.parametrize("kind", KINDS)
def test_the_table(kind: str) -> None:
    found = [(answer, read(answer)) for answer, _ in KINDS[kind]]
    assert found == [(answer, WHY.get(wanted, wanted)) for answer, wanted in KINDS[kind]]


def test_there_are_200_of_them() -> None:
    assert len({repr(answer) for _, answer, _ in ANSWERS}) >= 200


OCCUPATION = st.sampled_from(OCCUPATIONS)
FORMS = ("{}", "{}.", '"{}"', "**{}**", "a {}", "It is a {}.", "Answer: {}", '{{"x": "{}"}}')


@hypothesis.given(OCCUPATION, st.sampled_from(FORMS), st.sampled_from([str.upper, str.title, str]))
@hypothesis.settings(max_examples=60)
def test_every_occupation_is_read_in_every_form(name: str, form: str, case: Any) -> None:
    assert read(form.format(case(name.replace("_", " ")))) == name


@hypothesis.given(OCCUPATION, OCCUPATION, st.sampled_from([" or ", ", ", "\n", " and a ", "; "]))
@hypothesis.settings(max_examples=60)
def test_two_occupations_are_never_one(first: str, second: str, between: str) -> None:
    answer = f"a {first.replace('_', ' ')}{between}{second.replace('_', ' ')}"
    assert read(answer) == (first if first == second else SEVERAL_NAMED)


@hypothesis.given(st.text(max_size=60))
@hypothesis.settings(max_examples=200)
def test_any_text_is_read_or_not_but_never_fails(text: str) -> None:
    found = READER.read(text)
    assert (found.code is None) == (found.why is not None)
    assert READER.read({"choices": [{"message": {"content": text}}]}) == found
    if found.code is not None:  # nothing is read that is not there
        name = OCCUPATIONS[found.code].split("_")[0][:-1]
        assert name in text.casefold() or not text.isascii()


def test_other_label_sets() -> None:
    names = [
        "médecin",
        "Cabin crew",
        "医師",
        "C++ developer",
        "nurse",
        "nurse practitioner",
        "city",
    ]
    reader = AnswerReader(names)
    answers = {
        "Elle est MÉDECIN.": "médecin",
        "Elle est me\u0301decin": "médecin",
        "part of the cabin crew": "Cabin crew",
        "彼女は医師です": "医師",
        "a C++ developer": "C++ developer",
        "She is a nurse practitioner.": "nurse practitioner",
        "She is a nurse.": "nurse",
        "cities": "city",
    }
    assert {answer: read(answer, reader, names) for answer in answers} == answers


def test_what_looks_written() -> None:
    assert looks_written(["The person is a nurse.", "It is a poet."], READER)
    assert looks_written([json.dumps({"occupation": "nurse"})], READER)
    assert looks_written(["Nurse.", "nurse", "Poet."], READER)
    # Labels, though of another set, and labels with a few sentences among them.
    assert not looks_written(["nurse practitioner", "poet laureate"] * 9, READER)
    assert not looks_written(["nurse", "poet", "I cannot say."], READER)
    # Written, but about nothing that is known here.
    assert not looks_written(["It is a whale.", "It is a fish."], READER)
    assert not looks_written([1, 2, None], READER)


def test_what_is_chat_shaped() -> None:
    assert all(is_chat_shaped(a) for _, a, _ in ANSWERS if isinstance(a, dict))
    others = [{"label": ["nurse"]}, {"nurse": 0.9}, {"output": "nurse"}, ["nurse"], "nurse", None]
    assert not any(map(is_chat_shaped, others))
