"""What the guard answers over HTTP, and that what it refuses moves nothing."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
import requests
from mlflow.exceptions import MlflowException

from biasbios_mlflow.guarding.config import GuardConfig
from biasbios_mlflow.guarding.service import Guard
from biasbios_mlflow.guarding.webhooks import (
    DELIVERY_ID_HEADER,
    SIGNATURE_HEADER,
    TIMESTAMP_HEADER,
    signature,
)
from tests.guarding.conftest import (
    SECRET,
    Configure,
    GuardHere,
    Guarding,
    Model,
    TinyGate,
    until,
)


@pytest.fixture
def guard(
    model: Model, configure: Configure, guard_here: GuardHere, tiny_gate: TinyGate
) -> Iterator[Guarding]:
    """A guard that has looked at its model once and would do so again only if told to."""
    with guard_here(configure(model), tiny_gate.command()) as running:
        until(lambda: running.status()["models"][model.name]["looked_at"])
        yield running


def event(name: str, entity: str = "model_version", action: str = "created", **data: Any) -> bytes:
    return json.dumps(
        {"entity": entity, "action": action, "timestamp": "…", "data": {"name": name, **data}}
    ).encode()


def post(guard: Guarding, body: bytes, **changes: Any) -> requests.Response:
    """Send a delivery, signed as MLflow does; ``changes`` are headers, None for none."""
    delivery, at = str(uuid.uuid4()), str(int(changes.pop("at", time.time())))
    headers = {
        DELIVERY_ID_HEADER: delivery,
        TIMESTAMP_HEADER: at,
        SIGNATURE_HEADER: signature(changes.pop("secret", SECRET), delivery, at, body),
        **{name.replace("_", "-"): value for name, value in changes.items()},
    }
    sent = {name: value for name, value in headers.items() if value is not None}
    return requests.post(f"{guard.url}/webhook", data=body, headers=sent, timeout=30)


def test_deliveries(guard: Guarding, model: Model, other_model: Model) -> None:
    looked = guard.status()["models"][model.name]["looked_at"]
    mine = event(model.name)
    refused = {
        "no signature": (401, post(guard, mine, **{SIGNATURE_HEADER: None})),
        "no timestamp": (401, post(guard, mine, **{TIMESTAMP_HEADER: None})),
        "forged": (401, post(guard, mine, secret="another")),
        "old": (400, post(guard, mine, at=time.time() - 3600)),
        "of the future": (400, post(guard, mine, at=time.time() + 3600)),
        "large": (413, post(guard, b" " * 10_000_000)),
        "large and forged": (413, post(guard, b" " * 10_000_000, secret="another")),
        "no JSON": (400, post(guard, b"no json")),
        "not an event": (400, post(guard, b"{}")),
    }
    assert {kind: code for kind, (code, _) in refused.items()} == {
        kind: answer.status_code for kind, (_, answer) in refused.items()
    }
    assert all(a.json()["status"] == "refused" and a.json()["reason"] for _, a in refused.values())

    ignored = [
        post(guard, event("nobody's")),
        post(guard, event(model.name, "model_version_tag", "set", key="mine", value="7")),
        post(guard, event(model.name, "prompt", "created")),
    ]
    assert [(a.status_code, a.json()["status"]) for a in ignored] == [(202, "ignored")] * 3
    assert "nobody's" in ignored[0].json()["reason"]

    time.sleep(0.5)
    assert guard.status()["models"][model.name]["looked_at"] == looked

    delivery, at = str(uuid.uuid4()), str(int(time.time()))
    same = {
        DELIVERY_ID_HEADER: delivery,
        TIMESTAMP_HEADER: at,
        SIGNATURE_HEADER: signature(SECRET, delivery, at, mine),
    }
    first = post(guard, mine, **same)
    assert (first.status_code, first.json()["status"]) == (202, "accepted")
    again = until(lambda: guard.status()["models"][model.name]["looked_at"] != looked)
    looked = guard.status()["models"][model.name]["looked_at"]
    again = post(guard, mine, **same)
    assert (again.status_code, again.json()["status"]) == (200, "repeated")
    time.sleep(0.5)
    assert guard.status()["models"][model.name]["looked_at"] == looked


def test_nothing_else_is_there(guard: Guarding) -> None:
    for path in ("/", "/docs", "/openapi.json", "/webhook"):
        assert requests.get(guard.url + path, timeout=10).status_code in (404, 405)


def test_a_state_has_one_guard(guard: Guarding, configure: Configure, model: Model) -> None:
    with pytest.raises(MlflowException, match="which another guard uses"):
        Guard(GuardConfig.read(configure(model)))


def test_status_while_a_gate_runs(
    model: Model, configure: Configure, guard_here: GuardHere, tiny_gate: TinyGate
) -> None:
    version = model.version()
    path = configure(model, drain_seconds=0)
    with guard_here(path, tiny_gate.command(seconds=60)) as guard:
        running = until(lambda: guard.status()["models"][model.name]["running"])
        assert running["version"] == version
        took = []
        for _ in range(15):
            begun = time.perf_counter()
            status = guard.status()
            took.append(time.perf_counter() - begun)
        assert status["healthy"]
        assert sorted(took)[len(took) // 2] < 0.1
    # Not finished in no time, so put back: no verdict, and due again.
    assert model.verdict(version) is None
    with guard_here(path, tiny_gate.command()):
        until(lambda: model.verdict(version) == "failed")
    assert tiny_gate.ended(model) == [version]
