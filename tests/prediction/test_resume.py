"""An evaluation that was killed goes on where it was, and trusts nothing it cannot check."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from biasbios_mlflow import swap_gender
from biasbios_mlflow.bios.occupations import OCCUPATIONS
from tests.prediction.conftest import run

WINDOW = 50

PROGRAM = """
import sys, time
import mlflow, pandas as pd
from tests.prediction.conftest import run
frame = pd.read_csv(sys.argv[2])
model = mlflow.pyfunc.load_model(sys.argv[1])
model.unwrap_python_model().seconds = 0.3
run(model, frame, window_size=50, resume_dir=sys.argv[3])
"""


def probabilities(texts: Any) -> np.ndarray:
    sums = [sum(text.encode()) for text in texts]
    powers = np.exp(3 * np.sin(np.outer(sums, np.arange(1, 29))))
    return powers / powers.sum(axis=1, keepdims=True)


@pytest.fixture
def model_path(tmp_path: Path) -> Path:
    """A saved model that writes down how many rows it was asked for."""
    import mlflow

    class Hashed(mlflow.pyfunc.PythonModel):
        seconds = 0.0
        rows = 0

        def predict(self, context, model_input, params=None):
            import time

            time.sleep(self.seconds)
            self.rows += len(model_input)
            return pd.DataFrame(probabilities(model_input["hard_text"]), columns=OCCUPATIONS)

    path = tmp_path / "model"
    mlflow.pyfunc.save_model(path, python_model=Hashed(), pip_requirements=[])
    return path


@pytest.fixture
def load(model_path: Path) -> Callable[[], Any]:
    import mlflow

    return lambda: mlflow.pyfunc.load_model(str(model_path))


def rows_predicted(model: Any) -> int:
    return model.unwrap_python_model().rows


def results(evaluation: Any) -> list[Any]:
    return [
        evaluation.scores.to_dict(),
        evaluation.data_sha256,
        evaluation.result.counts.to_dict(),
        evaluation.result.flips,
        evaluation.labels,
        pd.read_parquet(evaluation.predictions_path).to_json(),
    ]


def windows(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.window"))


def test_killed_at_half_and_resumed(
    load: Callable[[], Any], model_path: Path, bios: pd.DataFrame, tmp_path: Path
) -> None:
    frame = bios.head(10 * WINDOW)
    data, folder = tmp_path / "bios.csv", tmp_path / "windows"
    frame.to_csv(data, index=False)
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, str(model_path), str(data), str(folder)],
        cwd=Path(__file__).parents[2],
    )
    deadline = time.monotonic() + 120
    while len(windows(folder)) < 5 and time.monotonic() < deadline:
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait(timeout=30) == -signal.SIGKILL
    done = len(windows(folder))
    assert 5 <= done < 10

    model, fresh = load(), load()
    resumed = run(model, frame, window_size=WINDOW, resume_dir=str(folder))
    whole = run(fresh, frame, window_size=WINDOW)
    # None of the finished windows is predicted again: at most the one in hand at the kill was.
    left = frame.iloc[done * WINDOW :]
    texts = list(left["hard_text"])
    changed = sum(a != b for a, b in zip(texts, swap_gender(texts), strict=True))
    # Beside these, the few that are asked about twice.
    assert 0 <= rows_predicted(model) - len(left) - changed <= 12
    assert results(resumed) == results(whole)


def test_all_windows_from_disk(load: Callable[[], Any], bios: pd.DataFrame, tmp_path: Path) -> None:
    first = run(load(), bios, window_size=WINDOW, resume_dir=str(tmp_path / "w"))
    model = load()
    again = run(model, bios, window_size=WINDOW, resume_dir=str(tmp_path / "w"))
    assert rows_predicted(model) == 0
    assert results(again) == results(first)
    text = bios["hard_text"].iloc[0].encode()
    assert all(text not in path.read_bytes() for path in windows(tmp_path / "w"))


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def _flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _foreign(path: Path) -> None:
    other = next(p for p in windows(path.parent) if p != path)
    path.write_bytes(other.read_bytes())


@pytest.mark.parametrize("damage", [_cut, _flip_a_bit, _empty, _foreign])
def test_damaged_and_foreign_windows_are_predicted_again(
    load: Callable[[], Any],
    bios: pd.DataFrame,
    tmp_path: Path,
    damage: Callable[[Path], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    frame = bios.head(4 * WINDOW)
    folder = tmp_path / "w"
    first = run(load(), frame, window_size=WINDOW, resume_dir=str(folder))
    victim = windows(folder)[1]
    good = victim.read_bytes()
    damage(victim)
    model = load()
    again = run(model, frame, window_size=WINDOW, resume_dir=str(folder))
    # What stands in no other window: its bios, their copies, and a few that are asked about twice.
    assert WINDOW <= rows_predicted(model) <= 2 * WINDOW + 12
    assert results(again) == results(first)
    assert "predicted again" in caplog.text
    assert len(victim.read_bytes()) == len(good)


def test_what_a_window_depends_on(
    load: Callable[[], Any], bios: pd.DataFrame, tmp_path: Path
) -> None:
    frame = bios.head(WINDOW)
    folder = str(tmp_path / "w")
    base = {"resume_dir": folder, "window_size": WINDOW}
    run(load(), frame, **base)

    def predicted(data: pd.DataFrame, **options: Any) -> bool:
        model = load()
        run(model, data, **{**base, **options})
        return rows_predicted(model) > 0

    assert not predicted(frame, seed=1, max_flips=3, min_cell=2, log_texts=False)
    assert predicted(frame, scope="words")
    assert predicted(frame.assign(hard_text=frame["hard_text"] + "."))
    assert predicted(frame.iloc[::-1].reset_index(drop=True))
    other = load()
    other._model_meta.model_uuid = "another"
    run(other, frame, **base)
    assert rows_predicted(other) > 0


def test_functions_are_known_by_their_content(bios: pd.DataFrame, tmp_path: Path) -> None:
    frame = bios.head(WINDOW)

    class Constant:
        def __init__(self, name: str) -> None:
            self.name = name

        def predict(self, data: Any) -> list[str]:
            return [self.name] * len(data)

    folder = str(tmp_path / "w")
    for name, files in (("nurse", 1), ("nurse", 1), ("poet", 2)):
        evaluation = run(Constant(name), frame, window_size=WINDOW, resume_dir=folder)
        assert len(windows(tmp_path / "w")) == files
        assert pd.read_parquet(evaluation.predictions_path)["prediction"].unique() == [name]


def test_model_that_cannot_be_told_from_others(
    bios: pd.DataFrame, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Open:
        def __init__(self) -> None:
            self.lock = __import__("threading").Lock()

        def predict(self, data: Any) -> list[str]:
            return ["nurse"] * len(data)

    run(Open(), bios.head(WINDOW), resume_dir=str(tmp_path / "w"))
    assert "resume_dir is not used" in caplog.text
    assert not windows(tmp_path / "w")


def test_window_files_hold_plain_arrays(
    load: Callable[[], Any], bios: pd.DataFrame, tmp_path: Path
) -> None:
    run(load(), bios.head(WINDOW), resume_dir=str(tmp_path / "w"))
    (path,) = windows(tmp_path / "w")
    assert path.read_bytes().startswith(b"biasbios window 3\n")
    assert json.loads(json.dumps(path.name.removesuffix(".window"))).isalnum()
