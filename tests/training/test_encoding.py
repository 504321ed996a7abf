"""Vectors are computed once, kept by content, and not trusted when damaged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from mlflow.exceptions import MlflowException

torch = pytest.importorskip("torch")

from biasbios_mlflow.config import EvaluationConfig  # noqa: E402
from biasbios_mlflow.prediction.features import find_features  # noqa: E402
from biasbios_mlflow.training import encoding  # noqa: E402
from biasbios_mlflow.training.encoding import CachedEncoder, default_cache  # noqa: E402


@pytest.fixture
def texts(few: pd.DataFrame, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setattr(encoding, "_CHUNK", 20)
    return list(few["hard_text"].head(50))


def make(encoder: str, folder: Path | None, **options: object) -> CachedEncoder:
    return CachedEncoder(encoder, EvaluationConfig.parse({"device": "cpu", **options}), folder)


def files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


def test_vectors_are_those_of_the_evaluator(encoder: str, texts: list[str], tmp_path: Path) -> None:
    found = make(encoder, tmp_path)(texts)
    evaluator = find_features(EvaluationConfig(encoder=encoder, device="cpu"))
    assert evaluator is not None
    expected, _ = evaluator(texts, np.arange(len(texts)))  # type: ignore[operator]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert found.dtype == np.float32


def test_computed_once(encoder: str, texts: list[str], tmp_path: Path) -> None:
    first = make(encoder, tmp_path)(texts)
    written = {path: path.stat().st_mtime_ns for path in files(tmp_path)}
    assert len(written) == 3
    # A model that cannot run any more: whatever comes is from the cache.
    again = make(encoder, tmp_path)
    again.sentence_model.model.embeddings = None
    np.testing.assert_array_equal(again(texts), first)
    assert {path: path.stat().st_mtime_ns for path in files(tmp_path)} == written


def test_without_a_cache(encoder: str, texts: list[str], tmp_path: Path) -> None:
    np.testing.assert_allclose(
        make(encoder, None)(texts), make(encoder, tmp_path)(texts), atol=1e-6
    )


def test_no_text_in_the_cache(encoder: str, texts: list[str], tmp_path: Path) -> None:
    make(encoder, tmp_path)(texts)
    content = b"".join(path.read_bytes() for path in files(tmp_path))
    assert not any(text[:20].encode() in content for text in texts)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


def _flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(bytes(content))


def _empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("damage", [_cut, _flip_a_bit, _empty])
def test_damaged_files_are_made_again(
    encoder: str,
    texts: list[str],
    tmp_path: Path,
    damage: Callable[[Path], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    first = make(encoder, tmp_path)(texts)
    victim = files(tmp_path)[1]
    good = victim.read_bytes()
    damage(victim)
    np.testing.assert_array_equal(make(encoder, tmp_path)(texts), first)
    assert "encoded again" in caplog.text
    assert victim.read_bytes() == good


def test_what_vectors_depend_on(encoder: str, texts: list[str], tmp_path: Path) -> None:
    make(encoder, tmp_path)(texts[:20])
    make(encoder, tmp_path, max_length=8)(texts[:20])
    changed = make(encoder, tmp_path)
    assert len(files(tmp_path)) == 2
    with torch.no_grad():
        changed.sentence_model.model.pooler.dense.bias[0] += 1
    running = changed.sentence_model.running(EvaluationConfig(device="cpu"))
    assert encoding._identify(changed.sentence_model, running) != changed.identity


def test_a_copy_elsewhere_is_the_same_encoder(encoder: str, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(encoder, tmp_path / "copy")
    assert make(encoder, None).identity == make(str(tmp_path / "copy"), None).identity


def test_a_folder_that_cannot_be_made(encoder: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MlflowException, match="cache: found"):
        make(encoder, tmp_path / "file" / "below")


def test_the_users_own_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_cache() == tmp_path / "biasbios-mlflow" / "features"
