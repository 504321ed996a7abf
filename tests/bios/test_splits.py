"""Splits, samples, folders, the hub and artifacts."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest
from mlflow.exceptions import MlflowException

import biasbios_mlflow
from biasbios_mlflow import load_bios
from biasbios_mlflow.bios.checked import find_columns
from biasbios_mlflow.bios.drawing import draw, draw_splits, keyed_hashes
from biasbios_mlflow.bios.occupations import OCCUPATIONS
from biasbios_mlflow.bios.sources import open_source
from biasbios_mlflow.bios.stream import sample_rows
from tests.bios.test_sources import EXPECTED, WRITERS, assert_fails, bios_pkl, ravfogel
from tests.conftest import Registered

SIZES = {"train": 60, "dev": 10, "test": 20}


@pytest.fixture
def parts() -> dict[str, pd.DataFrame]:
    """Three splits of invented bios, as the hub has them."""
    return {
        split: pd.DataFrame(
            {
                "hard_text": [f"She is in {split}, place {i}." for i in range(size)],
                "profession": np.arange(size) % 28,
                "gender": np.arange(size) % 2,
            }
        )
        for split, size in SIZES.items()
    }


def texts(source: Any, split: str | None = None) -> list[str]:
    return load_bios(source, split).df["hard_text"].tolist()


class TestColumn:
    @pytest.mark.parametrize("suffix", WRITERS)
    @pytest.mark.parametrize("spelling", ["dev", "validation", "val"])
    def test_rows_of_a_split(
        self,
        suffix: str,
        spelling: str,
        parts: dict[str, pd.DataFrame],
        tmp_path: Path,
        small_chunks: None,
    ) -> None:
        parts = {spelling if split == "dev" else split: part for split, part in parts.items()}
        frame = pd.concat([part.assign(split=split) for split, part in parts.items()])
        path = tmp_path / f"all.{suffix}"
        WRITERS[suffix](frame.reset_index(drop=True), path)
        for split in ("train", "dev", "test"):
            official = spelling if split == "dev" else split
            assert texts(path, split) == parts[official]["hard_text"].tolist()
        assert load_bios(path, "dev").name == "all-dev"
        dev = open_source(path, "dev")
        assert [i for chunk in dev.chunks() for i in chunk.index] == list(range(60, 70))
        assert_fails(
            path, rf"'holdout', expected one of \['{min(spelling, 'test')}", split="holdout"
        )

    def test_without_the_column(self, bios: pd.DataFrame, bios_csv: Path) -> None:
        for source in (bios, bios_csv):
            assert_fails(source, "no column 'split' among.*hard_text", split="test")


class TestFolders:
    @pytest.mark.parametrize("layout", ["hard_text", "hard_text_untokenized"])
    def test_pickles_of_a_release(self, layout: str, tmp_path: Path) -> None:
        rows = ravfogel(layout)
        (tmp_path / "train.pickle").write_bytes(pickle.dumps(rows[:80]))
        (tmp_path / "dev.pickle").write_bytes(pickle.dumps(rows[80:90]))
        (tmp_path / "test.pickle").write_bytes(pickle.dumps(rows[90:]))
        (tmp_path / "profession2index.txt").write_text("nurse\t0")
        found = load_bios(tmp_path).df
        assert found.drop(columns="split").to_dict("list") == EXPECTED
        assert found["split"].value_counts().to_dict() == {"train": 80, "test": 30, "dev": 10}
        assert texts(tmp_path, "dev") == EXPECTED["hard_text"][80:90]
        assert texts(tmp_path / "test.pickle", "test") == EXPECTED["hard_text"][90:]
        assert_fails(tmp_path, r"expected one of \['train', 'dev', 'test'\]", split="holdout")
        assert_fails(tmp_path / "test.pickle", r"expected one of \['test'\]", split="train")

    @pytest.mark.parametrize("below", ["", "data"])
    def test_downloaded_from_the_hub(
        self, below: str, parts: dict[str, pd.DataFrame], tmp_path: Path
    ) -> None:
        (tmp_path / below).mkdir(exist_ok=True)
        for split, part in parts.items():
            half = len(part) // 2
            for number, piece in enumerate((part[:half], part[half:])):
                name = f"{split}-{number:05}-of-00002.parquet"
                piece.to_parquet(tmp_path / below / name, index=False)
        (tmp_path / "README.md").write_text("A data card.")
        for split, part in parts.items():
            assert texts(tmp_path, split) == part["hard_text"].tolist()
        assert len(texts(tmp_path)) == sum(SIZES.values())

    def test_of_parquet_files(self, parts: dict[str, pd.DataFrame], tmp_path: Path) -> None:
        """As Spark writes them, with the split in the path."""
        for split, part in parts.items():
            (tmp_path / f"split={split}").mkdir()
            for start in (0, 5):
                name = f"part-{start}-x.snappy.parquet"
                piece = part.iloc[start : start + 5] if start == 0 else part.iloc[start:]
                piece.to_parquet(tmp_path / f"split={split}" / name, index=False)
        (tmp_path / "_SUCCESS").touch()
        for split, part in parts.items():
            assert texts(tmp_path, split) == part["hard_text"].tolist()

    @pytest.mark.parametrize("name", ["", "nothing.csv", "notes.txt", "notes.txt.gz"])
    def test_nothing_to_read(self, name: str, tmp_path: Path) -> None:
        (tmp_path / "notes.txt").write_text("nothing")
        (tmp_path / "notes.txt.gz").write_text("nothing")
        assert_fails(tmp_path / name, "expected 'sample', 'hub:LabHC/bias_in_bios'")


class TestOfBiosPkl:
    """The release without splits gets those of the paper's protocol."""

    def test_every_bio_in_one_split(self, tmp_path: Path) -> None:
        (tmp_path / "BIOS.pkl").write_bytes(pickle.dumps(bios_pkl()))
        parts = {split: texts(tmp_path / "BIOS.pkl", split) for split in SIZES}
        assert {split: len(part) for split, part in parts.items()} == {
            "train": 78,
            "dev": 12,
            "test": 30,
        }
        assert sorted(text for part in parts.values() for text in part) == sorted(
            EXPECTED["hard_text"]
        )
        marked = load_bios(tmp_path / "BIOS.pkl").df
        for split, part in parts.items():
            assert marked.loc[marked["split"] == split, "hard_text"].tolist() == part
        assert "split" not in open_source(tmp_path / "BIOS.pkl").columns

    def test_shares_in_every_occupation(self) -> None:
        rng = np.random.default_rng(0)
        occupations = rng.choice(OCCUPATIONS, 20_000, p=rng.dirichlet(np.ones(28)))
        splits = draw_splits([f"bio {i}" for i in range(20_000)], occupations)
        table = pd.crosstab(occupations, splits)
        sizes = table.sum(axis=1)
        for split, share in (("train", 0.65), ("dev", 0.10), ("test", 0.25)):
            assert (abs(table[split] - share * sizes) <= 1.01).all()

    def test_order_does_not_matter_and_few_bios_move(self) -> None:
        bios = [f"bio {i}" for i in range(5000)]
        jobs = [OCCUPATIONS[i % 5] for i in range(5000)]
        splits = pd.Series(draw_splits(bios, jobs), index=bios)
        back = pd.Series(draw_splits(bios[::-1], jobs[::-1]), index=bios[::-1])
        assert (splits == back[bios]).all()
        fewer = pd.Series(draw_splits(bios[100:], jobs[100:]), index=bios[100:])
        assert (splits[bios[100:]] == fewer).mean() > 0.98
        assert splits.iloc[:2500].value_counts(normalize=True)["test"] == pytest.approx(
            0.25, abs=0.03
        )


