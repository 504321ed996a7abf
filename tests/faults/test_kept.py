"""What is read back from disk is believed only as it was written, where it was written."""

from __future__ import annotations

import io
import json
import os
import resource
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from mlflow.exceptions import MlflowException

from biasbios_mlflow.prediction import store
from biasbios_mlflow.prediction.store import make_private, read_sealed, write_sealed
from tests.faults.test_models import Model, scores
from tests.prediction.conftest import run

WINDOW = 50


class Counting:
    """Answers by the text, and counts in the process what it was asked."""

    rows = 0

    def predict(self, data: Any) -> pd.DataFrame:
        Counting.rows += len(data)
        return scores(list(data["hard_text"]))


def evaluate(frame: pd.DataFrame, folder: Path) -> tuple[dict[str, Any], int]:
    Counting.rows = 0
    found = run(Counting(), frame, window_size=WINDOW, resume_dir=str(folder))
    return found.scores.to_dict(), Counting.rows


Change = Callable[[dict[str, Any]], None]


def nan(arrays: dict[str, Any]) -> None:
    arrays["probabilities"][3, 2] = np.nan


def wider(arrays: dict[str, Any]) -> None:
    for name in ("probabilities", "counterfactual_probabilities"):
        arrays[name] = np.hstack([arrays[name], arrays[name][:, :1]])


def longer(arrays: dict[str, Any]) -> None:
    arrays["codes"] = np.concatenate([arrays["codes"], arrays["codes"]])


def beyond(arrays: dict[str, Any]) -> None:
    arrays["codes"][0] = 10_000


def negative(arrays: dict[str, Any]) -> None:
    arrays["codes"] = arrays["codes"].astype(np.int64)
    arrays["codes"][0] = -1


def words(arrays: dict[str, Any]) -> None:
    arrays["codes"] = np.array(["nurse"] * len(arrays["codes"]))


def unknown(arrays: dict[str, Any]) -> None:
    arrays["more"] = np.zeros(len(arrays["codes"]))


def no_codes(arrays: dict[str, Any]) -> None:
    del arrays["codes"]


def many_cut(arrays: dict[str, Any]) -> None:
    arrays["about"] = np.array(json.dumps({**json.loads(str(arrays["about"])), "cut": 10**6}))


def another_key(arrays: dict[str, Any]) -> None:
    arrays["about"] = np.array(json.dumps({**json.loads(str(arrays["about"])), "key": "0" * 64}))


def no_reader(arrays: dict[str, Any]) -> None:
    arrays["about"] = np.array(json.dumps({**json.loads(str(arrays["about"])), "reader": {}}))


def no_json(arrays: dict[str, Any]) -> None:
    arrays["about"] = np.array("{")


@pytest.mark.parametrize(
    "change",
    [
        *(nan, wider, longer, beyond, negative, words, unknown, no_codes, many_cut, another_key),
        *(no_reader, no_json),
    ],
)
def test_a_window_that_was_forged_is_predicted_again(
    change: Change, bios: pd.DataFrame, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    frame = bios.head(2 * WINDOW)
    expected, _ = evaluate(frame, tmp_path)
    victim = min(tmp_path.glob("*.window"))
    payload = read_sealed(victim, store._FORMAT, otherwise="")
    assert payload is not None
    arrays = dict(np.load(io.BytesIO(payload)))
    change(arrays)
    forged = io.BytesIO()
    np.savez(forged, **arrays)
    write_sealed(victim, store._FORMAT, forged.getvalue())  # with a seal that is right
    found, asked = evaluate(frame, tmp_path)
    assert found == expected
    assert WINDOW <= asked <= 2 * WINDOW + 12
    assert "predicted again" in caplog.text


def test_exchanged_and_foreign_files(
    bios: pd.DataFrame, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "kept"
    frame = bios.head(2 * WINDOW)
    expected, _ = evaluate(frame, folder)
    one, other = sorted(folder.glob("*.window"))
    first, second = one.read_bytes(), other.read_bytes()
    one.write_bytes(second)
    other.write_bytes(first)
    assert evaluate(frame, folder)[0] == expected
    assert caplog.text.count("predicted again") == 2
    outside = tmp_path / "outside"
    outside.write_bytes(one.read_bytes())
    one.unlink()
    one.symlink_to(outside)
    before = outside.read_bytes()
    assert evaluate(frame, folder)[0] == expected
    assert "leads out of its folder" in caplog.text
    assert not one.is_symlink()  # replaced, and what it pointed at is as it was
    assert outside.read_bytes() == before
    assert evaluate(frame, folder)[1] == 0


def test_folders_are_private(
    bios: pd.DataFrame, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "deep" / "kept"
    evaluate(bios.head(WINDOW), folder)
    assert folder.stat().st_mode & 0o077 == 0
    assert all(path.stat().st_mode & 0o077 == 0 for path in folder.iterdir())
    left, recent = folder / ".0.part", folder / ".1.part"
    left.write_bytes(b"half")
    recent.write_bytes(b"half")
    os.utime(left, (time.time() - 10_000,) * 2)
    folder.chmod(0o777)
    make_private(folder, "resume_dir")
    assert not left.exists()
    assert recent.exists()  # perhaps somebody writes it now
    assert "everybody can write" in caplog.text


def test_no_folder(tmp_path: Path, bios: pd.DataFrame) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MlflowException, match="resume_dir: found"):
        evaluate(bios.head(WINDOW), tmp_path / "file" / "kept")


@pytest.fixture
def full_disk() -> Iterator[None]:
    """No file can grow beyond a few bytes: what a full disk does to whoever writes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_is_told_and_windows_are_not_kept(
    bios: pd.DataFrame, tmp_path: Path, caplog: pytest.LogCaptureFixture, full_disk: None
) -> None:
    model = Model(scores)
    found = run(
        Counting(), bios.head(2 * WINDOW), window_size=WINDOW, resume_dir=str(tmp_path / "kept"),
        log_predictions=False,
    )  # fmt: skip
    assert found.scores.metrics
    assert caplog.text.count("cannot be kept") == 1
    assert list((tmp_path / "kept").iterdir()) == []
    assert model.rows == 0


def test_a_full_disk_under_the_rows_is_an_error(bios: pd.DataFrame, full_disk: None) -> None:
    with pytest.raises(MlflowException, match=r"predictions\.parquet.*TMPDIR"):
        run(Counting(), bios.head(2 * WINDOW), window_size=WINDOW)
