"""The generator of invented bios: proportions, determinism, language."""

from __future__ import annotations

import re

import pytest
from mlflow.exceptions import MlflowException

from biasbios_mlflow.bios.invented import BENCHMARK_BIOS, SPLITS, invent_bios
from biasbios_mlflow.bios.occupations import GENDERS, OCCUPATIONS
from biasbios_mlflow.bios.sample import read_sample

COLUMNS = ["hard_text", "profession", "gender"]
FIRST_BIOS = [
    [
        "Research interests include health disparities, community health and aging. I am the "
        "author of two monographs and a widely used textbook. Recent publications deal with "
        "epidemiology and with clinical trials. The move to Larkspur changed everything. "
        "Articles have appeared in the leading journals of the field. I am a working mother, "
        "and my son is my greatest teacher.",
        "professor",
        "female",
    ],
    [
        "He has received grants to study cryptography and natural language processing. He "
        "teaches courses on data mining and robotics. He has taught at the Redwater Institute"
        " for Advanced Study and the University of Calder Bay, and enjoys judging literary "
        "prizes. He has been a visiting scholar in Guatemala, where he lectured on parallel "
        "computing.",
        "professor",
        "male",
    ],
]


@pytest.fixture(scope="module")
def bios():
    return invent_bios(5000, seed=7)


def test_the_benchmark_has_393_423_bios_of_28_occupations():
    assert tuple(BENCHMARK_BIOS) == OCCUPATIONS
    assert sum(total for total, _ in BENCHMARK_BIOS.values()) == 393_423
    assert sum(women for _, women in BENCHMARK_BIOS.values()) == 182_102


def test_the_shares_are_the_benchmarks(bios):
    total = sum(count for count, _ in BENCHMARK_BIOS.values())
    found = bios.groupby(["profession", "gender"]).size()
    for occupation, (count, women) in BENCHMARK_BIOS.items():
        for gender, share in (("female", women / total), ("male", (count - women) / total)):
            assert abs(found.get((occupation, gender), 0) - len(bios) * share) < 1


@pytest.mark.parametrize("n", [0, 1, 2, 28, 56, 999])
def test_any_number_of_bios(n):
    bios = invent_bios(n)
    assert list(bios.columns) == COLUMNS
    assert len(bios) == n
    assert list(bios.index) == list(range(n))


def test_the_same_seed_gives_the_same_bios_and_another_seed_or_split_others():
    first = invent_bios(200, seed=3, split="test")
    assert first.equals(invent_bios(200, seed=3, split="test"))
    for other in (invent_bios(200, seed=4, split="test"), invent_bios(200, seed=3)):
        assert not set(first["hard_text"]) & set(other["hard_text"])


def test_these_very_bios():
    # Guards the promise of the same bios on every platform and Python version.
    bios = invent_bios(2, seed=1)
    assert bios.to_numpy().tolist() == FIRST_BIOS


def test_values_and_lengths(bios):
    assert set(bios["profession"]) == set(OCCUPATIONS)
    assert set(bios["gender"]) == set(GENDERS)
    words = bios["hard_text"].str.split().str.len()
    assert words.between(40, 90).all()
    assert bios["hard_text"].is_unique
    assert (
        not bios["hard_text"].str.contains(r"[\t\n{}\[\]|~]|  |\.\.|^\s|\s$|[a-z]{3}\.[A-Z]").any()
    )
    assert bios["hard_text"].str.endswith((".", "!", "”", '"', ".example")).all()


def test_the_first_sentence_does_not_name_the_occupation(bios):
    for row in bios.itertuples():
        first = row.hard_text.partition(". ")[0].lower()
        assert row.profession.replace("_", " ") not in first


