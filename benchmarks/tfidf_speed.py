"""What a whole evaluation of a TF-IDF model costs, beside two bare ``predict_proba`` calls.

The bios are invented by ``biasbios_mlflow.bios.invented``. In turns, so that other work on the
machine hits all alike: two bare calls (the bios, then their swapped copies, swapped beforehand);
the evaluation itself (swap, prediction, counts, hash, predictions.parquet, scores); and the whole
``mlflow.models.evaluate`` call with logging to a local store. Ratios are medians over the turns.

Example: python benchmarks/tfidf_speed.py --bios 20000
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlflow
import pandas as pd

from biasbios_mlflow import swap_gender
from biasbios_mlflow.bios.checked import check_bios, find_columns
from biasbios_mlflow.bios.invented import invent_bios
from biasbios_mlflow.config import EvaluationConfig
from biasbios_mlflow.pipeline import evaluate_bios
from biasbios_mlflow.prediction.predictor import find_predictor
from biasbios_mlflow.training import train


def timed(call: Callable[[], Any]) -> tuple[float, float, Any]:
    """Return the seconds on the clock, those of the processor, and the result."""
    start, cpu = time.perf_counter(), time.process_time()
    result = call()
    return time.perf_counter() - start, time.process_time() - cpu, result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bios", type=int, default=20_000)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--n-jobs", type=int, default=1, help="processes that swap and predict")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.INFO)
    frame = invent_bios(options.bios, seed=7)
    swapped = pd.DataFrame({"hard_text": swap_gender(list(frame["hard_text"]))})
    settings = {"n_jobs": options.n_jobs}
    config = EvaluationConfig(**settings)
    with tempfile.TemporaryDirectory() as folder:
        mlflow.set_tracking_uri(f"sqlite:///{Path(folder) / 'mlflow.db'}")
        mlflow.create_experiment("speed", artifact_location=str(Path(folder) / "artifacts"))
        mlflow.set_experiment("speed")
        uri = train(register="speed").model_uri
        loaded = mlflow.pyfunc.load_model(uri)
        estimator = loaded.unwrap_python_model().estimator

        def bare() -> None:
            estimator.predict_proba(frame[["hard_text"]])
            estimator.predict_proba(swapped)

        def ours() -> Any:
            bios = check_bios(frame, find_columns(list(frame.columns)))
            return evaluate_bios(bios, find_predictor(loaded, config), config)

        def whole() -> None:
            mlflow.models.evaluate(
                loaded,
                frame,
                targets="profession",
                model_type="classifier",
                evaluators=["biasbios"],
                evaluator_config={"biasbios": settings},
            )

        clock: dict[str, list[float]] = {"bare": [], "ours": [], "whole": []}
        cpu: dict[str, list[float]] = {name: [] for name in clock}
        for turn in range(options.turns):
            for name, call in (("bare", bare), ("ours", ours), ("whole", whole)):
                seconds, spent, result = timed(call)
                clock[name].append(seconds)
                cpu[name].append(spent)
                if name == "ours":
                    phases = {k: round(v, 2) for k, v in result.seconds.items()}
            print(
                f"turn {turn + 1}: "
                + ", ".join(f"{k} {v[-1]:.2f} s ({cpu[k][-1]:.2f} s CPU)" for k, v in clock.items())
                + f"; {phases}",
                flush=True,
            )

    def ratio(seconds: dict[str, list[float]], name: str) -> float:
        pairs = zip(seconds[name], seconds["bare"], strict=True)
        return round(statistics.median(x / b for x, b in pairs), 3)

    print(
        json.dumps(
            {
                "bios": len(frame),
                "n_jobs": options.n_jobs,
                "evaluation_by_two_bare_calls": ratio(clock, "ours"),
                "evaluation_by_two_bare_calls_cpu": ratio(cpu, "ours"),
                "mlflow_evaluate_by_two_bare_calls": ratio(clock, "whole"),
                "mlflow_evaluate_by_two_bare_calls_cpu": ratio(cpu, "whole"),
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main()
