"""The swap cases of ``swap_cases.tsv``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

_ESCAPES = {r"\t": "\t", r"\n": "\n", r"\\": "\\"}


class SwapCase(NamedTuple):
    """A text, its right swap, and what the case shows."""

    text: str
    swapped: str
    why: str


def swap_cases() -> list[SwapCase]:
    """Read the cases; tab, newline and backslash are escaped in the file."""
    lines = Path(__file__).with_name("swap_cases.tsv").read_text(encoding="utf-8").split("\n")
    return [
        SwapCase(
            *(re.sub(r"\\[tn\\]", lambda match: _ESCAPES[match.group()], cell) for cell in row)
        )
        for row in (line.split("\t") for line in lines[1:] if line)
    ]
