"""Every classifier of scikit-learn: what is measured is what its own ``predict`` gives."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest
from mlflow.exceptions import MlflowException
from mlflow.models import infer_signature
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import TruncatedSVD
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import StackingClassifier, VotingClassifier
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression, RidgeClassifier, SGDClassifier
from sklearn.model_selection import (
    FixedThresholdClassifier,
    GridSearchCV,
    RandomizedSearchCV,
    TunedThresholdClassifierCV,
)
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier, OutputCodeClassifier
from sklearn.multioutput import MultiOutputClassifier
from sklearn.naive_bayes import MultinomialNB
from sklearn.neighbors import RadiusNeighborsClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.utils import all_estimators

from biasbios_mlflow import swap_gender
from biasbios_mlflow.pipeline import Evaluation
from biasbios_mlflow.prediction.probe import Probe
from biasbios_mlflow.prediction.sklearn import SklearnPredictor
from tests.prediction.conftest import run

FIVE = ("balanced_accuracy", "ctf", "prediction_consistency", "gap_rms", "gap_abs")


@pytest.fixture(scope="module")
def some(bios: pd.DataFrame) -> pd.DataFrame:
    """Bios of five occupations, few enough for slow classifiers."""
    names = ["nurse", "surgeon", "professor", "journalist", "physician"]
    chosen = bios[bios["profession"].isin(names)].groupby(["profession", "gender"]).head(16)
    return chosen.reset_index(drop=True)


@pytest.fixture(scope="module")
def two(some: pd.DataFrame) -> pd.DataFrame:
    return some[some["profession"].isin(["nurse", "surgeon"])].reset_index(drop=True)


def load(model: Any, folder: Path, **options: Any) -> Any:
    """Save an estimator as users do, and load it as pyfunc."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = folder / "model"
        mlflow.sklearn.save_model(
            model, path, serialization_format="cloudpickle", pip_requirements=[], **options
        )
        return mlflow.pyfunc.load_model(str(path))


def compare(model: Any, frame: pd.DataFrame) -> tuple[Evaluation, Evaluation]:
    """Evaluate on both paths; the five metrics have to be equal, and what a slow count gives."""
    fast = run(model, frame)
    plain = run(model, frame, prediction="pyfunc")
    assert plain.path == "pyfunc.predict"
    ours, theirs = (pd.read_parquet(e.predictions_path) for e in (fast, plain))
    for variant in ("prediction", "counterfactual_prediction"):
        assert ours[variant].tolist() == theirs[variant].tolist()
    for name in FIVE:
        if name == "ctf":  # the model's own predict of this flavor returns labels alone
            continue
        assert fast.scores.metrics.get(name) == plain.scores.metrics.get(name), name
    return fast, plain


def text(final: Any, *steps: Any) -> Pipeline:
    return make_pipeline(TfidfVectorizer(max_features=60), *steps, final)


DENSE = FunctionTransformer(lambda matrix: np.asarray(matrix.todense()))

SPECIAL: dict[str, Callable[[Any], Any]] = {
    "CategoricalNB": lambda c: text(c, DENSE, FunctionTransformer(lambda m: (m > 0).astype(int))),
    "GaussianProcessClassifier": lambda c: text(c, TruncatedSVD(5, random_state=0), DENSE_AS_IS),
    "LabelPropagation": lambda c: text(c, DENSE),
    "LabelSpreading": lambda c: text(c, DENSE),
    "MLPClassifier": lambda c: text(c.set_params(hidden_layer_sizes=(8,), max_iter=20)),
    "RadiusNeighborsClassifier": lambda c: text(
        c.set_params(radius=1.1, outlier_label="most_frequent")
    ),
}
DENSE_AS_IS = FunctionTransformer()
WRAPPERS = {
    "ClassifierChain": "several outputs",
    "MultiOutputClassifier": "several outputs",
    "FixedThresholdClassifier": "below",
    "OneVsOneClassifier": "below",
    "OneVsRestClassifier": "below",
    "OutputCodeClassifier": "below",
    "SelfTrainingClassifier": "below",
    "StackingClassifier": "below",
    "TunedThresholdClassifierCV": "below",
    "VotingClassifier": "below",
}


