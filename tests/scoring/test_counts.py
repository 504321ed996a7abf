"""Counts add up to the same numbers whatever the parts and their order."""

from __future__ import annotations

import json
import math
import time
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mlflow.exceptions import MlflowException

from biasbios_mlflow.scoring import Counts, JointCounts, Outcomes, ctf_values, scores_from_counts

LABELS = tuple("abcde")


def random_columns(seed: int, n: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    k = len(LABELS)
    probabilities = rng.dirichlet(np.ones(k), n)
    swapped = np.where(rng.random((n, 1)) < 0.2, probabilities, rng.dirichlet(np.ones(k), n))
    predictions = np.where(rng.random(n) < 0.1, k + rng.integers(0, 2, n), probabilities.argmax(1))
    return {
        "genders": rng.integers(0, 2, n),
        "occupations": rng.integers(0, k, n),
        "predictions": predictions,
        "counterfactual_predictions": swapped.argmax(1),
        "probabilities": probabilities,
        "counterfactual_probabilities": swapped,
        "changed": rng.random(n) < 0.8,
    }


@settings(deadline=None, max_examples=200)
@given(st.integers(0, 10**6), st.integers(0, 120), st.data())
def test_any_split_in_any_order_gives_the_same_numbers(
    seed: int, n: int, data: st.DataObject
) -> None:
    columns = random_columns(seed, n)
    whole = Counts.from_codes(**columns, labels=LABELS)
    order = np.random.default_rng(data.draw(st.integers(0, 99))).permutation(n)
    cuts = sorted(data.draw(st.lists(st.integers(0, n), max_size=6)))
    parts = [
        Counts.from_codes(**{k: v[rows] for k, v in columns.items()}, labels=LABELS)
        for rows in np.split(order, cuts)
    ]
    parts = data.draw(st.permutations(parts))
    one_by_one = Counts.empty(LABELS)
    for part in parts:
        one_by_one = one_by_one + part
    at_once = parts[0].merge(*parts[1:])
    reread = [Counts.from_dict(json.loads(json.dumps(part.to_dict()))) for part in parts]
    for merged in (one_by_one, at_once, sum(reread, Counts.empty(LABELS))):
        assert merged == whole
        assert hash(merged) == hash(whole)
    if n:
        metrics = [scores_from_counts(c, intervals=False).metrics for c in (whole, one_by_one)]
        assert metrics[0] == metrics[1]


def test_sums_are_exact_to_the_stated_error() -> None:
    columns = random_columns(1, 5000)
    counts = Counts.from_codes(**columns, labels=LABELS)
    arguments = ("probabilities", "counterfactual_probabilities", "predictions", "occupations")
    values = ctf_values(*(columns[name] for name in arguments))
    for reading, value in values.items():
        value = value[~np.isnan(value)]
        n, mean, mean_square = counts.ctf_moments(reading)
        assert n == len(value)
        exact = sum(map(Fraction, value.tolist()), Fraction(0)) / n
        assert abs(Fraction(mean) - exact) <= Fraction(1, 2**61) + abs(exact) / 2**53
        squares = (value * value).tolist()
        assert mean_square == pytest.approx(math.fsum(squares) / n, rel=1e-14)


def test_values_above_one_are_summed_exactly_too() -> None:
    # Independent probabilities of many labels can change all at once.
    n, k = 40, 400
    counts = Counts.from_codes(
        genders=np.zeros(n),
        occupations=np.zeros(n),
        predictions=np.zeros(n),
        counterfactual_predictions=np.zeros(n),
        probabilities=np.zeros((n, k)),
        counterfactual_probabilities=np.ones((n, k)),
        labels=[str(i) for i in range(k)],
    )
    assert counts.ctf_moments("ctf_all_classes") == (n, k / 4, (k / 4) ** 2)


def test_layout_and_chunk_of_a_matrix_do_not_matter() -> None:
    columns = random_columns(2, 300)
    values = {}
    for name, order in (("c", "C"), ("f", "F")):
        p, q = (
            np.asarray(columns[key], order=order)
            for key in ("probabilities", "counterfactual_probabilities")
        )
        values[name] = ctf_values(p, q, columns["predictions"], columns["occupations"])
    for reading in values["c"]:
        np.testing.assert_array_equal(values["c"][reading], values["f"][reading])


def test_unknown_labels_are_told_apart_where_their_codes_differ() -> None:
    counts = Counts.from_codes(
        genders=[0, 0, 0],
        occupations=[0, 0, 0],
        predictions=[5, 5, 6],
        counterfactual_predictions=[5, 6, 0],
        labels=LABELS,
    )
    scores = scores_from_counts(counts)
    assert scores.metrics["prediction_consistency"] == 1 / 3
    assert scores.metrics["accuracy"] == 0
    assert scores.unknown_predictions == 3
    assert scores.unknown_counterfactual_predictions == 2


def test_bios_with_unknown_predictions_are_left_out_of_ctf_only() -> None:
    counts = Counts.from_codes(
        genders=[0, 1],
        occupations=[0, 0],
        predictions=[5, 0],
        counterfactual_predictions=[0, 0],
        probabilities=[[1, 0, 0, 0, 0], [1, 0, 0, 0, 0]],
        counterfactual_probabilities=[[0, 1, 0, 0, 0], [0.5, 0.5, 0, 0, 0]],
        labels=LABELS,
    )
    metrics = scores_from_counts(counts).metrics
    assert metrics["ctf"] == 0.0625
    assert metrics["bios"] == 2


def test_different_labels_do_not_add_up() -> None:
    with pytest.raises(MlflowException, match=r"counts: found parts with the labels"):
        Counts.empty("ab") + Counts.empty("ba")


def test_a_large_label_set_costs_no_memory() -> None:
    labels = [f"label {i}" for i in range(50_000)]
    codes = np.arange(1000) * 49
    counts = Counts.from_codes(
        genders=codes % 2,
        occupations=codes,
        predictions=codes[::-1],
        counterfactual_predictions=codes,
        changed=codes % 3 == 0,
        labels=labels,
    )
    assert len(counts.cells) == 1000
    assert sorted(counts.columns["predictions"].tolist()) == codes.tolist()
    assert (counts.columns["predictions"] + counts.columns["occupations"] == codes[-1]).all()
    assert counts.where(changed=1) == int((codes % 3 == 0).sum())


def test_joint_counts_add_up() -> None:
    columns = random_columns(4, 200)
    other = random_columns(5, 200)
    for key in ("genders", "occupations", "changed"):
        other[key] = columns[key]
    a, b = (Outcomes.from_codes(**c, labels=LABELS) for c in (columns, other))
    whole = JointCounts.from_outcomes(a, b)
    halves = [
        JointCounts.from_outcomes(
            *(
                Outcomes.from_codes(**{k: v[rows] for k, v in c.items()}, labels=LABELS)
                for c in (columns, other)
            )
        )
        for rows in (slice(70, None), slice(0, 70))
    ]
    merged = halves[0] + halves[1]
    assert merged.a == whole.a
    assert merged.b == whole.b
    for name in ("hits_both", "mistakes_both", "consistent_both", "ctf_sums", "ctf_bios"):
        np.testing.assert_array_equal(getattr(merged, name), getattr(whole, name))


def test_a_window_is_counted_in_milliseconds() -> None:
    columns = random_columns(6, 20_000)
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        Counts.from_codes(**columns, labels=LABELS)
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 0.1
