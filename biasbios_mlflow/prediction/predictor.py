"""The one interface of all kinds of models, and the choice among them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from biasbios_mlflow.bios.checked import Bios
from biasbios_mlflow.config import EvaluationConfig
from biasbios_mlflow.errors import invalid
from biasbios_mlflow.fingerprint import Identity
from biasbios_mlflow.prediction.features import Encoder, FeatureColumns, find_features
from biasbios_mlflow.prediction.identity import identify
from biasbios_mlflow.prediction.inputs import ModelInputs, differ
from biasbios_mlflow.prediction.outputs import OutputReader, Predictions
from biasbios_mlflow.prediction.pyfunc import PyfuncPredictor, ServedPredictor
from biasbios_mlflow.prediction.sklearn import SklearnPredictor
from biasbios_mlflow.prediction.static import StaticPredictions
from biasbios_mlflow.prediction.trained import unwrap_trained
from biasbios_mlflow.prediction.transformers import TransformersPredictor

__all__ = [
    "FeaturePredictor",
    "PredictedPair",
    "Predictor",
    "Recorded",
    "Rows",
    "find_predictor",
    "predict_pair",
]

Rows = slice | npt.NDArray[np.int64]
"""Which rows of the inputs some output belongs to."""


class Predictor(Protocol):
    """A kind of model: from inputs to the model's own outputs.

    Attributes
    ----------
    path : str
        What is called, and where, for the log and the summary.
    classes : sequence or None
        What columns or integer outputs stand for, where the model says so.
    identity : Identity or None
        What tells the model from others (see `identify`).
    """

    path: str
    classes: Sequence[Any] | None
    identity: Identity | None

    def session(self) -> AbstractContextManager[None]:
        """Keep the model ready, where it pays, until the block ends."""

    def predict(self, inputs: ModelInputs) -> Iterator[tuple[Rows, object]]:
        """Yield the model's outputs, in any form, each with the rows that it belongs to.

        Every row comes once, in any order.
        """


class FeaturePredictor:
    """A model that eats vectors, and where its vectors come from.

    Parameters
    ----------
    model : Predictor
    features : Encoder or FeatureColumns
    """

    identity: Identity | None = None

    def __init__(self, model: Predictor, features: Encoder | FeatureColumns) -> None:
        self.path = f"{features.name}, then {model.path}"
        self.classes = model.classes
        self.model = model
        self.features = features

    @contextmanager
    def session(self) -> Iterator[None]:
        """Keep model and encoder ready until the block ends."""
        with ExitStack() as stack:
            stack.enter_context(self.model.session())
            if isinstance(self.features, Encoder):
                stack.enter_context(self.features.session())
            yield

    def predict(self, inputs: ModelInputs) -> Iterator[tuple[Rows, object]]:
        """Encode the texts, unless the inputs have their features, and predict."""
        if inputs.features is None and isinstance(self.features, Encoder):
            matrix = self.features(inputs.texts, inputs.rows)
            inputs = ModelInputs(inputs.bios, inputs.source, inputs.texts, matrix)
        return self.model.predict(inputs)


def find_predictor(model: Any, config: EvaluationConfig) -> Predictor | StaticPredictions:
    """Choose how to call a model.

    Parameters
    ----------
    model : mlflow.pyfunc.PyFuncModel or object with ``predict`` or None
        The loaded model; None for predictions that stand in the data.
    config : EvaluationConfig
        ``prediction="auto"`` goes past pyfunc where that is faster or yields probabilities.

    Returns
    -------
    Predictor or StaticPredictions

    Raises
    ------
    MlflowException
        Without a model and without a column of predictions; when the encoder cannot be loaded.
    """
    if model is None:
        if config.predictions is None:
            raise invalid(
                "predictions",
                found="neither a model nor a column of predictions",
                expected="one of them",
                fix="pass predictions='…', the column that holds the predicted occupation",
            )
        return StaticPredictions(config)
    features = find_features(config)
    found: Predictor | None = None
    if config.prediction == "auto":
        found = SklearnPredictor.of(model)
        if found is None and features is None:
            found = TransformersPredictor.of(model, config) or unwrap_trained(model, config)
    if found is None:
        kind = ServedPredictor if ServedPredictor.serves(model) else PyfuncPredictor
        found = kind(model, features=features is not None)
    if features is not None:
        found = FeaturePredictor(found, features)
    encoder = features.identity if isinstance(features, Encoder) else ""
    found.identity = identify(model, config, encoder=encoder)
    return found


class Recorded:
    """Outputs that a model gave elsewhere, in the place of the model.

    Parameters
    ----------
    model : Predictor
    outputs : sequence
        What its ``predict`` yielded for the same inputs.
    """

    def __init__(self, model: Predictor, outputs: Sequence[tuple[Rows, object]]) -> None:
        self.path = model.path
        self.classes = model.classes
        self.identity = model.identity
        self._outputs = outputs

    def session(self) -> AbstractContextManager[None]:
        """Do nothing: no model is called."""
        return nullcontext()

    def predict(self, inputs: ModelInputs) -> Iterator[tuple[Rows, object]]:
        """Yield the outputs."""
        yield from self._outputs


@dataclass(frozen=True, eq=False)
class PredictedPair:
    """The predictions for n bios and for their swapped copies.

    Attributes
    ----------
    original : Predictions
    counterfactual : Predictions or None
        None where there are none.
    changed : ndarray of bool of shape (n,) or None
        Which texts the swap changed, where that is known.
    """

    original: Predictions
    counterfactual: Predictions | None
    changed: npt.NDArray[np.bool_] | None


def predict_pair(
    predictor: Predictor,
    reader: OutputReader,
    bios: Bios,
    counterfactuals: Sequence[str],
    *,
    progress: Callable[[int], object] | None = None,
) -> PredictedPair:
    """Predict a window of n bios and their counterfactuals together.

    Texts that the swap left unchanged are predicted once. ``progress`` is told the number of bios
    done since it was last told.
    """
    n = len(bios)
    if isinstance(predictor, FeaturePredictor) and isinstance(predictor.features, FeatureColumns):
        before, after = predictor.features.read(bios)
        changed = np.zeros(n, dtype=bool) if after is None else (before != after).any(axis=1)
        inputs = ModelInputs.of(bios, bios.texts, changed)
        inputs.features = before if after is None else np.concatenate([before, after[changed]])
        both = _predict(predictor, reader, inputs, n, progress)
        if after is None:
            return PredictedPair(both, None, None)
    else:
        changed = differ(bios.texts, counterfactuals)
        inputs = ModelInputs.of(bios, counterfactuals, changed)
        both = _predict(predictor, reader, inputs, n, progress)
    # Row that belongs to each counterfactual: its own, or the original's where it is unchanged.
    source = np.arange(n)
    source[changed] = n + np.arange(len(inputs) - n)
    return PredictedPair(both[:n], both[source], changed)


def _predict(
    predictor: Predictor,
    reader: OutputReader,
    inputs: ModelInputs,
    n: int,
    progress: Callable[[int], object] | None,
) -> Predictions:
    codes = np.full(len(inputs), -1, dtype=np.int64)
    probabilities: npt.NDArray[np.float64] | None = None
    rows = inputs.rows
    done = told = 0
    for where, output in predictor.predict(inputs):
        part = reader.read(output, len(rows[where]), rows=rows[where])
        codes[where] = part.codes
        if part.probabilities is not None:
            if probabilities is None:
                probabilities = np.empty((len(inputs), part.probabilities.shape[1]))
            probabilities[where] = part.probabilities
        done += len(part)
        if progress is not None:
            now = n * done // len(inputs)
            progress(now - told)
            told = now
    assert (codes >= 0).all()
    return Predictions(codes, probabilities)