@pytest.mark.parametrize(
    "name", [name for name, _ in all_estimators("classifier") if name not in WRAPPERS]
)
@pytest.mark.filterwarnings("ignore")
def test_every_classifier(name: str, some: pd.DataFrame, tmp_path: Path) -> None:
    kind = dict(all_estimators("classifier"))[name]
    classifier = kind()
    if "random_state" in classifier.get_params():
        classifier.set_params(random_state=0)
    if "n_estimators" in classifier.get_params():
        classifier.set_params(n_estimators=8)
    if name == "HistGradientBoostingClassifier":
        classifier.set_params(max_iter=5)
    sparse = not name.startswith(("Gaussian", "Hist", "Linear Discriminant", "Quadratic"))
    dense = name in ("LinearDiscriminantAnalysis", "NearestCentroid") or not sparse
    steps = (DENSE,) if dense else ()
    if name == "QuadraticDiscriminantAnalysis":
        steps = (TruncatedSVD(5, random_state=0),)
    pipeline = SPECIAL.get(name, lambda c: text(c, *steps))(classifier)
    pipeline.fit(list(some["hard_text"]), some["profession"])
    fast, _ = compare(load(pipeline, tmp_path), some)
    assert fast.path.startswith("sklearn."), fast.warnings
    expected = np.mean(pipeline.predict(list(some["hard_text"])) == some["profession"])
    assert fast.scores.metrics["accuracy"] == pytest.approx(expected)


def _lean(base: Any, **grid: Any) -> Any:
    return GridSearchCV(base, grid, cv=2)


COMPOSED: dict[str, Callable[[], Any]] = {
    "grid search": lambda: _lean(text(LogisticRegression()), logisticregression__C=[0.1, 10.0]),
    "grid search around the last step": lambda: text(_lean(SVC(), C=[0.1, 1.0])),
    "random search": lambda: RandomizedSearchCV(
        text(LinearSVC()), {"linearsvc__C": [0.1, 1.0]}, n_iter=2, cv=2, random_state=0
    ),
    "pipeline in a pipeline": lambda: text(make_pipeline(TruncatedSVD(5), SVC())),
    "passthrough": lambda: Pipeline(
        [("words", TfidfVectorizer()), ("nothing", "passthrough"), ("model", RidgeClassifier())]
    ),
    "hashed words": lambda: make_pipeline(HashingVectorizer(n_features=64), SGDClassifier()),
    "counts": lambda: make_pipeline(CountVectorizer(), MultinomialNB()),
    "calibrated": lambda: text(CalibratedClassifierCV(LinearSVC(), cv=2)),
    "calibrated pipeline": lambda: CalibratedClassifierCV(text(LinearSVC()), cv=2),
    "soft voting": lambda: text(
        VotingClassifier([("a", LogisticRegression()), ("b", MultinomialNB())], voting="soft")
    ),
    "hard voting": lambda: text(
        VotingClassifier([("a", LogisticRegression()), ("b", MultinomialNB()), ("c", SVC())])
    ),
    "stacking": lambda: text(StackingClassifier([("a", SVC()), ("b", MultinomialNB())], cv=2)),
    "one against the rest": lambda: text(OneVsRestClassifier(LinearSVC())),
    "one against the rest, with probabilities": lambda: text(
        OneVsRestClassifier(LogisticRegression())
    ),
    "one against one": lambda: text(OneVsOneClassifier(LinearSVC())),
    "output code": lambda: text(OutputCodeClassifier(LinearSVC(), random_state=0)),
    "margins of pairs": lambda: text(SVC(decision_function_shape="ovo")),
    "SVC with probabilities": lambda: text(
        CalibratedClassifierCV(SVC(decision_function_shape="ovo"), cv=2, ensemble=False)
    ),
    "one column of a frame": lambda: make_pipeline(
        FunctionTransformer(lambda frame: frame["hard_text"]), TfidfVectorizer(), SVC()
    ),
    "a frame of words and more": lambda: make_pipeline(
        ColumnTransformer([("words", TfidfVectorizer(), "hard_text")]), LogisticRegression()
    ),
    "an array of one column": lambda: make_pipeline(
        ColumnTransformer([("words", TfidfVectorizer(), 0)]), LogisticRegression()
    ),
    "answers that draw lots, always alike": lambda: text(
        DummyClassifier(strategy="stratified", random_state=0)
    ),
}


@pytest.mark.parametrize("signed", [True, False], ids=["signature", "no signature"])
@pytest.mark.parametrize("name", COMPOSED)
@pytest.mark.filterwarnings("ignore")
def test_composed(name: str, signed: bool, some: pd.DataFrame, tmp_path: Path) -> None:
    model = COMPOSED[name]()
    texts: Any = list(some["hard_text"])
    if "frame" in name:
        texts = some[["hard_text"]]
    elif "array" in name:
        texts = some[["hard_text"]].to_numpy(dtype=object)
    model.fit(texts, some["profession"])
    expected = model.predict(texts)
    signature = None
    if signed:
        example = texts if isinstance(texts, pd.DataFrame) else np.array(texts, dtype=str)
        signature = infer_signature(example, expected)
    fast, _ = compare(load(model, tmp_path, signature=signature), some)
    ours = pd.read_parquet(fast.predictions_path)["prediction"]
    if "lots" not in name:  # which depend on how many bios come in a call
        assert ours.tolist() == expected.tolist()
        assert fast.path.startswith("sklearn."), fast.warnings
        assert not [warning for warning in fast.warnings if "predict" in warning]