class TestSample:
    @pytest.mark.parametrize("size", [1, 7, 100, 5000])
    def test_cells_keep_their_shares(self, size: int) -> None:
        whole = load_bios("sample", "test").df
        drawn = load_bios("sample", "test", sample=size).df
        assert len(drawn) == size
        assert drawn["hard_text"].is_unique
        cells = ["gender", "profession"]
        found = drawn.groupby(cells).size().reindex(whole.groupby(cells).size().index, fill_value=0)
        assert (abs(found - whole.groupby(cells).size() * size / len(whole)) < 1).all()

    def test_whatever_the_order_and_the_format(
        self, bios: pd.DataFrame, tmp_path: Path, small_chunks: None
    ) -> None:
        expected = set(load_bios(bios, sample=50).df["hard_text"])
        shuffled = bios.sample(frac=1, random_state=1)
        assert set(load_bios(shuffled, sample=50).df["hard_text"]) == expected
        for suffix, write in WRITERS.items():
            write(shuffled.reset_index(drop=True), tmp_path / f"bios.{suffix}")
            drawn = load_bios(tmp_path / f"bios.{suffix}", sample=50)
            assert set(drawn.df["hard_text"]) == expected
            assert drawn.name == "bios-sample50"
        ids = {name: code for code, name in enumerate(OCCUPATIONS)}
        coded = bios.assign(
            profession=bios["profession"].map(ids), gender=bios["gender"].str[0].str.upper()
        )
        assert set(load_bios(coded, sample=50).df["hard_text"]) != set()

    def test_seeds(self, bios: pd.DataFrame) -> None:
        drawn = [
            load_bios(bios, sample=50, seed=seed).df["hard_text"].tolist() for seed in (0, 0, 1)
        ]
        assert drawn[0] == drawn[1] != drawn[2]
        order = {text: row for row, text in enumerate(bios["hard_text"])}
        assert [order[text] for text in drawn[0]] == sorted(order[text] for text in drawn[0])

    def test_all_where_there_are_no_more(self, bios: pd.DataFrame) -> None:
        assert len(load_bios(bios, sample=10**9).df) == len(bios)
        assert_fails(bios, "sample: found 0", sample=0)

    def test_copies_and_gaps(self) -> None:
        frame = pd.DataFrame(
            {
                "bio": ["Same."] * 50 + [None] * 50,
                "p": [1] * 99 + [None],
                "g": ["F"] * 90 + [None] * 10,
            }
        )
        source = sample_rows(open_source(frame), find_columns(list(frame.columns)), 10)
        drawn = source.read()
        assert len(drawn) == 10
        assert drawn["g"].isna().sum() == 1

    def test_every_row_is_as_likely(self) -> None:
        strata = np.repeat(np.arange(4), [400, 300, 200, 100])
        times = np.zeros(1000)
        for seed in range(300):
            times += draw(strata, keyed_hashes(map(str, range(1000)), f"{seed}"), 100)
        assert times.mean() == pytest.approx(30)
        assert times.std() == pytest.approx(np.sqrt(300 * 0.1 * 0.9), rel=0.1)

    def test_in_an_evaluation(
        self, registered: Registered, bios: pd.DataFrame, bios_csv: Path
    ) -> None:
        with mlflow.start_run():
            result = biasbios_mlflow.evaluate(
                registered.uri, bios_csv, sample=200, seed=3, n_replicates=200
            )
        assert result.metrics["biasbios/bios"] == 200
        drawn = set(load_bios(bios, sample=200, seed=3).df["hard_text"])
        rows = result.artifacts["biasbios/predictions"].content["row"]
        assert {bios["hard_text"][row] for row in rows} == drawn
        summary = result.artifacts["biasbios/summary"].content
        assert summary["data"]["name"] == "bios-sample200"