def test_pronouns_agree_with_the_gender(bios):
    subject = {"male": ("He", "His"), "female": ("She", "Her")}
    wrong = {"male": r"\b(?:She|Her|hers|herself)\b", "female": r"\b(?:He|His|himself)\b"}
    for gender in GENDERS:
        texts = bios.loc[bios["gender"] == gender, "hard_text"]
        texts = texts.str.replace(r"[“\"][^”\"]*[”\"]|\bhis and hers\b", "", regex=True)
        assert not texts.str.contains(wrong[gender]).any()
        assert texts.str.contains(rf"\b(?:{'|'.join(subject[gender])})\b").mean() > 0.9


def test_every_form_of_pronoun_occurs(bios):
    text = " ".join(bios["hard_text"])
    for form in (
        r"\bher [a-z]+", r"\b(?:for|at|with|to) her[.,]", r"\bhers\b", r"\bherself\b", r"\bshe's\b",
        r"\bshe’s\b", r"\bhim\b", r"\bhis [a-z]+", r"\bhis[.,]", r"\bhis alone\b", r"\bhimself\b",
        r"\bhe/she\b", r"\bhe or she\b", r"\bhis or her\b", r"\(like his\b", r'," she says',
        r",” he says", r"\breceived his M\.D\. from\b", r"\bMr\. [A-Z]", r"\bMs\. [A-Z]",
        r"@[a-z]+\.example\b", r"\bwww\.",
    ):  # fmt: skip
        assert re.search(form, text), form


def test_articles_fit_the_sound(bios):
    text = " ".join(bios["hard_text"])
    assert not re.search(r"\b[Aa] [aeio]\w+", text.replace("a one-woman", "").replace("a one ", ""))
    assert not re.search(r"\b[Aa]n [^aeiouAEFHILMNORSX“]", text)
    for right in ("an elderly cat", "an MFA", "a B.A.", "an award", "a bank"):
        assert right in text


def test_a_subject_keeps_the_surname(bios):
    named = bios["hard_text"].str.findall(r"\b(?:Mr\.|Ms\.|Dr\.) [A-Z][a-z]+")
    assert named.map(lambda names: len(set(names)) <= 1).all()
    assert named.map(bool).mean() > 0.2


def test_a_few_bios_have_no_gendered_word_or_speak_in_the_first_person(bios):
    pronoun = r"(?i)\b(?:he|she|him|her|his|hers|himself|herself)\b"
    assert 0.01 < 1 - bios["hard_text"].str.contains(pronoun).mean() < 0.04
    assert 0.005 < bios["hard_text"].str.contains(r"\b(?:My|my)\b.*\b(?:My|my|I)\b").mean() < 0.03


def test_the_gender_leans_on_the_vocabulary_within_an_occupation():
    bios = invent_bios(8000, seed=5)
    surgeons = bios[bios["profession"].isin(["surgeon", "physician"])]
    by_gender = surgeons.groupby("gender")["hard_text"]
    joints = by_gender.apply(lambda texts: texts.str.contains("sports|joint|spinal").mean())
    children = by_gender.apply(lambda texts: texts.str.contains("pediatric|newborn|breast").mean())
    assert joints["male"] > 1.2 * joints["female"]
    assert children["female"] > 1.2 * children["male"]


@pytest.mark.parametrize("split", SPLITS)
def test_the_samples_size_keeps_the_shares_of_women(split):
    bios = read_sample(split)
    size, least = SPLITS[split]
    cells = bios.groupby(["profession", "gender"]).size().unstack()
    assert cells.min(axis=None) >= least
    assert len(bios) >= size
    for occupation, (total, women) in BENCHMARK_BIOS.items():
        counts = cells.loc[occupation]
        assert abs(counts["female"] - counts.sum() * women / total) <= 0.5


@pytest.mark.parametrize(("arguments", "thing"), [({"n": -1}, "n:"), ({"split": "dev"}, "split:")])
def test_bad_arguments_say_what_is_wrong(arguments, thing):
    with pytest.raises(MlflowException, match=thing) as caught:
        invent_bios(**arguments)
    assert caught.value.error_code == "INVALID_PARAMETER_VALUE"
