"""Every form that a model's output can have, and every way in which it can be wrong."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from mlflow.exceptions import MlflowException
from scipy.special import softmax

from biasbios_mlflow.bios.occupations import OCCUPATIONS, Labels
from biasbios_mlflow.prediction.outputs import (
    Output,
    OutputReader,
    Predictions,
    ReadOtherwise,
    Returns,
)

THREE = ("nurse", "poet", "yoga_teacher")
MATRIX = np.array([[0.7, 0.2, 0.1], [0.1, 0.1, 0.8], [0.3, 0.5, 0.2], [0.25, 0.35, 0.4]])
CODES = [0, 2, 1, 2]


def reader(**known: Any) -> OutputReader:
    return OutputReader(Labels(THREE, ids=True), returns=Returns(**known))


def names(predictions: Predictions, of: OutputReader) -> list[str]:
    return [of.names[code] for code in predictions.codes]


LABEL_FORMS: dict[str, Any] = {
    "list": ["nurse", "yoga_teacher", "poet", "yoga_teacher"],
    "array": np.array(["nurse", "yoga_teacher", "poet", "yoga_teacher"]),
    "object array": np.array(["nurse", "yoga_teacher", "poet", "yoga_teacher"], dtype=object),
    "series with another index": pd.Series(
        ["nurse", "yoga_teacher", "poet", "yoga_teacher"], index=[9, 8, 7, 6]
    ),
    "categorical": pd.Series(["nurse", "yoga_teacher", "poet", "yoga_teacher"], dtype="category"),
    "other spellings": ["Nurse", "yoga teacher", " POET ", "Yoga-Teacher"],
    "ids": [0, 2, 1, 2],
    "ids as floats": np.array([0.0, 2.0, 1.0, 2.0]),
    "ids as text": ["0", "2", "1", "2"],
    "LABEL_i": ["LABEL_0", "LABEL_2", "LABEL_1", "LABEL_2"],
    "one column": np.array([["nurse"], ["yoga_teacher"], ["poet"], ["yoga_teacher"]]),
    "frame of one column": pd.DataFrame({"p": ["nurse", "yoga_teacher", "poet", "yoga_teacher"]}),
    "mapping": {"p": ["nurse", "yoga_teacher", "poet", "yoga_teacher"]},
    "label and score": pd.DataFrame(
        {"label": ["nurse", "yoga_teacher", "poet", "yoga_teacher"], "score": [0.7, 0.8, 0.5, 0.4]}
    ),
    "label and score dicts": [
        {"label": "nurse", "score": 0.7},
        {"label": "yoga_teacher", "score": 0.8},
        {"label": "poet", "score": 0.5},
        {"label": "yoga_teacher", "score": 0.4},
    ],
    "top 2": [
        [{"label": "nurse", "score": 0.7}, {"label": "poet", "score": 0.2}],
        [{"label": "yoga_teacher", "score": 0.8}, {"label": "poet", "score": 0.1}],
        [{"label": "yoga_teacher", "score": 0.2}, {"label": "poet", "score": 0.5}],
        [{"label": "yoga_teacher", "score": 0.4}, {"label": "poet", "score": 0.35}],
    ],
}


@pytest.mark.parametrize("form", LABEL_FORMS)
def test_labels(form: str) -> None:
    read = reader()
    found = read.read(LABEL_FORMS[form], 4)
    assert found.codes.tolist() == CODES
    assert found.probabilities is None
    assert read.form == "labels"
    assert read.no_probabilities is not None


def _ranked(row: np.ndarray) -> list[dict[str, Any]]:
    cells = [{"label": name, "score": float(p)} for name, p in zip(THREE, row, strict=True)]
    return sorted(cells, key=lambda cell: -cell["score"])


MATRIX_FORMS: dict[str, Callable[[], Any]] = {
    "array": lambda: MATRIX,
    "half precision": lambda: MATRIX.astype(np.float32),
    "list of lists": lambda: MATRIX.tolist(),
    "array of rows": lambda: pd.Series(list(MATRIX)),
    "frame with class columns": lambda: pd.DataFrame(MATRIX, columns=THREE),
    "frame with columns in another order": lambda: pd.DataFrame(MATRIX, columns=THREE)[
        ["yoga_teacher", "nurse", "poet"]
    ],
    "frame with numbered columns": lambda: pd.DataFrame(MATRIX),
    "list of dicts": lambda: [dict(zip(THREE, row, strict=True)) for row in MATRIX.tolist()],
    "all classes, ranked": lambda: [_ranked(row) for row in MATRIX],
    "frame of dicts": lambda: pd.DataFrame([_ranked(row) for row in MATRIX]),
    "logits": lambda: np.log(MATRIX) + 3.0,
}


@pytest.mark.parametrize("form", MATRIX_FORMS)
def test_probabilities(form: str) -> None:
    read = reader()
    found = read.read(MATRIX_FORMS[form](), 4)
    assert found.codes.tolist() == CODES
    assert found.probabilities is not None
    tolerance = 1e-7 if form == "half precision" else 1e-12
    np.testing.assert_allclose(found.probabilities, MATRIX, atol=tolerance, rtol=0)
    assert read.form == "matrix"
    assert read.no_probabilities is None


def test_torch_tensor() -> None:
    torch = pytest.importorskip("torch")
    found = reader().read(torch.tensor(MATRIX, requires_grad=True), 4)
    assert found.codes.tolist() == CODES


def test_independent_probabilities_stay_as_they_are() -> None:
    sigmoid = np.array([[0.9, 0.8, 0.1], [0.2, 0.1, 0.3]])
    found = reader().read(sigmoid, 2)
    np.testing.assert_array_equal(found.probabilities, sigmoid)


def test_logits_are_decided_once() -> None:
    read = reader()
    read.read(np.array([[3.0, -1.0, 0.0]]), 1)
    later = np.array([[0.1, 0.5, 0.4]])  # would pass for probabilities
    np.testing.assert_allclose(read.read(later, 1).probabilities, softmax(later, axis=1))


def test_classes_of_the_model_order_the_columns() -> None:
    read = reader(classes=["yoga_teacher", "nurse", "poet"])
    found = read.read(MATRIX[:, [2, 0, 1]], 4)
    np.testing.assert_array_equal(found.probabilities, MATRIX)


def test_classes_that_the_data_lacks_are_predictions_too() -> None:
    read = reader(classes=["surgeon", "nurse", "poet", "yoga_teacher"])
    found = read.read(np.array([[0.6, 0.2, 0.1, 0.1], [0.1, 0.6, 0.2, 0.1]]), 2)
    assert read.labels.names == (*THREE, "surgeon")
    assert names(found, read) == ["surgeon", "nurse"]
    assert read.unknown(found) == {"surgeon": 1}
    np.testing.assert_array_equal(found.probabilities[0], [0.2, 0.1, 0.1, 0.6])


def test_classes_that_the_model_lacks_have_probability_0() -> None:
    read = reader(classes=["poet", "nurse"])
    found = read.read(np.array([[0.4, 0.6]]), 1)
    np.testing.assert_array_equal(found.probabilities, [[0.6, 0.4, 0.0]])


def test_ids_are_positions_in_the_classes_of_the_model() -> None:
    read = OutputReader(Labels(THREE), returns=Returns(classes=["yoga_teacher", "poet", "nurse"]))
    assert names(read.read([0, 1, "LABEL_2"], 3), read) == ["yoga_teacher", "poet", "nurse"]


def test_unknown_labels_are_counted_and_told_apart() -> None:
    read = reader()
    found = read.read(["nurse", "astronaut", "pilot", "Astronaut", None], 5)
    assert found.codes[0] == 0
    assert (found.codes[1:] >= len(read.labels)).all()
    assert found.codes[1] == found.codes[3] != found.codes[2]
    assert read.unknown(found) == {"astronaut": 2, "pilot": 1, "(no prediction)": 1}


def test_column_of_a_wider_frame() -> None:
    wide = pd.DataFrame({"reasoning": ["…", "…"], "answer": ["poet", "nurse"], "cost": [1.0, 2.0]})
    assert reader(column="answer").read(wide, 2).codes.tolist() == [1, 0]
    with pytest.raises(MlflowException, match=r"no column 'answr'.*reasoning"):
        reader(column="answr").read(wide, 2)
    with pytest.raises(MlflowException, match="name the column with the labels in predictions"):
        reader().read(wide, 2)


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("form", ["labels", "matrix"])
def test_another_number_of_rows(form: str, count: int) -> None:
    output = MATRIX[:count] if form == "matrix" else ["nurse"] * count
    with pytest.raises(MlflowException, match=rf"{count} predictions for 2 bios \(from row 40 on"):
        reader().read(output, 2, rows=np.array([40, 41]))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite(bad: float) -> None:
    matrix = MATRIX.copy()
    matrix[2, 1] = bad
    with pytest.raises(MlflowException, match="bio of row 12: found probabilities that are not"):
        reader().read(matrix, 4, rows=np.arange(10, 14))


@pytest.mark.parametrize(
    "rows",
    [
        [["a", "b", "c"], ["d", "e", "f"]],
        [[0.1, 0.2, 0.7], [0.1, 0.9]],
        np.array([["a", "b", "c"], ["d", "e", "f"]], dtype=object),
    ],
    ids=["words", "ragged", "array of words"],
)
def test_probability_rows_that_are_not_numbers(rows: Any) -> None:
    with pytest.raises(MlflowException, match="probability rows that are not numbers"):
        reader().read(rows, 2)


def test_one_probability_a_bio_is_no_prediction() -> None:
    with pytest.raises(MlflowException, match="one number that is not whole"):
        reader().read(np.array([0.5, 0.7]), 2)


def test_matrix_of_another_width() -> None:
    with pytest.raises(MlflowException, match=r"2 columns without names.*label_names") as error:
        reader().read(MATRIX[:, :2], 4)
    assert "'yoga_teacher'" in str(error.value)


def test_later_chunk_of_another_form_names_the_row() -> None:
    read = reader()
    read.read(MATRIX, 4)
    with pytest.raises(MlflowException, match="bios from row 77 on: found labels, expected matrix"):
        read.read(["nurse"], 1, rows=np.array([77]))
    with pytest.raises(MlflowException, match="row 78 on: found a matrix of 2 columns"):
        read.read(MATRIX[:, :2], 4, rows=np.arange(78, 82))
    with pytest.raises(MlflowException, match="row 79 on: found numbers outside 0 to 1"):
        read.read(MATRIX * 10, 4, rows=np.arange(79, 83))


def test_label_set_that_does_not_meet_the_data_shows_both() -> None:
    with pytest.raises(MlflowException) as error:
        reader().read(["cat", "dog"] * 10, 20)
    for name in (*THREE, "cat", "dog", "label_names"):
        assert name in str(error.value)


def test_a_few_unknown_labels_at_first_are_no_foreign_label_set() -> None:
    read = reader()
    assert len(read.read(["cat"], 1)) == 1
    assert read.read(["nurse"] * 3, 3).codes.tolist() == [0, 0, 0]


def test_ids_of_another_label_set_are_refused() -> None:
    labels = Labels(OCCUPATIONS, ids=True)
    for classes in (list(range(20)), [f"LABEL_{i}" for i in range(20)]):
        with pytest.raises(MlflowException, match="label_names") as error:
            OutputReader(labels, returns=Returns(classes=classes), ids_known=False)
        assert "19" in str(error.value)
        assert "yoga_teacher" in str(error.value)
        assert OutputReader(labels, returns=Returns(classes=classes)).labels is labels
    whole = OutputReader(labels, returns=Returns(classes=list(range(28))), ids_known=False)
    assert names(whole.read(np.eye(28), 28), whole) == list(OCCUPATIONS)


def test_columns_for_the_same_label() -> None:
    with pytest.raises(MlflowException, match="columns that stand for the same label"):
        reader(classes=["nurse", "poet", "Yoga Teacher", "yoga-teacher"]).read(np.eye(4), 4)


def test_names_travel_to_another_reader(caplog: pytest.LogCaptureFixture) -> None:
    first, second = reader(), reader()
    second.read(["pilot", "nurse"], 2)
    with caplog.at_level(logging.WARNING):
        found = first.read(["poet", "astronaut", "pilot"], 3)
    codes = second.encode(first.names)[found.codes]
    assert [second.names[code] for code in codes] == ["poet", "astronaut", "pilot"]
    assert not caplog.records


def test_what_is_declared_is_not_guessed() -> None:
    numbers = np.array([[0.0, 0.3, 0.1], [0.0, 0.9, 0.2]])  # could be either
    for kind, expected in (("probabilities", numbers), ("logits", softmax(numbers, axis=1))):
        read = reader(kind=kind)
        np.testing.assert_allclose(read.read(numbers, 2).probabilities, expected)
        assert read.note() is None
    one = OutputReader(Labels(["nurse"]), returns=Returns(kind="probabilities", classes=["nurse"]))
    assert one.read(np.ones((3, 1)), 3).probabilities.tolist() == [[1.0]] * 3
    with pytest.raises(MlflowException, match="several outputs"):
        reader(kind="labels").read(np.array([["nurse", "male"], ["poet", "female"]]), 2)


def test_labels_and_scores_known_apart() -> None:
    """The label is the model's own, whatever the largest score says."""
    read = reader(kind="probabilities", classes=list(THREE))
    found = read.read(Output(["poet", "poet", "nurse", "nurse"], MATRIX), 4)
    assert found.codes.tolist() == [1, 1, 0, 0]
    np.testing.assert_array_equal(found.probabilities, MATRIX)