class TestHub:
    """Through the library itself, from a folder of the layout that the hub's dataset has."""

    @pytest.fixture
    def dataset(self, parts: dict[str, pd.DataFrame], tmp_path: Path) -> Path:
        pytest.importorskip("datasets")
        folder = tmp_path / "bias_in_bios"
        (folder / "data").mkdir(parents=True)
        for split, part in parts.items():
            part.to_parquet(folder / "data" / f"{split}-00000-of-00001.parquet", index=False)
        (folder / "README.md").write_text(
            "---\nconfigs:\n- config_name: default\n  data_files:\n"
            + "".join(f"  - split: {split}\n    path: data/{split}-*\n" for split in parts)
            + "---\n# Bias in Bios\n"
        )
        return folder

    def test_splits(
        self,
        dataset: Path,
        parts: dict[str, pd.DataFrame],
        small_chunks: None,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
        for split, part in parts.items():
            loaded = load_bios(f"hub:{dataset}", split)
            assert loaded.name == f"bias_in_bios-{split}"
            assert list(loaded.df.columns) == ["hard_text", "profession", "gender"]
            assert loaded.df["hard_text"].tolist() == part["hard_text"].tolist()
            assert loaded.df["profession"].tolist() == [OCCUPATIONS[i] for i in part["profession"]]
            assert loaded.df["gender"].tolist() == [
                ("male", "female")[code] for code in part["gender"]
            ]
        assert texts(f"hub:{dataset}", "validation") == texts(f"hub:{dataset}", "dev")
        whole = load_bios(f"hub:{dataset}").df
        assert whole["split"].value_counts().to_dict() == SIZES
        assert_fails(f"hub:{dataset}", "expected one of", split="holdout")

    def test_offline_says_what_to_download(self, monkeypatch: pytest.MonkeyPatch) -> None:
        pytest.importorskip("datasets")
        code = (
            "import biasbios_mlflow\n"
            "try: biasbios_mlflow.load_bios('hub:LabHC/bias_in_bios')\n"
            "except Exception as error: print(error)\n"
        )
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"},
        )
        assert "hub:LabHC/bias_in_bios: found" in done.stdout
        assert "hf download --repo-type dataset LabHC/bias_in_bios --local-dir" in done.stdout

    def test_without_the_extra(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "datasets", None)
        assert_fails("hub:LabHC/bias_in_bios", r"pip install 'biasbios-mlflow\[hub\]'")


