"""How much sooner all occupations are scored behind one run of the prompt than each by itself.

    python benchmarks/language_model_speed.py [--device cuda] [--bios 64]

The model is made here, with random weights: how long it takes does not depend on them.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings

import numpy as np
import tokenizers
import torch
import transformers

from biasbios_mlflow.bios.occupations import OCCUPATIONS
from biasbios_mlflow.prediction.causal import CausalModel
from biasbios_mlflow.prediction.prompts import Prompt, shown

PROMPT_TOKENS = 150


def make_tokenizer() -> transformers.PreTrainedTokenizerFast:
    """Return one that knows the occupations' words in two pieces each, and 500 others."""
    words = [f"w{i}" for i in range(500)]
    pieces = [part for name in OCCUPATIONS for part in shown(name).split()]
    halves = {half for word in pieces for half in (word[:3], f"##{word[3:]}")}
    ids = {token: i for i, token in enumerate(["[PAD]", "[UNK]", ":", *words, *sorted(halves)])}
    backend = tokenizers.Tokenizer(tokenizers.models.WordPiece(ids, unk_token="[UNK]"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="[PAD]", unk_token="[UNK]"
    )


def make_model(vocabulary: int, *, layers: int, width: int) -> transformers.LlamaForCausalLM:
    """Return a model like Llama with random weights."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=width,
        intermediate_size=4 * width,
        num_hidden_layers=layers,
        num_attention_heads=width // 64,
        num_key_value_heads=width // 64,
        initializer_range=0.1,
    )
    return transformers.LlamaForCausalLM(config).eval()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--bios", type=int, default=16)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(options.threads)
    tokenizer = make_tokenizer()
    model = make_model(len(tokenizer), layers=options.layers, width=options.width)
    causal = CausalModel(model, tokenizer, score="sum", device=options.device)
    draw = np.random.default_rng(0)
    prompt = Prompt("{bio} :")
    bios = [
        " ".join(f"w{i}" for i in draw.integers(0, 500, PROMPT_TOKENS - 1))
        for _ in range(options.bios)
    ]
    questions = causal.ask(bios, OCCUPATIONS, prompt)
    assert {len(ids) for ids in questions.ids} == {PROMPT_TOKENS}
    everything = np.arange(len(bios))
    with causal.session():
        list(causal.probabilities(questions))  # warm
        start = time.perf_counter()
        together = np.empty((len(bios), len(OCCUPATIONS)))
        for rows, probabilities in causal.probabilities(questions):
            together[rows] = probabilities
        shared = time.perf_counter() - start
        start = time.perf_counter()
        scores = causal.score_apart(everything, questions)
        alone = time.perf_counter() - start
    apart = np.exp(scores - scores.max(axis=1, keepdims=True))
    apart /= apart.sum(axis=1, keepdims=True)
    result = {
        "device": str(causal.device),
        "bios": len(bios),
        "occupations": len(OCCUPATIONS),
        "prompt_tokens": PROMPT_TOKENS,
        "occupation_tokens": sum(map(len, questions.endings.labels)),
        "bios_per_second_shared": round(len(bios) / shared, 2),
        "bios_per_second_each_pair": round(len(bios) / alone, 2),
        "ratio": round(alone / shared, 1),
        "largest_difference": float(np.abs(together - apart).max()),
    }
    print(json.dumps(result, indent=2))
    assert causal.shared
    assert result["largest_difference"] < 1e-4


if __name__ == "__main__":
    main()
