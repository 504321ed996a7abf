"""User errors: one exception class, one shape of message.

Every error a user can cause is an ``MlflowException`` with code ``INVALID_PARAMETER_VALUE`` whose
text names the thing, what was found, what was expected and the fix.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import INVALID_PARAMETER_VALUE

__all__ = ["invalid", "missing_extra", "nearest"]


def invalid(thing: str, *, found: object, expected: object, fix: str) -> MlflowException:
    """Build the exception for a user error (the caller raises it).

    Parameters
    ----------
    thing : str
        What is wrong, as the user named it: an option, a column, a file.
    found, expected : object
        What was found there and what would have been right; shown with ``str``.
    fix : str
        One sentence that says what to do, without the closing stop.

    Returns
    -------
    mlflow.exceptions.MlflowException
        With error code ``INVALID_PARAMETER_VALUE``.

    Examples
    --------
    >>> error = invalid("min_cell", found=0, expected="a whole number of at least 1", fix="use 1")
    >>> print(error)
    min_cell: found 0, expected a whole number of at least 1. Fix: use 1.
    >>> error.error_code
    'INVALID_PARAMETER_VALUE'
    """
    stop = "" if fix.endswith("?") else "."
    return MlflowException(
        f"{thing}: found {found}, expected {expected}. Fix: {fix}{stop}",
        error_code=INVALID_PARAMETER_VALUE,
    )


def missing_extra(package: str, extra: str, *, needed_for: str) -> MlflowException:
    """Build the exception for an optional dependency that is not installed.

    Parameters
    ----------
    package : str
        The import that failed.
    extra : str
        The extra of this project that brings it.
    needed_for : str
        What the user asked for.

    Returns
    -------
    mlflow.exceptions.MlflowException
        With error code ``INVALID_PARAMETER_VALUE``.

    Examples
    --------
    >>> print(missing_extra("datasets", "hub", needed_for="hub:LabHC/bias_in_bios"))
    hub:LabHC/bias_in_bios: found no package 'datasets', expected it to be installed. \
Fix: pip install 'biasbios-mlflow[hub]'.
    """
    return invalid(
        needed_for,
        found=f"no package '{package}'",
        expected="it to be installed",
        fix=f"pip install 'biasbios-mlflow[{extra}]'",
    )


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that ``word`` most likely meant, or None.

    Examples
    --------
    >>> nearest("min_cels", ["min_cell", "seed"])
    'min_cell'
    >>> nearest("xyz", ["min_cell", "seed"]) is None
    True
    """
    matches = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return matches[0] if matches else None
