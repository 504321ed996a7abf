"""The choice among kinds of models, and the prediction of bios together with their copies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from biasbios_mlflow.bios.checked import Bios
from biasbios_mlflow.config import EvaluationConfig
from biasbios_mlflow.errors import invalid
from biasbios_mlflow.prediction import remote, sklearn, transformers
from biasbios_mlflow.prediction.base import FastPathError, Predictor, Variants
from biasbios_mlflow.prediction.chat import ChatPredictor
from biasbios_mlflow.prediction.features import Encoder, FeatureColumns, find_features
from biasbios_mlflow.prediction.identity import identify
from biasbios_mlflow.prediction.inputs import ModelInputs
from biasbios_mlflow.prediction.language import SCHEME, LikelihoodPredictor
from biasbios_mlflow.prediction.outputs import OutputReader, Predictions, Returns, Rows
from biasbios_mlflow.prediction.probe import Probe
from biasbios_mlflow.prediction.pyfunc import PyfuncPredictor, ServedPredictor
from biasbios_mlflow.prediction.sklearn import SklearnPredictor
from biasbios_mlflow.prediction.static import StaticPredictions
from biasbios_mlflow.prediction.trained import unwrap_trained
from biasbios_mlflow.prediction.transformers import TransformersPredictor
from biasbios_mlflow.prediction.zero_shot import ZeroShotPredictor

__all__ = [
    "FeaturePredictor",
    "Outputs",
    "PredictedPair",
    "Recorded",
    "find_predictor",
    "predict_pair",
    "record",
]


class FeaturePredictor(Predictor):
    """A model that takes vectors, and where its vectors come from.

    Parameters
    ----------
    model : Predictor
    features : Encoder or FeatureColumns
    """

    def __init__(self, model: Predictor, features: Encoder | FeatureColumns) -> None:
        self.path = f"{features.name}, then {model.path}"
        self.returns = model.returns
        self.model = model
        self.features = features
        # Processes are not used here, so that n_jobs has no effect.
        self.options = (model.options | features.options) - {"n_jobs"}
        self.reads_vectors = isinstance(features, FeatureColumns)
        if model.reference is not None:
            self.reference = FeaturePredictor(model.reference, features)

    @contextmanager
    def session(self) -> Iterator[None]:
        """Keep model and encoder ready until the block ends."""
        with ExitStack() as stack:
            stack.enter_context(self.model.session())
            stack.enter_context(self.features.session())
            yield

    def variants(self, bios: Bios, counterfactuals: Sequence[str]) -> Variants:
        """Return the vectors or texts of a window of n bios and of their copies."""
        return self.features.variants(bios, counterfactuals)

    def predict(self, inputs: ModelInputs) -> Iterator[tuple[Rows, object]]:
        """Encode the texts, unless the inputs have their features, and predict."""
        return self.model.predict(self.features.fill(inputs))


def find_predictor(model: Any, config: EvaluationConfig) -> Predictor:
    """Choose how to call a model.

    Parameters
    ----------
    model : mlflow.pyfunc.PyFuncModel or object with ``predict`` or None
        The loaded model; None for predictions that stand in the data.
    config : EvaluationConfig
        ``prediction="auto"`` goes past pyfunc where that is faster or yields probabilities.

    Returns
    -------
    Predictor

    Raises
    ------
    MlflowException
        Without a model and without a column of predictions; when the encoder cannot be loaded; for
        an option that has no effect on this kind of model.
    """
    if model is None:
        if config.predictions is None:
            raise invalid(
                "predictions",
                found="neither a model nor a column of predictions",
                expected="one of them",
                fix="pass predictions='…', the column that holds the predicted occupation",
            )
        found: Predictor = StaticPredictions(config)
    elif (config.model_uri or "").startswith(remote.SCHEME):
        found = remote.RemotePredictor(str(config.model_uri), config)
    elif (config.model_uri or "").startswith(SCHEME):
        found = LikelihoodPredictor.load(str(config.model_uri), config)
    else:
        features = find_features(config)
        found = _find_model(model, config, features)
        encoder = features.identity if isinstance(features, Encoder) else ""
        found.identity = identify(model, config, encoder=encoder)
        if found.reference is not None:
            found.reference.identity = found.identity
    _refuse_unused(config, found)
    return found


def _find_model(
    model: Any, config: EvaluationConfig, features: Encoder | FeatureColumns | None
) -> Predictor:
    returns = _known_returns(model, config)
    takes_features = features is not None
    own: PyfuncPredictor
    if ServedPredictor.serves(model):
        own = ServedPredictor(model, returns=returns, features=takes_features)
    else:
        forms = sklearn.unsigned_forms(model, features=takes_features)
        own = PyfuncPredictor(model, returns=returns, features=takes_features, forms=forms)
    if not takes_features:
        chat = ChatPredictor.of(model, config, own=own)
        if chat is not None:
            likely = None
            if config.prediction == "auto" and config.predictions is None:
                likely = LikelihoodPredictor.of(model, config, answers=chat)
            return likely or chat
    fast: Predictor | None = None
    if config.prediction == "auto" and config.predictions is None:
        fast = SklearnPredictor.of(model, features=features is not None, reference=own)
        if fast is None and features is None:
            fast = TransformersPredictor.of(model, config, reference=own)
            fast = fast or ZeroShotPredictor.of(model, config, reference=own)
            fast = fast or unwrap_trained(model, config, reference=own)
    found: Predictor = fast or own
    return found if features is None else FeaturePredictor(found, features)


def _known_returns(model: Any, config: EvaluationConfig) -> Returns:
    """Return what is known of what the model's own ``predict`` returns."""
    if config.predictions is not None:
        return Returns(column=config.predictions)
    known = sklearn.known_returns(model)
    return transformers.known_returns(model) if known == Returns() else known


