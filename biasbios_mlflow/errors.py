"""User errors: one exception class, one shape of message.

Every error a user can cause is an ``MlflowException`` with code ``INVALID_PARAMETER_VALUE`` whose
text names the thing, what was found, what was expected and the fix.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, get_args

if TYPE_CHECKING:
    import pydantic
    from mlflow.exceptions import MlflowException

from biasbios_mlflow.redaction import HIDDEN, is_secret_name, redacted, redacted_content

__all__ = ["from_validation", "invalid", "missing_extra", "nearest"]


def invalid(thing: str, *, found: object, expected: object, fix: str) -> MlflowException:
    """Build the exception for a user error (the caller raises it).

    Secrets are taken out of it, see `biasbios_mlflow.redaction`.

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
    # Imported when there is an error to tell: MLflow takes seconds, and scoring and swapping need
    # nothing else of it.
    from mlflow.exceptions import MlflowException
    from mlflow.protos.databricks_pb2 import INVALID_PARAMETER_VALUE

    stop = "" if fix.endswith("?") else "."
    return MlflowException(
        redacted(f"{thing}: found {found}, expected {expected}. Fix: {fix}{stop}"),
        error_code=INVALID_PARAMETER_VALUE,
    )


def from_validation(
    thing: str, error: pydantic.ValidationError, model: type[pydantic.BaseModel]
) -> MlflowException:
    """Turn the first complaint of pydantic into the exception for a user error.

    Parameters
    ----------
    thing : str
        What was validated.
    error : pydantic.ValidationError
    model : type
        The model it was validated against, for the known keys and what they mean.

    Returns
    -------
    mlflow.exceptions.MlflowException
        With error code ``INVALID_PARAMETER_VALUE``.
    """
    # An unknown key first: it is the cause of whatever is missing.
    problem = min(error.errors(), key=lambda p: p["type"] != "extra_forbidden")
    path = [part for part in problem["loc"] if part != "__root__"]
    owner = _model_at(model, path[:-1])
    if problem["type"] == "extra_forbidden" and owner is not None:
        keys = [field.alias or name for name, field in owner.model_fields.items()]
        near = nearest(str(path[-1]), keys)
        known = ", ".join(sorted(keys))
        return invalid(
            ".".join([thing, *map(str, path[:-1])]),
            found=f"the key {path[-1]!r}",
            expected=f"one of {known}",
            fix=f"did you mean {near!r}?" if near else "use one of these",
        )
    # The members of a union and the places in a list have no description: their field has.
    fields = (owner or model).model_fields
    about = next((fields[str(part)] for part in reversed(path) if str(part) in fields), None)
    found = "nothing" if problem["type"] == "missing" else repr(redacted_content(problem["input"]))
    if found != "nothing" and any(is_secret_name(str(part)) for part in path):
        found = HIDDEN
    message = problem["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
    return invalid(
        ".".join([thing, *map(str, path)]),
        found=found if len(found) <= 200 else f"{found[:200]}…",
        expected=message,
        fix=(about.description if about is not None else None) or "change it",
    )


def _model_at(
    model: type[pydantic.BaseModel], path: Sequence[object]
) -> type[pydantic.BaseModel] | None:
    """Follow a path of keys and positions to the model that they lead to."""
    import pydantic

    for part in path:
        if isinstance(part, int):
            continue
        annotation = (
            model.model_fields[str(part)].annotation if str(part) in model.model_fields else None
        )
        candidates = [
            kind
            for kind in (annotation, *get_args(annotation))
            if isinstance(kind, type) and issubclass(kind, pydantic.BaseModel)
        ]
        if not candidates:
            return None
        model = candidates[0]
    return model


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
