"""Zero-shot classification: equal to the pipeline's own, bios by hypotheses in batches."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest
from mlflow.models import ModelSignature
from mlflow.types import ColSpec, Schema

from biasbios_mlflow.bios.occupations import OCCUPATIONS
from biasbios_mlflow.prediction.prompts import shown
from tests.prediction.conftest import make_bert, run

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

NLI = {0: "contradiction", 1: "neutral", 2: "entailment"}
NAMES = [shown(name) for name in OCCUPATIONS]


@pytest.fixture(scope="module")
def few(bios: pd.DataFrame) -> pd.DataFrame:
    few = bios.iloc[::31].head(5).reset_index(drop=True)
    texts = [" ".join(text.split()[: 4 + 15 * row]) for row, text in enumerate(few["hard_text"])]
    return few.assign(hard_text=texts)


@pytest.fixture(scope="module")
def pipeline(vocabulary: Sequence[str], tokenizer: Any) -> Any:
    model = make_bert(vocabulary, id2label=NLI).eval()
    model.config.label2id = {name: code for code, name in NLI.items()}
    return transformers.pipeline(
        "zero-shot-classification", model=model, tokenizer=tokenizer, device="cpu"
    )


def load(pipeline: Any, folder: Path, **options: Any) -> Any:
    columns = [ColSpec("string", "sequences"), ColSpec("string", "candidate_labels")]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mlflow.transformers.save_model(
            pipeline,
            folder / "model",
            pip_requirements=["transformers", "torch"],
            signature=ModelSignature(inputs=Schema(columns)),
            **options,
        )
        return mlflow.pyfunc.load_model(str(folder / "model"))


@pytest.mark.parametrize(
    "settings", [{}, {"multi_label": True, "hypothesis_template": "he is {}."}], ids=["one", "many"]
)
def test_equal_to_the_pipelines_own(
    settings: Any, pipeline: Any, few: pd.DataFrame, tmp_path: Path
) -> None:
    model = load(pipeline, tmp_path, **({"model_config": settings} if settings else {}))
    evaluation = run(model, few)
    assert evaluation.path == "zero-shot classification, in pairs, on cpu, float32"
    rows = pd.read_parquet(evaluation.predictions_path)
    for i, text in enumerate(few["hard_text"]):
        own = pipeline(text, NAMES, **settings)
        scores = dict(zip(own["labels"], own["scores"], strict=True))
        expected = [scores[name] for name in NAMES]
        np.testing.assert_allclose(rows["probabilities"][i], expected, atol=1e-5)
        assert rows["prediction"][i] == own["labels"][0].replace(" ", "_")
    assert "ctf" in evaluation.scores.metrics
    assert evaluation.result.cut > 0
    assert any("could not be asked for comparison" in told for told in evaluation.warnings)


def test_labels_of_the_data_and_the_probe(pipeline: Any, few: pd.DataFrame, tmp_path: Path) -> None:
    some = ["nurse", "poet", "teacher", "physician"]
    data = few.assign(candidate_labels=json.dumps(some))
    evaluation = run(load(pipeline, tmp_path), data)
    assert not [told for told in evaluation.warnings if "predict" in told]
    rows = pd.read_parquet(evaluation.predictions_path)
    assert set(rows["prediction"]) <= set(some)
    plain = run(load(pipeline, tmp_path / "again"), data, prediction="pyfunc")
    theirs = pd.read_parquet(plain.predictions_path)
    assert rows["prediction"].tolist() == theirs["prediction"].tolist()
    assert (
        rows["counterfactual_prediction"].tolist() == theirs["counterfactual_prediction"].tolist()
    )
    assert plain.path == "pyfunc.predict"
