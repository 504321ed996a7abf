"""scikit-learn models: labels and probabilities from the estimator, past pyfunc's checks."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from biasbios_mlflow.errors import invalid
from biasbios_mlflow.prediction.base import FastPathError, Predictor
from biasbios_mlflow.prediction.forms import (
    Form,
    InputForms,
    estimator_forms,
    input_schema,
    raw_model,
)
from biasbios_mlflow.prediction.inputs import ModelInputs
from biasbios_mlflow.prediction.outputs import Kind, Output, Returns

__all__ = ["SklearnPredictor", "known_returns", "unsigned_forms"]

_FLAVOR = "mlflow.sklearn"
_LIBRARY = "sklearn."

_ARGMAX = frozenset(
    {
        "BaggingClassifier",
        "DecisionTreeClassifier",
        "ExtraTreeClassifier",
        "ExtraTreesClassifier",
        "RandomForestClassifier",
    }
)
"""Classifiers of scikit-learn whose ``predict`` is, in their own code, the class of the largest
``predict_proba``. For these alone a second call is saved, which would double their time."""

_SEARCHES = frozenset(
    {"GridSearchCV", "HalvingGridSearchCV", "HalvingRandomSearchCV", "RandomizedSearchCV"}
)


class SklearnPredictor(Predictor):
    """Calls a fitted estimator's own ``predict``, and what gives scores beside it.

    The steps of a pipeline before the last transform the bios once; the last step is asked for the
    labels and for probabilities (``predict_proba``) or, without these, for one margin a class
    (``decision_function``). Where margins do not belong to classes, or their largest is not what
    ``predict`` says, there are none.

    Parameters
    ----------
    estimator : sklearn.base.BaseEstimator
        A fitted classifier: a pipeline from texts, or from a frame with named columns.
    schema : mlflow.types.Schema, optional
        Of the model's inputs.
    predict_fn : {"predict", "predict_proba"}, default="predict"
        What is deployed: with ``"predict_proba"`` the label is the class of the largest.
    features : bool, default=False
        Whether it takes vectors instead of texts.
    reference : Predictor, optional
        The model's own ``predict``.
    """

    options = frozenset({"n_jobs"})
    parallel = True

    def __init__(
        self,
        estimator: Any,
        *,
        schema: Any = None,
        predict_fn: str = "predict",
        features: bool = False,
        reference: Predictor | None = None,
    ) -> None:
        self.reference = reference
        self._forms = InputForms(estimator_forms(estimator, schema, features=features))
        self._steps, self._final = _unfold(estimator)
        self._method, why = _score_method(self._final)
        own_labels = predict_fn == "predict" and not (
            self._method == "predict_proba" and _is_argmax(self._final)
        )
        self._labels = own_labels or self._method is None
        self.returns = Returns(
            kind=_KINDS[self._method], classes=_classes(estimator), no_probabilities=why
        )
        called = ["predict"] * self._labels + [self._method] * (self._method is not None)
        self.path = "sklearn." + " and ".join(filter(None, called))

    @classmethod
    def of(
        cls, model: Any, *, features: bool = False, reference: Predictor | None = None
    ) -> SklearnPredictor | None:
        """Unwrap a pyfunc model of the sklearn flavor; None where only ``predict`` will do."""
        estimator = raw_model(model, _FLAVOR)
        predict_fn = _predict_fn(model)
        if not hasattr(estimator, "predict") or predict_fn not in ("predict", "predict_proba"):
            return None
        if predict_fn == "predict_proba" and not hasattr(estimator, "predict_proba"):
            return None
        return cls(
            estimator,
            schema=model.metadata.get_input_schema(),
            predict_fn=predict_fn,
            features=features,
            reference=reference,
        )

    def predict(self, inputs: ModelInputs) -> Iterator[tuple[slice, object]]:
        """Yield labels and scores of all rows at once."""
        output = self._forms.call(self._call, inputs)
        if self._method == "decision_function" and not _are_of_classes(
            output, self.returns.classes
        ):
            raise FastPathError(
                "the largest margin of decision_function is not what predict returns, so that "
                "there are no probabilities",
                instead=self._without_scores(),
            )
        yield slice(None), output

    def _without_scores(self) -> SklearnPredictor:
        plain = copy.copy(self)
        plain.reference = self.reference  # which no copy takes along
        plain._method = None
        plain.path = "sklearn.predict"
        plain.returns = replace(
            self.returns, kind="labels", no_probabilities="the model's margins are not its labels'"
        )
        return plain

    def __getstate__(self) -> dict[str, Any]:
        """Leave the model's own ``predict`` behind: other processes call this one only."""
        return {**self.__dict__, "reference": None}

    def _call(self, table: Any) -> _Rows:
        for transform in self._steps:
            table = transform(table)
        labels = self._final.predict(table) if self._labels else None
        if self._method is None:
            return _Rows(labels)
        scores = np.asarray(getattr(self._final, self._method)(table))
        if self._method == "decision_function" and scores.ndim == 1:
            # Two classes come as one margin; as logits it stands against 0.
            scores = np.column_stack([np.zeros(len(scores)), scores])
        return _Rows(labels, scores)


