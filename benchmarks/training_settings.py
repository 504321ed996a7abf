"""What the settings of training do, on a part of the training split that is held out.

Three quarters of the training split are learned from, one quarter is measured; the test split is
not touched. One row for each setting that differs from the defaults, as Markdown, and which setting
one criterion chooses for each method.

Example: python benchmarks/training_settings.py --features <folder of an encoder>
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

from biasbios_mlflow import score
from biasbios_mlflow.bios.occupations import GENDERS
from biasbios_mlflow.config import EvaluationConfig
from biasbios_mlflow.training import Settings
from biasbios_mlflow.training.classifiers import Classifier, TrainingSet, find_encoder
from biasbios_mlflow.training.network import Examples, fit_head

SCHEDULES: list[dict[str, Any]] = [
    {},
    *({"learning_rate": rate} for rate in (1e-4, 5e-4, 1e-3)),
    *({"steps": steps} for steps in (150, 600)),
]
GRID: dict[str, list[dict[str, Any]]] = {
    "baseline": SCHEDULES,
    "balanced": SCHEDULES,
    "project": [{}, *({"directions": n} for n in (5, 10, 50, 100)), {"steps": 600}],
    "leace": SCHEDULES,
    "inlp": [{}, *({"projections": n} for n in (5, 10, 50, 100)), {"steps": 600}],
    "cda": SCHEDULES,
    "clp": [{}, *({"pairing": weight} for weight in (0.3, 1.0, 10.0, 30.0, 100.0))],
    "sensr": [
        {},
        *({"eps": eps} for eps in (0.1, 10.0)),
        *({"auditor_rate": rate} for rate in (0.2, 1.0)),
        {"auditor_steps": 10},
    ],
    "sensei": [
        {},
        *({"rho": rho} for rho in (5.0, 20.0, 200.0)),
        *({"eps": eps} for eps in (0.1, 10.0)),
    ],
}
"""The same number of trials for each method."""

ROOM = 0.01
"""A method may cost so much balanced accuracy against the best baseline. Of the settings that cost
no more, the one with the highest prediction consistency is chosen; for the baseline, the one with
the highest balanced accuracy."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--features", required=True, help="name or path of an encoder")
    parser.add_argument("--data", default="sample")
    parser.add_argument("--cache", default=None, help="folder for vectors")
    parser.add_argument("--methods", default=",".join(GRID))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    encoder = find_encoder(options.features, cache=options.cache, config=EvaluationConfig())
    training = TrainingSet.read(options.data, split="train", scope="pronouns", encoder=encoder)
    bios, before, after = training.bios, training.vectors, training.swapped_vectors
    assert before is not None
    assert after is not None
    order = np.random.default_rng(options.seed).permutation(len(bios))
    held_out, learned = np.split(order, [len(bios) // 4])
    names = np.array(bios.labels.names, dtype=object)
    parts = (part[learned] for part in (before, after, bios.occupations, bios.genders))
    examples = Examples(*parts, len(names))
    tried: dict[str, list[tuple[float, float, str]]] = {}
    print("| method | setting | balanced_accuracy | ctf | prediction_consistency | gap_rms | s |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for method in options.methods.split(","):
        for chosen in GRID[method]:
            start = time.perf_counter()
            head = fit_head(
                examples, method=method, settings=Settings.of(method, chosen), seed=options.seed
            )
            seconds = time.perf_counter() - start
            classifier = Classifier(bios.labels.names, head=head)
            original, swapped = (
                classifier.predict(vectors[held_out]).to_numpy(np.float64)
                for vectors in (before, after)
            )
            metrics = score(
                names[bios.occupations[held_out]],
                np.array(GENDERS)[bios.genders[held_out]],
                names[original.argmax(axis=1)],
                names[swapped.argmax(axis=1)],
                probabilities=original,
                counterfactual_probabilities=swapped,
                labels=list(names),
                n_replicates=100,
            ).metrics
            tried.setdefault(method, [])
            setting = ", ".join(f"{name} {value:g}" for name, value in chosen.items()) or "defaults"
            print(
                f"| {method} | {setting} | {metrics['balanced_accuracy']:.4f} "
                f"| {metrics['ctf']:.5f} | {metrics['prediction_consistency']:.4f} "
                f"| {metrics['gap_rms']:.3f} | {seconds:.0f} |",
                flush=True,
            )
            figures = metrics["balanced_accuracy"], metrics["prediction_consistency"]
            tried[method].append((*figures, setting))
    best = max(accuracy for accuracy, _, _ in tried.get("baseline", [(0.0, 0.0, "")]))
    print(f"\nChosen (balanced accuracy at least {best - ROOM:.4f}):")
    for method, trials in tried.items():
        kept = [trial for trial in trials if trial[0] >= best - ROOM]
        if method == "baseline":
            print(f"{method}: {max(trials)[2]}")
        elif kept:
            print(f"{method}: {max(kept, key=lambda trial: trial[1])[2]}")
        else:
            print(f"{method}: none")


if __name__ == "__main__":
    main()
