"""Text-classification pipelines: the fast path gives what the pipeline itself gives."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest
from mlflow.exceptions import MlflowException

import biasbios_mlflow
from biasbios_mlflow.bios.occupations import OCCUPATIONS
from biasbios_mlflow.config import EvaluationConfig
from biasbios_mlflow.prediction.predictor import find_predictor
from biasbios_mlflow.prediction.transformers import TransformersPredictor
from biasbios_mlflow.rows import read_outcomes
from tests.prediction.conftest import ALL_CLASSES, log_pipeline, make_bios, make_pipeline, run

PROBED = 12

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")


def load(uri: str, **settings: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return mlflow.pyfunc.load_model(uri, model_config=settings or None)


@pytest.fixture(scope="module")
def few(bios: pd.DataFrame) -> pd.DataFrame:
    """Forty bios of very different length, one of which the model has to cut."""
    few = bios.iloc[::13].head(40).reset_index(drop=True)
    few["hard_text"] = [
        " ".join(text.split()[: 3 + 2 * row]) for row, text in enumerate(few["hard_text"])
    ]
    few.loc[5, "hard_text"] = "No gendered word here."
    return few


@pytest.fixture(scope="module")
def short(few: pd.DataFrame, tokenizer: Any) -> pd.DataFrame:
    """Those of them that the model takes whole, swapped too."""
    whole = [len(tokenizer(text)["input_ids"]) < 60 for text in few["hard_text"]]
    return few[whole].reset_index(drop=True)


@pytest.fixture
def bert(bert_uri: str) -> Any:
    return load(bert_uri)


def rows_of(evaluation: Any) -> pd.DataFrame:
    return pd.read_parquet(evaluation.predictions_path)


def matrix(rows: pd.DataFrame, name: str = "probabilities") -> np.ndarray:
    return np.stack(rows[name].to_list())


def test_fast_path_and_pyfunc_agree(bert_all_uri: str, few: pd.DataFrame) -> None:
    model = load(bert_all_uri)
    fast = run(model, few)
    plain = run(model, few, prediction="pyfunc")
    assert fast.path == "transformers (softmax) on cpu, float32"
    assert plain.path == "pyfunc.predict"
    ours, theirs = rows_of(fast), rows_of(plain)
    for variant in ("", "counterfactual_"):
        assert ours[f"{variant}prediction"].equals(theirs[f"{variant}prediction"])
        name = f"{variant}probabilities"
        np.testing.assert_allclose(matrix(ours, name), matrix(theirs, name), atol=1e-5, rtol=0)
    assert ours["prediction"].nunique() > 3
    for name, value in plain.scores.metrics.items():
        assert fast.scores.metrics[name] == pytest.approx(value, abs=1e-5), name


def test_label_only_pyfunc_has_the_same_labels_and_says_why_there_is_no_ctf(
    bert_all_uri: str, few: pd.DataFrame
) -> None:
    model = load(bert_all_uri, top_k=1)
    fast = run(model, few)
    plain = run(model, few, prediction="pyfunc")
    assert rows_of(plain)["prediction"].equals(rows_of(fast)["prediction"])
    assert "ctf" in fast.scores.metrics
    assert "the model returns only its top class" in plain.scores.reasons["ctf"]


@pytest.mark.parametrize("budget", [1, 40, 300, 100_000])
def test_budget_and_window_do_not_change_the_numbers(
    bert: Any, few: pd.DataFrame, budget: int
) -> None:
    whole = matrix(rows_of(run(bert, few)))
    parts = run(bert, few, token_budget=budget, window_size=7)
    np.testing.assert_allclose(matrix(rows_of(parts)), whole, atol=1e-5, rtol=0)


def test_unchanged_texts_are_predicted_once(bert: Any, few: pd.DataFrame) -> None:
    network = bert.get_raw_model().model
    seen = []
    hook = network.register_forward_pre_hook(
        lambda module, args, kwargs: seen.append(len(kwargs["input_ids"])), with_kwargs=True
    )
    try:
        evaluation = run(bert, few)
    finally:
        hook.remove()
    changed = int(rows_of(evaluation)["changed"].sum())
    assert 0 < changed < len(few)
    # Of the longest, the shortest and some others the pipeline's own predict is asked, too.
    assert 0 < sum(seen) - len(few) - changed - PROBED <= 12  # asked about again


@pytest.mark.parametrize("training", [True, False])
def test_model_comes_back_as_it_was(
    bert: Any, few: pd.DataFrame, short: pd.DataFrame, training: bool
) -> None:
    network = bert.get_raw_model().model
    network.train(training)
    network.bert.embeddings.eval()  # a part that somebody froze
    before = {name: (m.training) for name, m in network.named_modules()}
    weights = {name: p.clone() for name, p in network.named_parameters()}
    run(bert, few)
    run(bert, short, dtype="bfloat16")
    assert {name: m.training for name, m in network.named_modules()} == before
    assert network.device.type == "cpu"
    for name, parameter in network.named_parameters():
        assert torch.equal(parameter, weights[name])


def test_model_comes_back_after_an_error(
    bert: Any, few: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = bert.get_raw_model().model
    network.train()
    monkeypatch.setattr(network.bert, "forward", lambda *a, **k: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run(bert, few)
    assert network.training


def test_dtype(bert: Any, few: pd.DataFrame) -> None:
    bios = make_bios(few)
    found = []
    for dtype in ("auto", "bfloat16"):
        predictor = find_predictor(bert, EvaluationConfig(dtype=dtype))
        scores = np.empty((len(bios), 28))
        for rows, output in predictor.predict(predictor.variants(bios, bios.texts).inputs):
            scores[rows] = output.scores
        found.append(scores)
    assert predictor.path.endswith("bfloat16")
    assert 1e-6 < np.abs(found[0] - found[1]).max() < 0.2


def test_a_precision_that_gives_other_labels_is_not_what_is_deployed(
    bert: Any, short: pd.DataFrame
) -> None:
    whole, half = run(bert, short), run(bert, short, dtype="bfloat16")
    assert whole.warnings == ()
    assert half.path == "pyfunc.predict"
    assert "bfloat16 gives" in half.warnings[0]
    assert rows_of(half)["prediction"].equals(rows_of(whole)["prediction"])


@pytest.mark.parametrize("device", ["cuda:77", "hpu", "xla", "a toaster"])
def test_device_that_is_not_there(bert: Any, few: pd.DataFrame, device: str) -> None:
    with pytest.raises(MlflowException, match=rf"device: found '{device}'.*device='auto'"):
        run(bert, few, device=device)


def test_out_of_memory_halves_the_budget(
    bert: Any, few: pd.DataFrame, monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    whole = matrix(rows_of(run(bert, few)))
    network = bert.get_raw_model().model
    forward = network.forward
    sizes = []

    def small_memory(input_ids: Any, **inputs: Any) -> Any:
        if input_ids.numel() > 200:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory.")
        sizes.append(input_ids.numel())
        return forward(input_ids=input_ids, **inputs)

    monkeypatch.setattr(network, "forward", small_memory)
    evaluation = run(bert, few, token_budget=1000)
    np.testing.assert_allclose(matrix(rows_of(evaluation)), whole, atol=1e-5, rtol=0)
    assert max(sizes) <= 200
    assert caplog.text.count("Out of memory") == 3  # 500, 250, 125


def test_out_of_memory_with_a_single_bio_is_an_error(
    bert: Any, few: pd.DataFrame, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_memory(**inputs: Any) -> Any:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(bert.get_raw_model().model, "forward", no_memory)
    with pytest.raises(torch.cuda.OutOfMemoryError):
        run(bert, few, token_budget=100)


def test_both_variants_are_cut_at_the_same_token(bert: Any, few: pd.DataFrame) -> None:
    bert.get_raw_model()._preprocess_params.update(truncation=True, max_length=4)
    widths = []
    hook = bert.get_raw_model().model.register_forward_pre_hook(
        lambda module, args, kwargs: widths.append(kwargs["input_ids"].shape[1]), with_kwargs=True
    )
    try:
        evaluation = run(bert, few)
    finally:
        hook.remove()
    assert max(widths) == 4
    assert evaluation.path.startswith("transformers")
    rows = rows_of(evaluation)
    assert (rows["counterfactual_prediction"] == rows["prediction"]).sum() > 0
    assert evaluation.result.cut > len(few) / 2
    with pytest.raises(MlflowException, match=r"max_length: found 4 .*model_config"):
        run(bert, few, max_length=4)


def test_limits_of_the_model_count_where_the_tokenizer_has_none(vocabulary: Any) -> None:
    from biasbios_mlflow.prediction.tokens import find_max_length

    class Tokenizer:
        model_max_length = int(1e30)

    sizes = {"vocab_size": 50, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    roberta = transformers.RobertaForSequenceClassification(
        transformers.RobertaConfig(
            **sizes, intermediate_size=8, max_position_embeddings=34, pad_token_id=1
        )
    )
    assert find_max_length(Tokenizer(), roberta) == 32
    ids = torch.full((1, 32), 7)
    assert roberta(input_ids=ids).logits.shape == (1, 2)
    Tokenizer.model_max_length = 20
    assert find_max_length(Tokenizer(), roberta) == 20


def test_multi_label_head(
    mlflow_server: str, vocabulary: Sequence[str], tokenizer: Any, few: pd.DataFrame
) -> None:
    pipeline = make_pipeline(vocabulary, tokenizer, problem_type="multi_label_classification")
    model = load(log_pipeline(pipeline, "multilabel", model_config=ALL_CLASSES))
    fast = run(model, few)
    plain = run(model, few, prediction="pyfunc")
    assert fast.path.startswith("transformers (sigmoid)")
    ours, theirs = matrix(rows_of(fast)), matrix(rows_of(plain))
    np.testing.assert_allclose(ours, theirs, atol=1e-5, rtol=0)
    assert not np.allclose(ours.sum(axis=1), 1)


def test_function_that_the_pipeline_was_told(bert_all_uri: str, few: pd.DataFrame) -> None:
    model = load(bert_all_uri, function_to_apply="none")
    fast = run(model, few)
    assert fast.path.startswith("transformers (none)")
    # Logits come back, and are read as such.
    ours, theirs = matrix(rows_of(fast)), matrix(rows_of(run(model, few, prediction="pyfunc")))
    np.testing.assert_allclose(ours, theirs, atol=1e-5, rtol=0)
    np.testing.assert_allclose(ours.sum(axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("padding_side", ["left", "right"])
def test_padding_on_either_side(
    mlflow_server: str,
    vocabulary: Sequence[str],
    tokenizer: Any,
    few: pd.DataFrame,
    padding_side: str,
) -> None:
    model = transformers.GPT2ForSequenceClassification(
        transformers.GPT2Config(
            vocab_size=len(vocabulary),
            n_positions=64,
            n_embd=16,
            n_layer=1,
            n_head=2,
            pad_token_id=0,
            initializer_range=0.5,
            bos_token_id=2,
            eos_token_id=3,
            id2label=dict(enumerate(OCCUPATIONS)),
        )
    ).eval()
    from biasbios_mlflow.prediction.tokens import TokenModel

    texts = list(few["hard_text"])
    side, tokenizer.padding_side = tokenizer.padding_side, padding_side
    try:
        results = []
        for budget in (1, 500):
            found = np.empty((len(texts), 28), dtype=np.float32)
            running = TokenModel(model, tokenizer, token_budget=budget)
            tokens = running.tokenize(texts)
            for at, part in running.run(tokens, lambda output, mask: output.logits):
                found[at] = part
            results.append(found)
    finally:
        tokenizer.padding_side = side
    np.testing.assert_allclose(*results, atol=1e-4, rtol=0)


def test_what_the_fast_path_leaves_to_pyfunc(
    mlflow_server: str, bert_uri: str, vocabulary: Sequence[str], tokenizer: Any
) -> None:
    config = EvaluationConfig()
    assert TransformersPredictor.of(load(bert_uri), config) is not None
    pipeline = make_pipeline(vocabulary, tokenizer)
    settings = {"add_special_tokens": False}
    unknown = load(log_pipeline(pipeline, "bert-bare", model_config=settings))
    assert TransformersPredictor.of(unknown, config) is None
    assert find_predictor(unknown, config).path == "pyfunc.predict"
    bert = load(bert_uri)
    bert.get_raw_model().__class__ = type("Own", (transformers.TextClassificationPipeline,), {})
    assert TransformersPredictor.of(bert, config) is None
    forced = EvaluationConfig(prediction="pyfunc")
    assert find_predictor(load(bert_uri), forced).path == "pyfunc.predict"


def test_labels_without_names(
    mlflow_server: str, vocabulary: Sequence[str], tokenizer: Any, few: pd.DataFrame
) -> None:
    def uri(count: int) -> str:
        labels = {i: f"LABEL_{i}" for i in range(count)}
        return log_pipeline(make_pipeline(vocabulary, tokenizer, id2label=labels), f"ids{count}")

    evaluation = run(load(uri(28)), few)
    assert evaluation.labels == OCCUPATIONS
    twenty = load(uri(20))
    with pytest.raises(MlflowException, match=r"LABEL_19.*yoga_teacher.*label_names"):
        run(twenty, few)


def test_through_the_plugin_on_the_server(
    bert_uri: str, few: pd.DataFrame, run: mlflow.ActiveRun
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = biasbios_mlflow.evaluate(bert_uri, few, n_replicates=100)
    assert {"biasbios/ctf", "biasbios/balanced_accuracy"} <= set(result.metrics)
    summary = result.artifacts["biasbios/summary"].content
    assert summary["model"]["path"] == "transformers (softmax) on cpu, float32"
    assert {"swap", "prediction", "counting"} <= set(summary["seconds"])


def test_outcomes_read_back_are_those_that_were_counted(bert: Any, few: pd.DataFrame) -> None:
    from biasbios_mlflow.scoring import Counts

    evaluation = run(bert, few, window_size=9)
    assert evaluation.predictions_path is not None
    outcomes = read_outcomes(evaluation.predictions_path)
    assert Counts.from_outcomes(outcomes) == evaluation.result.counts
    assert outcomes.ids is not None
    assert outcomes.ids.tolist() == list(range(len(few)))
