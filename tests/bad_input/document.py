"""Writes the table into the docs: ``python -m tests.bad_input.document``."""

from __future__ import annotations

import itertools
from pathlib import Path

from tests.bad_input.table import TABLE, Case

__all__ = ["document"]

_HEAD = """# Bad and odd input

What users hand in by mistake, or what looks odd and is not, and what comes of it. Every row is a
test (`tests/bad_input/`): the calls are made, and this is what they give.

`bios(column=[…])` are four invented bios, twice, with a column in the place of the usual one.
`file(name, content)` writes a file (the four bios by default), `files(…)` a folder of them,
`classes(…)` a parquet file as the library `datasets` writes it, `ids(…)` one of other ids.
`evaluate` evaluates without a run, by default a model that always answers nurse (`says("nurse")`).

This page is generated: `python -m tests.bad_input.document`.
"""


def document() -> str:
    """Return the page."""
    parts = [_HEAD]
    for group, cases in itertools.groupby(TABLE, key=lambda case: case.group):
        rows = "\n".join(f"| {_code(case.call)} | {_outcome(case)} |" for case in cases)
        parts.append(f"## {group}\n\n| call | what comes of it |\n| --- | --- |\n{rows}\n")
    return "\n".join(parts)


def _outcome(case: Case) -> str:
    if case.kind == "error":
        return f"error: {_escaped(case.outcome)} …"
    return _code(case.outcome) if case.outcome else "`''`"


def _code(text: str) -> str:
    # A backtick or a line end would leave the cell.
    ticks = "``" if "`" in text else "`"
    return f"{ticks}{_escaped(text)}{ticks}"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", "\\n")


if __name__ == "__main__":
    path = Path(__file__).parents[2] / "docs" / "bad_input.md"
    path.write_text(document(), "utf-8")
