"""How fast a transformers classifier is evaluated, beside MLflow's own predict and the machine.

One run compares, on the same bios of the embedded sample and their gender-swapped copies:

(a) MLflow's own ``predict`` of the model as loaded,
(b) the same with ``batch_size=32`` in the model's config,
(c) this package end to end: swap, prediction, counts, scores,
(d) the dense limit: as many tokens through the same model in batches of equal length, without
    padding, tokenizing or masks; the batch size that is fastest over all turns counts.

The parts take turns, bios in slices, so that other work on the machine hits all of them alike;
ratios are medians over the turns.

Example: python benchmarks/prediction_speed.py all-MiniLM-L6-v2/ --bios 600
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import torch
import transformers

from biasbios_mlflow import load_bios, swap_gender
from biasbios_mlflow.bios.checked import check_bios, find_columns
from biasbios_mlflow.bios.occupations import OCCUPATIONS
from biasbios_mlflow.config import EvaluationConfig
from biasbios_mlflow.pipeline import evaluate_bios
from biasbios_mlflow.prediction.predictor import find_predictor


def save(weights: str, folder: Path) -> tuple[str, str]:
    """Save the classifier twice: as it is, and with ``batch_size=32``."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(weights)
    torch.manual_seed(0)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        weights, num_labels=len(OCCUPATIONS), id2label=dict(enumerate(OCCUPATIONS))
    ).eval()
    pipeline = transformers.pipeline("text-classification", model=model, tokenizer=tokenizer)
    for name, settings in (("a", None), ("b", {"batch_size": 32})):
        mlflow.transformers.save_model(
            pipeline,
            folder / name,
            model_config=settings,
            pip_requirements=["transformers", "torch"],
        )
    return str(folder / "a"), str(folder / "b")


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def dense(model: Any, tokens: int, width: int, rows: int) -> float:
    """Return the seconds for ``tokens`` tokens in batches of ``rows`` texts of ``width`` tokens."""
    device = model.device
    vocabulary = model.config.vocab_size
    batches = max(1, round(tokens / (rows * width)))
    ids = [torch.randint(999, vocabulary, (rows, width), device=device) for _ in range(batches)]
    with torch.inference_mode():
        start = time.perf_counter()
        for batch in ids:
            last = model(input_ids=batch).logits
        last.sum().item()  # waits for the device
    return (time.perf_counter() - start) * tokens / (batches * rows * width)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("weights", help="path or name of a model of transformers")
    parser.add_argument("--bios", type=int, default=600)
    parser.add_argument("--turns", type=int, default=6, help="slices that the bios are cut into")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--skip-batched", action="store_true", help="leave out (b)")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity_error()

    test = load_bios("sample", split="test").df
    frame = test.sample(n=options.bios, random_state=0).reset_index(drop=True)
    config = EvaluationConfig(n_replicates=100, device=options.device, log_predictions=False)
    with tempfile.TemporaryDirectory() as folder:
        uri, batched_uri = save(options.weights, Path(folder))
        loaded = mlflow.pyfunc.load_model(uri)
        batched = mlflow.pyfunc.load_model(batched_uri)
    predictor = find_predictor(loaded, config)
    tokenizer = loaded.get_raw_model().tokenizer
    model = loaded.get_raw_model().model

    def evaluate(part: Any) -> Any:
        bios = check_bios(part, find_columns(list(part.columns)))
        return evaluate_bios(bios, predictor, config).seconds

    evaluate(frame.head(32))
    loaded.predict(list(frame["hard_text"].head(32)))
    seconds: dict[str, list[float]] = {name: [] for name in "abc"}
    sizes = (128, 256, 512, 1024) if "cuda" in predictor.path else (6, 8, 12, 16)
    limits: dict[int, list[float]] = {rows: [] for rows in sizes}
    phases: Counter[str] = Counter()
    tokens = []
    for turn in range(options.turns):
        part = frame.iloc[turn :: options.turns].reset_index(drop=True)
        texts = list(part["hard_text"])
        swapped = [b for a, b in zip(texts, swap_gender(texts), strict=True) if a != b]
        both = [*texts, *swapped]
        lengths = [len(ids) for ids in tokenizer(both, truncation=True)["input_ids"]]
        tokens.append(sum(lengths))
        width = round(float(np.mean(lengths)))
        spent, parts = timed(lambda part=part: evaluate(part))
        seconds["c"].append(spent)
        phases.update(parts)
        with predictor.session():
            for rows, values in limits.items():
                values.append(dense(model, tokens[-1], width, rows))
        seconds["a"].append(timed(lambda both=both: loaded.predict(both))[0])
        if not options.skip_batched:
            seconds["b"].append(timed(lambda both=both: batched.predict(both))[0])
        shown = {**seconds, **{f"d, {rows} texts": values for rows, values in limits.items()}}
        times = ", ".join(
            f"({name}) {values[-1]:.2f} s" for name, values in shown.items() if values
        )
        print(f"turn {turn + 1}: {len(both)} texts, {tokens[-1]} tokens; {times}", flush=True)
    seconds["d"] = min(limits.values(), key=sum)

    def ratio(name: str) -> float:
        pairs = zip(seconds[name], seconds["c"], strict=True)
        return round(statistics.median(x / c for x, c in pairs), 3)

    report = {
        "bios": len(frame),
        "tokens": sum(tokens),
        "device": predictor.path,
        "threads": torch.get_num_threads(),
        "tokens_per_second": {
            name: round(sum(tokens) / sum(values)) for name, values in seconds.items() if values
        },
        "times_faster_than_mlflow": ratio("a"),
        "times_faster_than_mlflow_batched": None if options.skip_batched else ratio("b"),
        "share_of_dense_limit": ratio("d"),
        "seconds_of_ours": {name: round(value, 2) for name, value in phases.items()},
        "versions": {
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "python": platform.python_version(),
        },
    }
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
