"""The guard: huey's queues on disk, workers that look at models and workers that gate.

Level, not edge: an event only says which model to look at. A look compares the registry with what
must hold, queues the gates that are due and puts aliases right; it may come late, twice or from the
clock. So a lost event costs at most ``reconcile_seconds``, and a repeated one nothing.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from huey import SqliteHuey
from huey.consumer import Consumer, Scheduler
from huey.exceptions import RetryTask

from biasbios_mlflow.gating.evidence import REASON_TAG, REPLACED_TAG, VERDICT_TAG
from biasbios_mlflow.gating.policy import GatePolicy
from biasbios_mlflow.gating.promotion import AliasMovedError
from biasbios_mlflow.guarding.config import GuardConfig, WatchedModel
from biasbios_mlflow.guarding.job import UNREACHABLE
from biasbios_mlflow.guarding.process import GATE_COMMAND, Ended, run_gate
from biasbios_mlflow.guarding.registry import Registry, is_outage, standing
from biasbios_mlflow.guarding.state import DueGate, State
from biasbios_mlflow.guarding.webhooks import EVENTS, Event
from biasbios_mlflow.redaction import logger, redacted

if TYPE_CHECKING:
    from mlflow.entities.model_registry import ModelVersion

__all__ = ["Guard"]

_logger = logger(__name__)

_LOOKERS = 4
_MOST_ATTEMPTS = 5
_RETRY_SECONDS = 2.0
_PROGRESS_SECONDS = 10.0  # between two lines of a progress bar in the log


class _Consumer(Consumer):  # type: ignore[misc]  # huey has no types
    """Workers of a queue in threads, beside a web server that minds the signals."""

    def _set_signal_handlers(self) -> None:
        pass

    def is_alive(self) -> bool:
        return self.scheduler.is_alive() and all(t.is_alive() for _, t in self.worker_threads)

    def join(self, timeout: float) -> bool:
        deadline = time.monotonic() + timeout
        for _, thread in self.worker_threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return not any(thread.is_alive() for _, thread in self.worker_threads)


@dataclass
class _Running:
    """A gate that runs now."""

    version: str
    since: float
    last_line: str = ""
    logged: float = 0.0


class Guard:
    """Gates what a configuration names, and keeps aliases on versions that passed.

    Parameters
    ----------
    config : GuardConfig
    command : sequence of str, default=`biasbios_mlflow.guarding.process.GATE_COMMAND`
        What runs a gate.

    Raises
    ------
    MlflowException
        When another guard uses the same state.
    """

    def __init__(self, config: GuardConfig, *, command: Sequence[str] = GATE_COMMAND) -> None:
        from mlflow import MlflowClient

        self.config = config
        self._command = tuple(command)
        self._client = MlflowClient()
        self._state = State(config.state)
        self._started = time.time()
        self._draining = threading.Event()
        self._kill_gates = threading.Event()
        self._environment = _environment_of_gates(config.secret_env)
        self._looked: dict[str, float] = {}
        self._errors: dict[str, str] = {}

        self._lock = threading.Lock()
        self._to_look_at: set[str] = set()  # in the queue and not begun
        self._looking = {name: threading.Lock() for name in config.models}
        self._gating: set[str] = set()
        self._running: dict[str, _Running] = {}
        self._unknown: set[str] = set()

        looks = SqliteHuey("looks", filename=config.state, results=False)
        gates = SqliteHuey("gates", filename=config.state, results=False)
        self._look_task = looks.task(name="look")(self._look_or_retry)
        looks.periodic_task(lambda _: True, name="reconcile")(self._reconcile)
        self._gate_task = gates.task(name="gate")(self._gate_next)
        # Of an earlier guard; what they were about is found again.
        looks.flush()
        gates.flush()
        polling = {"initial_delay": 0.05, "backoff": 1.3, "max_delay": 0.25}
        self._look_workers = _Consumer(looks, workers=_LOOKERS, **polling)
        self._gate_workers = _Consumer(gates, workers=config.workers, periodic=False, **polling)
        scheduler = _every(config.reconcile_seconds)(
            huey=looks, stop_flag=self._look_workers.stop_flag, interval=1, periodic=True
        )
        self._look_workers.scheduler = self._look_workers._create_process(scheduler, "Scheduler")

    # From outside

    def start(self) -> None:
        """Start the workers; the first look at every model follows at once."""
        for waiting in self._state.recover():
            if waiting in self.config.models:
                self._gate_task(waiting)
        self._gate_workers.start()
        self._look_workers.start()
        for name, model in self.config.models.items():
            what = f"aliases {', '.join(model.protect)}" if model.protect else "no alias"
            _logger.info("%s: gates on %s, guards %s", name, model.gate_on, what)

    def stop(self) -> None:
        """Stop the workers; a gate that runs is finished, or put back after ``drain_seconds``."""
        self._draining.set()
        self._look_workers.stop_flag.set()
        self._gate_workers.stop_flag.set()
        if self._running:
            _logger.info(
                "Waiting up to %g s for %d running gate(s)",
                self.config.drain_seconds,
                len(self._running),
            )
        if not self._gate_workers.join(self.config.drain_seconds):
            self._kill_gates.set()
            self._gate_workers.join(30)
        self._look_workers.join(30)
        self._state.close()
        _logger.info("Stopped")

    def accept(self, delivery_id: str, event: Event) -> tuple[str, str]:
        """Put what a genuine delivery is about into the queue.

        Returns
        -------
        status, reason : str
            ``accepted``, ``ignored`` or ``repeated``, and why.
        """
        name = event.data.name
        if not self._state.is_new(delivery_id):
            return "repeated", "this delivery was taken before"
        if name not in self.config.models:
            if name not in self._unknown:
                self._unknown.add(name)
                _logger.info("Events of %r are ignored: the configuration does not name it", name)
            return "ignored", f"the configuration names no model {name!r}"
        if event.kind not in EVENTS or (event.data.key or VERDICT_TAG) != VERDICT_TAG:
            return "ignored", "the event bears on no gate"
        try:
            self._look_at(name)
        except Exception:
            self._state.forget_delivery(delivery_id)
            raise
        return "accepted", event.kind

    def is_healthy(self) -> bool:
        """Tell whether all workers are there."""
        return self._look_workers.is_alive() and self._gate_workers.is_alive()

    def status(self) -> dict[str, Any]:
        """Return what is going on, as plain JSON values; asks nobody but this process."""
        with self._lock:
            running = {name: _Running(**vars(gate)) for name, gate in self._running.items()}
        return {
            "started": _when(self._started),
            "draining": self._draining.is_set(),
            "healthy": self.is_healthy(),
            "models": {
                name: self._status_of(name, model, running.get(name))
                for name, model in self.config.models.items()
            },
        }

    def _status_of(
        self, name: str, model: WatchedModel, running: _Running | None
    ) -> dict[str, Any]:
        held = {alias: self._state.held(name, alias) for alias in model.protect}
        return {
            "looked_at": _when(self._looked.get(name)),
            "error": self._errors.get(name),
            "gate_on": model.gate_on,
            "protect": {alias: (at[0] if at else None) for alias, at in held.items()},
            "running": running
            and {
                "version": running.version,
                "since": _when(running.since),
                "progress": running.last_line,
            },
            "queued": [gate["version"] for gate in self._state.gates(name, "queued", limit=1000)],
            "done": self._state.count(name, "done"),
            "last": [
                {**gate, **{key: _when(gate[key]) for key in ("requested", "started", "ended")}}
                for gate in self._state.gates(name, "done")
            ],
            "told": [{**told, "at": _when(told["at"])} for told in self._state.told(name)],
        }

    # Looking

    def _look_at(self, name: str) -> None:
        """Queue a look at a model, unless one is queued that has not begun."""
        with self._lock:
            if name in self._to_look_at:
                return
            self._to_look_at.add(name)
        try:
            self._look_task(name)
        except BaseException:
            with self._lock:
                self._to_look_at.discard(name)
            raise

    def _reconcile(self) -> None:
        for name in self.config.models:
            self._look_at(name)
        if not self._draining.is_set():
            self._gate_workers.check_worker_health()
            # Nothing should be due that no worker was told of; should it be, it is gated now.
            for name in self._state.models_due():
                if name in self.config.models and name not in self._gating:
                    self._gate_task(name)

    def _look_or_retry(self, name: str) -> None:
        with self._lock:
            self._to_look_at.discard(name)
        try:
            with self._looking[name]:
                self._look(name)
        except AliasMovedError as error:
            _logger.info("%s: %s; looking again", name, error)
            self._look_at(name)
        except Exception as error:
            self._not_reached(name, error)
            with self._lock:
                if name in self._to_look_at:  # somebody else has queued a look meanwhile
                    return
                self._to_look_at.add(name)
            raise RetryTask(delay=_RETRY_SECONDS) from error
        else:
            self._looked[name] = time.time()
            if self._errors.pop(name, None) is not None:
                _logger.info("%s: the registry can be read again", name)

    def _not_reached(self, name: str, error: Exception) -> None:
        if name not in self._errors:
            _logger.warning("%s: cannot be looked at, trying again: %s", name, error)
            if not is_outage(error):
                _logger.warning("", exc_info=error)
        self._errors[name] = redacted(f"{type(error).__name__}: {error}")

    def _look(self, name: str) -> None:
        model, registry = self.config.models[name], Registry(self._client, name)
        aliases = registry.aliases()
        if aliases is None:
            _logger.debug("%s: no such registered model yet", name)
            return
        for alias in model.protect:
            self._guard_alias(registry, alias, aliases.get(alias))
        new = [v for v in self._to_gate(registry, model, aliases) if self._is_due(name, v)]
        added = [str(v.version) for v in new if self._state.request(name, str(v.version))]
        if added:
            _logger.info("%s: to be gated: version %s", name, ", ".join(added))
            self._gate_task(name)

    def _to_gate(
        self, registry: Registry, model: WatchedModel, aliases: Mapping[str, str]
    ) -> list[ModelVersion]:
        if model.gated_alias is None:
            found: list[ModelVersion | None] = list(registry.versions())
        else:
            target = aliases.get(model.gated_alias)
            found = [] if target is None else [registry.version(target)]
        return [v for v in found if v is not None and int(v.version) >= model.from_version]

    def _is_due(self, name: str, version: ModelVersion) -> bool:
        """Tell whether a version has no verdict, or one of nobody's."""
        if version.status != "READY":
            return False
        if version.tags.get(VERDICT_TAG) in ("failed", "error"):
            return False
        if version.tags.get(VERDICT_TAG) == "passed":
            # A tag that somebody wrote by hand is no verdict. Ours was looked at when it was made.
            gated = self._state.has_gated(name, str(version.version))
            return not gated and not standing(self._client, version).passes
        return True

    def _guard_alias(self, registry: Registry, alias: str, target: str | None) -> None:
        name, held = registry.name, self._state.held(registry.name, alias)
        last = held[0] if held else None
        if target is None:
            if last is not None:
                self._state.hold(name, alias, None)
                self._tell(
                    name, f"{alias} was deleted from version {last}; it is not set anew", alarm=True
                )
            return
        found = registry.standing(target)
        if found.passes:
            if last != target:
                self._state.hold(name, alias, target)
                self._tell(name, f"{alias} stands at version {target}, which {found.words}")
            return
        if target == last and found.verdict != "failed":
            # Nobody moved it. A gate that broke, or evidence that was lost, says nothing against
            # the version; taking it away would do harm.
            what = f"{alias} stays at version {target}, which passed once and now {found.words}"
            if not any(told["what"] == what for told in self._state.told(name)):
                self._tell(name, what, alarm=True)
            return
        why = f"version {target} {found.words}"
        taken_from, put_to = registry.put_right(alias, held, why)
        if taken_from != put_to:
            self._state.hold(name, alias, put_to)
            done = "taken off" if put_to is None else f"moved back to version {put_to}"
            self._tell(name, f"{alias} was {done}: {why}", alarm=True)

    def _tell(self, name: str, what: str, *, alarm: bool = False) -> None:
        _logger.log(logging.WARNING if alarm else logging.INFO, "%s: %s", name, what)
        self._state.tell(name, what)

    # Gating

    def _gate_next(self, name: str) -> None:
        """Run the next gate of a model, unless one runs; what remains goes to the queue's end."""
        with self._lock:
            if name in self._gating or self._draining.is_set():
                return  # whoever has it takes the next one too
            self._gating.add(name)
        gate = None
        try:
            gate = self._state.begin(name)
            if gate is not None:
                self._gate_one(gate)
        except Exception as error:
            _logger.warning(
                "%s: the gate is put back: %s", name, error, exc_info=not is_outage(error)
            )
            if gate is not None:
                self._state.put_back(gate, attempts=gate.attempts + (not is_outage(error)))
            self._draining.wait(_RETRY_SECONDS * 2 ** min(gate.attempts if gate else 0, 5))
        finally:
            with self._lock:
                self._gating.discard(name)
                self._running.pop(name, None)
        if name in self._state.models_due() and not self._draining.is_set():
            self._gate_task(name)

    def _gate_one(self, gate: DueGate) -> None:
        name, model = gate.model, self.config.models[gate.model]
        registry = Registry(self._client, name)
        version = registry.version(gate.version)
        if version is None:
            self._tell(name, f"version {gate.version} is gone; it is not gated")
            self._state.drop(gate)
            return
        # The error of a gate that was put back is that of the outage, if it could be written.
        outage = gate.attempts > 0 and version.tags.get(VERDICT_TAG) == "error"
        due = outage or self._is_due(name, version)
        if not due and self._is_whole(gate, registry, model, version):
            self._conclude(gate, version, "its verdict stands already")
            return
        if gate.attempts >= _MOST_ATTEMPTS:
            registry.tag_error(gate.version, "the guard could not run the gate; its log says why")
            self._conclude(gate, registry.version(gate.version) or version, "given up")
            return
        _logger.info("%s: gate of version %s begins", name, gate.version)
        since = time.time()
        with self._lock:
            self._running[name] = _Running(gate.version, since)
        ended = run_gate(
            self._command,
            model.gate_arguments(name, gate.version),
            environment=self._environment,
            timeout=self.config.timeout_minutes * 60,
            must_stop=self._kill_gates.is_set,
            on_line=lambda line: self._on_line(name, gate.version, line),
        )
        if ended.why == "stopped":
            _logger.info("%s: gate of version %s is put back: shutting down", name, gate.version)
            self._state.put_back(gate, attempts=gate.attempts)
            return
        self._after(gate, registry, ended, time.time() - since)

    def _after(self, gate: DueGate, registry: Registry, ended: Ended, seconds: float) -> None:
        """Take the verdict from the version; write ``error`` where the gate left none."""
        name = gate.model
        again = ended.code == UNREACHABLE or ended.code == -15  # somebody stopped it, or the server
        if again and gate.attempts + 1 < _MOST_ATTEMPTS:
            self._wait_for(registry)
            _logger.warning(
                "%s: gate of version %s is put back: %s", name, gate.version, ended.describe()
            )
            self._state.put_back(gate, attempts=gate.attempts + 1)
            return
        version = registry.version(gate.version)
        if version is None:
            self._tell(name, f"version {gate.version} was deleted while it was gated")
            self._state.drop(gate)
            return
        expected = {0: ("passed",), 1: ("failed",), 2: ("error",)}.get(ended.code, ())
        if ended.why != "ended" or version.tags.get(VERDICT_TAG) not in expected:
            registry.tag_error(gate.version, f"{ended.describe()}\n{ended.last_words}".strip())
            version = registry.version(gate.version) or version
        self._conclude(gate, version, f"after {seconds:.0f} s")
        self._look_at(name)

    def _conclude(self, gate: DueGate, version: ModelVersion, how: str) -> None:
        verdict = str(version.tags.get(VERDICT_TAG))
        reason = version.tags.get(REASON_TAG, "")
        self._state.end(gate, verdict, reason)
        _logger.log(
            logging.ERROR if verdict == "error" else logging.INFO,
            "%s: version %s: %s, %s: %s",
            *(gate.model, gate.version, verdict, how, reason),
        )

    def _is_whole(
        self, gate: DueGate, registry: Registry, model: WatchedModel, version: ModelVersion
    ) -> bool:
        """Tell whether a gate that was killed had moved the alias it was to move.

        It writes the verdict first, so that a version which passed may still wait for its alias.
        """
        if not gate.begun or version.tags.get(VERDICT_TAG) != "passed":
            return True
        if REPLACED_TAG in version.tags:
            return True
        alias = GatePolicy.parse(model.policy).promote
        return alias is None or (registry.aliases() or {}).get(alias) == str(version.version)

    def _wait_for(self, registry: Registry) -> None:
        """Wait until the registry answers, or the guard stops."""
        while not (self._draining.is_set() or self._answers(registry)):
            self._draining.wait(_RETRY_SECONDS)

    def _answers(self, registry: Registry) -> bool:
        try:
            registry.aliases()
        except Exception as error:
            self._not_reached(registry.name, error)
            return False
        return True

    def _on_line(self, name: str, version: str, line: str) -> None:
        now = time.monotonic()
        with self._lock:
            running = self._running.get(name)
            if running is None:
                return
            running.last_line = line[-300:]
            if "%|" in line:  # a progress bar, which is drawn ten times a second
                if now - running.logged < _PROGRESS_SECONDS:
                    return
                running.logged = now
        _logger.info("%s %s | %s", name, version, line)


def _environment_of_gates(secret_env: str) -> dict[str, str]:
    """Return this process's environment without the secret, which no model needs to see."""
    import mlflow

    environment = {k: v for k, v in os.environ.items() if k != secret_env}
    environment["MLFLOW_TRACKING_URI"] = mlflow.get_tracking_uri()
    environment["MLFLOW_REGISTRY_URI"] = mlflow.get_registry_uri()
    return environment


def _every(seconds: float) -> type[Scheduler]:
    """Return a scheduler of huey that runs periodic tasks so often, and not once a minute."""
    return type("_Reconciling", (Scheduler,), {"periodic_task_seconds": seconds})


def _when(seconds: float | None) -> str | None:
    """Return a time as ISO 8601 in UTC."""
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="milliseconds")
