"""Local language models: likelihoods as of each pair by itself, labels as deployed."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest
from mlflow.exceptions import MlflowException

from biasbios_mlflow.api import language_model_uri
from biasbios_mlflow.bios.occupations import OCCUPATIONS
from biasbios_mlflow.prediction.prompts import Prompt, shown
from tests.prediction.conftest import log_pipeline, run

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from biasbios_mlflow.prediction.causal import CausalModel, Endings  # noqa: E402

SHORT = Prompt("{bio} occupation :")
TEMPLATE = "{% for m in messages %}[CLS] {{ m['content'] }} [SEP]{% endfor %}"


def make_causal(kind: str, size: int, **options: Any) -> Any:
    """A model of two layers with random weights, spread enough that likelihoods differ."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    known = {"vocab_size": size, "initializer_range": 0.4, "eos_token_id": 3, "pad_token_id": 0}
    sizes = {"num_hidden_layers": 2, "hidden_size": 32, "intermediate_size": 64}
    if kind == "gpt2":
        config = transformers.GPT2Config(
            **known, n_layer=2, n_embd=32, n_head=2, n_positions=160, bos_token_id=2, **options
        )
        return transformers.GPT2LMHeadModel(config).eval()
    if kind == "bloom":  # positions by distance in the mask, which the tree cannot give
        config = transformers.BloomConfig(**known, n_layer=2, hidden_size=32, n_head=2, **options)
        return transformers.BloomForCausalLM(config).eval()
    config = transformers.LlamaConfig(
        **known, **sizes, num_attention_heads=4, num_key_value_heads=2, **options
    )
    return transformers.LlamaForCausalLM(config).eval()


@pytest.fixture(scope="session")
def words(vocabulary: Sequence[str]) -> Any:
    """The tests' tokenizer, with the end of a text, and no limit."""
    tokenizers = pytest.importorskip("tokenizers")
    known = [*vocabulary, *({"nurse"} - set(vocabulary))]
    ids = {token: code for code, token in enumerate(known)}
    backend = tokenizers.Tokenizer(tokenizers.models.WordPiece(ids, unk_token="[UNK]"))
    backend.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="[PAD]", unk_token="[UNK]", eos_token="[SEP]"
    )


@pytest.fixture(scope="module")
def some(bios: pd.DataFrame) -> pd.DataFrame:
    some = bios.iloc[::23].head(20).reset_index(drop=True)
    texts = [" ".join(text.split()[: 3 + row]) for row, text in enumerate(some["hard_text"])]
    return some.assign(hard_text=texts)


def slowly(model: Any, tokenizer: Any, bio: str, score: str, names: Sequence[str]) -> Any:
    """Each pair of prompt and occupation by itself, in plain lines."""
    prompt = tokenizer(SHORT.fill(bio, names))["input_ids"]
    found = []
    for name in names:
        label = tokenizer(f" {shown(name)}")["input_ids"]
        with torch.no_grad():
            logits = model(torch.tensor([prompt + label])).logits[0].double().log_softmax(-1)
        at = range(len(prompt) - 1, len(prompt) + len(label) - 1)
        steps = [float(logits[i, token]) for i, token in zip(at, label, strict=True)]
        found.append(sum(steps) if score == "sum" else float(np.mean(steps)))
    return np.exp(found) / np.exp(found).sum()


@pytest.mark.parametrize("score", ["sum", "mean"])
@pytest.mark.parametrize("kind", ["llama", "gpt2", "bloom"])
def test_equal_to_each_pair_by_itself(
    kind: str, score: Any, words: Any, some: pd.DataFrame
) -> None:
    model = make_causal(kind, len(words))
    causal = CausalModel(model, words, score=score, token_budget=400, device="cpu")
    texts = list(some["hard_text"])
    questions = causal.ask(texts, OCCUPATIONS, SHORT)
    matrix = np.full((len(texts), 28), np.nan)
    batches = 0
    for rows, probabilities in causal.probabilities(questions):
        matrix[rows] = probabilities
        batches += 1
    assert batches > 1
    assert causal.shared == (kind != "bloom")
    for i in (0, 7, 19):
        expected = slowly(model, words, texts[i], score, OCCUPATIONS)
        assert np.abs(matrix[i] - expected).max() < 1e-4
    assert matrix.max() > 0.2  # the likelihoods differ
    np.testing.assert_allclose(matrix.sum(axis=1), 1)


def test_the_tree_of_occupations() -> None:
    tree = Endings.of([[5, 6, 7], [5, 6, 8], [9]])
    assert tree.tokens.tolist() == [0, 5, 6]
    assert tree.sees.tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    scored = sorted(zip(tree.owner.tolist(), tree.at.tolist(), tree.token.tolist(), strict=True))
    assert scored == [
        (0, 0, 5), (0, 1, 6), (0, 2, 7), (1, 0, 5), (1, 1, 6), (1, 2, 8), (2, 0, 9),
    ]  # fmt: skip


def test_one_occupation_that_begins_another(words: Any) -> None:
    """By their tokens alone the shorter would always be the more likely."""
    causal = CausalModel(make_causal("llama", len(words)), words, score="sum", device="cpu")
    labels = causal.ask(["she"], ["nurse", "nurse he"], SHORT).endings.labels
    assert [ids[-1] for ids in labels] == [3, 3]
    alone = causal.ask(["she"], ["nurse", "poet"], SHORT).endings.labels
    assert 3 not in {token for ids in alone for token in ids}


