"""Each method trained, logged, loaded elsewhere, and evaluated through the plugin."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest
from mlflow.exceptions import MlflowException

from biasbios_mlflow.bios.occupations import OCCUPATIONS
from biasbios_mlflow.training import METHODS, Settings, TrainedModel, train
from biasbios_mlflow.training.classifiers import TrainingSet, fit
from biasbios_mlflow.training.weights import balanced_weights
from tests.prediction.conftest import run
from tests.training.conftest import QUICK

pytest.importorskip("inFairness")

# Loads models where this package cannot be imported, and prints what they predict.
ELSEWHERE = """
import json, sys, warnings
warnings.simplefilter("ignore")
sys.modules["biasbios_mlflow"] = None
import mlflow, pandas as pd
data = pd.read_csv(sys.argv[1])
found = {}
for uri in sys.argv[2:]:
    frame = mlflow.pyfunc.load_model(uri).predict(data[["hard_text"]])
    found[uri] = frame.to_dict("split")
print(json.dumps(found))
"""

ALL = [("tfidf", "baseline"), ("tfidf", "cda"), *(("encoder", method) for method in METHODS)]


@pytest.fixture(scope="module")
def trained(
    mlflow_server: str, few: pd.DataFrame, encoder: str, cache: Path
) -> dict[tuple[str, str], TrainedModel]:
    """One model of each kind, the tenth of them registered."""
    found = {}
    for features, method in ALL:
        options: dict[str, Any] = {"features": encoder, "cache": cache, **QUICK}
        found[features, method] = train(
            few,
            split=None,
            method=method,
            seed=1,
            register="sensei-model" if method == "sensei" else None,
            **(options if features == "encoder" else {}),
        )
    return found


@pytest.fixture(scope="module")
def loaded(trained: dict[tuple[str, str], TrainedModel]) -> dict[tuple[str, str], Any]:
    return {kind: mlflow.pyfunc.load_model(one.model_uri) for kind, one in trained.items()}


@pytest.mark.parametrize("kind", ALL, ids="-".join)
def test_a_probability_for_each_occupation(
    kind: tuple[str, str], loaded: dict[tuple[str, str], Any], held_out: pd.DataFrame
) -> None:
    model = loaded[kind]
    found = model.predict(held_out[["hard_text"]].iloc[:7])
    assert list(found.columns) == list(OCCUPATIONS)
    assert found.shape == (7, 28)
    np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-6)
    assert [column.name for column in model.metadata.signature.inputs] == ["hard_text"]
    assert model.metadata.signature.outputs.input_names() == list(OCCUPATIONS)
    example = model.input_example
    assert model.predict(example).shape == (len(example), 28)


@pytest.mark.parametrize("kind", ALL, ids="-".join)
def test_fast_path_and_pyfunc_agree(
    kind: tuple[str, str], loaded: dict[tuple[str, str], Any], held_out: pd.DataFrame
) -> None:
    bios = held_out.head(60)
    paths, rows = [], []
    for prediction in ("auto", "pyfunc"):
        evaluation = run(loaded[kind], bios, prediction=prediction, device="cpu")
        paths.append(evaluation.path)
        assert evaluation.predictions_path is not None
        rows.append(pd.read_parquet(evaluation.predictions_path))
    fast = "sklearn.predict_proba" if kind[0] == "tfidf" else "encoder (mean pooling), head"
    assert paths[0].startswith(fast)
    assert paths[1] == "pyfunc.predict"
    for column in ("prediction", "counterfactual_prediction"):
        assert rows[0][column].tolist() == rows[1][column].tolist()
    for column in ("probabilities", "counterfactual_probabilities"):
        difference = np.stack(rows[0][column]) - np.stack(rows[1][column])
        assert np.abs(difference).max() < 1e-5


def test_loads_where_the_training_code_is_not(
    trained: dict[tuple[str, str], TrainedModel],
    loaded: dict[tuple[str, str], Any],
    held_out: pd.DataFrame,
    tmp_path: Path,
) -> None:
    held_out.head(5).to_csv(tmp_path / "bios.csv", index=False)
    uris = {trained[kind].model_uri: kind for kind in (("tfidf", "cda"), ("encoder", "sensei"))}
    assert "models:/sensei-model/1" in uris
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE, str(tmp_path / "bios.csv"), *uris],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )
    assert done.returncode == 0, done.stderr
    for uri, found in json.loads(done.stdout.splitlines()[-1]).items():
        expected = loaded[uris[uri]].predict(held_out[["hard_text"]].head(5))
        assert found["columns"] == list(expected.columns)
        np.testing.assert_allclose(found["data"], expected, atol=1e-6)


def test_what_is_logged(
    trained: dict[tuple[str, str], TrainedModel], few: pd.DataFrame, encoder: str
) -> None:
    logged = mlflow.get_run(trained["encoder", "sensei"].run_id)
    expected = {"method": "sensei", "features": encoder, "seed": "1", "bios": str(len(few))}
    assert expected.items() <= logged.data.params.items()
    assert logged.data.params["auditor_steps"] == "2"
    assert "pairing" not in logged.data.params
    assert len(logged.data.params["training_data_sha256"]) == 64
    assert [i.dataset.name for i in logged.inputs.dataset_inputs] == ["bios"]
    client = mlflow.MlflowClient()
    curve = client.get_metric_history(logged.info.run_id, "training/loss")
    assert [point.step for point in curve] == list(range(QUICK["steps"]))
    assert curve[-1].value < curve[0].value
    words = mlflow.get_run(trained["tfidf", "cda"].run_id)
    assert words.data.params["training_data_sha256"] == logged.data.params["training_data_sha256"]
    assert "width" not in words.data.params


def test_requirements_name_what_it_needs(trained: dict[tuple[str, str], TrainedModel]) -> None:
    for kind, package in ((("tfidf", "cda"), "scikit-learn"), (("encoder", "clp"), "transformers")):
        path = mlflow.pyfunc.get_model_dependencies(trained[kind].model_uri)
        lines = Path(path).read_text().splitlines()
        assert any(line.startswith(f"{package}==") for line in lines)
        assert not any("biasbios" in line or "+" in line for line in lines)


def test_same_seed_same_numbers(
    loaded: dict[tuple[str, str], Any],
    few: pd.DataFrame,
    held_out: pd.DataFrame,
    encoder: str,
    mlflow_server: str,
) -> None:
    again = train(few, split=None, method="sensei", features=encoder, seed=1, cache="", **QUICK)
    texts = held_out[["hard_text"]].head(20)
    np.testing.assert_array_equal(
        mlflow.pyfunc.load_model(again.model_uri).predict(texts),
        loaded["encoder", "sensei"].predict(texts),
    )


def test_on_words_a_method_is_trained_once(few: pd.DataFrame) -> None:
    training = TrainingSet.read(few, split=None, scope="pronouns", encoder=None)
    first, again, other = (
        fit(training, method=method, settings=Settings.of(method), seed=seed)
        for method, seed in (("baseline", 0), ("baseline", 1), ("cda", 0))
    )
    assert first is again
    before, after = (model.predict(few[["hard_text"]]).to_numpy() for model in (first, other))
    assert np.abs(before - after).max() > 1e-3
    fresh = TrainingSet.read(few, split=None, scope="pronouns", encoder=None)
    alone = fit(fresh, method="cda", settings=Settings.of("cda"), seed=7)
    np.testing.assert_allclose(alone.predict(few[["hard_text"]]), after, rtol=1e-9)


def test_balanced_words_are_those_of_repeated_bios(few: pd.DataFrame) -> None:
    """A weight of two is the bio twice: against a regression on copies, without weights."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    nurses = few[few["profession"] == "nurse"]
    poets = few[few["profession"] == "poet"]
    women, men = nurses[nurses["gender"] == "female"], nurses[nurses["gender"] == "male"]
    skewed = pd.concat([women.head(4), men.head(1), poets.head(6)], ignore_index=True)
    training = TrainingSet.read(skewed, split=None, scope="pronouns", encoder=None)
    model = fit(training, method="balanced", settings=Settings.of("balanced"), seed=0)
    weights = balanced_weights(training.bios.genders, training.bios.occupations)
    copies = np.rint(weights * 24).astype(int)
    np.testing.assert_allclose(copies / 24, weights, rtol=1e-6)
    words = TfidfVectorizer(sublinear_tf=True, min_df=2)
    matrix = words.fit_transform(skewed["hard_text"])
    plain = LogisticRegression(C=10.0 / 24, max_iter=1000)
    plain.fit(
        matrix[np.repeat(np.arange(len(skewed)), copies)], skewed["profession"].repeat(copies)
    )
    found = model.predict(skewed[["hard_text"]])
    expected = pd.DataFrame(plain.predict_proba(matrix), columns=plain.classes_)
    np.testing.assert_allclose(found[plain.classes_], expected, atol=2e-3)


