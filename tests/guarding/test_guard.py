"""The guard as it is run: real server, real webhooks, real gates, kills and outages."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.guarding.conftest import Configure, GuardProcess, Model, until

Start = Callable[[Path], GuardProcess]


@pytest.mark.slow
def test_from_registration_to_promotion_and_back(
    model: Model, configure: Configure, guard_process: Start
) -> None:
    failed = model.version("failed")
    guard = guard_process(configure(model))
    first = model.version()
    until(lambda: model.alias() == first)
    assert model.verdict(first) == "passed"
    until(lambda: guard.status()["models"][model.name]["protect"] == {"champion": first})

    model.point("champion", failed)
    until(lambda: model.alias() == first, seconds=5)
    assert "champion" in model.tags(failed)["biasbios.guard"]
    assert guard.end(signal.SIGTERM) == 0