class _Rows(Output):
    """Labels and scores that know how many rows they are."""

    def __len__(self) -> int:
        return len(self.scores if self.labels is None else self.labels)


_KINDS: dict[str | None, Kind] = {
    "predict_proba": "probabilities",
    "decision_function": "logits",
    None: "labels",
}


def known_returns(model: Any) -> Returns:
    """Return what the own ``predict`` of a pyfunc model of the sklearn flavor returns.

    Parameters
    ----------
    model : mlflow.pyfunc.PyFuncModel
        Of any flavor; of others nothing is known.
    """
    estimator = raw_model(model, _FLAVOR)
    if estimator is None:
        return Returns()
    predict_fn = _predict_fn(model)
    kinds: dict[str, Kind] = {
        "predict": "labels",
        "predict_proba": "probabilities",
        "predict_log_proba": "logits",
        "decision_function": "logits",
    }
    return Returns(kind=kinds.get(predict_fn), classes=_classes(estimator))


def unsigned_forms(model: Any, *, features: bool) -> list[Form] | None:
    """Return the forms to try for the own ``predict`` of a model without a signature.

    pyfunc then hands over what it is given, so that the estimator decides. A frame comes last:
    some estimators take its columns for bios and answer all the same.

    Parameters
    ----------
    model : mlflow.pyfunc.PyFuncModel
        Of any flavor; None for others, and for models with a signature.
    features : bool
        Whether it takes vectors instead of texts.
    """
    estimator = raw_model(model, _FLAVOR)
    if estimator is None or input_schema(model) is not None:
        return None
    return estimator_forms(estimator, None, features=features)


def _predict_fn(model: Any) -> str:
    flavors = getattr(getattr(model, "metadata", None), "flavors", None) or {}
    return str(flavors.get("python_function", {}).get("predict_fn") or "predict")


def _is_from_library(estimator: Any, names: frozenset[str]) -> bool:
    """Tell whether something is of one of these very classes of scikit-learn, no subclass."""
    kind = type(estimator)
    return kind.__module__.startswith(_LIBRARY) and kind.__name__ in names


def _is_argmax(estimator: Any) -> bool:
    return _is_from_library(estimator, _ARGMAX)


def _unfold(estimator: Any) -> tuple[list[Callable[[Any], Any]], Any]:
    """Return the transformations before the last step, and the last step.

    Only what does nothing but pass on is taken apart: scikit-learn's own pipelines and searches.
    """
    steps: list[Callable[[Any], Any]] = []
    while True:
        if _is_from_library(estimator, _SEARCHES) and hasattr(estimator, "best_estimator_"):
            estimator = estimator.best_estimator_
        elif _is_from_library(estimator, frozenset({"Pipeline"})):
            transforms = [step for _, step in estimator.steps[:-1]]
            steps += [s.transform for s in transforms if s is not None and s != "passthrough"]
            estimator = estimator.steps[-1][1]
        else:
            return steps, estimator


def _score_method(final: Any) -> tuple[str | None, str | None]:
    """Return what gives one score a class, and why there is nothing of the kind."""
    if hasattr(final, "predict_proba"):
        return "predict_proba", None
    if not hasattr(final, "decision_function"):
        return None, "the model returns only labels"
    if getattr(final, "decision_function_shape", None) == "ovo":
        return None, "the model's margins belong to pairs of classes"
    if getattr(final, "break_ties", True) is False and len(getattr(final, "classes_", ())) > 2:
        # libsvm lets pairs of classes vote; the margins break ties between votes only if told to.
        return None, "the model's margins do not decide its labels (break_ties=False)"
    return "decision_function", None


def _classes(estimator: Any) -> list[Any] | None:
    classes = getattr(estimator, "classes_", None)
    if classes is None:
        return None
    if isinstance(classes, list) and any(np.ndim(part) for part in classes):
        raise invalid(
            "model",
            found=f"a classifier with {len(classes)} outputs for each bio",
            expected="one occupation for each bio",
            fix="register a model that predicts the occupation alone",
        )
    return list(classes)


def _are_of_classes(output: Output, classes: Sequence[Any] | None) -> bool:
    """Tell margins of classes, the largest of which is the label, from any others."""
    scores = np.asarray(output.scores)
    if classes is None or scores.ndim != 2 or scores.shape[1] != len(classes):
        return False
    largest = np.asarray(classes)[scores.argmax(axis=1)]
    differ = np.flatnonzero(largest != np.asarray(output.labels))
    if len(differ) == 0:
        return True
    second, first = np.partition(scores[differ], -2, axis=1)[:, -2:].T
    return bool((first - second <= 1e-9 * np.abs(first)).all())