_NOT_FOR_ALL = {
    "answers": "a model whose labels are read as they come from its own predict",
    **dict.fromkeys(remote.OPTIONS, "an openai:/ model"),
    "counterfactual_features": "a model that takes vectors, with their columns in the data",
    "counterfactual_predictions": "predictions that stand in the data (model=None)",
    "counterfactual_probabilities": "predictions that stand in the data (model=None)",
    "device": "a transformers model on the fast path, or an encoder",
    "dtype": "a transformers model on the fast path, or an encoder",
    "encoder": "a model that takes vectors",
    "features": "a model that takes vectors, with their columns in the data",
    "label_from": "a registered text-generation pipeline, unless prediction='pyfunc'",
    "label_score": "a local language model, unless prediction='pyfunc'",
    "max_length": "an encoder (a pipeline is cut as its own predict does: load it with "
    "model_config={'truncation': True, 'max_length': …})",
    "n_jobs": "a scikit-learn model on the fast path, from texts",
    "probabilities": "predictions that stand in the data (model=None)",
    "prompt": "a model that is given texts through its own predict, or a language model",
    "token_budget": "a transformers model on the fast path, or an encoder",
}
"""Options that not every kind of model heeds, and what they are for."""


def _refuse_unused(config: EvaluationConfig, predictor: Predictor) -> None:
    """Raise at an option that would change nothing: its user believes that it does."""
    for name, purpose in _NOT_FOR_ALL.items():
        value = getattr(config, name)
        if name == "device" and value == "cpu":
            continue  # where every model runs that is not told otherwise
        if value == type(config).model_fields[name].default or name in predictor.options:
            continue
        raise invalid(
            name,
            found=f"{config.as_json()[name]!r} for a model that is called by {predictor.path}",
            expected=f"this option only for {purpose}",
            fix=f"leave out {name}",
        )


Outputs: TypeAlias = Sequence[tuple[Rows, object]]


def record(predictor: Predictor, inputs: ModelInputs) -> Outputs | FastPathError:
    """Return all that a predictor yields, in another process, or why it does not.

    An error of the fast path is returned: raised, it would end the evaluation there, where nobody
    can call the model's own ``predict`` instead.
    """
    try:
        return list(predictor.predict(inputs))
    except FastPathError as error:
        return error
    except Exception as error:
        return _failed(predictor, error)


class Recorded(Predictor):
    """Outputs that a model gave elsewhere, in the place of the model.

    Parameters
    ----------
    model : Predictor
    outputs : sequence or FastPathError
        From `record`, for the same inputs.
    """

    def __init__(self, model: Predictor, outputs: Outputs | FastPathError) -> None:
        self.path = model.path
        self.returns = model.returns
        self.identity = model.identity
        self.reference = model.reference
        self._outputs = outputs

    def predict(self, inputs: ModelInputs) -> Iterator[tuple[Rows, object]]:
        """Yield the outputs, or raise what was raised elsewhere."""
        if isinstance(self._outputs, FastPathError):
            if self._outputs.instead is not None:  # it left the model's own predict behind
                self._outputs.instead.reference = self.reference
            raise self._outputs
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
    cut : int
        Bios that are longer than the model can take, as they are or swapped.
    """

    original: Predictions
    counterfactual: Predictions | None
    changed: npt.NDArray[np.bool_] | None
    cut: int = 0


def predict_pair(
    predictor: Predictor,
    reader: OutputReader,
    bios: Bios,
    counterfactuals: Sequence[str],
    *,
    probe: Probe | None = None,
    progress: Callable[[int], object] | None = None,
) -> PredictedPair:
    """Predict a window of n bios and their counterfactuals together.

    Texts that the swap left unchanged are predicted once. ``progress`` is told the number of bios
    done since it was last told.

    Raises
    ------
    MlflowException
        At an output that cannot be read.
    FastPathError
        When a fast path fails, or is found by the probe to give something else than ``predict``.
    """
    n = len(bios)
    variants = predictor.variants(bios, counterfactuals)
    inputs = variants.inputs
    rows = inputs.rows
    parts: list[tuple[Rows, object]] = []
    done = told = 0
    for where, output in _outputs(predictor, inputs):
        parts.append((where, output))
        done += len(rows[where])
        if progress is not None:
            now = n * done // len(inputs)
            progress(now - told)
            told = now
    both = reader.read_window(parts, rows)
    if probe is not None:
        probe.see(inputs, both)
    cut = 0 if inputs.cut is None else len(np.unique(inputs.source[inputs.cut]))
    copies = None if variants.copies is None else both[variants.copies]
    return PredictedPair(both[:n], copies, variants.changed, cut)


def _outputs(predictor: Predictor, inputs: ModelInputs) -> Iterator[tuple[Rows, object]]:
    try:
        yield from predictor.predict(inputs)
    except FastPathError:
        raise
    except Exception as error:
        if predictor.reference is None:
            raise
        raise _failed(predictor, error) from error


def _failed(predictor: Predictor, error: Exception) -> FastPathError:
    return FastPathError(f"{predictor.path} failed ({type(error).__name__}: {error!s:.300})")
