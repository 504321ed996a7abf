"""What an evaluation brings beside its scores: rows, warnings, times."""

from __future__ import annotations

import gc
import logging
import re
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from mlflow.exceptions import MlflowException

from biasbios_mlflow.bios.occupations import OCCUPATIONS
from biasbios_mlflow.prediction.label_order import suspect_label_order
from biasbios_mlflow.rows import read_outcomes
from biasbios_mlflow.scoring import Counts
from tests.prediction.conftest import run


class Oracle:
    """Knows most of the answers; ``order`` is that of its columns."""

    def __init__(self, bios: pd.DataFrame, order: np.ndarray | None = None) -> None:
        truth = np.array(bios["profession"].map(OCCUPATIONS.index))
        rng = np.random.default_rng(0)
        wrong = rng.random(len(bios)) < 0.2
        truth[wrong] = rng.integers(0, 28, wrong.sum())
        self.answers = dict(zip(bios["hard_text"], truth, strict=True))
        self.order = np.arange(28) if order is None else order

    def predict(self, data: pd.DataFrame) -> np.ndarray:
        matrix = np.full((len(data), 28), 0.01, dtype=np.float32)
        for row, text in enumerate(data["hard_text"]):
            matrix[row, self.answers.get(text, len(text) % 28)] = 0.73
        return matrix[:, self.order]


@pytest.mark.parametrize("shift", ["all", "some"])
def test_permuted_labels_are_found_out(
    bios: pd.DataFrame, shift: str, caplog: pytest.LogCaptureFixture
) -> None:
    order = np.roll(np.arange(28), 1)
    if shift == "some":  # three labels at their place
        order = np.concatenate([[0, 1, 2], np.roll(np.arange(3, 28), 5)])
    evaluation = run(Oracle(bios, order), bios)
    (warning,) = evaluation.warnings
    assert "label order" in warning
    assert "label_names" in warning
    better = re.search(r"but ([\d.]+) % would", warning)
    assert better is not None
    assert 70 < float(better.group(1)) < 90
    assert warning in caplog.text
    assert run(Oracle(bios), bios).warnings == ()
    # Told the right order, the same model is right again.
    names = [OCCUPATIONS[i] for i in order]
    told = run(Oracle(bios, order), bios, label_names=names)
    assert told.warnings == ()
    assert told.scores.metrics["accuracy"] > 0.75


def test_bad_models_are_not_called_permuted() -> None:
    rng = np.random.default_rng(1)
    for bios in (100, 1000, 100_000):
        random = rng.multinomial(bios, np.full(784, 1 / 784)).reshape(28, 28)
        assert suspect_label_order(random, OCCUPATIONS) is None
    constant = np.zeros((28, 28), dtype=np.int64)
    constant[:, 21] = rng.integers(10, 500, 28)
    assert suspect_label_order(constant, OCCUPATIONS) is None
    constant[3] *= 40  # most bios are of another occupation than the predicted one
    assert suspect_label_order(constant, OCCUPATIONS) is None
    few = np.roll(np.eye(28, dtype=np.int64), 1, axis=1)
    assert suspect_label_order(few, OCCUPATIONS) is None


def test_no_known_label_at_all_is_an_error_even_for_few_bios(bios: pd.DataFrame) -> None:
    class Foreign:
        def predict(self, data: Any) -> list[str]:
            return ["cat"] * len(data)

    with pytest.raises(MlflowException, match=r"'cat'.*yoga_teacher"):
        run(Foreign(), bios.head(3), window_size=1)


def test_unknown_labels_of_two_kinds_are_a_flip(bios: pd.DataFrame) -> None:
    class Foreign:
        def predict(self, data: pd.DataFrame) -> list[str]:
            return [
                "nurse" if len(t) % 3 == 0 else "cat" if " he " in f" {t} " else "dog"
                for t in data["hard_text"]
            ]

    evaluation = run(Foreign(), bios)
    rows = pd.read_parquet(evaluation.predictions_path)
    same = rows["prediction"] == rows["counterfactual_prediction"]
    assert evaluation.scores.metrics["prediction_consistency"] == pytest.approx(same.mean())
    assert (~same & rows["prediction"].isin(["cat", "dog"])).any()
    assert (
        evaluation.result.unknown
        == rows.loc[rows["prediction"] != "nurse", "prediction"].value_counts().to_dict()
    )
    assert Counts.from_outcomes(read_outcomes(evaluation.predictions_path)) == (
        evaluation.result.counts
    )


