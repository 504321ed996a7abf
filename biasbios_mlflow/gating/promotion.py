"""Moving an alias as safely as a registry without compare-and-set allows.

Gates take turns: each announces itself by a tag on the registered model and waits until it is its
turn (Lamport's bakery algorithm, CACM 1974, which needs nothing but reads and writes that do not
overlap half-way, as a tracking server gives them). Inside its turn a gate reads the alias, moves it
only if it still points where the comparison saw it, and reads it back.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from mlflow import MlflowClient
from mlflow.exceptions import MlflowException
from mlflow.protos.databricks_pb2 import RESOURCE_DOES_NOT_EXIST, ErrorCode

__all__ = [
    "AliasMovedError",
    "alias_history",
    "alias_target",
    "move_alias",
    "remember_move",
    "remove_alias",
    "steps_back",
    "turn",
    "write_alias_history",
]

_TURN_TAG = "biasbios.gate.turn"
_HISTORY_TAG = "biasbios.gate.history"
_LONGEST_HISTORY = 200
_POLL_SECONDS = 0.2
PATIENCE_SECONDS = 60.0
"""A gate that holds its turn for so long is taken for dead, and its tag is removed."""


class AliasMovedError(Exception):
    """The alias points elsewhere than at the time of the comparison."""

    def __init__(self, alias: str, expected: str | None, found: str | None) -> None:
        self.found = found
        super().__init__(
            f"the alias {alias} moved during the gate: "
            f"it pointed at {_shown(expected)} and now points at {_shown(found)}"
        )


def _shown(version: str | None) -> str:
    return "no version" if version is None else f"version {version}"


def alias_target(client: MlflowClient, name: str, alias: str) -> str | None:
    """Return the version an alias points at, None where it does not exist."""
    aliases = client.get_registered_model(name).aliases
    return None if alias not in aliases else str(aliases[alias])


def move_alias(
    client: MlflowClient, name: str, alias: str, *, version: str, expected: str | None
) -> None:
    """Move an alias from ``expected`` to ``version``; call it inside `turn`.

    Raises
    ------
    AliasMovedError
        When it points elsewhere before or after; nothing of the winner's is undone.
    """
    found = alias_target(client, name, alias)
    if found != expected:
        raise AliasMovedError(alias, expected, found)
    client.get_model_version(name, version)  # raises where the version was deleted meanwhile
    try:
        client.set_registered_model_alias(name, alias, version)
    except MlflowException:
        # The answer may have been lost, not the request.
        if alias_target(client, name, alias) != version:
            raise
    found = alias_target(client, name, alias)
    if found != version:
        raise AliasMovedError(alias, version, found)


def remove_alias(client: MlflowClient, name: str, alias: str) -> None:
    """Take an alias off a registered model, where it has one."""
    if alias_target(client, name, alias) is not None:
        client.delete_registered_model_alias(name, alias)


def alias_history(client: MlflowClient, name: str, alias: str) -> tuple[str, ...]:
    """Return the versions that gates have moved an alias to, the latest last.

    The first may be one that was there before. What was rolled back is not among them.
    """
    kept = client.get_registered_model(name).tags.get(f"{_HISTORY_TAG}.{alias}", "[]")
    try:
        return tuple(map(str, json.loads(kept)))
    except (TypeError, ValueError):
        return ()


def write_alias_history(
    client: MlflowClient, name: str, alias: str, versions: Sequence[str]
) -> None:
    """Keep the versions an alias has pointed at (see `alias_history`); the latest 200 of them."""
    kept = json.dumps(list(versions)[-_LONGEST_HISTORY:])
    client.set_registered_model_tag(name, f"{_HISTORY_TAG}.{alias}", kept)


def remember_move(
    client: MlflowClient, name: str, alias: str, *, version: str, was: str | None
) -> None:
    """Add a move to the history of an alias; one made by hand before it is added too."""
    versions = list(alias_history(client, name, alias))
    for one in (was, version):
        if one is not None and versions[-1:] != [one]:
            versions.append(one)
    write_alias_history(client, name, alias, versions)


def steps_back(client: MlflowClient, name: str, alias: str, current: str) -> list[str]:
    """Return the history of an alias before its current version, without deleted versions.

    The last of them is where a rollback goes.
    """
    versions = list(alias_history(client, name, alias))
    if current in versions:
        last = len(versions) - 1 - versions[::-1].index(current)
        versions = versions[:last]
    elif not versions:  # what earlier versions of this package wrote
        tag = client.get_model_version(name, current).tags.get("biasbios.gate.replaces", "")
        replaced, _, previous = tag.partition(": ")
        versions = [previous] if replaced == alias and previous else []
    while versions and (versions[-1] == current or not _exists(client, name, versions[-1])):
        versions.pop()
    return versions


def _exists(client: MlflowClient, name: str, version: str) -> bool:
    try:
        client.get_model_version(name, version)
    except MlflowException as error:
        if error.error_code != ErrorCode.Name(RESOURCE_DOES_NOT_EXIST):
            raise
        return False
    return True


@dataclass(frozen=True)
class _Ticket:
    """A place in the line: 0 while still choosing."""

    number: int
    holder: str

    @classmethod
    def of(cls, holder: str, value: str) -> _Ticket:
        number = value.split(" ", 1)[0]
        return cls(int(number) if number.isdigit() else 0, holder)


@contextmanager
def turn(client: MlflowClient, name: str, alias: str) -> Iterator[None]:
    """Wait for this gate's turn at an alias and hold it during the block.

    Raises
    ------
    mlflow.exceptions.MlflowException
        When the registry cannot be reached.
    """
    prefix = f"{_TURN_TAG}.{alias}."
    own = uuid.uuid4().hex
    try:
        while True:
            client.set_registered_model_tag(name, prefix + own, "0")
            ahead = max((t.number for t in _tickets(client, name, prefix)), default=0)
            ticket = _Ticket(ahead + 1, own)
            client.set_registered_model_tag(name, prefix + own, str(ticket.number))
            if _wait(client, name, prefix, ticket):
                break
        yield
    finally:
        _leave(client, name, prefix + own)


def _tickets(client: MlflowClient, name: str, prefix: str) -> list[_Ticket]:
    tags = client.get_registered_model(name).tags
    return [
        _Ticket.of(tag.removeprefix(prefix), value)
        for tag, value in tags.items()
        if tag.startswith(prefix)
    ]


def _wait(client: MlflowClient, name: str, prefix: str, own: _Ticket) -> bool:
    """Wait until nobody is choosing a number and nobody with a lower one is left.

    Returns False when our own tag is gone: somebody took us for dead, and we must line up again.
    """
    first, since = own, time.monotonic()
    while True:
        tickets = _tickets(client, name, prefix)
        if own not in tickets:
            return False
        # Who is still choosing has number 0 and so comes before everybody.
        before_us = [t for t in tickets if (t.number, t.holder) < (own.number, own.holder)]
        if not before_us:
            return True
        head = min(before_us, key=lambda t: (t.number, t.holder))
        if head != first:
            first, since = head, time.monotonic()
        elif time.monotonic() - since > PATIENCE_SECONDS:
            _leave(client, name, prefix + head.holder)
        time.sleep(_POLL_SECONDS)


def _leave(client: MlflowClient, name: str, tag: str) -> None:
    try:
        client.delete_registered_model_tag(name, tag)
    except MlflowException as error:
        if error.error_code != ErrorCode.Name(RESOURCE_DOES_NOT_EXIST):
            raise
