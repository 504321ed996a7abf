"""Runs instead of a gate where many must run: writes down when, and the verdict ``failed``.

``python -IS tiny_gate.py <log> <seconds> <arguments as JSON>``; without MLflow, whose import takes
seconds.
"""

import json
import os
import signal
import sys
import threading
import time
import urllib.error
import urllib.request


def wait_for_end() -> None:
    while os.read(0, 100):
        pass
    os.kill(os.getpid(), signal.SIGKILL)


def main(log: str, seconds: str, arguments: str) -> int:
    threading.Thread(target=wait_for_end, daemon=True).start()
    uri = json.loads(arguments)["model_uri"]
    name, version = uri.removeprefix("models:/").rsplit("/", 1)

    def note(what: str) -> None:
        with open(log, "a") as file:
            file.write(json.dumps([name, version, what, time.monotonic()]) + "\n")

    note("begin")
    time.sleep(float(seconds))
    tag = {"name": name, "version": version, "key": "biasbios.gate", "value": "failed"}
    request = urllib.request.Request(
        os.environ["MLFLOW_TRACKING_URI"] + "/api/2.0/mlflow/model-versions/set-tag",
        data=json.dumps(tag).encode(),
        headers={"Content-Type": "application/json"},
    )
    try:
        urllib.request.urlopen(request, timeout=10).close()
    except urllib.error.HTTPError:
        return 2
    except OSError:
        return 75
    note("end")
    return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
