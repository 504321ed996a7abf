"""Differences of two texts, control characters, cells that are formulas to a spreadsheet."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from biasbios_mlflow import swap_gender
from biasbios_mlflow.report.marks import mark_differences, spreadsheet_safe, visible

words = st.lists(
    st.sampled_from(
        ["she", "He", "her", "his", "works", "at", "\n", "🙂", "a-b", "\u202e", "\x00"]
    ),
    max_size=30,
).map(" ".join)


@given(words, words)
def test_parts_make_up_both_texts_and_unmarked_ones_are_common(before: str, after: str) -> None:
    old, new = mark_differences(before, after)
    assert "".join(part for part, _ in old) == visible(before)
    assert "".join(part for part, _ in new) == visible(after)
    assert [p for p, differs in old if not differs] == [p for p, differs in new if not differs]
    if before == after:
        assert not any(differs for _, differs in [*old, *new])


@given(words)
def test_exactly_the_swapped_words_are_marked(text: str) -> None:
    old, new = mark_differences(text, swap_gender(text))
    marked = [part.strip().lower() for part, differs in old if differs]
    assert all(word in {"she", "he", "her", "his"} for part in marked for word in part.split())
    assert len(marked) == len([part for part, differs in new if differs])


def test_long_texts_are_cut_around_the_first_difference() -> None:
    before = "x " * 50_000 + "she sings" + " y" * 50_000
    old, new = mark_differences(before, before.replace("she", "he"), longest=1000)
    shown = "".join(part for part, _ in old)
    assert len(shown) < 1010
    assert shown.startswith("… ")
    assert shown.endswith(" …")
    assert [part for part, differs in old if differs] == ["she"]
    assert [part for part, differs in new if differs] == ["he"]


@pytest.mark.parametrize(
    "cell", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", " =1", "\r\n=1", '=HYPERLINK("x")']
)
def test_formulas_become_text(cell: str) -> None:
    assert str(spreadsheet_safe(cell)).startswith("'")


@pytest.mark.parametrize("cell", ["she = he", "a-b", "", 1, -2.5, None, True])
def test_other_cells_stay(cell: object) -> None:
    assert spreadsheet_safe(cell) == cell


@given(st.text(st.characters()))
def test_visible_text_is_printable_and_encodable(text: str) -> None:
    shown = visible(text)
    shown.encode("utf-8")
    assert not any(ord(c) < 32 and c not in "\t\n" for c in shown)
    assert "\x7f" not in shown