def test_a_long_bio_is_cut_and_the_question_stays(words: Any) -> None:
    causal = CausalModel(make_causal("gpt2", len(words)), words, score="sum", device="cpu")
    questions = causal.ask(["she " * 500, "he"], OCCUPATIONS, SHORT)
    assert questions.cut.tolist() == [True, False]
    longest = max(map(len, questions.endings.labels))
    assert 150 <= len(questions.ids[0]) + longest <= 160
    assert questions.ids[0][-3:] == questions.ids[1][-3:]
    assert len(list(causal.probabilities(questions))) >= 1


def test_a_chat_template_is_used(words: Any) -> None:
    import copy

    chatty = copy.deepcopy(words)
    chatty.chat_template = TEMPLATE
    causal = CausalModel(make_causal("llama", len(words)), chatty, score="sum", device="cpu")
    [ids] = causal.ask(["she"], OCCUPATIONS, SHORT).ids
    text = f"[CLS] {SHORT.fill('she', OCCUPATIONS)} [SEP]"
    assert ids == words(text, add_special_tokens=False)["input_ids"]


def test_a_path(words: Any, some: pd.DataFrame, tmp_path: Path) -> None:
    """A model without a predict of its own is a classifier by likelihood: every metric exists."""
    model = make_causal("llama", len(words))
    model.save_pretrained(tmp_path / "model")
    words.save_pretrained(tmp_path / "model")
    uri = language_model_uri(str(tmp_path / "model"))
    evaluation = run(print, some, model_uri=uri, prompt=SHORT.template, min_cell=1)
    assert evaluation.path.startswith(
        "likelihood after the prompt (one prompt for all occupations)"
    )
    assert evaluation.identity.known
    assert evaluation.answers["prompt_sha256"] == SHORT.sha256
    assert not evaluation.answers["words"]
    assert {"ctf", "prediction_consistency", "accuracy"} <= set(evaluation.scores.metrics)
    rows = pd.read_parquet(evaluation.predictions_path)
    expected = slowly(model, words, some["hard_text"][3], "sum", OCCUPATIONS)
    assert rows["prediction"][3] == OCCUPATIONS[int(expected.argmax())]
    assert rows["probability"][3] == pytest.approx(expected.max(), abs=1e-4)
    with pytest.raises(MlflowException, match="model: found 'transformers:/"):
        run(print, some, model_uri=f"transformers:/{tmp_path / 'nowhere'}")


@pytest.fixture(scope="module")
def uri(words: Any, mlflow_server: str) -> str:
    model = make_causal("gpt2", len(words))
    # Whatever it is asked, it says nurse, by a bias towards what stands for that word.
    with torch.no_grad():
        nurse = torch.ones(32) * 0.5
        model.transformer.wte.weight[words.convert_tokens_to_ids("nurse")] = nurse
        model.transformer.ln_f.bias[:] = nurse
    pipeline = transformers.pipeline("text-generation", model=model, tokenizer=words, device="cpu")
    model.generation_config.do_sample = False
    return log_pipeline(pipeline, "causal", model_config={"max_new_tokens": 1})


class TestRegistered:
    """A text-generation pipeline in the registry: its own answers count."""

    def load(self, uri: str, **settings: Any) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return mlflow.pyfunc.load_model(uri, model_config=settings or None)

    def test_the_label_is_the_answer_with_likelihoods_beside(
        self, uri: str, some: pd.DataFrame
    ) -> None:
        evaluation = run(self.load(uri), some, prompt=SHORT.template)
        rows = pd.read_parquet(evaluation.predictions_path)
        said = rows["prediction"] == "nurse"
        assert said.mean() > 0.3
        assert rows["probability"][said].between(0.01, 1).all()
        assert np.ptp(rows["probability"][said]) > 0
        assert "ctf" in evaluation.scores.metrics
        assert evaluation.path.startswith("pyfunc.predict, answers in words; beside it likelihood")
        asked = run(self.load(uri), some, prompt=SHORT.template, prediction="pyfunc")
        assert asked.path == "pyfunc.predict, answers in words"
        assert asked.scores.reasons["ctf"] == "no probabilities: the model answers in words"
        answers = pd.read_parquet(asked.predictions_path)
        for name in ("prediction", "counterfactual_prediction"):
            assert answers[name].tolist() == rows[name].tolist()

    def test_the_likeliest_where_that_is_wished_and_told(
        self, uri: str, some: pd.DataFrame
    ) -> None:
        model = self.load(uri)
        evaluation = run(model, some, prompt=SHORT.template, label_from="likelihood")
        rows = pd.read_parquet(evaluation.predictions_path)
        matrix = np.stack(rows["probabilities"])
        assert rows["prediction"].tolist() == [OCCUPATIONS[i] for i in matrix.argmax(axis=1)]
        assert "label_from='likelihood'" in evaluation.warnings[0]
        # Nothing is left of it in the model itself.
        assert not model.get_raw_model().model.training

    def test_answers_that_cannot_be_read(self, uri: str, some: pd.DataFrame) -> None:
        """Of three words it says nurse three times, as one name."""
        with pytest.raises(MlflowException, match="no answer that names an occupation"):
            run(self.load(uri, max_new_tokens=3), some, prompt=SHORT.template)

    def test_drawn_answers_are_told(self, uri: str, some: pd.DataFrame) -> None:
        model = self.load(uri)
        model.get_raw_model().model.generation_config.do_sample = True
        evaluation = run(model, some.head(2), prompt=SHORT.template)
        assert "draws its answers" in evaluation.warnings[0]

    def test_options_of_likelihoods_need_them(self, uri: str, some: pd.DataFrame) -> None:
        with pytest.raises(MlflowException, match="label_score: found 'mean' for a model that is"):
            run(self.load(uri), some, prediction="pyfunc", label_score="mean")
