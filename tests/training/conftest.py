"""A small encoder on disk, and few bios: what the tests of training share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from biasbios_mlflow import load_bios
from tests.prediction.conftest import make_bert, tokenizer, vocabulary

__all__ = ["tokenizer", "vocabulary"]

# Little work, and enough to tell bios apart.
QUICK = {"width": 64, "steps": 40, "auditor_steps": 2, "directions": 8}


@pytest.fixture(scope="session")
def encoder(
    vocabulary: Sequence[str],
    tokenizer: Any,
    tmp_path_factory: pytest.TempPathFactory,
) -> str:
    """Path of a BERT of two layers with random weights, and its tokenizer."""
    folder = tmp_path_factory.mktemp("encoder")
    make_bert(vocabulary).bert.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="session")
def few() -> pd.DataFrame:
    """Every 40th bio of the sample's training split."""
    return load_bios("sample", split="train").df.iloc[::40].reset_index(drop=True)


@pytest.fixture(scope="session")
def held_out() -> pd.DataFrame:
    """Every 40th bio of the test split."""
    return load_bios("sample", split="test").df.iloc[::40].reset_index(drop=True)


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that the tests share."""
    return tmp_path_factory.mktemp("cache")
