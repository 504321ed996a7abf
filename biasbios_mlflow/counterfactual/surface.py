"""The text as a reader sees it: without markup, entities and characters that take no room.

All scopes read this surface; their edits are laid over the text as it was written.
"""

from __future__ import annotations

import html
import re
from bisect import bisect_right
from typing import NamedTuple

from biasbios_mlflow.counterfactual.edits import Edit

__all__ = ["Surface", "surface_of"]

_BLOCKS = (
    "p|br|div|li|ul|ol|dl|dt|dd|h[1-6]|hr|table|tbody|thead|tr|td|th|blockquote|pre|section|article"
)
_INLINE = (
    "a|abbr|b|big|cite|code|del|em|font|i|img|ins|mark|q|s|small|span|strike|strong|sub|sup|tt|u"
)
# Blanks: white space, spelled-out ones, and what marks a break in a word without taking room.
_BLANK = r"(?:\s|[\u200b\ufeff]|&(?:amp;)?(?:nbsp|ensp|emsp|thinsp|#160|#[xX][aA]0);)"
# Every alternative reads up to the next character of its own kind at most: linear in the length.
_HIDDEN = re.compile(
    rf"(?P<space>(?! ){_BLANK}{_BLANK}+|(?!\n)[^\S ]|[\u200b\ufeff]|(?=&){_BLANK}| {_BLANK}+)"
    rf"|(?P<block></?(?i:{_BLOCKS})(?:[\s/][^<>]*)?>)"
    rf"|(?P<inline></?(?i:{_INLINE})(?:[\s/][^<>]*)?>|<![^<>]*>|\[/?[biu]\]"
    r"|&lt;/?(?:b|em|i|p|span|strong|u)&gt;)"
    r"|(?P<entity>&(?:amp;)?(?:#\d{1,7}|#[xX][\da-fA-F]{1,6}|[a-zA-Z][a-zA-Z0-9]{1,30});)"
    r"|(?P<joiner>[\u00ad\u034f\u061c\u180e\u200c-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069])"
    r"|(?P<link>\[(?=[^\[\]\n]+\]\()|\]\([^()\s]*\))"
    r"|(?P<star>(?<!\w)\*{1,3}(?=\w)|(?<=[\w.,!?])\*{1,3}(?!\w))"
    r"|(?P<opening>(?<!\w)_{1,3}(?=[^\W_][^_\n]*_))"
    r"|(?P<closing>(?<=[^\s_])_{1,3}(?!\w))"
)
_LINE_ENDS = re.compile(r"\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028]")


class _Piece(NamedTuple):
    """What stands at ``at`` of the surface: ``start`` to ``end`` of the text, as it is or not."""

    at: int
    start: int
    end: int
    literal: bool


class Surface:
    """A text as read, and the way back to the text as written.

    Parameters
    ----------
    text : str
        As written.

    Attributes
    ----------
    text : str
        As read: markup and joiners gone, entities resolved, each stretch of white space a blank, a
        line end or, for an empty line or a block of HTML, a paragraph's end.

    Examples
    --------
    >>> Surface("They visit <b>her</b>&nbsp;daily.").text
    'They visit her daily.'
    """

    def __init__(self, text: str) -> None:
        self._written = text
        self._pieces: list[_Piece] = []
        parts: list[str] = []
        at = last = 0
        emphasis = False
        for match in _HIDDEN.finditer(text):
            kind = match.lastgroup or ""
            found = match.group()
            start, end = match.span()
            if kind == "opening":
                emphasis = True
            elif kind == "closing":
                if not emphasis:
                    continue
                emphasis = False
            new = _as_read(kind, found)
            if new == found:
                continue
            if start > last:
                parts.append(text[last:start])
                self._pieces.append(_Piece(at, last, start, True))
                at += start - last
            self._pieces.append(_Piece(at, start, end, False))
            if new:
                parts.append(new)
                at += len(new)
            last = end
        parts.append(text[last:])
        self._pieces.append(_Piece(at, last, len(text), True))
        self.text = "".join(parts)
        self._starts = [piece.at for piece in self._pieces]

    def written(self, edit: Edit) -> Edit:
        """Return an edit of the surface as one of the text.

        Markup within the word is kept behind it.

        Examples
        --------
        >>> Surface("<b>her</b>self").written((0, 7, "himself", 2))
        (3, 14, 'himself</b>', 2)
        """
        start, end, new, direction = edit
        first = bisect_right(self._starts, start) - 1
        last = bisect_right(self._starts, end - 1) - 1
        opening, closing = self._pieces[first], self._pieces[last]
        written_start = opening.start + (start - opening.at if opening.literal else 0)
        written_end = closing.start + (end - closing.at) if closing.literal else closing.end
        for index in range(first + 1, last):
            piece = self._pieces[index]
            if not piece.literal and self._starts[index + 1] == piece.at:
                new += self._written[piece.start : piece.end]
        return written_start, written_end, new, direction


def _as_read(kind: str, found: str) -> str:
    if kind == "block":
        return "\n\n"
    if kind == "entity":
        read = html.unescape(html.unescape(found))
        if read == found:
            return found
        hidden = _HIDDEN.fullmatch(read)
        return _as_read(hidden.lastgroup or "", read) if hidden else read
    if kind == "space":
        if "\u2029" in found:
            return "\n\n"
        lines = len(_LINE_ENDS.findall(found))
        return ("", "\n", "\n\n")[min(lines, 2)] or " "
    return ""


def surface_of(text: str) -> Surface | None:
    """Return the surface of a text, None where the text is its own surface.

    Examples
    --------
    >>> surface_of("Nothing hidden.") is None, surface_of("A&nbsp;blank.").text
    (True, 'A blank.')
    """
    if (  # beside these, the expression looks for characters that are not printable only
        text.isprintable()
        and "  " not in text
        and "*" not in text
        and "&" not in text
        and "<" not in text
        and "[" not in text
        and "_" not in text
    ):
        return None
    surface = Surface(text)
    return None if surface.text == text else surface
