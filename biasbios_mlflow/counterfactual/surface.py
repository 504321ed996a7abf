"""The text as a reader sees it: without markup, entities and characters that take no room.

All scopes read this surface; their edits are laid over the text as it was written.
"""

from __future__ import annotations

import html
import re
from bisect import bisect_right

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
    r"(?=[^\w .,'’-]|_| [\s\u200b\ufeff&])(?:"  # nothing else begins one: most characters end here
    rf"(?P<space>(?=[\s\u200b\ufeff&])"
    rf"(?:(?! ){_BLANK}{_BLANK}+|(?!\n)[^\S ]|[\u200b\ufeff]|(?=&){_BLANK}| {_BLANK}+))"
    rf"|(?P<block></?(?i:{_BLOCKS})(?:[\s/][^<>]*)?>)"
    rf"|(?P<inline></?(?i:{_INLINE})(?:[\s/][^<>]*)?>|<![^<>]*>|\[/?[biu]\]"
    r"|&lt;/?(?:b|em|i|p|span|strong|u)&gt;)"
    r"|(?P<entity>&(?:amp;)?(?:#\d{1,7}|#[xX][\da-fA-F]{1,6}|[a-zA-Z][a-zA-Z0-9]{1,30});)"
    r"|(?P<joiner>[\u00ad\u034f\u061c\u180e\u200c-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069])"
    r"|(?P<link>\[(?=[^\[\]\n]+\]\()|\]\([^()\s]*\))"
    r"|(?P<star>(?<!\w)\*{1,3}(?=\w)|(?<=[\w.,!?])\*{1,3}(?!\w))"
    r"|(?P<opening>(?<!\w)_{1,3}(?=[^\W_][^_\n]*_))"
    r"|(?P<closing>(?<=[^\s_])_{1,3}(?!\w)))"
)
_READ = frozenset(("space", "block", "entity"))  # the other kinds read as nothing
_LINE_ENDS = re.compile(r"\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028]")


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
        # Stretches of the text: where each begins in the surface and in the text, where it ends
        # in the text, and whether it reads as it is written.
        self._starts: list[int] = []
        self._pieces: list[tuple[int, int, bool]] = []
        parts: list[str] = []
        at = last = 0
        emphasis = False
        for match in _HIDDEN.finditer(text):
            kind = match.lastgroup or ""
            start, end = match.span()
            new = ""
            if kind in _READ:
                found = match.group()
                new = _as_read(kind, found)
                if new == found:
                    continue
            elif kind == "opening":
                emphasis = True
            elif kind == "closing":
                if not emphasis:
                    continue
                emphasis = False
            if start > last:
                parts.append(text[last:start])
                self._starts.append(at)
                self._pieces.append((last, start, True))
                at += start - last
            self._starts.append(at)
            self._pieces.append((start, end, False))
            if new:
                parts.append(new)
                at += len(new)
            last = end
        parts.append(text[last:])
        self._starts.append(at)
        self._pieces.append((last, len(text), True))
        self.text = "".join(parts)

    def written(self, edit: Edit) -> Edit:
        """Return an edit of the surface as one of the text.

        Markup within the word is kept behind it.

        Examples
        --------
        >>> Surface("<b>her</b>self").written((0, 7, "himself", 2))
        (3, 14, 'himself</b>', 2)
        """
        start, end, new, direction = edit
        starts, pieces = self._starts, self._pieces
        first = bisect_right(starts, start) - 1
        last = bisect_right(starts, end - 1) - 1
        from_start, _, as_is = pieces[first]
        to_start, to_end, to_as_is = pieces[last]
        written_start = from_start + (start - starts[first] if as_is else 0)
        written_end = to_start + (end - starts[last]) if to_as_is else to_end
        for index in range(first + 1, last):
            piece_start, piece_end, piece_as_is = pieces[index]
            if not piece_as_is and starts[index + 1] == starts[index]:
                new += self._written[piece_start:piece_end]
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