def test_margins_below_1_are_read_alike_in_any_order() -> None:
    """Windows that could hold probabilities come to be read as what later ones show."""
    windows = [np.array([[0.0, 0.3, 0.2], [0, 0.9, 0.1]]), np.array([[0.0, -0.3, 0.1]] * 2)]
    results = []
    for order in ([0, 1], [1, 0]):
        read = reader()
        try:
            found = {i: read.read(windows[i], 2).probabilities for i in order}
        except ReadOtherwise as other:
            read = read.another(Returns(kind=other.kind))
            found = {i: read.read(windows[i], 2).probabilities for i in order}
        results.append(np.concatenate([found[0], found[1]]))
    np.testing.assert_array_equal(*results)
    np.testing.assert_allclose(results[0], softmax(np.concatenate(windows), axis=1))


def test_the_form_is_decided_on_the_whole_window() -> None:
    parts = [(slice(0, 2), MATRIX[:2] - 0.05), (slice(2, 4), MATRIX[2:] - 0.5)]
    read = reader()
    found = read.read_window(parts, np.arange(4))
    assert read.kind == "logits"
    assert found.codes.tolist() == CODES
    assert "logits" in str(read.note())


@pytest.mark.parametrize("nothing", [None, np.nan, pd.NA, pd.NaT], ids=str)
@pytest.mark.parametrize("place", [0, 2, 4])
@pytest.mark.parametrize("form", ["label", "dict", "ranked"])
def test_a_missing_prediction_means_the_same_everywhere(
    nothing: object, place: int, form: str
) -> None:
    cells: list[Any] = ["nurse", "poet", "poet", "nurse"]
    if form != "label":
        cells = [{"label": cell, "score": 0.5} for cell in cells]
    if form == "ranked":
        cells = [[cell, {"label": "yoga_teacher", "score": 0.1}] for cell in cells]
    cells.insert(place, nothing)
    read = reader()
    found = names(read.read(cells, 5), read)
    assert found.pop(place) == "(no prediction)"
    assert found == ["nurse", "poet", "poet", "nurse"]


