"""What the guard reads of the registry and writes to it, one model at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from mlflow.exceptions import MlflowException

from biasbios_mlflow.gating.evidence import REASON_TAG, REPLACED_TAG, VERDICT_TAG, evidence_of
from biasbios_mlflow.gating.promotion import (
    alias_history,
    alias_target,
    move_alias,
    remove_alias,
    turn,
)
from biasbios_mlflow.redaction import redacted

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion

__all__ = [
    "GUARD_TAG",
    "Registry",
    "Standing",
    "is_gone",
    "is_outage",
    "standing",
]

GUARD_TAG = "biasbios.guard"

_WORDS = {"passed": "passed", "failed": "failed the gate", "error": "could not be gated"}
_TAG_LIMIT = 5000  # characters MLflow keeps of a tag


@dataclass(frozen=True)
class Standing:
    """How a version stands with the gate.

    Attributes
    ----------
    verdict : {"passed", "failed", "error"} or None
        None where it was never gated.
    passes : bool
        Whether it passed and what it passed on is still there and agrees.
    words : str
        The same for people, after "version 3, which".
    """

    verdict: str | None
    passes: bool
    words: str


def standing(client: MlflowClient, version: ModelVersion) -> Standing:
    """Read how a version stands; the one place where the guard does.

    Raises
    ------
    mlflow.exceptions.MlflowException
        When the server cannot be reached.
    """
    if version.tags.get(VERDICT_TAG) not in _WORDS:
        return Standing(None, False, "was never gated")
    evidence = evidence_of(client, version)
    assert evidence is not None
    words = _WORDS[evidence.verdict]
    if evidence.verdict == "passed" and not evidence.holds:
        words = f"says that it passed, but {'; '.join(evidence.faults)}"
    return Standing(evidence.verdict, evidence.passes, words)


def is_gone(error: MlflowException) -> bool:
    """Tell whether an error says that a model, version or run does not exist."""
    return bool(error.error_code == "RESOURCE_DOES_NOT_EXIST")


def is_outage(error: BaseException) -> bool:
    """Tell whether a server that was not there, or went away meanwhile, is behind an error.

    Examples
    --------
    >>> is_outage(ConnectionResetError()), is_outage(ValueError())
    (True, False)
    """
    from requests.exceptions import ChunkedEncodingError, ContentDecodingError, RetryError, Timeout
    from requests.exceptions import ConnectionError as NoConnection
    from urllib3.exceptions import HTTPError

    network = (
        *(ChunkedEncodingError, ContentDecodingError, NoConnection, RetryError, Timeout),
        *(HTTPError, ConnectionError, TimeoutError),
    )
    return any(
        isinstance(cause, network)
        or getattr(cause, "error_code", None) == "TEMPORARILY_UNAVAILABLE"
        # MLflow does not always keep the cause.
        or (str(cause).startswith("API request to ") and " failed with exception " in str(cause))
        for cause in _causes(error)
    )


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


class Registry:
    """One registered model.

    Parameters
    ----------
    client : MlflowClient
    name : str
    """

    def __init__(self, client: MlflowClient, name: str) -> None:
        self.name = name
        self._client = client

    def aliases(self) -> dict[str, str] | None:
        """Return where each alias points; None where there is no such model."""
        try:
            found = self._client.get_registered_model(self.name).aliases
        except MlflowException as error:
            if is_gone(error):
                return None
            raise
        return {alias: str(version) for alias, version in found.items()}

    def version(self, number: str) -> ModelVersion | None:
        """Return a version; None where there is none."""
        try:
            return self._client.get_model_version(self.name, number)
        except MlflowException as error:
            if is_gone(error):
                return None
            raise

    def versions(self) -> list[ModelVersion]:
        """Return all versions, the lowest first."""
        quote = '"' if "'" in self.name else "'"
        found: list[ModelVersion] = []
        token = None
        while True:
            page = self._client.search_model_versions(
                f"name={quote}{self.name}{quote}", max_results=1000, page_token=token
            )
            found += page
            token = page.token
            if not token:
                return sorted(found, key=lambda version: int(version.version))

    def standing(self, number: str) -> Standing:
        """Read how a version stands with the gate."""
        version = self.version(number)
        if version is None:
            return Standing(None, False, "does not exist")
        return standing(self._client, version)

    def tag_error(self, number: str, reason: str) -> None:
        """Write the verdict of a gate that broke."""
        self._client.set_model_version_tag(
            self.name, number, REASON_TAG, redacted(reason)[:_TAG_LIMIT]
        )
        # The verdict last: where it stands, the reason does too.
        self._client.set_model_version_tag(self.name, number, VERDICT_TAG, "error")

    def put_right(
        self, alias: str, held: list[str | None], why: str
    ) -> tuple[str | None, str | None]:
        """Take an alias from a version that may not have it.

        Parameters
        ----------
        alias : str
        held : list of str or None
            Where it stood by right, the latest first.
        why : str
            What is wrong with the version, for its tag.

        Returns
        -------
        taken_from, put_to : str or None
            The same where it was put right meanwhile; else None for one that was taken off, since
            no version passed.

        Raises
        ------
        biasbios_mlflow.gating.promotion.AliasMovedError
            When somebody moved it meanwhile: look again.
        mlflow.exceptions.MlflowException
            When the server cannot be reached.
        """
        with turn(self._client, self.name, alias):
            found = alias_target(self._client, self.name, alias)
            if found is None or self.standing(found).passes:
                return found, found
            to = self._last_passed(alias, held)
            when = datetime.now(timezone.utc).isoformat(timespec="seconds")
            done = "taken off" if to is None else f"moved back to version {to}"
            # First the tag: killed in between, the guard finds the alias again and repeats it.
            self._client.set_model_version_tag(
                self.name, found, GUARD_TAG, f"{when}: {alias} {done}: {why}"[:_TAG_LIMIT]
            )
            if to is None:
                remove_alias(self._client, self.name, alias)
            else:
                move_alias(self._client, self.name, alias, version=to, expected=found)
        return found, to

    def _last_passed(self, alias: str, held: list[str | None]) -> str | None:
        """Return where the alias stood last by right, else the newest version that passed."""
        for number in self._stood(alias, held):
            if self.standing(number).passes:
                return number
        passed = [v for v in self.versions() if v.tags.get(VERDICT_TAG) == "passed"]
        # What another version replaced comes after all that was not.
        passed.sort(key=lambda v: (REPLACED_TAG not in v.tags, int(v.version)), reverse=True)
        return next((str(v.version) for v in passed if standing(self._client, v).passes), None)

    def _stood(self, alias: str, held: list[str | None]) -> list[str]:
        """Return where an alias stood, the latest first, each version once."""
        promoted = alias_history(self._client, self.name, alias)[::-1]
        # Where a gate moved it and the guard never saw it, it did while no guard was there.
        missed = [number for number in promoted[:1] if number not in held]
        return list(dict.fromkeys(n for n in (*missed, *held, *promoted) if n is not None))
