"""Time and memory of a whole evaluation as the data grows: 100,000 bios, then four times as many.

The bios are those of the embedded sample, again and again, each with an id, in a csv file. The
model is cheap (it looks at the length of a bio and at its first letter), so that what is measured
is this package: reading, swap, counting, hashing, predictions.parquet, scores, logging to a local
store. Every evaluation runs in a process of its own, whose peak memory and CPU time are taken from
the system. With Spark that is the driver's Python; beside it stands the peak of the driver's JVM,
which gets 600 MB of heap and in local mode does the executors' work too.

Example: python benchmarks/scale.py --bios 100000 400000
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from biasbios_mlflow.bios.sample import read_sample


def guess(frame: pd.DataFrame) -> npt.NDArray[np.float64]:
    """Return a probability of each of 28 occupations, from next to nothing."""
    texts = frame["hard_text"].tolist()
    codes = np.array([len(text) + ord(text[0]) for text in texts]) % 28
    matrix = np.full((len(texts), 28), 0.01)
    matrix[np.arange(len(texts)), codes] = 0.73
    return matrix


def evaluate_locally(path: Path) -> dict[str, float]:
    """Evaluate window by window in this process."""
    import biasbios_mlflow

    return dict(biasbios_mlflow.evaluate(guess, path).metrics)


def evaluate_with_spark(path: Path) -> dict[str, float]:
    """Evaluate with Spark on all cores of this machine."""
    import mlflow
    from pyspark.sql import SparkSession

    import biasbios_mlflow.spark

    class Guesser(mlflow.pyfunc.PythonModel):
        def predict(self, context: Any, model_input: pd.DataFrame) -> npt.NDArray[np.float64]:
            return guess(model_input)

    with mlflow.start_run():
        info = mlflow.pyfunc.log_model(
            name="model", python_model=Guesser(), pip_requirements=["mlflow"]
        )
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ["PYSPARK_SUBMIT_ARGS"] = "--driver-memory 600m --master local[*] pyspark-shell"
    spark = SparkSession.builder.config("spark.ui.enabled", "false").getOrCreate()
    start = time.perf_counter()
    result = biasbios_mlflow.spark.evaluate(f"models:/{info.model_id}", str(path))
    seconds = time.perf_counter() - start
    java = spark.sparkContext._gateway.proc.pid
    status = Path(f"/proc/{java}/status").read_text("utf-8")
    peak = int(re.search(r"VmHWM:\s+(\d+) kB", status).group(1)) / (1 << 10)
    return {**result.metrics, "seconds": seconds, "java_mib": peak}


ENGINES: dict[str, Callable[[Path], dict[str, float]]] = {
    "local": evaluate_locally,
    "spark": evaluate_with_spark,
}
"""What evaluates a csv file and returns the metrics, by name."""


def measure(engine: str, path: Path, folder: Path) -> None:
    """Evaluate in this process and print what it took, as JSON."""
    import mlflow

    warnings.simplefilter("ignore")
    mlflow.set_tracking_uri(f"sqlite:///{folder / 'mlflow.db'}")
    mlflow.create_experiment("scale", artifact_location=str(folder / "artifacts"))
    mlflow.set_experiment("scale")
    start = time.perf_counter()
    metrics = ENGINES[engine](path)
    seconds = time.perf_counter() - start
    usage = resource.getrusage(resource.RUSAGE_SELF)
    peak = usage.ru_maxrss / (1 << 20 if sys.platform == "darwin" else 1 << 10)
    print(
        json.dumps(
            {
                "bios": int(metrics["biasbios/bios"]),
                "seconds": metrics.get("seconds", seconds),
                "cpu": usage.ru_utime + usage.ru_stime,
                "peak_mib": peak,
                "java_mib": metrics.get("java_mib", 0.0),
            }
        )
    )


def write_bios(path: Path, bios: int) -> None:
    rows = list(read_sample().itertuples(index=False, name=None))
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "hard_text", "profession", "gender"])
        writer.writerows((number, *rows[number % len(rows)]) for number in range(bios))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bios", type=int, nargs="+", default=[100_000, 400_000])
    parser.add_argument("--engines", nargs="+", choices=list(ENGINES), default=list(ENGINES))
    parser.add_argument("--measure", nargs=3, metavar=("ENGINE", "CSV", "FOLDER"), help="internal")
    options = parser.parse_args()
    if options.measure:
        engine, path, folder = options.measure
        measure(engine, Path(path), Path(folder))
        return
    print(f"{'engine':<8}{'bios':>9}{'csv':>9}{'seconds':>9}{'CPU s':>9}{'peak':>10}   ratios")
    with tempfile.TemporaryDirectory(prefix="scale-") as temporary:
        for engine in options.engines:
            first: dict[str, float] | None = None
            for bios in options.bios:
                folder = Path(temporary) / f"{engine}-{bios}"
                folder.mkdir()
                path = folder / "bios.csv"
                write_bios(path, bios)
                done = subprocess.run(
                    [sys.executable, __file__, "--measure", engine, str(path), str(folder)],
                    stdout=subprocess.PIPE,
                    text=True,
                    check=True,
                )
                found = json.loads(done.stdout.splitlines()[-1])
                first = first or found
                ratios = {
                    name: found[name] / first[name] for name in ("seconds", "cpu", "peak_mib")
                }
                print(
                    f"{engine:<8}{found['bios']:>9,}{path.stat().st_size >> 20:>6} MB"
                    f"{found['seconds']:>9.1f}{found['cpu']:>9.1f}{found['peak_mib']:>7.0f} MB"
                    f"   time {ratios['seconds']:.2f}, CPU {ratios['cpu']:.2f}, "
                    f"memory {ratios['peak_mib']:.2f}"
                    + (f"; JVM {found['java_mib']:.0f} MB" if found["java_mib"] else ""),
                    flush=True,
                )


if __name__ == "__main__":
    main()
