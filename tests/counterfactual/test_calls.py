"""What goes in and what comes out."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from mlflow.exceptions import MlflowException

from biasbios_mlflow.counterfactual import (
    DIRECTIONS,
    SCOPES,
    changed_words,
    swap_gender,
    swap_with_directions,
)


def test_a_str_gives_a_str_and_the_rest_a_list():
    assert swap_gender("he") == "she"
    for texts in (["he", ""], ("he", ""), pd.Series(["he", ""], index=[7, 7])):
        assert swap_gender(texts) == ["she", ""]
    assert swap_gender([]) == []


def test_directions():
    texts = ["Paints.", "He paints.", "She paints.", "She knows him.", "s/he"]
    swapped, directions = swap_with_directions(texts)
    assert directions.dtype == np.int8
    named = [DIRECTIONS[code] for code in directions]
    assert named == ["none", "male_to_female", "female_to_male", "mixed", "none"]
    assert swapped == ["Paints.", "She paints.", "He paints.", "He knows her.", "s/he"]


@pytest.mark.parametrize("scope", SCOPES)
def test_direction_none_means_unchanged(scope: str):
    texts = ["Mr. Aro", "Michael Aro", "a mother", "her", "", "Dr. Aro of Queens, NY"]
    swapped, directions = swap_with_directions(texts, scope)
    assert [new == text for new, text in zip(swapped, texts, strict=True)] == list(directions == 0)


@pytest.mark.parametrize("call", [swap_gender, swap_with_directions])
def test_unknown_scope(call):
    with pytest.raises(MlflowException, match=r"scope: found 'word', .*use 'words'") as caught:
        call(["he"], "word")
    assert caught.value.error_code == "INVALID_PARAMETER_VALUE"
    with pytest.raises(MlflowException, match="expected one of pronouns, titles, words, names"):
        changed_words("he", "xyz")


@pytest.mark.parametrize("texts", [None, 3, b"he", {"he"}, {"he": 1}, iter(["he"])])
def test_no_texts(texts):
    with pytest.raises(MlflowException, match=f"found {type(texts).__name__}, expected a str"):
        swap_gender(texts)


@pytest.mark.parametrize("missing", [None, float("nan"), 3, b"he"])
def test_a_text_that_is_none(missing):
    with pytest.raises(MlflowException, match=r"text 1: found .*, expected a str"):
        swap_gender(["he", missing])
    with pytest.raises(MlflowException, match="expected a str"):
        changed_words(missing)


def test_the_import_is_light_and_the_tables_are_lazy():
    code = (
        "import sys; import biasbios_mlflow.counterfactual as room; from biasbios_mlflow."
        "counterfactual import context, lexicon, names; assert not {'torch', 'matplotlib', "
        "'faker', 'spacy', 'sklearn'} & set(sys.modules); assert not any(table.cache_info()."
        "currsize for table in (context._model, lexicon._words, names._pairs)); "
        "print(room.swap_gender('her'), 'faker' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["him", "False"], done.stderr
