"""Models that the tests of prediction share."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import pandas as pd
import pytest

with warnings.catch_warnings():  # MLflow warns of its own type hints when this is imported
    warnings.simplefilter("ignore")
    import mlflow.pyfunc

from biasbios_mlflow.bios.checked import Bios, check_bios, find_columns
from biasbios_mlflow.bios.occupations import OCCUPATIONS
from biasbios_mlflow.config import EvaluationConfig
from biasbios_mlflow.pipeline import Evaluation, evaluate_bios
from biasbios_mlflow.prediction.predictor import find_predictor


def make_bios(frame: pd.DataFrame, label_names: Sequence[str] | None = None) -> Bios:
    return check_bios(frame, find_columns(list(frame.columns)), label_names=label_names)


def run(model: Any, bios: Bios | pd.DataFrame, **options: Any) -> Evaluation:
    """Evaluate a model without a run."""
    config = EvaluationConfig.parse({"n_replicates": 100, **options})
    checked = bios if isinstance(bios, Bios) else make_bios(bios, config.label_names)
    return evaluate_bios(checked, find_predictor(model, config), config)


@pytest.fixture(scope="session")
def vocabulary(bios: pd.DataFrame) -> list[str]:
    """A WordPiece vocabulary: special tokens, letters, and the commonest words of the sample."""
    words = pd.Series(" ".join(bios["hard_text"]).lower().split()).value_counts()
    plain = [word for word in words.index if word.isalpha() and word.isascii()][:300]
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", ",", "'", *letters]
    return list(dict.fromkeys([*tokens, *(f"##{x}" for x in letters), "he", "she", "his", *plain]))


@pytest.fixture(scope="session")
def tokenizer(vocabulary: Sequence[str]) -> Any:
    """A fast WordPiece tokenizer of that vocabulary, 64 tokens at most."""
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    ids = {token: code for code, token in enumerate(vocabulary)}
    backend = tokenizers.Tokenizer(tokenizers.models.WordPiece(ids, unk_token="[UNK]"))
    backend.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    backend.post_processor = tokenizers.processors.BertProcessing(
        ("[SEP]", ids["[SEP]"]), ("[CLS]", ids["[CLS]"])
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend,
        model_max_length=64,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
    )


def make_bert(vocabulary: Sequence[str], **options: Any) -> Any:
    """A BERT of two layers with random weights, spread enough that predictions differ."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        initializer_range=0.5,
        pad_token_id=0,
        **{
            "id2label": dict(enumerate(OCCUPATIONS)),
            "max_position_embeddings": 64,
            **options,
        },
    )
    return transformers.BertForSequenceClassification(config)


def make_pipeline(vocabulary: Sequence[str], tokenizer: Any, **options: Any) -> Any:
    """A text-classification pipeline around `make_bert`."""
    transformers = pytest.importorskip("transformers")
    model = make_bert(vocabulary, **options).eval()
    return transformers.pipeline(
        "text-classification", model=model, tokenizer=tokenizer, device="cpu"
    )


def log_pipeline(pipeline: Any, name: str, **options: Any) -> str:
    """Log and register a pipeline; returns its URI in the registry."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # MLflow tells what it thinks of the model
        with mlflow.start_run():
            info = mlflow.transformers.log_model(
                pipeline,
                name="model",
                registered_model_name=name,
                pip_requirements=["transformers", "torch"],
                **options,
            )
    return f"models:/{name}/{info.registered_model_version}"


@pytest.fixture(scope="session")
def bert_uri(mlflow_server: str, vocabulary: Sequence[str], tokenizer: Any) -> str:
    """The small BERT, registered on the server."""
    return log_pipeline(make_pipeline(vocabulary, tokenizer), "bert")


# The pipeline itself cuts nothing and returns the top class only, unless told otherwise.
ALL_CLASSES = {"top_k": None, "truncation": True}


@pytest.fixture(scope="session")
def bert_all_uri(mlflow_server: str, vocabulary: Sequence[str], tokenizer: Any) -> str:
    """The same, with all classes in the output."""
    settings = {**ALL_CLASSES, "function_to_apply": "softmax"}
    return log_pipeline(make_pipeline(vocabulary, tokenizer), "bert-all", model_config=settings)