THRESHOLDED: dict[str, Callable[[], Any]] = {
    "fixed": lambda: FixedThresholdClassifier(text(LogisticRegression()), threshold=0.75),
    "fixed inside": lambda: text(FixedThresholdClassifier(LogisticRegression(), threshold=0.75)),
    "fixed margin": lambda: FixedThresholdClassifier(
        text(LinearSVC()), threshold=0.4, response_method="decision_function"
    ),
    "tuned": lambda: TunedThresholdClassifierCV(
        text(LogisticRegression()), cv=2, random_state=0, scoring="recall_macro"
    ),
}


@pytest.mark.parametrize("name", THRESHOLDED)
@pytest.mark.filterwarnings("ignore")
def test_thresholds_decide(name: str, two: pd.DataFrame, tmp_path: Path) -> None:
    model = THRESHOLDED[name]()
    labels = two["profession"] == "surgeon"
    model.fit(list(two["hard_text"]), labels.map({True: 1, False: 0}))
    fast, _ = compare_two(load(model, tmp_path), two)
    expected = model.predict(list(two["hard_text"]))
    ours = pd.read_parquet(fast.predictions_path)["prediction"]
    assert ours.map({"nurse": 0, "surgeon": 1}).tolist() == expected.tolist()
    swapped = swap_gender(list(two["hard_text"]))
    same = np.mean(model.predict(swapped) == expected)
    assert fast.scores.metrics["prediction_consistency"] == pytest.approx(same)
    if "margin" not in name:
        assert "ctf" in fast.scores.metrics


def compare_two(model: Any, frame: pd.DataFrame) -> tuple[Evaluation, Evaluation]:
    names = ("nurse", "surgeon")
    fast = run(model, frame, label_names=names)
    plain = run(model, frame, label_names=names, prediction="pyfunc")
    for name in FIVE:
        if name != "ctf":
            assert fast.scores.metrics.get(name) == plain.scores.metrics.get(name), name
    return fast, plain


@pytest.mark.filterwarnings("ignore")
def test_one_class(some: pd.DataFrame, tmp_path: Path) -> None:
    nurses = some[some["profession"] == "nurse"]
    model = text(DummyClassifier()).fit(list(nurses["hard_text"]), nurses["profession"])
    fast, _ = compare(load(model, tmp_path), some)
    share = (some["profession"] == "nurse").mean()
    assert fast.scores.metrics["accuracy"] == pytest.approx(share)
    assert fast.scores.metrics["ctf"] == 0.0


@pytest.mark.filterwarnings("ignore")
def test_one_bio(some: pd.DataFrame, tmp_path: Path) -> None:
    model = text(LogisticRegression()).fit(list(some["hard_text"]), some["profession"])
    fast, _ = compare(load(model, tmp_path), some.head(1))
    expected = model.predict([some["hard_text"][0]])[0]
    assert pd.read_parquet(fast.predictions_path)["prediction"].tolist() == [expected]


@pytest.mark.filterwarnings("ignore")
def test_several_outputs_are_refused(some: pd.DataFrame, tmp_path: Path) -> None:
    both = some[["profession", "gender"]].to_numpy(dtype=str)
    model = text(MultiOutputClassifier(LogisticRegression())).fit(list(some["hard_text"]), both)
    loaded = load(model, tmp_path)
    with pytest.raises(MlflowException, match="one occupation for each bio"):
        run(loaded, some)
    with pytest.raises(MlflowException, match="one occupation for each bio"):
        run(loaded, some, prediction="pyfunc")


@pytest.mark.parametrize("deployed", ["predict_proba", "predict_log_proba"])
@pytest.mark.filterwarnings("ignore")
def test_another_function_is_deployed(deployed: str, some: pd.DataFrame, tmp_path: Path) -> None:
    model = text(LogisticRegression()).fit(list(some["hard_text"]), some["profession"])
    loaded = load(model, tmp_path, pyfunc_predict_fn=deployed)
    fast, plain = compare(loaded, some)
    assert fast.path == ("sklearn.predict_proba" if deployed == "predict_proba" else plain.path)
    for evaluation in (fast, plain):
        rows = pd.read_parquet(evaluation.predictions_path)
        assert rows["prediction"].tolist() == model.predict(list(some["hard_text"])).tolist()
        assert evaluation.scores.metrics["ctf"] == pytest.approx(
            fast.scores.metrics["ctf"], abs=1e-12
        )


