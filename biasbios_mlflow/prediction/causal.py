"""Causal language models: the likelihood of each occupation after one and the same prompt.

The prompt is run once. All occupations follow it in one further row of tokens, as a tree in which
each token sees the prompt and its own beginning only, so that all share the prompt's keys and
values. With torch, and imported only when such a model is evaluated.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from biasbios_mlflow.prediction.prompts import Prompt, shown
from biasbios_mlflow.prediction.tokens import TokenModel, find_max_length, is_out_of_memory
from biasbios_mlflow.redaction import logger

__all__ = ["CausalModel", "Endings", "LabelScore", "Questions"]

_logger = logger(__name__)

LabelScore = Literal["sum", "mean"]
"""Whether an occupation's log-likelihood is that of all its tokens or of one on average."""

_CACHES = ("past_key_values", "cache")
"""Names that versions of transformers give to the keys and values of what was run before."""

_TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-4}
_TOLERANCE_OF_HALF = 5e-2
"""How far probabilities may lie from those of each pair of prompt and occupation by itself."""

_CHECKED = 2
"""So many prompts are scored both ways at first."""


@dataclass(frozen=True, eq=False)
class Endings:
    """The tokens of K occupations as a tree: where two begin alike, they share these tokens.

    Attributes
    ----------
    labels : list of list of int
        The tokens of each occupation.
    tokens : ndarray of int64 of shape (nodes,)
        Of each node; the first is the last token of the prompt, whatever that is.
    depth : ndarray of int64 of shape (nodes,)
    sees : ndarray of bool of shape (nodes, nodes)
        Which nodes each one attends to: itself and what leads to it.
    at, token, owner : ndarrays of int64 of shape (scored,)
        Each token that is scored: the node that predicts it, the token, its occupation.
    """

    labels: list[list[int]]
    tokens: npt.NDArray[np.int64]
    depth: npt.NDArray[np.int64]
    sees: npt.NDArray[np.bool_]
    at: npt.NDArray[np.int64]
    token: npt.NDArray[np.int64]
    owner: npt.NDArray[np.int64]

    @classmethod
    def of(cls, labels: Sequence[Sequence[int]]) -> Endings:
        """Build the tree.

        Examples
        --------
        >>> tree = Endings.of([[5, 6, 7], [5, 8], [9]])
        >>> tree.tokens.tolist(), tree.depth.tolist(), tree.at.tolist()
        ([0, 5, 6], [0, 1, 2], [0, 1, 2, 0, 1, 0])
        """
        nodes: dict[tuple[int, ...], int] = {(): 0}
        scored = []
        for owner, ids in enumerate(labels):
            for place, one in enumerate(ids):
                before = tuple(ids[:place])
                nodes.setdefault(before, len(nodes))
                scored.append((nodes[before], one, owner))
        paths = list(nodes)
        sees = np.zeros((len(paths), len(paths)), dtype=bool)
        for path, node in nodes.items():
            sees[node, [nodes[path[:depth]] for depth in range(len(path) + 1)]] = True
        at, token, owners = (np.array(part, dtype=np.int64) for part in zip(*scored, strict=True))
        return cls(
            labels=[list(ids) for ids in labels],
            tokens=np.array([path[-1] if path else 0 for path in paths], dtype=np.int64),
            depth=np.array([len(path) for path in paths], dtype=np.int64),
            sees=sees,
            at=at,
            token=token,
            owner=owners,
        )


@dataclass(frozen=True, eq=False)
class Questions:
    """Tokenized prompts, and the tokens of the occupations that may follow.

    Attributes
    ----------
    ids : list of list of int
    endings : Endings
    cut : ndarray of bool of shape (prompts,)
        In which prompts the bio was cut to what the model takes.
    """

    ids: list[list[int]]
    endings: Endings
    cut: npt.NDArray[np.bool_]


