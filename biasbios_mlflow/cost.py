"""What the evaluation of a language model will ask, counted before anything is asked."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from biasbios_mlflow.api import LANGUAGE_MODELS, language_model_uri, load_dataset
from biasbios_mlflow.config import EvaluationConfig
from biasbios_mlflow.errors import invalid
from biasbios_mlflow.evaluator import read_bios

__all__ = ["count_questions"]

_CHARACTERS_A_TOKEN = 4


def count_questions(
    model: str,
    data: Any = "sample",
    *,
    split: str | None = None,
    sample: int | None = None,
    **config: Any,
) -> dict[str, Any]:
    """Count the questions about some bios, and the tokens of these questions.

    Parameters
    ----------
    model : str
        ``openai:/<model>`` or ``transformers:/<name or path>``.
    data, split, sample, **config
        As for `biasbios_mlflow.evaluate`.

    Returns
    -------
    dict
        ``bios``; ``questions``, each text once, bios and their copies, times ``samples``;
        ``tokens_in`` of these, and under ``counted_with`` how they were counted. What a chat
        template adds, and the tokens of the answers, are not among them.

    Raises
    ------
    MlflowException
        For any other model: what it is asked is its own affair.

    Examples
    --------
    >>> import pandas as pd
    >>> bios = pd.DataFrame(
    ...     {"text": ["She heals.", "Poems."], "profession": "nurse", "gender": ["F", "M"]}
    ... )
    >>> counted = count_questions("openai:/any", bios, prompt="{bio}")
    >>> counted["bios"], counted["questions"]
    (2, 3)
    """
    from biasbios_mlflow.pipeline import Swapped
    from biasbios_mlflow.prediction.prompts import Prompt

    uri = language_model_uri(model)
    if uri is None:
        raise invalid(
            "dry run",
            found=f"the model {model!r}",
            expected=f"one that begins with {' or '.join(LANGUAGE_MODELS)}",
            fix="evaluate it with sample=100 to see how long it takes",
        )
    checked = EvaluationConfig.parse(config)
    dataset = load_dataset(data, split=split, sample=sample, config=config)
    bios, checked = read_bios(dataset.to_evaluation_dataset(), checked, strict=False)
    prompt = Prompt() if checked.prompt is None else Prompt(checked.prompt)
    count, counted_with = _token_counter(uri)
    seen: set[bytes] = set()
    tokens = total = 0
    names = bios.labels.names
    for window in bios.windows(checked.window_size):
        total += len(window)
        swapped = Swapped.of(window, checked.scope).texts
        for text in (*window.texts, *swapped):
            key = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
            if key not in seen:
                seen.add(key)
                tokens += count(prompt.fill(text, names))
    return {
        "bios": total,
        "questions": len(seen) * checked.samples,
        "tokens_in": tokens * checked.samples,
        "counted_with": counted_with,
    }


def _token_counter(uri: str) -> tuple[Callable[[str], int], str]:
    name = uri.partition(":/")[2]
    if uri.startswith("transformers:/"):
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(name)
        return (lambda text: len(tokenizer(text)["input_ids"])), "the model's tokenizer"
    try:
        import tiktoken  # type: ignore[import-not-found,unused-ignore]

        encoding = tiktoken.encoding_for_model(name)
    except Exception:  # not installed, a model it does not know, no way to its tables
        return (
            lambda text: -(-len(text) // _CHARACTERS_A_TOKEN),
            "an estimate: a quarter of the characters",
        )
    return (lambda text: len(encoding.encode(text, disallowed_special=()))), "tiktoken"
