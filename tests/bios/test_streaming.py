"""Bios read window by window: the run is the one that the same bios in a DataFrame give."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import mlflow
import pandas as pd
import pytest
from mlflow.exceptions import MlflowException
from mlflow.models import EvaluationResult
from sklearn.pipeline import Pipeline

import biasbios_mlflow
from biasbios_mlflow.bios.checked import check_bios, find_columns
from biasbios_mlflow.bios.dataset import BiosDataset
from biasbios_mlflow.bios.sources import open_source, separated
from biasbios_mlflow.bios.stream import BiosStream
from biasbios_mlflow.config import EvaluationConfig
from biasbios_mlflow.pipeline import evaluate_bios
from biasbios_mlflow.prediction.sklearn import SklearnPredictor
from tests.conftest import Registered

OPTIONS: dict[str, Any] = {"n_replicates": 500, "window_size": 100}


@pytest.fixture
def messy(bios: pd.DataFrame) -> pd.DataFrame:
    """Bios of which some lack a part, with an id."""
    messy = bios.assign(id=[f"bio {i}" for i in range(len(bios))]).astype(object)
    messy.iloc[3, 0] = None
    messy.iloc[40, 1] = None
    messy.iloc[[41, 200], 2] = None
    return messy


def through_the_plugin(model: Any, frame: pd.DataFrame, name: str, **options: Any) -> Any:
    dataset = mlflow.data.from_pandas(frame, targets="profession", name=name, source=f"{name}.csv")
    return mlflow.models.evaluate(
        model,
        dataset,
        model_type="classifier",
        evaluators="biasbios",
        evaluator_config={**OPTIONS, **options},
    )


def content(run_id: str) -> dict[str, Any]:
    """What a run holds, but for what must differ between any two."""
    client = mlflow.MlflowClient()
    run = client.get_run(run_id)
    tags = {key: value for key, value in run.data.tags.items() if not key.startswith("mlflow.")}
    inputs = run.inputs
    [dataset] = inputs.dataset_inputs
    points = {
        name: [(m.value, m.model_id, m.dataset_name, m.dataset_digest) for m in history]
        for name in run.data.metrics
        if (history := client.get_metric_history(run_id, name))
    }
    return {
        "tags": tags,
        "params": run.data.params,
        "points": points,
        "models": [model.model_id for model in inputs.model_inputs],
        "dataset": {**dataset.dataset.to_dictionary(), "source": None},
        "dataset tags": [(tag.key, tag.value) for tag in dataset.tags],
        "files": sorted(file.path for file in client.list_artifacts(run_id, "biasbios")),
    }


def summary(result: EvaluationResult) -> dict[str, Any]:
    found = dict(result.artifacts["biasbios/summary"].content)
    del found["seconds"]
    found["config"] = {k: v for k, v in found["config"].items() if k != "model_uri"}
    found["model"] = {k: v for k, v in found["model"].items() if k != "uri"}
    return json.loads(re.sub(r'"run_id": "\w+"', "", json.dumps(found)))


def table(result: EvaluationResult, name: str) -> pd.DataFrame:
    return result.artifacts[f"biasbios/{name}"].content


def test_same_run_as_through_the_plugin(
    registered: Registered, messy: pd.DataFrame, tmp_path: Path, small_chunks: None
) -> None:
    path = tmp_path / "messy.csv"
    messy.to_csv(path, index=False)
    frame = open_source(path).read()
    with mlflow.start_run() as plain:
        expected = through_the_plugin(registered.uri, frame, "messy")
    with mlflow.start_run() as streamed:
        result = biasbios_mlflow.evaluate(registered.uri, path, **OPTIONS)
    assert result.metrics == expected.metrics
    assert summary(result) == summary(expected)
    assert content(streamed.info.run_id) == content(plain.info.run_id)
    for name in ("occupation_gaps", "flips", "predictions"):
        pd.testing.assert_frame_equal(table(result, name), table(expected, name))
    rows = set(table(result, "predictions")["row"])
    assert rows == set(range(len(messy))) - {3, 40, 41, 200}


def test_one_point_a_metric_linked_to_model_and_dataset(
    registered: Registered, bios_csv: Path
) -> None:
    with mlflow.start_run() as run:
        result = biasbios_mlflow.evaluate(registered.uris()["alias"], bios_csv, **OPTIONS)
    held = content(run.info.run_id)
    assert {name: len(points) for name, points in held["points"].items()} == dict.fromkeys(
        result.metrics, 1
    )
    assert held["models"] == [registered.model_id]
    linked = {
        metric.key: metric.dataset_digest
        for metric in mlflow.get_logged_model(registered.model_id).metrics
        if metric.run_id == run.info.run_id
    }
    assert linked == dict.fromkeys(result.metrics, held["dataset"]["digest"])


def test_static_predictions(bios: pd.DataFrame, tmp_path: Path, mlflow_server: str) -> None:
    frame = bios.assign(guess="nurse", swapped=bios["profession"])
    frame.to_csv(tmp_path / "guesses.csv", index=False)
    options = {"predictions": "guess", "counterfactual_predictions": "swapped", **OPTIONS}
    with mlflow.start_run():
        result = biasbios_mlflow.evaluate(None, tmp_path / "guesses.csv", **options)
    with mlflow.start_run():
        expected = biasbios_mlflow.evaluate(None, frame, **options)
    assert result.metrics == expected.metrics
    assert result.metrics["biasbios/accuracy"] == (bios["profession"] == "nurse").mean()


def test_processes_and_resuming_see_the_same_windows(
    classifier: Pipeline, bios: pd.DataFrame, bios_csv: Path, tmp_path: Path, small_chunks: None
) -> None:
    opened = open_source(bios_csv)
    columns = find_columns(opened.columns)
    stream = BiosDataset(opened, columns).stream(columns)

    def scores(data: Any, **options: Any) -> dict[str, float]:
        config = EvaluationConfig.parse({**OPTIONS, **options})
        predictor = SklearnPredictor(classifier)
        return dict(evaluate_bios(data, predictor, config).scores.metrics)

    expected = scores(check_bios(bios, columns))
    assert scores(stream, n_jobs=2) == expected
    kept = {"resume_dir": str(tmp_path / "windows")}
    assert scores(stream, **kept) == expected
    windows = sorted((tmp_path / "windows").iterdir())
    assert len(windows) == -(-len(bios) // 100)
    assert scores(check_bios(pd.read_csv(bios_csv), columns), **kept) == expected
    assert sorted((tmp_path / "windows").iterdir()) == windows


class TestErrors:
    """As for a DataFrame, and nothing is logged half."""

    @pytest.mark.parametrize(
        ("change", "says"),
        [
            (lambda f: f.drop(columns="gender"), "gender_column: found none of the usual columns"),
            (lambda f: f.iloc[:0], "found no rows"),
            (lambda f: f.assign(gender="herr"), "'herr'.*gender_values"),
            (lambda f: f.assign(hard_text=None), "incomplete bios"),
            (
                lambda f: f.assign(profession=f["profession"].where(f.index % 10 > 0)),
                "without occupation.*allow_missing",
            ),
            (lambda f: f.assign(hard_text=range(len(f))), "row 0: found int 0, expected a text"),
        ],
        ids=["column", "empty", "gender", "nothing", "incomplete", "number"],
    )
    def test_data(
        self, change: Any, says: str, bios: pd.DataFrame, registered: Registered, tmp_path: Path
    ) -> None:
        change(bios).to_csv(tmp_path / "bad.csv", index=False)
        self.assert_fails(registered.uri, tmp_path / "bad.csv", says)

    def test_incomplete_bios_where_allowed(self, bios: pd.DataFrame, tmp_path: Path) -> None:
        bad = bios.assign(profession=bios["profession"].where(bios.index % 10 > 0))
        bad.to_csv(tmp_path / "bad.csv", index=False)
        opened = open_source(tmp_path / "bad.csv")
        columns = find_columns(opened.columns)
        stream = BiosDataset(opened, columns).stream(columns, allow_missing=True)
        assert stream.missing == {"text": 0, "occupation": -(-len(bios) // 10), "gender": 0}
        assert sum(len(window) for window in stream.windows(100)) == len(stream)

    def test_file_that_ends_badly(
        self, bios: pd.DataFrame, registered: Registered, tmp_path: Path
    ) -> None:
        bios.to_csv(tmp_path / "bad.csv", index=False)
        with (tmp_path / "bad.csv").open("a") as file:
            file.write('"She began a sentence')
        self.assert_fails(registered.uri, tmp_path / "bad.csv", "data file bad.csv.*EOF inside")

    def test_other_evaluators_get_a_clear_error(
        self, registered: Registered, bios_csv: Path
    ) -> None:
        opened = open_source(bios_csv)
        dataset = BiosDataset(opened, find_columns(opened.columns))
        with mlflow.start_run(), pytest.raises(MlflowException, match="window by window"):
            mlflow.models.evaluate(
                registered.uri, dataset, model_type="classifier", evaluators="default"
            )

    def assert_fails(self, model: Any, data: Any, says: str) -> None:
        with mlflow.start_run() as run:
            with pytest.raises(MlflowException, match=says) as caught:
                biasbios_mlflow.evaluate(model, data, **OPTIONS)
            assert caught.value.error_code == "INVALID_PARAMETER_VALUE"
            client = mlflow.MlflowClient()
            assert client.get_run(run.info.run_id).data.metrics == {}
            assert client.list_artifacts(run.info.run_id, "biasbios") == []


class TestWindows:
    @pytest.mark.parametrize("size", [20, 37, 100, 600, 10_000])
    def test_cut_as_in_memory(
        self, size: int, messy: pd.DataFrame, tmp_path: Path, small_chunks: None
    ) -> None:
        messy.to_csv(tmp_path / "messy.csv", index=False)
        opened = open_source(tmp_path / "messy.csv")
        columns = find_columns(opened.columns)
        stream = BiosDataset(opened, columns).stream(columns)
        bios = check_bios(pd.read_csv(tmp_path / "messy.csv"), columns)
        assert (len(stream), stream.missing) == (len(bios), bios.missing)
        for _ in range(2):
            windows = list(stream.windows(size))
            expected = list(bios.windows(size))
            assert [len(w) for w in windows] == [len(w) for w in expected]
            for window, other in zip(windows, expected, strict=True):
                assert window.texts == other.texts
                assert window.rows.tolist() == other.rows.tolist()
                assert window.occupations.tolist() == other.occupations.tolist()
                pd.testing.assert_frame_equal(window.inputs, other.inputs)

    def test_one_chunk_at_a_time(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """However long the file, no more of it is read than the windows asked for need."""
        row = '"She paints, and ""sings"".\nShe dances.",dj,F\n'
        (tmp_path / "long.csv").write_text("bio,occupation,sex\n" + row * 50_000)
        opened = open_source(tmp_path / "long.csv")
        columns = find_columns(opened.columns)
        read = 0
        original = separated.opened

        class Counted:
            def __init__(self, file: Any) -> None:
                self.file = file

            def read(self, size: int = -1) -> bytes:
                nonlocal read
                piece = self.file.read(size)
                read += len(piece)
                return piece

            def __iter__(self) -> Any:
                raise AssertionError("read as a whole")

        from contextlib import contextmanager

        @contextmanager
        def counted(path: Path) -> Any:
            with original(path) as file:
                yield Counted(file)

        dataset = BiosDataset(opened, columns)
        monkeypatch.setattr(separated, "opened", counted)
        windows = dataset.stream(columns).windows(100)
        assert next(windows).texts == ['She paints, and "sings".\nShe dances.'] * 100
        assert 0 < read < 1_000_000 < (tmp_path / "long.csv").stat().st_size
        windows.close()  # type: ignore[attr-defined]

    def test_a_file_that_changes_meanwhile(self, bios: pd.DataFrame, tmp_path: Path) -> None:
        path = tmp_path / "bios.csv"
        bios.to_csv(path, index=False)
        opened = open_source(path)
        columns = find_columns(opened.columns)
        stream: BiosStream = BiosDataset(opened, columns).stream(columns)
        bios.iloc[:-1].to_csv(path, index=False)
        with pytest.raises(MlflowException, match="does not change while it is evaluated"):
            list(stream.windows(100))


MIXED = pd.DataFrame(
    {
        "bio": ["He acts."] * 120,
        "occupation": ["7"] * 100 + ["nurse"] * 20,
        "sex": ["M"] * 120,
        "year": pd.array([2001] * 90 + [None] * 30, dtype="Int64"),
        "code": ["007"] * 50 + ["x1"] * 70,
        "late": [None] * 80 + ["words"] * 40,
        "early": ["words"] * 40 + [None] * 80,
        "yes": [True] * 100 + [None] * 20,
        "never": [None] * 120,
    }
)


def test_types_are_those_of_the_whole_file(tmp_path: Path, small_chunks: None) -> None:
    """A column of numbers that turn into words, or get a gap, has one type in all chunks."""
    MIXED.to_csv(tmp_path / "mixed.csv", index=False)
    opened = open_source(tmp_path / "mixed.csv")
    assert len(list(opened.chunks())) == 4
    whole = pd.read_csv(tmp_path / "mixed.csv", low_memory=False)
    pd.testing.assert_frame_equal(opened.read(), whole)
    for chunk in opened.chunks():
        assert chunk.dtypes.to_dict() == whole.dtypes.to_dict()
    columns = find_columns(opened.columns)
    dataset = BiosDataset(open_source(tmp_path / "mixed.csv"), columns)
    expected = mlflow.data.from_pandas(whole, source=str(tmp_path / "mixed.csv"))
    assert dataset.digest == expected.digest
    assert dataset.to_dict()["schema"] == expected.to_dict()["schema"]


def test_what_is_no_text_stays_none(tmp_path: Path, small_chunks: None) -> None:
    """In formats that know types, a number among words is a number on every walk."""
    rows = [
        {"bio": "He acts." if i != 100 else 7.5, "p": 7 if i < 60 else "nurse", "g": i % 2 == 0}
        for i in range(120)
    ]
    (tmp_path / "mixed.jsonl").write_text("\n".join(map(json.dumps, rows)))
    opened = open_source(tmp_path / "mixed.jsonl")
    for _ in range(3):
        cells = pd.concat(list(opened.chunks()))
        assert cells["bio"][100] == 7.5
        assert cells["p"].tolist() == [row["p"] for row in rows]


@pytest.mark.parametrize("rows", [1, 9_999, 10_000, 10_001, 25_000])
def test_digest_is_that_of_a_frame(rows: int, tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {
            "bio": [f"She sings, {i}." for i in range(rows)],
            "p": ["dj", "poet"] * (rows // 2) + ["dj"] * (rows % 2),
            "g": "F",
            "score": [i / 7 for i in range(rows)],
        }
    )
    frame.to_parquet(tmp_path / "bios.parquet")
    opened = open_source(tmp_path / "bios.parquet")
    dataset = BiosDataset(opened, find_columns(opened.columns))
    expected = mlflow.data.from_pandas(frame, targets="p", source=str(tmp_path / "bios.parquet"))
    stored = {**dataset.to_dict(), "name": ""}
    assert stored == {**expected.to_dict(), "name": ""}
