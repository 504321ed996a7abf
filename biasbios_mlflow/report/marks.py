"""Two texts side by side: differences marked, long ones cut, control characters shown."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from difflib import SequenceMatcher

__all__ = ["mark_differences", "spreadsheet_safe", "visible"]

_WORDS = re.compile(r"\w+|\s+|[^\w\s]")
_BEFORE = 300

Part = tuple[str, bool]

# Control characters (but tab and line feed) by the symbols that Unicode has for them.
_SYMBOLS = {code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n"} | {0x7F: 0x2421}


def visible(text: str) -> str:
    r"""Return a text with its control characters shown as symbols, and lone surrogates replaced.

    Examples
    --------
    >>> visible("a\x00b\tc")
    'a␀b\tc'
    """
    text = text.replace("\r\n", "\n").translate(_SYMBOLS)
    return text.encode("utf-8", "replace").decode("utf-8")


def spreadsheet_safe(cell: object) -> object:
    r"""Return a cell that no spreadsheet takes for a formula: a text gets an apostrophe in front.

    Numbers stay as they are. See "CSV Injection" of the OWASP Foundation.

    Examples
    --------
    >>> spreadsheet_safe('=HYPERLINK("https://host.example")'), spreadsheet_safe(-1.5)
    ('\'=HYPERLINK("https://host.example")', -1.5)
    """
    if not isinstance(cell, str):
        return cell
    shown = visible(cell)
    return f"'{shown}" if shown.lstrip(" \n").startswith(("=", "+", "-", "@", "\t")) else shown


def mark_differences(
    before: str, after: str, *, longest: int = 2000
) -> tuple[list[Part], list[Part]]:
    """Cut two texts into parts, each with whether it differs from the other text.

    Parameters
    ----------
    before, after : str
    longest : int
        Of longer texts this many characters from shortly before the first difference; an ellipsis
        stands for the rest.

    Returns
    -------
    before, after : list of (str, bool)

    Examples
    --------
    >>> mark_differences("She sings.", "He sings.")
    ([('She', True), (' sings.', False)], [('He', True), (' sings.', False)])
    """
    pairs = enumerate(zip(before, after, strict=False))
    first = next((at for at, (x, y) in pairs if x != y), min(len(before), len(after)))
    start = 0 if max(len(before), len(after)) <= longest else max(0, first - _BEFORE)
    a, b = (_WORDS.findall(text[start : start + longest]) for text in (before, after))
    sides: tuple[list[Part], list[Part]] = ([], [])
    for same, old, new in _runs(a, b, cut=start + longest < max(len(before), len(after))):
        for side, words in zip(sides, (old, new), strict=True):
            if words:
                side.append((visible("".join(words)), not same))
    for side, text in zip(sides, (before, after), strict=True):
        if start:
            side.insert(0, ("… ", False))
        if start + longest < len(text):
            side.append((" …", False))
    return sides


def _runs(a: list[str], b: list[str], *, cut: bool) -> Iterator[tuple[bool, list[str], list[str]]]:
    """Yield runs of words that are the same, or not, on both sides."""
    # A swap puts a word for a word: side by side, no other alignment can come between. Words and
    # the spaces between them: not even a text of pronouns only differs in more than half of them.
    differ = [x != y for x, y in zip(a, b, strict=False)]
    if (cut or len(a) == len(b)) and sum(differ) <= (len(differ) + 1) // 2:
        at = 0
        for different, run in itertools.groupby(differ):
            end = at + len(list(run))
            yield not different, a[at:end], b[at:end]
            at = end
        # What one window holds more than the other is no difference: it was cut elsewhere.
        yield True, a[at:], b[at:]
        return
    for kind, a1, a2, b1, b2 in SequenceMatcher(None, a, b, autojunk=False).get_opcodes():
        yield kind == "equal", a[a1:a2], b[b1:b2]