def test_rows_of_predictions(bios: pd.DataFrame) -> None:
    frame = bios.assign(bio_id=[f"b{i}" for i in range(len(bios))])
    frame.loc[3, "hard_text"] = None
    evaluation = run(Oracle(bios), frame, window_size=100)
    path = evaluation.predictions_path
    assert path is not None
    file = pq.ParquetFile(path)
    assert file.num_row_groups == -(-(len(frame) - 1) // 100)
    rows = pd.read_parquet(path)
    assert rows["row"].tolist() == [i for i in range(len(frame)) if i != 3]
    assert rows["id"].tolist() == [f"b{i}" for i in rows["row"]]
    assert rows["gender"].tolist() == frame.loc[rows["row"], "gender"].tolist()
    assert rows["occupation"].tolist() == frame.loc[rows["row"], "profession"].tolist()
    assert "hard_text" not in rows
    text = str(frame["hard_text"][0]).encode()
    assert text not in path.read_bytes()
    before = np.stack(rows["probabilities"].to_list())
    after = np.stack(rows["counterfactual_probabilities"].to_list())
    assert before.dtype == np.float32
    at = before.argmax(axis=1)
    assert rows["prediction"].tolist() == [OCCUPATIONS[i] for i in at]
    lines = np.arange(len(rows))
    np.testing.assert_allclose(rows["probability"], before[lines, at])
    change = after[lines, at].astype(float) - before[lines, at]
    np.testing.assert_allclose(rows["ctf"], (change / 2) ** 2, atol=1e-9)
    assert rows["ctf"].dtype == np.float64
    outcomes = read_outcomes(path)
    assert Counts.from_outcomes(outcomes) == evaluation.result.counts
    assert outcomes.ids.tolist() == rows["id"].tolist()


def test_rows_live_as_long_as_the_evaluation(bios: pd.DataFrame) -> None:
    evaluation = run(Oracle(bios), bios)
    path = evaluation.predictions_path
    assert path is not None
    assert path.exists()
    del evaluation
    gc.collect()
    assert not path.parent.exists()


def test_without_rows(bios: pd.DataFrame) -> None:
    assert run(Oracle(bios), bios, log_predictions=False).predictions_path is None


def test_another_parquet_is_refused(bios: pd.DataFrame, tmp_path: Any) -> None:
    bios.to_parquet(tmp_path / "other.parquet")
    with pytest.raises(MlflowException, match="without the labels"):
        read_outcomes(tmp_path / "other.parquet")


def test_static_probabilities(bios: pd.DataFrame) -> None:
    model = Oracle(bios)
    swapped = bios.assign(hard_text=bios["hard_text"] + " ")
    frame = bios.assign(
        before=[OCCUPATIONS[i] for i in model.predict(bios).argmax(axis=1)],
        after=[OCCUPATIONS[i] for i in model.predict(swapped).argmax(axis=1)],
        p_before=model.predict(bios).tolist(),
        p_after=[dict(zip(OCCUPATIONS, p, strict=True)) for p in model.predict(swapped).tolist()],
    )
    options = {"predictions": "before", "counterfactual_predictions": "after"}
    labels = run(None, frame, **options)
    assert "the model returns only labels" in labels.scores.reasons["ctf"]
    both = run(
        None, frame, **options, probabilities="p_before", counterfactual_probabilities="p_after"
    )
    change = np.array([0.73 if a != b else 0 for a, b in frame[["before", "after"]].to_numpy()])
    change[change > 0] -= 0.01
    assert both.scores.metrics["ctf"] == pytest.approx(np.mean((change / 2) ** 2), abs=1e-6)


def test_path_and_times_are_told(bios: pd.DataFrame, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="biasbios_mlflow"):
        evaluation = run(Oracle(bios), bios)
    assert f"{len(bios)} bios through pyfunc.predict in" in caplog.text
    assert set(evaluation.seconds) == {
        "swap", "prediction", "counting", "writing", "hashing", "findings", "scoring"
    }  # fmt: skip


def test_bar_is_for_terminals(
    bios: pd.DataFrame, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run(Oracle(bios), bios)
    assert "biasbios" not in capsys.readouterr().err
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setenv("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
    run(Oracle(bios), bios)
    assert "biasbios" not in capsys.readouterr().err
    monkeypatch.setenv("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "true")
    run(Oracle(bios), bios, window_size=100)
    shown = capsys.readouterr().err
    assert f"{len(bios)}/{len(bios)}" in shown
    assert "bios/s" in shown
