"""How long bootstrap replicates and scores take, beside fairlearn's bootstrap.

    python benchmarks/uncertainty_speed.py --bios 99000

Draws 10,000 replicates of every count metric for this many bios and for a tenth and ten times as
many, scores the counts with all intervals, and times fairlearn's ``MetricFrame`` bootstrap of the
TPR by gender and occupation on the same bios in the same run.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
from fairlearn.metrics import MetricFrame
from sklearn.metrics import accuracy_score

from biasbios_mlflow.bios.occupations import OCCUPATIONS
from biasbios_mlflow.scoring import Counts, scores_from_counts
from biasbios_mlflow.scoring.uncertainty import replicates


def columns(n: int, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    k = len(OCCUPATIONS)
    occupations = rng.choice(k, n, p=rng.dirichlet(np.full(k, 3.0)))
    predictions = np.where(rng.random(n) < 0.8, occupations, rng.integers(0, k, n))
    return {
        "genders": rng.integers(0, 2, n),
        "occupations": occupations,
        "predictions": predictions,
        "counterfactual_predictions": np.where(
            rng.random(n) < 0.95, predictions, rng.integers(0, k, n)
        ),
        "changed": rng.random(n) < 0.97,
    }


def best(run: Callable[[], object], repeats: int) -> float:
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bios", type=int, default=99_000)
    parser.add_argument("--replicates", type=int, default=10_000)
    parser.add_argument("--fairlearn-replicates", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()

    per_replicate = 0.0
    for n in (options.bios // 10, options.bios, options.bios * 10):
        counts = Counts.from_codes(**columns(n), labels=OCCUPATIONS)
        drawing = best(
            lambda c=counts: replicates(c, n_replicates=options.replicates), options.repeats
        )
        scoring = best(lambda c=counts: scores_from_counts(c), options.repeats)
        print(
            f"{n:>8,} bios: {options.replicates:,} replicates {drawing:.3f} s, "
            f"all metrics and intervals {scoring:.3f} s"
        )
        if n == options.bios:
            per_replicate = drawing / options.replicates

    bios = columns(options.bios)
    frame: dict[str, object] = {
        "metrics": accuracy_score,
        "y_true": bios["occupations"],
        "y_pred": bios["predictions"],
        "sensitive_features": bios["genders"],
        "control_features": bios["occupations"],
    }
    plain = best(lambda: MetricFrame(**frame), 1)
    start = time.perf_counter()
    MetricFrame(
        **frame, n_boot=options.fairlearn_replicates, ci_quantiles=[0.025, 0.975], random_state=0
    )
    fairlearn = (time.perf_counter() - start - plain) / options.fairlearn_replicates
    print(
        f"fairlearn: {fairlearn:.3f} s a replicate of the TPRs; "
        f"ours {per_replicate * 1e6:.1f} µs a replicate of all count metrics: "
        f"{fairlearn / per_replicate:,.0f} times faster"
    )


if __name__ == "__main__":
    main()
