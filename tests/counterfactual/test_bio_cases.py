"""What biographies are made of, kind by kind: ``swap_cases_bios.tsv``."""

from __future__ import annotations

from pathlib import Path

import pytest

from biasbios_mlflow.counterfactual import swap_gender

ROWS = [
    tuple(row.split("\t"))
    for row in Path(__file__)
    .with_name("swap_cases_bios.tsv")
    .read_text(encoding="utf-8")
    .split("\n")[1:]
    if row
]


@pytest.mark.parametrize("kind", sorted({row[3] for row in ROWS}))
def test_cases_of_a_kind(kind: str):
    rows = [row for row in ROWS if row[3] == kind]
    swapped = [swap_gender(text, scope) for text, scope, _, _ in rows]
    assert swapped == [right for _, _, right, _ in rows]
