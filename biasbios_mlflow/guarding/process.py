"""A gate's process: started, listened to, ended when it must be."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

from biasbios_mlflow.redaction import redacted, redacted_content

__all__ = ["GATE_COMMAND", "Ended", "run_gate"]

GATE_COMMAND = (sys.executable, "-m", "biasbios_mlflow.guarding.job")
"""What runs a gate; its arguments come as one JSON object in the first line of standard input.

Another command must write the verdict on the version as `biasbios_mlflow.gate` does, exit with the
codes of `biasbios_mlflow.guarding.job`, and end when its standard input does.
"""

_POLL_SECONDS = 0.2
_TAIL = 60  # lines kept of what a gate printed, to say why it ended
_LINE = 300  # characters kept of each
_CRASH = "Fatal Python error"  # as faulthandler begins; below it is where the program was


@dataclass(frozen=True)
class Ended:
    """How a gate's process ended.

    Attributes
    ----------
    code : int
        Its exit code; negative, the signal that ended it.
    last_words : str
        The last lines it printed, or the first of a report on its crash.
    why : {"ended", "stopped", "timeout"}
        Whether it ended by itself, or we ended it.
    """

    code: int
    last_words: str
    why: str

    def describe(self) -> str:
        """Say in a sentence how it ended, for people."""
        if self.why == "timeout":
            return "the gate took too long and was ended"
        if self.code < 0:
            name = signal.Signals(-self.code).name
            hint = ", most likely because memory ran out" if name == "SIGKILL" else ""
            return f"the gate's process was ended by {name}{hint}"
        return f"the gate's process ended with code {self.code} and without a verdict"


def run_gate(
    command: Sequence[str],
    arguments: Mapping[str, Any],
    *,
    environment: Mapping[str, str],
    timeout: float,
    must_stop: Callable[[], bool],
    on_line: Callable[[str], None],
) -> Ended:
    """Run a command to its end, in a process group of its own.

    Parameters
    ----------
    command : sequence of str
    arguments : mapping
        Handed to it in JSON: as the first line of its standard input, and, without secrets, for
        whoever lists processes, as its last argument.
    environment : mapping of str to str
    timeout : float
        Seconds after which it is ended.
    must_stop : callable
        Asked again and again; it is ended when this returns True.
    on_line : callable
        Called, in a thread, with each line that it prints.

    Returns
    -------
    Ended
    """
    process = subprocess.Popen(
        [*command, json.dumps(redacted_content(arguments))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        env=dict(environment),
    )
    assert process.stdout is not None
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # it has ended already
        process.stdin.write(json.dumps(arguments).encode() + b"\n")
        process.stdin.flush()
    tail: deque[str] = deque(maxlen=_TAIL)
    reader = threading.Thread(
        target=_read, args=(process.stdout, tail, on_line), daemon=True, name="gate output"
    )
    reader.start()
    why, deadline = "ended", time.monotonic() + timeout
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_POLL_SECONDS)
            break
        if must_stop():
            why = "stopped"
        elif time.monotonic() > deadline:
            why = "timeout"
        if why != "ended":
            break
    # What it started goes with it, on a crash too.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    code = process.wait()
    reader.join(timeout=5)
    process.stdin.close()
    return Ended(code, _last_words(list(tail)), why)


def _last_words(lines: list[str]) -> str:
    crash = next((i for i, line in enumerate(lines) if line.startswith(_CRASH)), None)
    return "\n".join(lines[-10:] if crash is None else lines[crash : crash + 10])


def _read(stream: IO[bytes], tail: deque[str], on_line: Callable[[str], None]) -> None:
    """Pass on what comes by lines; a progress bar ends its own with a carriage return."""

    def tell(line: str) -> None:
        line = redacted(line)
        tail.append(line[:_LINE])
        on_line(line)

    rest = ""
    with stream:
        while chunk := os.read(stream.fileno(), 65536):
            *lines, rest = re.split(r"[\r\n]+", rest + chunk.decode("utf-8", "replace"))
            rest = rest[-10_000:]
            for line in filter(None, map(str.strip, lines)):
                tell(line)
    if rest.strip():
        tell(rest.strip())
