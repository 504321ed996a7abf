"""Random test sets: few bios, many labels, missing cells, ties."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tests.scoring.reference import Rows

NAMES = ("dj", "nurse", "painter", "poet", "surgeon", "teacher")


@st.composite
def rows(draw: st.DrawFn, max_bios: int = 60) -> Rows:
    """Bios whose predictions are often right, sometimes outside the labels."""
    n_labels = draw(st.integers(1, len(NAMES)))
    n = draw(st.integers(1, max_bios))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    labels = NAMES[:n_labels]
    used = draw(st.integers(1, n_labels))
    occupations = rng.integers(0, used, n)
    genders = np.where(
        rng.random(n) < draw(st.sampled_from([0.0, 0.1, 0.5, 1.0])), "male", "female"
    )
    right = draw(st.sampled_from([0.0, 0.5, 0.9, 1.0]))
    kind = draw(st.sampled_from(["labels", "pairs", "probabilities"]))
    # Quarters, so that ties and equal values are frequent.
    matrices = [rng.integers(0, 5, (n, n_labels)) / 4 for _ in range(2)]
    predictions = np.where(rng.random(n) < right, occupations, rng.integers(0, n_labels, n))
    swapped = np.where(rng.random(n) < 0.8, predictions, rng.integers(0, n_labels, n))
    names = np.array([*labels, "astronaut"], dtype=object)
    if draw(st.booleans()):
        predictions = np.where(rng.random(n) < 0.2, n_labels, predictions)
    changed = None if draw(st.booleans()) else (rng.random(n) < 0.7).tolist()
    return Rows(
        labels=labels,
        occupations=names[occupations].tolist(),
        genders=genders.tolist(),
        predictions=names[predictions].tolist(),
        counterfactual_predictions=None if kind == "labels" else names[swapped].tolist(),
        probabilities=matrices[0].tolist() if kind == "probabilities" else None,
        counterfactual_probabilities=matrices[1].tolist() if kind == "probabilities" else None,
        changed=changed,
    )