def test_percent() -> None:
    with pytest.raises(MlflowException, match=r"percent.*divide the model's output by 100"):
        reader().read(MATRIX * 100, 4)


def test_rows_that_do_not_sum_to_1_are_told() -> None:
    read = reader()
    read.read(MATRIX * 0.5, 4)
    assert "independent probabilities" in str(read.note())
    sure = reader()
    sure.read(MATRIX, 4)
    assert sure.note() is None


def test_sparse_matrices() -> None:
    sparse = pytest.importorskip("scipy.sparse")
    found = reader().read(sparse.csr_matrix(MATRIX), 4)
    np.testing.assert_array_equal(found.probabilities, MATRIX)


def _ranked_lists() -> list[dict[str, Any]]:
    rows = []
    for row in MATRIX:
        ranked = _ranked(row)
        rows.append(
            {
                "sequence": "…",
                "labels": [cell["label"] for cell in ranked],
                "scores": [cell["score"] for cell in ranked],
            }
        )
    return rows


@pytest.mark.parametrize("form", ["dicts", "frame of lists", "frame of rows"])
def test_zero_shot_classification(form: str) -> None:
    rows: Any = _ranked_lists()
    if form == "frame of lists":
        rows = pd.DataFrame(rows)
    elif form == "frame of rows":  # as MLflow writes them out
        rows = pd.DataFrame(rows).explode(["labels", "scores"], ignore_index=True)
    found = reader().read(rows, 4)
    assert found.codes.tolist() == CODES
    np.testing.assert_allclose(found.probabilities, MATRIX)


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ([[{"choices": []}], [{"choices": []}]], "choices"),
        ([{"label": "nurse"}, {"score": 1.0}], r"a dict with the keys \['score'\] for row 8"),
        ([[{"label": "nurse", "score": 1.0}], [{"name": "poet"}]], r"\['name'\].* for row 8"),
        (["nurse", {"label": "poet"}], "a dict for row 8 and a label for row 7"),
        ([[0.1, 0.7, 0.2], None], "bio of row 8: found no prediction"),
        (np.zeros((2, 2, 2)), "an array of shape"),
        (object(), "an object of type object"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_row(output: Any, message: str) -> None:
    with pytest.raises(MlflowException, match=message):
        reader().read(output, 2, rows=np.array([7, 8]))


def test_one_column_named_like_a_class_is_its_probability() -> None:
    found = reader().read(pd.DataFrame({"nurse": [1.0, 1.0]}), 2)
    assert found.probabilities is not None
    ids = reader().read(pd.DataFrame({"prediction": [1.0, 2.0]}), 2)
    assert ids.codes.tolist() == [1, 2]