def test_an_encoder_of_the_sentence_transformers_kind(
    few: pd.DataFrame, held_out: pd.DataFrame, encoder: str, tmp_path: Path, mlflow_server: str
) -> None:
    import shutil

    folder = tmp_path / "sentences"
    shutil.copytree(encoder, folder)
    kinds = ("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")
    modules = [{"type": f"sentence_transformers.models.{k}", "path": p} for k, p in kinds]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 16}')
    one = train(few.head(60), split=None, features=str(folder), cache="", **QUICK)
    shutil.rmtree(folder)  # the model has its own copy
    model = mlflow.pyfunc.load_model(one.model_uri)
    rows = []
    for prediction in ("auto", "pyfunc"):
        evaluation = run(model, held_out.head(30), prediction=prediction, device="cpu")
        assert evaluation.predictions_path is not None
        rows.append(np.stack(pd.read_parquet(evaluation.predictions_path)["probabilities"]))
    np.testing.assert_allclose(rows[0], rows[1], atol=1e-5)
    assert "cls pooling" in run(model, held_out.head(2), device="cpu").path


@pytest.mark.parametrize("rows", [slice(0, 2), slice(0, 12)])
def test_tiny_data(rows: slice, few: pd.DataFrame, encoder: str, mlflow_server: str) -> None:
    tiny = few.drop_duplicates("profession").iloc[rows]
    for method in ("baseline", "sensei"):
        one = train(tiny, split=None, method=method, features=encoder, cache="", **QUICK)
        found = mlflow.pyfunc.load_model(one.model_uri).predict(tiny[["hard_text"]])
        assert np.isfinite(found.to_numpy()).all()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"method": "sense"}, "method: found 'sense', expected one of .* use 'sensei'"),
        ({"method": "clp"}, "method 'clp': found features 'tfidf': .* encoder"),
        ({"wide": 3}, "settings: found the key 'wide', .* did you mean 'width'"),
        ({"width": 0}, "settings.width: found 0, expected greater than or equal to 1"),
        ({"features": "/nowhere/at/all"}, "encoder: found '/nowhere/at/all'"),
        ({"features": "{encoder}", "device": "cuda:99"}, "device: found 'cuda:99'"),
    ],
)
def test_what_cannot_be_trained_says_so(
    options: dict[str, Any], says: str, few: pd.DataFrame, encoder: str
) -> None:
    filled = {k: encoder if v == "{encoder}" else v for k, v in options.items()}
    with pytest.raises(MlflowException, match=says) as caught:
        train(few, split=None, **filled)
    assert caught.value.error_code == "INVALID_PARAMETER_VALUE"


def test_one_occupation(few: pd.DataFrame) -> None:
    nurses = few[few["profession"] == "nurse"]
    with pytest.raises(MlflowException, match="data: found one occupation only, 'nurse'"):
        train(nurses, split=None)


def test_a_missing_extra_names_its_pip_line(encoder: str) -> None:
    program = f"""
import importlib.util
from mlflow.exceptions import MlflowException
from biasbios_mlflow.training import train
there = importlib.util.find_spec
for missing in ("inFairness", "torch"):
    importlib.util.find_spec = lambda name, *rest: None if name == missing else there(name, *rest)
    try:
        train(split="test", method="sensei", features={encoder!r}, cache="")
    except MlflowException as error:
        print(error.message)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=300
    )
    first, second = done.stdout.splitlines()
    fix = "expected it to be installed. Fix: pip install 'biasbios-mlflow[train]'."
    assert first == f"method 'sensei': found no package 'inFairness', {fix}"
    assert second == f"features {encoder!r}: found no package 'torch', {fix}"
