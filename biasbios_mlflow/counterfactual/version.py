"""The swap's own version: what results that rest on swapped texts depend on."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import resources

__all__ = ["swap_version"]


@cache
def swap_version() -> str:
    """Return a hash over the tables and the rules of the swap.

    It changes by itself with every file of this package, so that nobody has to remember to raise a
    number, and is the same on every machine and from every kind of installation.

    Returns
    -------
    str
        Twelve hexadecimal digits.

    Examples
    --------
    >>> len(swap_version()), int(swap_version(), 16) >= 0
    (12, True)
    """
    digest = hashlib.sha256()
    for file in sorted(resources.files(__package__).iterdir(), key=lambda file: file.name):
        if file.is_file() and file.name.endswith((".py", ".tsv", ".txt", ".xz")):
            content = file.read_bytes()
            if not file.name.endswith(".xz"):
                content = content.replace(b"\r\n", b"\n")  # a checkout may translate line ends
            digest.update(f"{file.name} {len(content)}\n".encode())
            digest.update(content)
    return digest.hexdigest()[:12]