class TestArtifacts:
    def test_of_a_run(self, bios: pd.DataFrame, tmp_path: Path, mlflow_server: str) -> None:
        # Rows of its own: MLflow keeps the first place that it was told of the same content.
        bios = bios.iloc[2:]
        bios_csv = tmp_path / "bios.csv"
        bios.to_csv(bios_csv, index=False)
        with mlflow.start_run() as run:
            mlflow.log_artifact(str(bios_csv), "data")
        uri = f"runs:/{run.info.run_id}/data/bios.csv"
        with mlflow.start_run() as used:
            mlflow.log_input(load_bios(uri))
        [logged] = mlflow.get_run(used.info.run_id).inputs.dataset_inputs
        assert Path(mlflow.data.get_source(logged).load()).read_bytes() == bios_csv.read_bytes()
        opened = open_source(uri)
        assert (opened.name, opened.where) == ("bios", uri)
        assert opened.read()["hard_text"].tolist() == bios["hard_text"].tolist()
        dataset = load_bios(uri)
        assert len(dataset.df) == len(bios)

    def test_a_folder_of_splits(
        self, parts: dict[str, pd.DataFrame], tmp_path: Path, mlflow_server: str
    ) -> None:
        for split, part in parts.items():
            part.to_csv(tmp_path / f"{split}.csv", index=False)
        with mlflow.start_run() as run:
            mlflow.log_artifacts(str(tmp_path), "splits")
        uri = f"{run.info.artifact_uri}/splits"
        assert texts(uri, "dev") == parts["dev"]["hard_text"].tolist()

    def test_file_uri(self, bios_csv: Path, bios: pd.DataFrame) -> None:
        assert texts(bios_csv.as_uri()) == bios["hard_text"].tolist()

    def test_the_copy_goes_with_the_source(
        self, bios_csv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mlflow_server: str
    ) -> None:
        with mlflow.start_run() as run:
            mlflow.log_artifact(str(bios_csv))
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "copies"))
        (tmp_path / "copies").mkdir()
        opened = open_source(f"runs:/{run.info.run_id}/bios.csv")
        assert list((tmp_path / "copies").rglob("bios.csv"))
        del opened
        assert not list((tmp_path / "copies").rglob("bios.csv"))

    @pytest.mark.parametrize("uri", ["runs:/0000/bios.csv", "models:/nobody/1/bios.csv"])
    def test_nothing_there(self, uri: str, mlflow_server: str) -> None:
        with pytest.raises(MlflowException, match="cannot be fetched"):
            load_bios(uri)
