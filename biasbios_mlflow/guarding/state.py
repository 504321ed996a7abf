"""What the guard must still know after a kill: gates to run, where aliases stood, what was told.

One SQLite file, which huey's queues share. The registry stays the truth about verdicts; this file
says which gate is due, and that one was begun.
"""

from __future__ import annotations

import fcntl
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from biasbios_mlflow.errors import invalid
from biasbios_mlflow.redaction import redacted

__all__ = ["DueGate", "State"]

_TABLES = """
create table if not exists gate (
    model text not null, version integer not null, state text not null,
    attempts integer not null default 0, begun integer not null default 0,
    requested real not null, started real, ended real, verdict text, reason text,
    primary key (model, version)
);
create index if not exists gate_state on gate (state, model, version);
create table if not exists held (
    id integer primary key autoincrement, model text not null, alias text not null,
    version text, at real not null
);
create index if not exists held_alias on held (model, alias, id);
create table if not exists delivery (id text primary key, at real not null);
create table if not exists told (
    id integer primary key autoincrement, at real not null, model text not null, what text not null
);
"""

# As long as a delivery that is repeated could still be young enough to be taken, and longer.
_DELIVERY_SECONDS = 24 * 3600.0
_MOST_TOLD = 1000


@dataclass(frozen=True)
class DueGate:
    """A gate to run.

    Attributes
    ----------
    model, version : str
    attempts : int
        How often it was begun and put back because the registry could not be reached, or somebody
        ended its process.
    begun : bool
        Whether it was begun before and may have left something half done.
    """

    model: str
    version: str
    attempts: int
    begun: bool


