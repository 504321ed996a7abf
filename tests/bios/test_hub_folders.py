"""Folders as the hub lays them out, and datasets whose classes have names of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlflow
import pandas as pd
import pytest

import biasbios_mlflow
from biasbios_mlflow.bios.occupations import GENDERS, OCCUPATIONS

datasets = pytest.importorskip("datasets")

SPLITS = ("train", "dev", "test")
OTHER_GENDERS = ["female", "male"]
OTHER_OCCUPATIONS = sorted(OCCUPATIONS, key=lambda name: name[::-1])


@pytest.fixture(scope="module")
def frames() -> dict[str, pd.DataFrame]:
    whole = biasbios_mlflow.load_bios("sample", "test").df.iloc[::25].reset_index(drop=True)
    return {split: whole.iloc[i::3].reset_index(drop=True) for i, split in enumerate(SPLITS)}


def as_dataset(frame: pd.DataFrame, *, named: bool) -> Any:
    """Return ids: the benchmark's, or those of another order with their names."""
    genders = OTHER_GENDERS if named else list(GENDERS)
    occupations = OTHER_OCCUPATIONS if named else list(OCCUPATIONS)
    coded = frame.assign(
        gender=frame["gender"].map(genders.index),
        profession=frame["profession"].map(occupations.index),
    )
    whole = datasets.Value("int64")
    features = {
        "hard_text": datasets.Value("string"),
        "profession": datasets.ClassLabel(names=occupations) if named else whole,
        "gender": datasets.ClassLabel(names=genders) if named else whole,
    }
    return datasets.Dataset.from_pandas(
        coded, features=datasets.Features(features), preserve_index=False
    )


def hashed(frames: dict[str, pd.DataFrame], folder: Path) -> Path:
    """As the hub held datasets at first: hashed shards under data, files of other kinds beside."""
    (folder / "data").mkdir(parents=True)
    (folder / "README.md").write_text("# Bios")
    (folder / ".gitattributes").write_text("*.parquet filter=lfs")
    for split, frame in frames.items():
        data = as_dataset(frame, named=False)
        for i in range(2):
            name = f"{split}-0000{i}-of-00002-1f0a5b6c7d8e9f0{i}.parquet"
            data.shard(2, i, contiguous=True).to_parquet(folder / "data" / name)
    frames["test"].to_pickle(folder / "data" / "bios_test.pkl")
    return folder


def converted(frames: dict[str, pd.DataFrame], folder: Path) -> Path:
    """As the hub converts them: a folder a split."""
    for split, frame in frames.items():
        place = folder / "default" / {"dev": "validation"}.get(split, split)
        place.mkdir(parents=True)
        as_dataset(frame, named=True).to_parquet(place / "0000.parquet")
    (folder / "README.md").write_text("# Bios")
    return folder


@pytest.mark.parametrize("layout", [hashed, converted])
def test_each_split_is_the_frame(
    layout: Any, frames: dict[str, pd.DataFrame], tmp_path: Path
) -> None:
    folder = layout(frames, tmp_path / "bias_in_bios")
    for split, frame in frames.items():
        read = biasbios_mlflow.load_bios(folder, split)
        pd.testing.assert_frame_equal(read.df, frame)
        assert read.name == f"bias_in_bios-{split}"
    whole = biasbios_mlflow.load_bios(folder).df
    assert whole["split"].value_counts().to_dict() == {k: len(v) for k, v in frames.items()}
    joined = pd.concat([frames[split] for split in SPLITS], ignore_index=True)
    pd.testing.assert_frame_equal(whole.drop(columns="split"), joined)


@pytest.mark.parametrize("named", [False, True])
def test_datasets_of_the_library(named: bool, frames: dict[str, pd.DataFrame]) -> None:
    parts = {split: as_dataset(frame, named=named) for split, frame in frames.items()}
    whole = datasets.DatasetDict(parts)
    for source, split in ((parts["dev"], None), (whole, "validation"), (whole, "dev")):
        read = biasbios_mlflow.load_bios(source, split)
        pd.testing.assert_frame_equal(read.df, frames["dev"])


def test_mlflow_datasets_are_believed(frames: dict[str, pd.DataFrame], run: Any) -> None:
    frame = frames["test"]
    data = mlflow.data.from_huggingface(as_dataset(frame, named=True), targets="profession")
    pd.testing.assert_frame_equal(biasbios_mlflow.load_bios(data).df, frame)

    def men_are_surgeons(texts: pd.DataFrame) -> list[str]:
        men = texts["hard_text"].str.contains(r"\b(?:he|his|him)\b", case=False)
        return ["surgeon" if man else "nurse" for man in men]

    expected = biasbios_mlflow.evaluate(men_are_surgeons, frame, n_replicates=100)
    ours = biasbios_mlflow.evaluate(men_are_surgeons, data, n_replicates=100)
    theirs = mlflow.models.evaluate(
        men_are_surgeons,
        data,
        model_type="classifier",
        evaluators="biasbios",
        evaluator_config={"n_replicates": 100},
    )
    assert expected.metrics["biasbios/accuracy_gap"] != 0
    assert ours.metrics == theirs.metrics == expected.metrics
