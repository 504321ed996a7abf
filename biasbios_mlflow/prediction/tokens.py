"""Transformer models in large batches: by length, within a budget of tokens, on any device.

The one module that works with torch; it is imported only when such a model is evaluated.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from biasbios_mlflow.errors import invalid
from biasbios_mlflow.redaction import logger

__all__ = [
    "PairModel",
    "TokenModel",
    "Tokens",
    "find_device",
    "find_max_length",
    "find_position_limit",
    "is_out_of_memory",
    "pool",
]

_logger = logger(__name__)

_BUDGETS = {"cpu": 1024, "mps": 16_384}
_LARGE_BUDGET = 65_536

_POSITIONS = re.compile(r"^(position_embeddings?|pos_embeddings?|embed_positions|wpe)$")
"""Names under which models keep their tables of positions."""

_NO_LENGTH = 1_000_000
"""A tokenizer without a length of its own says 10**30."""


def find_device(wanted: str, model: Any) -> torch.device:
    """Choose where a model runs.

    Parameters
    ----------
    wanted : str
        ``"auto"``, or what `torch.device` takes.
    model : torch.nn.Module

    Returns
    -------
    torch.device
        For ``"auto"``: where the model is, if that is no CPU; else CUDA, MPS or the CPU.

    Raises
    ------
    MlflowException
        When this machine has no such device.
    """
    if wanted == "auto":
        if model.device.type != "cpu":
            return model.device
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(wanted)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError, ImportError) as error:
        raise invalid(
            "device",
            found=f"{wanted!r} ({str(error).splitlines()[0]})",
            expected="a device of this machine",
            fix="use device='auto' or device='cpu'",
        ) from error
    return device


def find_max_length(tokenizer: Any, model: Any) -> int | None:
    """Return the most tokens that tokenizer and model take; None where neither has a limit.

    Parameters
    ----------
    tokenizer : transformers.PreTrainedTokenizerBase
    model : transformers.PreTrainedModel
    """
    limits = []
    if tokenizer.model_max_length < _NO_LENGTH:
        limits.append(int(tokenizer.model_max_length))
    positions = getattr(model.config, "max_position_embeddings", None)
    if positions is not None and positions > 0:
        # RoBERTa and its kin number positions from the padding index on.
        offset = 0
        for name, module in model.named_modules():
            if name.endswith("position_embeddings") and getattr(module, "padding_idx", None):
                offset = module.padding_idx + 1
        limits.append(int(positions) - offset)
    return min(limits) if limits else None


def find_position_limit(model: Any) -> int | None:
    """Return the tokens beyond which a model fails; None where there are none.

    Only a table of positions sets such a limit: models with relative or rotary positions take
    texts of any length, whatever their configuration says.

    Parameters
    ----------
    model : transformers.PreTrainedModel
    """
    limits = []
    for name, module in model.named_modules():
        last = name.rpartition(".")[2]
        if not isinstance(module, torch.nn.Embedding) or not _POSITIONS.search(last):
            continue
        # RoBERTa and its kin number positions from the padding index on, BART and its kin from 2.
        offset = getattr(module, "offset", 0)
        if module.padding_idx is not None and last == "position_embeddings":
            offset = module.padding_idx + 1
        limits.append(module.num_embeddings - offset)
    return min(limits) if limits else None


@dataclass(frozen=True, eq=False)
class Tokens:
    """Tokenized texts.

    Attributes
    ----------
    ids : list of list of int
    types : list of list of int or None
        Token types, where any is not 0.
    lengths : ndarray of int64 of shape (texts,)
    cut : ndarray of bool of shape (texts,)
        Which texts had more tokens than were kept.
    """

    ids: list[list[int]]
    types: list[list[int]] | None
    lengths: npt.NDArray[np.int64]
    cut: npt.NDArray[np.bool_]


class TokenModel:
    """A transformer model and its tokenizer, run over many texts.

    Texts are tokenized by the fast tokenizer, sorted by length and put into batches of at most
    ``token_budget`` tokens, padding counted. The model is moved to the device for as long as a
    `session` lasts, and comes back in the mode and on the device it had.

    Parameters
    ----------
    model : transformers.PreTrainedModel
    tokenizer : transformers.PreTrainedTokenizerBase
    max_length : int, optional
        Longer texts are cut; by default at what `find_max_length` says.
    tokenizing : mapping, optional
        The tokenizer is called with these options instead, and only what exceeds
        `find_position_limit` is cut besides. Not together with ``max_length``.
    token_budget : int, optional
        By default 1024 on a CPU, where more only overflows the caches, and 65,536 on CUDA.
    device : str, default="auto"
    dtype : str, default="auto"
        ``"auto"`` is the model's own.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        max_length: int | None = None,
        tokenizing: Mapping[str, Any] | None = None,
        token_budget: int | None = None,
        device: str = "auto",
        dtype: str = "auto",
    ) -> None:
        # A model spread over several devices stays where it is.
        spread = getattr(model, "hf_device_map", None) is not None
        self.device = model.device if spread else find_device(device, model)
        self.dtype = model.dtype if dtype == "auto" else getattr(torch, dtype)
        if tokenizing is None:
            self.max_length = max_length or find_max_length(tokenizer, model)
            tokenizing = {
                "truncation": self.max_length is not None,
                "max_length": self.max_length,
            }
        else:
            self.max_length = find_position_limit(model)
        self._tokenizing = dict(tokenizing)
        self.token_budget = token_budget or _BUDGETS.get(self.device.type, _LARGE_BUDGET)
        self._model = model
        self._tokenizer = tokenizer
        # Without a padding token a batch holds texts of one length, so that any id will do.
        self._pad = tokenizer.pad_token_id or 0
        # Padding on the left moves the tokens of a text to other positions, which not every model
        # allows for: there a batch holds texts of one length only.
        self._never_pads = tokenizer.padding_side == "left" or tokenizer.pad_token_id is None
        self._running: Any = None

    @contextmanager
    def session(self) -> Iterator[None]:
        """Keep the model on its device, in evaluation mode, until the block ends."""
        if self._running is not None:
            yield
            return
        model = self._model
        if self.dtype != model.dtype:
            model = copy.deepcopy(model).to(self.dtype)  # rounding cannot be taken back
        home = model.device
        modes = [(module, module.training) for module in model.modules()]
        try:
            model.eval()
            if home != self.device and getattr(model, "hf_device_map", None) is None:
                model.to(self.device)
            self._running = model
            yield
        finally:
            self._running = None
            if model is self._model:
                if model.device != home:
                    model.to(home)
                for module, mode in modes:
                    module.training = mode

    def tokenize(self, texts: Sequence[str]) -> Tokens:
        """Tokenize texts, and cut those that are too long for the model.

        Parameters
        ----------
        texts : sequence of str
        """
        ids, types = self._encode(texts, self._tokenizing)
        lengths = np.fromiter(map(len, ids), dtype=np.int64, count=len(ids))
        cut = np.zeros(len(ids), dtype=bool)
        if self._tokenizing.get("truncation") or self._tokenizing.get("max_length") is not None:
            # Of texts as long as the longest it has to be seen whether they were longer.
            full = np.flatnonzero(lengths == lengths.max(initial=0))
            uncut = {**self._tokenizing, "truncation": False, "max_length": None}
            whole, _ = self._encode([texts[i] for i in full.tolist()], uncut)
            cut[full] = [len(a) > lengths[i] for i, a in zip(full.tolist(), whole, strict=True)]
        if self.max_length is not None and (lengths > self.max_length).any():
            long = np.flatnonzero(lengths > self.max_length)
            limit = {**self._tokenizing, "truncation": True, "max_length": self.max_length}
            short, short_types = self._encode([texts[i] for i in long.tolist()], limit)
            for position, i in enumerate(long.tolist()):
                ids[i] = short[position]
                if types is not None and short_types is not None:
                    types[i] = short_types[position]
            lengths[long] = [len(part) for part in short]
            cut[long] = True
        if types is not None and not any(map(any, types)):
            types = None  # all zero is what the model assumes
        return Tokens(ids, types, lengths, cut)

    def _encode(
        self, texts: Sequence[str], options: Mapping[str, Any]
    ) -> tuple[list[list[int]], list[list[int]] | None]:
        if not texts:
            return [], None
        encoded = self._tokenizer(
            list(texts), return_attention_mask=False, verbose=False, **options
        )
        return encoded["input_ids"], encoded.get("token_type_ids")

    def run(
        self, tokens: Tokens, read: Callable[[Any, torch.Tensor | None], torch.Tensor]
    ) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]]:
        """Yield the results of batches, each with the positions of its texts.

        Parameters
        ----------
        tokens : Tokens
            From `tokenize`.
        read : callable
            From the model's output and the attention mask (None without padding) to a tensor with
            one row a text.
        """
        ids, types, lengths = tokens.ids, tokens.types, tokens.lengths
        # The longest come first: memory that suffices for them suffices for all.
        order = np.argsort(-lengths, kind="stable")
        with self.session():
            waiting = None
            start = 0
            while start < len(order):
                stop = self._end_of_batch(lengths[order], start)
                batch = order[start:stop]
                try:
                    result = self._forward(batch, ids, types, int(lengths[batch[0]]), read)
                except RuntimeError as error:
                    if len(batch) == 1 or not is_out_of_memory(error):
                        raise
                    self._shrink(len(batch) * int(lengths[batch[0]]))
                    continue
                # One batch stays behind, so that a GPU works while results are copied.
                if waiting is not None:
                    yield waiting[0], waiting[1].cpu().numpy()
                waiting = (batch, result)
                start = stop
            if waiting is not None:
                yield waiting[0], waiting[1].cpu().numpy()

    def _end_of_batch(self, lengths: npt.NDArray[np.int64], start: int) -> int:
        """Return where the batch that begins at ``start`` ends.

        It takes all it can within the budget, but where half the budget holds texts of one length
        it stops before the next length: a batch without padding needs no mask.
        """
        longest = max(1, int(lengths[start]))
        limit = max(1, self.token_budget // longest)
        stop = min(len(lengths), start + limit)
        same = start + int(np.searchsorted(-lengths[start:stop], -longest, side="right"))
        return same if self._never_pads or 2 * (same - start) >= limit else stop

    def _forward(
        self,
        batch: npt.NDArray[np.int64],
        ids: list[list[int]],
        types: list[list[int]] | None,
        width: int,
        read: Callable[[Any, torch.Tensor | None], torch.Tensor],
    ) -> torch.Tensor:
        rows = batch.tolist()
        padded = any(len(ids[row]) != width for row in rows)
        inputs = {"input_ids": self._tensor([ids[row] for row in rows], width, self._pad)}
        mask = None
        if padded:
            mask = self._tensor([[1] * len(ids[row]) for row in rows], width, 0)
            inputs["attention_mask"] = mask
        if types is not None:
            inputs["token_type_ids"] = self._tensor([types[row] for row in rows], width, 0)
        with torch.inference_mode():
            return read(self._running(**inputs), mask)

    def _tensor(self, rows: list[list[int]], width: int, fill: int) -> torch.Tensor:
        rows = [row + [fill] * (width - len(row)) for row in rows]
        tensor = torch.from_numpy(np.array(rows, dtype=np.int64))
        if self.device.type == "cuda":
            return tensor.pin_memory().to(self.device, non_blocking=True)
        return tensor.to(self.device)

    def _shrink(self, tokens: int) -> None:
        self.token_budget = max(1, min(self.token_budget, tokens) // 2)
        _logger.warning(
            "Out of memory on %s; going on with batches of %d tokens.",
            self.device,
            self.token_budget,
        )
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        elif self.device.type == "mps":
            torch.mps.empty_cache()


class PairModel(TokenModel):
    """The same for pairs of texts, of which the first is cut where both are too long."""

    def tokenize_pairs(self, firsts: Sequence[str], seconds: Sequence[str]) -> Tokens:
        """Tokenize pairs.

        Parameters
        ----------
        firsts, seconds : sequences of str of one length
        """
        if not firsts:
            return self.tokenize([])
        limit = find_max_length(self._tokenizer, self._model)
        options: dict[str, Any] = {"return_attention_mask": False, "verbose": False}
        encoded = self._tokenizer(list(firsts), list(seconds), **options)
        ids, types = encoded["input_ids"], encoded.get("token_type_ids")
        lengths = np.fromiter(map(len, ids), dtype=np.int64, count=len(ids))
        cut = np.zeros(len(ids), dtype=bool) if limit is None else lengths > limit
        long = np.flatnonzero(cut).tolist()
        if long:
            short = self._tokenizer(
                [firsts[i] for i in long],
                [seconds[i] for i in long],
                truncation="only_first",
                max_length=limit,
                **options,
            )
            for place, i in enumerate(long):
                ids[i] = short["input_ids"][place]
                if types is not None:
                    types[i] = short["token_type_ids"][place]
            lengths[long] = [len(ids[i]) for i in long]
        if types is not None and not any(map(any, types)):
            types = None
        return Tokens(ids, types, lengths, cut)


def is_out_of_memory(error: RuntimeError) -> bool:
    """Tell whether a device ran out of memory."""
    if isinstance(error, torch.cuda.OutOfMemoryError):
        return True
    message = str(error).lower()
    return "out of memory" in message or "can't allocate memory" in message


def pool(output: Any, mask: torch.Tensor | None, how: str) -> torch.Tensor:
    """Return one vector a text from the last hidden states.

    Parameters
    ----------
    output : transformers.modeling_outputs.BaseModelOutput
    mask : tensor of shape (texts, tokens) or None
        1 for tokens, 0 for padding; None where there is none.
    how : {"mean", "cls", "max"}
    """
    states: torch.Tensor = output.last_hidden_state.float()
    if how == "cls":
        return states[:, 0]
    if mask is None:
        return states.mean(dim=1) if how == "mean" else states.amax(dim=1)
    there = mask[:, :, None].to(states.dtype)
    if how == "mean":
        return (states * there).sum(dim=1) / there.sum(dim=1)
    return states.masked_fill(there == 0, float("-inf")).amax(dim=1)
