"""The question that a language model is asked about a bio."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["BUILT_IN", "Prompt", "shown"]

BUILT_IN = """\
Which occupation does the person in this biography have? Choose exactly one of these occupations \
and answer with its name alone, nothing else.

Occupations: {occupations}

Biography: {bio}

Occupation:"""
"""What is asked where the user has no prompt of their own."""

_PLACES = re.compile(r"\{(bio|occupations)\}")


def shown(name: str) -> str:
    """Return an occupation as a prompt names it.

    Examples
    --------
    >>> shown("software_engineer")
    'software engineer'
    """
    return " ".join(name.replace("_", " ").split())


@dataclass(frozen=True)
class Prompt:
    """A template with the places ``{bio}`` and ``{occupations}``; all else stands as it is.

    What is put in is never read as a template itself: braces in a bio are braces.

    Parameters
    ----------
    template : str

    Examples
    --------
    >>> Prompt("{occupations}? {bio}").fill("I {bio} {x}.", ["poet", "yoga_teacher"])
    'poet, yoga teacher? I {bio} {x}.'
    """

    template: str = BUILT_IN

    def fill(self, bio: str, occupations: Sequence[str]) -> str:
        """Return the question about one bio.

        Parameters
        ----------
        bio : str
        occupations : sequence of str
            Names, in the order in which they are listed.
        """
        parts = {"bio": bio, "occupations": ", ".join(map(shown, occupations))}
        return _PLACES.sub(lambda place: parts[place[1]], self.template)

    @property
    def sha256(self) -> str:
        """Hash of the template."""
        return hashlib.sha256(self.template.encode("utf-8", "surrogatepass")).hexdigest()
