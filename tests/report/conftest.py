"""Evaluations whose reports are looked at: static predictions, no model needed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from biasbios_mlflow import swap_gender
from biasbios_mlflow.bios.checked import check_bios, find_columns
from biasbios_mlflow.pipeline import Evaluation
from tests.prediction.conftest import run

HOSTILE = (
    "</td></table></script><script>document.title = 'owned'</script>"
    '<img src="x" onerror="document.title = \'owned\'"> &amp; she said "hi" '
    "\x00\x07\x1b[31m \u202ereversed \u05d0\u05d1\u05d2 {{ 7 * 7 }} {% raw %}"
)


def evaluated(frame: pd.DataFrame, **config: Any) -> Evaluation:
    """Evaluate predictions that stand in the columns ``before`` and ``after``."""
    columns = {"predictions": "before", "counterfactual_predictions": "after"}
    if "before_p" in frame:
        columns |= {"probabilities": "before_p", "counterfactual_probabilities": "after_p"}
    if "after" not in frame:
        del columns["counterfactual_predictions"]
    found = find_columns(list(frame), counterfactual=config.get("counterfactual_column"))
    bios = check_bios(frame, found, label_names=config.get("label_names"))
    return run(None, bios, **{**columns, **config})


def predicted(
    texts: list[str], labels: list[str], *, seed: int = 0, flipped: float = 0.3
) -> pd.DataFrame:
    """Bios with random predictions of ``labels`` and random changes of them."""
    rng = np.random.default_rng(seed)
    n, k = len(texts), len(labels)
    before, after = rng.dirichlet(np.full(k, 0.3), (2, n))
    after = np.where(rng.random(n)[:, None] < flipped, after, before)
    truth = np.where(rng.random(n) < 0.6, before.argmax(1), rng.integers(0, k, n))
    truth[: 2 * k] = np.arange(2 * k) % k
    names = np.array(labels, dtype=object)
    return pd.DataFrame(
        {
            "hard_text": texts,
            "profession": names[truth],
            "gender": np.where(np.arange(n) % 2 == 0, "female", "male"),
            "before": names[before.argmax(1)],
            "after": names[after.argmax(1)],
            "before_p": before.tolist(),
            "after_p": after.tolist(),
            "swapped": swap_gender(texts),
        }
    )


@pytest.fixture(scope="session")
def hostile_evaluation() -> Evaluation:
    """Bios, labels and ids full of markup, formulas and control characters."""
    rng = np.random.default_rng(1)
    texts = [
        f"{HOSTILE} number {i}" if i % 3 else f'=HYPERLINK("https://host.example/{i}") her work'
        for i in range(200)
    ]
    labels = ["<b>poet</b>", "dj & \"co\" $x_1$ 'y'", "=1+1", "nurse" + " of a long name" * 8]
    frame = predicted(texts, labels)
    frame["id"] = [f"<i>{i}</i>" if i % 2 else f"@{i}" for i in rng.permutation(200)]
    return evaluated(frame, counterfactual_column="swapped", id_column="id", label_names=labels)