class Contrary(ClassifierMixin, BaseEstimator):
    """A classifier whose labels have nothing to do with its own scores."""

    def fit(self, X: Any, y: Any) -> Contrary:  # noqa: N803
        self.model_ = clone(LogisticRegression()).fit(X, y)
        self.classes_ = self.model_.classes_
        return self

    def predict(self, X: Any) -> Any:  # noqa: N803
        return self.classes_[self.model_.predict_proba(X).argmin(axis=1)]

    def decision_function(self, X: Any) -> Any:  # noqa: N803
        return self.model_.decision_function(X)


@pytest.mark.filterwarnings("ignore")
def test_margins_that_are_not_the_labels(some: pd.DataFrame, tmp_path: Path) -> None:
    model = text(Contrary()).fit(list(some["hard_text"]), some["profession"])
    fast, _ = compare(load(model, tmp_path), some)
    assert fast.path == "sklearn.predict"
    found = "the largest margin of decision_function is not what predict returns"
    assert found in fast.warnings[0]
    assert "margins" in fast.scores.reasons["ctf"]


class Unscored(Contrary):
    """A classifier whose scores cannot be had."""

    def decision_function(self, X: Any) -> Any:  # noqa: N803
        raise RuntimeError("no margins today")


@pytest.mark.parametrize("kind", [Contrary, Unscored])
@pytest.mark.filterwarnings("ignore")
def test_a_fast_path_is_dropped_in_other_processes_too(
    kind: type[Contrary], some: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load(text(kind()).fit(list(some["hard_text"]), some["profession"]), tmp_path)
    asked = []
    ask = Probe._ask
    monkeypatch.setattr(Probe, "_ask", lambda self: (asked.append(self), ask(self)))
    alone, together = (run(model, some, n_jobs=jobs, window_size=60) for jobs in (1, 2))
    assert alone.warnings == together.warnings
    assert alone.path == together.path == ALONE[kind]
    assert alone.scores.to_dict() == together.scores.to_dict()
    # The way that is left is asked about here as there.
    assert len(asked) == (4 if kind is Contrary else 0)


ALONE = {Contrary: "sklearn.predict", Unscored: "pyfunc.predict"}


@pytest.mark.filterwarnings("ignore")
def test_a_broken_fast_path_is_dropped(
    some: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = text(LogisticRegression()).fit(list(some["hard_text"]), some["profession"])
    loaded = load(model, tmp_path)
    honest = run(loaded, some)
    call = SklearnPredictor._call

    def wrong(self: Any, table: Any) -> Any:
        output = call(self, table)
        return type(output)(np.roll(output.labels, 1), output.scores)

    monkeypatch.setattr(SklearnPredictor, "_call", wrong)
    dropped = run(loaded, some)
    assert dropped.path == "pyfunc.predict"
    (warning,) = dropped.warnings
    assert "sklearn.predict and predict_proba gives" in warning
    assert "the model's own predict" in warning
    for name in FIVE:
        if name != "ctf":
            assert dropped.scores.metrics[name] == honest.scores.metrics[name]


@pytest.mark.filterwarnings("ignore")
def test_the_probe_finds_what_only_long_bios_show(
    some: pd.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The longest bio stands in the last window: only the look at the end can see it."""
    frame = some.assign(n=some["hard_text"].str.len()).sort_values("n").drop(columns="n")
    frame = frame.reset_index(drop=True)
    model = text(LogisticRegression()).fit(list(frame["hard_text"]), frame["profession"])
    longest = frame["hard_text"].str.len().max()
    call = SklearnPredictor._call

    def wrong(self: Any, table: Any) -> Any:
        output = call(self, table)
        for i, words in enumerate(table):
            if len(words) == longest:
                output.labels[i] = "poet"
        return output

    monkeypatch.setattr(SklearnPredictor, "_call", wrong)
    evaluation = run(load(model, tmp_path), frame, window_size=20)
    assert evaluation.path == "pyfunc.predict"
    assert f"row {len(frame) - 1}" in evaluation.warnings[0]


@pytest.mark.filterwarnings("ignore")
def test_a_radius_without_neighbours(some: pd.DataFrame, tmp_path: Path) -> None:
    model = text(RadiusNeighborsClassifier(radius=0.6, outlier_label="nurse"), MinMaxOrNot())
    model.fit(list(some["hard_text"]), some["profession"])
    compare(load(model, tmp_path), some)


class MinMaxOrNot(MinMaxScaler):
    """Leaves sparse matrices as they are."""

    def fit(self, X: Any, y: Any = None) -> MinMaxOrNot:  # noqa: N803
        self.n_features_in_ = X.shape[1]
        return self

    def transform(self, X: Any) -> Any:  # noqa: N803
        return X
