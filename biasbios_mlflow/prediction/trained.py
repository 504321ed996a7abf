"""The models that this package trains: past pyfunc, to the encoder in large batches."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import numpy.typing as npt

from biasbios_mlflow.config import EvaluationConfig
from biasbios_mlflow.prediction.base import Predictor
from biasbios_mlflow.prediction.features import TOKEN_OPTIONS, SentenceModel
from biasbios_mlflow.prediction.inputs import ModelInputs
from biasbios_mlflow.prediction.outputs import Output, Returns
from biasbios_mlflow.prediction.sklearn import SklearnPredictor

__all__ = ["LAYOUT", "TRAINED", "EncoderHeadPredictor", "unwrap_trained"]

TRAINED = "biasbios_classifier"
"""Key in the metadata of a logged model that says it is one of ours; its value is the layout."""

LAYOUT = 1
"""The layout of their files that is written, and understood."""


class EncoderHeadPredictor(Predictor):
    """Runs the encoder over texts of like length, and the head on each batch of vectors.

    Parameters
    ----------
    classifier : object
        The model behind pyfunc, with ``about``, ``encoder``, ``tokenizer`` and ``classify`` (see
        `biasbios_mlflow.training.model`).
    config : EvaluationConfig
    reference : Predictor, optional
        The model's own ``predict``.
    """

    options = TOKEN_OPTIONS

    def __init__(
        self, classifier: Any, config: EvaluationConfig, *, reference: Predictor | None = None
    ) -> None:
        self.reference = reference
        about = classifier.about
        self.returns = Returns(kind="probabilities", classes=about["classes"])
        self._classify = classifier.classify
        self._encoder = SentenceModel(
            "encoder",
            classifier.encoder,
            classifier.tokenizer,
            pooling=about["pooling"],
            normalize=about["normalize"],
            max_length=about["max_length"],
        )
        self._running = self._encoder.running(config)
        dtype = str(self._running.dtype).removeprefix("torch.")
        self.path = (
            f"encoder ({about['pooling']} pooling), head, on {self._running.device}, {dtype}"
        )

    def session(self) -> AbstractContextManager[None]:
        """Keep the encoder on its device until the block ends."""
        return self._running.session()

    def predict(self, inputs: ModelInputs) -> Iterator[tuple[npt.NDArray[np.int64], object]]:
        """Yield matrices of shape (batch, classes)."""
        tokens = self._running.tokenize(inputs.texts)
        inputs.cut = tokens.cut
        for rows, scores in self._running.run(tokens, self._probabilities):
            yield rows, Output(scores=scores)

    def _probabilities(self, output: Any, mask: Any) -> Any:
        return self._classify(self._encoder.vectors(output, mask))


def unwrap_trained(
    model: Any, config: EvaluationConfig, *, reference: Predictor | None = None
) -> EncoderHeadPredictor | SklearnPredictor | None:
    """Unwrap a pyfunc model that `biasbios_mlflow.training` logged; None for any other.

    Its own ``predict`` returns probabilities, so that its label is the class of the largest.
    """
    metadata = getattr(getattr(model, "metadata", None), "metadata", None) or {}
    # A model served in its own environment has the metadata, but nothing to unwrap.
    if metadata.get(TRAINED) != LAYOUT or not hasattr(model, "unwrap_python_model"):
        return None
    classifier = model.unwrap_python_model()
    if classifier.estimator is not None:
        return SklearnPredictor(
            classifier.estimator, predict_fn="predict_proba", reference=reference
        )
    return EncoderHeadPredictor(classifier, config, reference=reference)