class State:
    """The file, opened by one guard at a time.

    Parameters
    ----------
    path : str or Path

    Raises
    ------
    MlflowException
        When another guard has it open.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._owned = self.path.with_name(self.path.name + ".lock").open("a")
        try:
            fcntl.flock(self._owned, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._owned.close()
            raise invalid(
                "guard.state",
                found=f"{str(path)!r}, which another guard uses",
                expected="a file of its own for each guard",
                fix="stop the other guard, or name another file",
            ) from error
        self._lock = threading.Lock()
        self._db = sqlite3.connect(self.path, timeout=60, check_same_thread=False)
        self._db.row_factory = sqlite3.Row
        self._db.execute("pragma journal_mode=wal")
        self._db.executescript(_TABLES)

    def close(self) -> None:
        """Close the file and let another guard have it."""
        with self._lock:
            self._db.close()
            self._owned.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock, self._db:
            self._db.execute("begin immediate")
            yield self._db

    # Deliveries

    def is_new(self, delivery_id: str) -> bool:
        """Tell whether a delivery comes for the first time, and remember it."""
        now = time.time()
        with self._transaction() as db:
            db.execute("delete from delivery where at < ?", (now - _DELIVERY_SECONDS,))
            added = db.execute("insert or ignore into delivery values (?, ?)", (delivery_id, now))
            return added.rowcount == 1

    def forget_delivery(self, delivery_id: str) -> None:
        """Take a delivery for new again: it could not be put into the queue."""
        with self._transaction() as db:
            db.execute("delete from delivery where id = ?", (delivery_id,))

    # Gates

    def request(self, model: str, version: str) -> bool:
        """Note that a version is due; False where it already is, or its gate runs.

        One whose gate has ended is due again: its verdict was taken off.
        """
        with self._transaction() as db:
            done = db.execute(
                "insert into gate (model, version, state, requested) values (?, ?, 'queued', ?) "
                "on conflict (model, version) do update set state = 'queued', attempts = 0, "
                "begun = 0, requested = excluded.requested, started = null, ended = null, "
                "verdict = null, reason = null where state = 'done'",
                (model, int(version), time.time()),
            )
            return done.rowcount == 1

    def has_gated(self, model: str, version: str) -> bool:
        """Tell whether a gate of this guard on a version has ended."""
        return bool(
            self._all(
                "select 1 from gate where model = ? and version = ? and state = 'done'",
                (model, int(version)),
            )
        )

    def begin(self, model: str) -> DueGate | None:
        """Take the lowest version of a model that is due, and note that its gate has begun."""
        with self._transaction() as db:
            row = db.execute(
                "select version, attempts, begun from gate where model = ? and state = 'queued' "
                "order by version limit 1",
                (model,),
            ).fetchone()
            if row is None:
                return None
            db.execute(
                "update gate set state = 'running', begun = 1, started = ? "
                "where model = ? and version = ?",
                (time.time(), model, row["version"]),
            )
        return DueGate(model, str(row["version"]), row["attempts"], bool(row["begun"]))

    def put_back(self, gate: DueGate, *, attempts: int) -> None:
        """Note that a gate that was begun is due again."""
        self._update(gate, state="queued", attempts=attempts, started=None)

    def end(self, gate: DueGate, verdict: str, reason: str) -> None:
        """Note what a gate came to."""
        reason = redacted(reason)
        self._update(gate, state="done", ended=time.time(), verdict=verdict, reason=reason)

    def drop(self, gate: DueGate) -> None:
        """Forget a gate: its version is gone."""
        with self._transaction() as db:
            db.execute(
                "delete from gate where model = ? and version = ?", (gate.model, int(gate.version))
            )

    def _update(self, gate: DueGate, **values: Any) -> None:
        columns = ", ".join(f"{name} = ?" for name in values)
        with self._transaction() as db:
            db.execute(
                f"update gate set {columns} where model = ? and version = ?",
                (*values.values(), gate.model, int(gate.version)),
            )

    def recover(self) -> list[str]:
        """Make gates that a kill interrupted due again; return the models that have any due."""
        with self._transaction() as db:
            db.execute("update gate set state = 'queued', started = null where state = 'running'")
        return self.models_due()

    def models_due(self) -> list[str]:
        """Return the models of which a version is due."""
        rows = self._all("select distinct model from gate where state = 'queued' order by model")
        return [row["model"] for row in rows]

    def gates(self, model: str, state: str, *, limit: int = 20) -> list[dict[str, Any]]:
        """Return the gates of a model that are queued, running or done, the latest done first."""
        order = "ended desc" if state == "done" else "version"
        rows = self._all(
            "select version, attempts, requested, started, ended, verdict, reason from gate "
            f"where model = ? and state = ? order by {order} limit ?",
            (model, state, limit),
        )
        return [{**dict(row), "version": str(row["version"])} for row in rows]

    def count(self, model: str, state: str) -> int:
        """Return how many gates of a model are queued, running or done."""
        [row] = self._all(
            "select count(*) as n from gate where model = ? and state = ?", (model, state)
        )
        return int(row["n"])

    # Aliases

    def hold(self, model: str, alias: str, version: str | None) -> None:
        """Note where a protected alias stands by right; None where it does not exist."""
        history = self.held(model, alias)
        if (history[0] if history else None) == version:
            return
        with self._transaction() as db:
            db.execute(
                "insert into held (model, alias, version, at) values (?, ?, ?, ?)",
                (model, alias, version, time.time()),
            )

    def held(self, model: str, alias: str) -> list[str | None]:
        """Return where an alias stood by right, the latest first."""
        rows = self._all(
            "select version from held where model = ? and alias = ? order by id desc limit 100",
            (model, alias),
        )
        return [row["version"] for row in rows]

    # What was told

    def tell(self, model: str, what: str) -> None:
        """Keep something that people should know, for ``GET /status``."""
        what = redacted(what)
        with self._transaction() as db:
            db.execute(
                "insert into told (at, model, what) values (?, ?, ?)",
                (time.time(), model, what),
            )
            db.execute("delete from told where id <= (select max(id) from told) - ?", (_MOST_TOLD,))

    def told(self, model: str, *, limit: int = 20) -> list[dict[str, Any]]:
        """Return what was told about a model, the latest first."""
        rows = self._all(
            "select at, what from told where model = ? order by id desc limit ?", (model, limit)
        )
        return [dict(row) for row in rows]

    def _all(self, query: str, values: tuple[Any, ...] = ()) -> list[sqlite3.Row]:
        with self._lock:
            return self._db.execute(query, values).fetchall()
