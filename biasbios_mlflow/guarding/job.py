"""One gate in a process of its own: ``python -m biasbios_mlflow.guarding.job``.

Its arguments come as one JSON object in the first line of standard input: there they may hold what
no list of processes should show.

Exit codes: 0 passed, 1 failed, 2 could not run, 75 the tracking server could not be reached.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import logging
import os
import signal
import sys
import threading
from pathlib import Path

from biasbios_mlflow.calls import EndedBySignal, unwinding_at_signals
from biasbios_mlflow.redaction import logger

__all__ = ["UNREACHABLE", "die_with_parent", "main", "read_arguments"]

UNREACHABLE = 75
"""Exit code of a gate that may come out otherwise later; the number is that of sysexits.h."""


def die_with_parent() -> None:
    """End this process and all it started when the guard is gone.

    The guard holds the other end of standard input, which the system closes with it, whatever
    ended it: a gate that ran on would be run a second time by the next guard.
    """
    lifeline = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)  # a model that reads its input must not take this one
    os.close(nothing)

    def wait() -> None:
        while os.read(lifeline, 1024):
            pass
        # Its own group: the guard starts a gate as the leader of one.
        os.killpg(os.getpgrp(), signal.SIGKILL)

    threading.Thread(target=wait, daemon=True, name="lifeline").start()


def main(arguments: str) -> int:
    """Run one gate.

    Parameters
    ----------
    arguments : str
        The keywords of `biasbios_mlflow.gate` as a JSON object.

    Returns
    -------
    int
        The exit code.
    """
    from biasbios_mlflow import gate
    from biasbios_mlflow.guarding.registry import is_outage

    try:
        with unwinding_at_signals():
            result = gate(**json.loads(arguments))
    except EndedBySignal as ended:
        # As if nothing had been put away: the guard must see what ended it.
        number = getattr(signal, str(ended))
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        return 2
    except Exception as error:
        outage = is_outage(error)
        logger(__name__).error("%s: %s", type(error).__name__, error, exc_info=not outage)
        return UNREACHABLE if outage else 2
    print(f"{result.model_uri}: {result.verdict}: {result.reason}", file=sys.stderr)
    return 0 if result.passed else 1


def read_arguments() -> str:
    """Read the first line of standard input, and nothing beyond it."""
    line = bytearray()
    while (byte := os.read(0, 1)) not in (b"", b"\n"):
        line += byte
    return line.decode()


if __name__ == "__main__":
    arguments = read_arguments()
    die_with_parent()
    faulthandler.enable(all_threads=False)  # the thread that crashed says where
    # Where memory runs out, the system must end the gate and not the guard.
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    sys.exit(main(arguments))