class CausalModel(TokenModel):
    """A causal language model and its tokenizer, as a classifier by likelihood.

    A tokenizer with a chat template has the prompt as the user's message. A bio that makes the
    prompt too long for the model is cut at its end; the prompt around it stays whole. Where the
    tokens of one occupation begin another one's, all are scored with the end of the text after
    them.

    Parameters
    ----------
    model : transformers.PreTrainedModel
    tokenizer : transformers.PreTrainedTokenizerBase
    score : {"sum", "mean"}
    **options
        ``token_budget``, ``device`` and ``dtype``, see `TokenModel`.

    Attributes
    ----------
    shared : bool
        Whether the prompt is run once for all occupations; False where that is found to give other
        likelihoods than each pair by itself.
    """

    def __init__(self, model: Any, tokenizer: Any, *, score: LabelScore, **options: Any) -> None:
        super().__init__(model, tokenizer, tokenizing={}, **options)
        self._never_pads = False  # padding is on the right, and masked
        self._limit = find_max_length(tokenizer, model)
        self._score = score
        self.templated = bool(getattr(tokenizer, "chat_template", None))
        parameters = inspect.signature(type(model).forward).parameters
        self._cache = next((name for name in _CACHES if name in parameters), _CACHES[0])
        self._one_logit = {"logits_to_keep": 1} if "logits_to_keep" in parameters else {}
        self.shared = True
        self._checked = False

    # -- texts to tokens --------------------------------------------------------------------

    def ask(self, bios: Sequence[str], occupations: Sequence[str], prompt: Prompt) -> Questions:
        """Tokenize the prompts about some bios, and the occupations.

        Parameters
        ----------
        bios : sequence of str
        occupations : sequence of str
        prompt : Prompt
        """
        endings = self._endings(occupations, prompt)
        room = None
        if self._limit is not None:
            room = max(2, self._limit - max(map(len, endings.labels)))
        texts = [self._render(prompt.fill(bio, occupations)) for bio in bios]
        ids = self._encode_prompts(texts)
        cut = np.zeros(len(ids), dtype=bool)
        for i, found in enumerate(ids):
            if room is not None and len(found) > room:
                ids[i] = self._cut(bios[i], occupations, prompt, len(found), room)
                cut[i] = True
        return Questions(ids, endings, cut)

    def _render(self, text: str) -> str:
        if not self.templated:
            return text
        message = [{"role": "user", "content": text}]
        rendered = self._tokenizer.apply_chat_template(
            message, tokenize=False, add_generation_prompt=True
        )
        return str(rendered)

    def _encode_prompts(self, texts: Sequence[str]) -> list[list[int]]:
        # A chat template writes the special tokens itself.
        ids, _ = self._encode(texts, {"add_special_tokens": not self.templated})
        if ids and not self.templated:
            end = self._tokenizer.eos_token_id
            # An encoder's tokenizer closes a text: nothing could follow it.
            ids = [one[:-1] if len(one) > 1 and one[-1] == end else one for one in ids]
        return ids

    def _cut(
        self, bio: str, occupations: Sequence[str], prompt: Prompt, length: int, room: int
    ) -> list[int]:
        kept = len(bio)
        [ids] = self._encode_prompts([self._render(prompt.fill(bio, occupations))])
        while len(ids) > room and kept > 0:
            # By the share of tokens that are too many, and at least by one character.
            share = max(0.0, 1 - (len(ids) - room) / max(1, len(ids)))
            kept = min(kept - 1, int(kept * share))
            [ids] = self._encode_prompts([self._render(prompt.fill(bio[:kept], occupations))])
        return ids[-room:]  # where the prompt alone is too long, its end is what asks

    def _endings(self, occupations: Sequence[str], prompt: Prompt) -> Endings:
        rendered = self._render(prompt.fill("", occupations))
        space = "" if self.templated or rendered[-1:].isspace() or not rendered else " "
        # As they are tokenized behind the end of the prompt, where that is possible.
        anchor = rendered[-12:]
        texts = [f"{space}{shown(name)}" for name in occupations]
        alone, _ = self._encode(texts, {"add_special_tokens": False})
        [head], _ = self._encode([anchor], {"add_special_tokens": False})
        behind, _ = self._encode([anchor + t for t in texts], {"add_special_tokens": False})
        found = [
            ids[len(head) :] if ids[: len(head)] == head and len(ids) > len(head) else own
            for ids, own in zip(behind, alone, strict=True)
        ]
        if not all(found):
            found = [ids or [self._tokenizer.unk_token_id or 0] for ids in found]
        tuples = {tuple(ids) for ids in found}
        begins = any(tuple(ids[:k]) in tuples for ids in found for k in range(1, len(ids)))
        end = self._tokenizer.eos_token_id
        if (begins or len(tuples) < len(found)) and end is not None:
            found = [[*ids, end] for ids in found]
        return Endings.of(found)

    # -- tokens to likelihoods --------------------------------------------------------------

    def probabilities(
        self, questions: Questions
    ) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]]:
        """Yield the probabilities of the occupations, with the positions of the prompts.

        A softmax of the occupations' log-likelihoods.

        Parameters
        ----------
        questions : Questions
        """
        if not questions.ids:
            return
        with self.session():
            if not self._checked:
                self._check(questions)
            for rows, scores in self._batches(questions):
                yield rows, _softmax(scores)

    def _check(self, questions: Questions) -> None:
        """Score a few prompts both ways, the longest and the shortest, and share only if alike."""
        self._checked = True
        order = np.argsort([-len(ids) for ids in questions.ids], kind="stable")
        few = np.unique([order[0], order[-1]])[:_CHECKED]
        apart = _softmax(self.score_apart(few, questions))
        try:
            together = _softmax(self._together(few, questions))
            far = float(np.abs(together - apart).max())
        except (IndexError, KeyError, NotImplementedError, TypeError, ValueError) as error:
            why = f"{type(error).__name__}: {error!s:.200}"
        except RuntimeError as error:
            if is_out_of_memory(error):
                return
            why = f"{type(error).__name__}: {error!s:.200}"
        else:
            if far <= _TOLERANCE.get(self.dtype, _TOLERANCE_OF_HALF):
                return
            why = f"probabilities differ by {far:.2g}"
        self.shared = False
        _logger.warning(
            "biasbios: the prompt cannot be shared by the occupations with this model (%s); each "
            "pair of prompt and occupation is scored by itself, which takes far longer.",
            why,
        )

    def _batches(
        self, questions: Questions
    ) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]]:
        nodes = len(questions.endings.tokens)
        lengths = np.array([len(ids) for ids in questions.ids], dtype=np.int64)
        order = np.argsort(-lengths, kind="stable")
        start = 0
        while start < len(order):
            stop = self._end_of_batch(lengths[order] + nodes, start)
            rows = order[start:stop]
            try:
                run = self._together if self.shared else self.score_apart
                scores = run(rows, questions)
            except RuntimeError as error:
                if len(rows) == 1 or not is_out_of_memory(error):
                    raise
                self._shrink(len(rows) * (int(lengths[rows[0]]) + nodes))
                continue
            yield rows, scores
            start = stop

    @torch.inference_mode()
    def _together(
        self, rows: npt.NDArray[np.int64], questions: Questions
    ) -> npt.NDArray[np.float64]:
        """Return log-likelihoods of shape (rows, K): the prompt first, then all occupations."""
        endings = questions.endings
        prompts = [questions.ids[row] for row in rows.tolist()]
        if min(map(len, prompts)) < 2:
            return self.score_apart(rows, questions)
        heads = [ids[:-1] for ids in prompts]
        width = max(map(len, heads))
        sizes = torch.tensor([len(ids) for ids in heads], device=self.device)
        inputs: dict[str, Any] = {"input_ids": self._tensor(heads, width, self._pad)}
        if int(sizes.min()) < width:
            inputs["attention_mask"] = self._tensor([[1] * len(ids) for ids in heads], width, 0)
        first = self._running(**inputs, use_cache=True, **self._one_logit)
        tree = torch.from_numpy(endings.tokens).to(self.device).repeat(len(rows), 1)
        tree[:, 0] = torch.tensor([ids[-1] for ids in prompts], device=self.device)
        places = sizes[:, None] + torch.from_numpy(endings.depth).to(self.device)[None]
        seen = torch.arange(width, device=self.device)[None] < sizes[:, None]
        nodes = tree.shape[1]
        sees = torch.from_numpy(endings.sees).to(self.device)
        allowed = torch.cat(
            [seen[:, None].expand(-1, nodes, -1), sees[None].expand(len(rows), -1, -1)], dim=-1
        )[:, None]
        mask = torch.zeros(allowed.shape, dtype=self.dtype, device=self.device)
        mask.masked_fill_(~allowed, torch.finfo(self.dtype).min)
        output = self._running(
            input_ids=tree,
            attention_mask=mask,
            position_ids=places,
            use_cache=True,
            **{self._cache: getattr(first, self._cache)},
        )
        logits = output.logits.float()
        at, token, owner = (
            torch.from_numpy(part).to(self.device)
            for part in (endings.at, endings.token, endings.owner)
        )
        scores = logits[:, at, token] - logits.logsumexp(dim=-1)[:, at]
        summed = torch.zeros(len(rows), len(endings.labels), device=self.device)
        summed.index_add_(1, owner, scores)
        return self._scored(summed, endings)

    @torch.inference_mode()
    def score_apart(
        self, rows: npt.NDArray[np.int64], questions: Questions
    ) -> npt.NDArray[np.float64]:
        """Return the same from each pair of prompt and occupation by itself."""
        endings = questions.endings
        summed = torch.zeros(len(rows), len(endings.labels))
        for i, row in enumerate(rows.tolist()):
            for j, ending in enumerate(endings.labels):
                ids = questions.ids[row] + ending
                whole = torch.tensor([ids], device=self.device)
                logits = self._running(input_ids=whole, use_cache=False).logits[0].float()
                last = logits[-len(ending) - 1 : -1].log_softmax(dim=-1)
                place = torch.tensor(ending, device=self.device)[:, None]
                summed[i, j] = last.gather(1, place).sum()
        return self._scored(summed, endings)

    def _scored(self, summed: torch.Tensor, endings: Endings) -> npt.NDArray[np.float64]:
        scores = summed.cpu().numpy().astype(np.float64)
        if self._score == "mean":
            scores /= np.array([len(ids) for ids in endings.labels])
        return scores


def _softmax(scores: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    found: npt.NDArray[np.float64] = powers / powers.sum(axis=1, keepdims=True)
    return found
