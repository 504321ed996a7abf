"""Many evaluations in one process: no deadlock, equal numbers, nothing left over."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import random
import subprocess
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import matplotlib as mpl
import mlflow
import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot

import biasbios_mlflow
from tests.conftest import Registered

FIRST = """
import faulthandler, sys, threading
faulthandler.dump_traceback_later(240, exit=True)
import biasbios_mlflow
found = []
def evaluate():
    options = {"n_replicates": 100, "resume_dir": sys.argv[3]}
    result = biasbios_mlflow.evaluate(sys.argv[1], sys.argv[2], **options)
    found.append(result.metrics["biasbios/ctf"])
threads = [threading.Thread(target=evaluate) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(found), len(set(found)))
"""


def test_the_first_evaluations_of_a_process_are_four_threads(
    registered: Registered, bios: pd.DataFrame, tmp_path: Path
) -> None:
    few = tmp_path / "few.csv"
    bios.head(60).to_csv(few, index=False)
    done = subprocess.run(
        [sys.executable, "-c", FIRST, registered.uri, str(few), str(tmp_path / "kept")],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.stdout.strip().endswith("4 1"), done.stderr[-3000:]


def test_in_threads_and_tasks_with_one_folder(
    registered: Registered, bios: pd.DataFrame, tmp_path: Path
) -> None:
    few = bios.head(60)

    def evaluate(folder: str | None = str(tmp_path / "kept")) -> tuple[str, dict[str, float]]:
        with mlflow.start_run(nested=True):
            result = biasbios_mlflow.evaluate(
                registered.uri, few, n_replicates=100, window_size=20, resume_dir=folder
            )
        return result.run_id, dict(result.metrics)

    async def tasks() -> list[tuple[str, dict[str, float]]]:
        return list(await asyncio.gather(*(asyncio.to_thread(evaluate) for _ in range(2))))

    _, alone = evaluate(None)
    with ThreadPoolExecutor(2) as pool:
        found = [future.result() for future in [pool.submit(evaluate) for _ in range(2)]]
    found += asyncio.run(tasks())
    assert len({run_id for run_id, _ in found}) == 4
    assert all(metrics == alone for _, metrics in found)
    assert not list((tmp_path / "kept").glob(".*"))


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_the_process_is_as_it_was(registered: Registered, bios: pd.DataFrame) -> None:
    few = bios.head(60)

    def evaluate() -> None:
        biasbios_mlflow.evaluate(registered.uri, few, n_replicates=100)

    def state() -> list[object]:
        return [
            random.getstate(),
            np.random.get_state()[1].tolist(),  # noqa: NPY002 - what models may draw from
            dict(os.environ),
            mpl.get_backend(),
            dict(mpl.rcParams),
            list(warnings.filters),
            logging.getLogger().level,
            list(logging.getLogger().handlers),
            np.geterr(),
            os.getcwd(),
            mlflow.active_run(),
            sys.getrecursionlimit(),
            pyplot.get_fignums(),  # another test's may be open
        ]

    evaluate()
    before, threads = state(), threading.active_count()
    for _ in range(2):
        evaluate()
    gc.collect()
    files = open_files()
    for _ in range(3):
        evaluate()
    gc.collect()
    for had, has in zip(before, state(), strict=True):
        assert had == has
    assert open_files() <= files + 1
    assert threading.active_count() <= threads + 2
    assert not [thread for thread in threading.enumerate() if "biasbios" in thread.name]


@pytest.mark.parametrize("model", ["nobody", "models:/nobody/1"])
def test_a_model_that_is_not_there_is_no_deadlock(
    model: str, bios: pd.DataFrame, mlflow_server: str
) -> None:
    def evaluate() -> str:
        with pytest.raises(Exception, match="nobody") as error:
            biasbios_mlflow.evaluate(model, bios.head(60))
        return type(error.value).__name__

    with ThreadPoolExecutor(3) as pool:
        assert len({pool.submit(evaluate).result(60) for _ in range(3)}) == 1
