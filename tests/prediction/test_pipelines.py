"""Text-classification pipelines of every kind: both paths give the same five metrics."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest
from mlflow.exceptions import MlflowException

from biasbios_mlflow.bios.occupations import OCCUPATIONS
from biasbios_mlflow.prediction.transformers import TransformersPredictor
from tests.prediction.conftest import make_pipeline, run

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

FIVE = ("balanced_accuracy", "ctf", "prediction_consistency", "gap_rms", "gap_abs")


@pytest.fixture(scope="module")
def some(bios: pd.DataFrame) -> pd.DataFrame:
    """Bios of which the longest have more than 64 tokens, at most 256."""
    some = bios.iloc[::17].head(30).reset_index(drop=True)
    some["hard_text"] = [
        " ".join(text.split()[: 4 + row]) for row, text in enumerate(some["hard_text"])
    ]
    return some


def load(pipeline: Any, folder: Path, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        mlflow.transformers.save_model(
            pipeline, folder / "model", pip_requirements=["transformers", "torch"], **options
        )
        return mlflow.pyfunc.load_model(str(folder / "model"))


class Subclass(transformers.TextClassificationPipeline):
    """Adds to what the model sees, so that only its own predict will do."""

    def preprocess(self, inputs: Any, **options: Any) -> Any:
        return super().preprocess("nurse " + inputs, **options)


Settings = dict[str, Any]
BARE = {i: f"LABEL_{i}" for i in range(28)}
WIDE = {"max_position_embeddings": 256}

# Options of the model, settings of the pipeline, model_config, and the path expected.
KINDS: dict[str, tuple[Settings, Settings, Settings, str]] = {
    "plain": (WIDE, {}, {}, "softmax"),
    "tokenizer says less than the model takes": (WIDE, {}, {"top_k": None}, "softmax"),
    "cut by truncation": ({}, {"truncation": True}, {}, "softmax"),
    "cut by model_config": ({}, {}, {"truncation": True, "max_length": 12}, "softmax"),
    "top 3": (WIDE, {"top_k": 3}, {}, "softmax"),
    "all classes": (WIDE, {"top_k": None}, {}, "softmax"),
    "sigmoid head": (
        {**WIDE, "problem_type": "multi_label_classification"}, {"top_k": None}, {}, "sigmoid",
    ),
    "told to use a sigmoid": (WIDE, {"function_to_apply": "sigmoid", "top_k": None}, {}, "sigmoid"),
    "told to use nothing": (WIDE, {"function_to_apply": "none", "top_k": None}, {}, "none"),
    "regression": ({**WIDE, "problem_type": "regression"}, {}, {}, "none"),
    "one label": ({**WIDE, "id2label": {0: "nurse"}}, {}, {}, "sigmoid"),
    "labels by number": ({**WIDE, "id2label": BARE}, {}, {}, "softmax"),
    "a few labels": ({**WIDE, "id2label": dict(enumerate(OCCUPATIONS[:5]))}, {}, {}, "softmax"),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_both_paths_agree(
    kind: str, vocabulary: Sequence[str], tokenizer: Any, some: pd.DataFrame, tmp_path: Path
) -> None:
    model_options, settings, model_config, function = KINDS[kind]
    pipeline = make_pipeline(vocabulary, tokenizer, **model_options)
    kept = {**settings, **model_config}
    model = load(pipeline, tmp_path, **({"model_config": kept} if kept else {}))
    fast = run(model, some)
    plain = run(model, some, prediction="pyfunc")
    assert fast.path.startswith(f"transformers ({function})"), fast.warnings
    assert not [told for told in fast.warnings if "predict" in told]
    ours, theirs = (pd.read_parquet(e.predictions_path) for e in (fast, plain))
    for variant in ("prediction", "counterfactual_prediction"):
        assert ours[variant].tolist() == theirs[variant].tolist()
    for name in FIVE:
        if name in plain.scores.metrics:
            expected = pytest.approx(plain.scores.metrics[name], abs=1e-6)
            assert fast.scores.metrics[name] == expected, name
    assert "ctf" in fast.scores.metrics
    lengths = [len(tokenizer(text)["input_ids"]) for text in some["hard_text"]]
    limit = kept.get("max_length") or (64 if "truncation" in kept else 1000)
    assert fast.result.cut >= sum(length > limit for length in lengths)
    assert (fast.result.cut > 0) == any(length > limit for length in lengths)


def test_bios_too_long_for_the_model_are_cut_and_counted(
    vocabulary: Sequence[str], tokenizer: Any, some: pd.DataFrame, tmp_path: Path
) -> None:
    """The pipeline itself fails at them: nothing else could be measured."""
    model = load(make_pipeline(vocabulary, tokenizer), tmp_path)
    evaluation = run(model, some)
    lengths = [len(tokenizer(text)["input_ids"]) for text in some["hard_text"]]
    assert evaluation.result.cut >= sum(length > 64 for length in lengths) > 0
    assert "bios_cut" in evaluation.warnings[-1]
    assert f"{evaluation.result.cut} of {len(some)} bios are longer" in evaluation.warnings[-1]
    with pytest.raises(MlflowException, match="must match the existing size"):
        run(model, some, prediction="pyfunc")


def test_a_subclass_is_left_to_its_own_predict(
    vocabulary: Sequence[str], tokenizer: Any, some: pd.DataFrame, tmp_path: Path
) -> None:
    plain = make_pipeline(vocabulary, tokenizer, **WIDE)
    model = load(plain, tmp_path)
    model._model_impl.pipeline.__class__ = Subclass
    assert run(model, some).path == "pyfunc.predict"


def test_ids_of_labels_that_do_not_start_at_0(
    vocabulary: Sequence[str], tokenizer: Any, some: pd.DataFrame, tmp_path: Path
) -> None:
    pipeline = make_pipeline(vocabulary, tokenizer, **WIDE)
    pipeline.model.config.id2label = dict(enumerate(OCCUPATIONS, 1))
    model = load(pipeline, tmp_path)
    if 0 in model.get_raw_model().model.config.id2label:
        model.get_raw_model().model.config.id2label = dict(enumerate(OCCUPATIONS, 1))
    with pytest.raises(MlflowException, match=r"id2label.*found the ids \[1, 2.*0 to 27"):
        run(model, some)


def _scrambled(self: Any, output: Any, mask: Any) -> Any:
    return output.logits.float().softmax(dim=-1).flip(-1)


def _failing(self: Any, output: Any, mask: Any) -> Any:
    raise IndexError("no such kernel")


@pytest.mark.parametrize(
    ("broken", "told"), [(_scrambled, "gives"), (_failing, "failed (IndexError: no such kernel)")]
)
def test_a_broken_fast_path_is_dropped(
    broken: Callable[..., Any],
    told: str,
    vocabulary: Sequence[str],
    tokenizer: Any,
    some: pd.DataFrame,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = load(make_pipeline(vocabulary, tokenizer, **WIDE), tmp_path)
    honest = run(model, some, prediction="pyfunc")
    monkeypatch.setattr(TransformersPredictor, "_scores", broken)
    dropped = run(model, some)
    assert dropped.path == "pyfunc.predict"
    assert told in dropped.warnings[0]
    assert np.isclose(
        dropped.scores.metrics["balanced_accuracy"], honest.scores.metrics["balanced_accuracy"]
    )
