"""Zero-shot classification: bios by hypotheses in batches, past the pipeline."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from biasbios_mlflow.config import EvaluationConfig
from biasbios_mlflow.errors import invalid
from biasbios_mlflow.prediction.base import Predictor
from biasbios_mlflow.prediction.features import TOKEN_OPTIONS
from biasbios_mlflow.prediction.forms import raw_model
from biasbios_mlflow.prediction.inputs import ModelInputs
from biasbios_mlflow.prediction.outputs import Output, Returns
from biasbios_mlflow.prediction.prompts import shown
from biasbios_mlflow.prediction.transformers import WherePipelineIs, settings_of

__all__ = ["LABELS_COLUMN", "ZeroShotPredictor"]

LABELS_COLUMN = "candidate_labels"
"""The column in which such a pipeline is told the labels, as MLflow hands it over."""

_TEMPLATE = "This example is {}."
"""What the pipeline itself makes of a label, unless told otherwise."""

_KNOWN = frozenset({"batch_size", "hypothesis_template", "multi_label", "device", "num_workers"})


class ZeroShotPredictor(Predictor):
    """Asks an entailment model about each pair of bio and occupation.

    The labels are those of the data's column ``candidate_labels``; without one the occupations of
    the data, in which case the pipeline's own ``predict``, which wants that column, is not asked
    for comparison. Pairs are tokenized, cut and scored as the pipeline does it.

    Parameters
    ----------
    pipeline : transformers.ZeroShotClassificationPipeline
    config : EvaluationConfig
    settings : mapping
        Those of the pipeline.
    reference : Predictor
        The model's own ``predict``.
    """

    options = TOKEN_OPTIONS

    def __init__(
        self,
        pipeline: Any,
        config: EvaluationConfig,
        settings: Mapping[str, Any],
        *,
        reference: Predictor,
    ) -> None:
        from biasbios_mlflow.prediction.tokens import PairModel

        self.returns = Returns(kind="probabilities")
        self.reference = _OnlyWithLabels(WherePipelineIs(pipeline, reference))
        self._model = PairModel(
            pipeline.model,
            pipeline.tokenizer,
            tokenizing={},
            token_budget=config.token_budget,
            device=config.device,
            dtype=config.dtype,
        )
        self._template = str(settings.get("hypothesis_template") or _TEMPLATE)
        self._multi_label = bool(settings.get("multi_label"))
        self._entails = int(pipeline.entailment_id)
        dtype = str(self._model.dtype).removeprefix("torch.")
        self.path = f"zero-shot classification, in pairs, on {self._model.device}, {dtype}"

    @classmethod
    def of(
        cls, model: Any, config: EvaluationConfig, *, reference: Predictor
    ) -> ZeroShotPredictor | None:
        """Unwrap a pyfunc model of such a pipeline; None where only ``predict`` will do."""
        pipeline = raw_model(model, "mlflow.transformers")
        if pipeline is None or importlib.util.find_spec("torch") is None:
            return None
        from transformers import ZeroShotClassificationPipeline

        if type(pipeline) is not ZeroShotClassificationPipeline:
            return None
        settings = settings_of(model, pipeline)
        if not set(settings) <= _KNOWN or pipeline.tokenizer.pad_token_id is None:
            return None
        return cls(pipeline, config, settings, reference=reference)

    def session(self) -> AbstractContextManager[None]:
        """Keep the model on its device until the block ends."""
        return self._model.session()

    def predict(self, inputs: ModelInputs) -> Iterator[tuple[npt.NDArray[np.int64], object]]:
        """Yield probabilities, of shape (bios, labels)."""
        labels = _labels(inputs)
        if labels is None:
            labels = [shown(name) for name in inputs.bios.labels.names]
        hypotheses = [self._template.format(label) for label in labels]
        n, k = len(inputs), len(labels)
        firsts = [text for text in inputs.texts for _ in range(k)]
        tokens = self._model.tokenize_pairs(firsts, hypotheses * n)
        inputs.cut = np.asarray(tokens.cut.reshape(n, k).any(axis=1))
        logits: npt.NDArray[np.float64] | None = None
        for rows, found in self._model.run(tokens, lambda output, mask: output.logits.float()):
            if logits is None:
                logits = np.empty((n * k, found.shape[1]))
            logits[rows] = found
        if logits is not None:
            scores = pd.DataFrame(self._scores(logits.reshape(n, k, -1)), columns=labels)
            yield np.arange(n), Output(scores=scores)

    def _scores(self, logits: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        entails = self._entails
        if self._multi_label or logits.shape[1] == 1:
            contradicts = -1 if entails == 0 else 0
            return _softmax(logits[..., [contradicts, entails]])[..., 1]
        return _softmax(logits[..., entails])


class _OnlyWithLabels(Predictor):
    """The pipeline's own ``predict``, which cannot be asked unless the data has its labels."""

    def __init__(self, own: Predictor) -> None:
        self.path, self.returns, self.options = own.path, own.returns, own.options
        self._own = own

    def predict(self, inputs: ModelInputs) -> Iterator[tuple[Any, object]]:
        """Yield the pipeline's outputs."""
        if _labels(inputs) is None:
            raise invalid(
                LABELS_COLUMN,
                found=f"no such column among {inputs.available}",
                expected="the labels in each row, as the pipeline's own predict wants them",
                fix=f"add the column {LABELS_COLUMN}, with a JSON list in each cell",
            )
        yield from self._own.predict(inputs)


def _labels(inputs: ModelInputs) -> list[str] | None:
    """Return the labels that the data names, the same in all rows; None where it names none."""
    if LABELS_COLUMN not in inputs.available:
        return None
    cells = {_plain(cell) for cell in inputs.bios.inputs[LABELS_COLUMN].tolist()}
    if len(cells) != 1:
        raise invalid(
            f"column {LABELS_COLUMN!r}",
            found=f"{len(cells)} different cells",
            expected="the same labels in all rows",
            fix="evaluate bios with other labels apart",
        )
    labels: list[str] = json.loads(cells.pop())
    return labels


def _plain(cell: Any) -> str:
    """Return a cell as a JSON list: it is one, or a list, or names between commas."""
    if isinstance(cell, str):
        try:
            cell = json.loads(cell)
        except ValueError:
            cell = [part.strip() for part in cell.split(",") if part.strip()]
    names: Sequence[Any] = [cell] if isinstance(cell, str) else list(cell)
    return json.dumps([str(name) for name in names])


def _softmax(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    powers = np.exp(values - values.max(axis=-1, keepdims=True))
    found: npt.NDArray[np.float64] = powers / powers.sum(axis=-1, keepdims=True)
    return found
