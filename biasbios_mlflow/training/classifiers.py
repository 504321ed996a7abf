"""Train one classifier: bios, features, method, run."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from biasbios_mlflow.bios.checked import Bios, check_bios, find_columns
from biasbios_mlflow.bios.options import READING_OPTIONS
from biasbios_mlflow.bios.readers import load_bios
from biasbios_mlflow.config import EvaluationConfig
from biasbios_mlflow.counterfactual import swap_with_directions
from biasbios_mlflow.errors import invalid
from biasbios_mlflow.mlflow_private import METRICS_A_REQUEST
from biasbios_mlflow.redaction import redacted_uri
from biasbios_mlflow.temporary import temporary_folder
from biasbios_mlflow.training.encoding import CachedEncoder, FloatArray, default_cache
from biasbios_mlflow.training.methods import TFIDF, Settings, check_methods
from biasbios_mlflow.training.weights import balanced_weights

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

__all__ = [
    "Classifier",
    "LossCurve",
    "TrainedModel",
    "TrainingSet",
    "find_encoder",
    "fit",
    "log_classifier",
    "train",
]

TEXT = "hard_text"
"""The column that every trained model reads."""

_WITH_WORDS = ("joblib", "mlflow", "numpy", "pandas", "scikit-learn", "scipy")
_WITH_ENCODER = ("mlflow", "numpy", "pandas", "safetensors", "tokenizers", "torch", "transformers")


@dataclass(frozen=True)
class TrainedModel:
    """Where a trained model was logged."""

    model_uri: str
    model_version: str | None
    run_id: str


@dataclass(frozen=True, eq=False)
class TrainingSet:
    """The bios that classifiers learn from, and their vectors where an encoder makes them.

    Attributes
    ----------
    bios : Bios
    swapped : list of str
        Their gender-swapped copies.
    sha256 : str
        Hash over all bios.
    dataset : mlflow.data.pandas_dataset.PandasDataset
    vectors, swapped_vectors : float32 arrays of shape (n, d) or None
    encoder : CachedEncoder or None
        None for words.
    fitted : dict
        What `fit` has learned from words, by method: the seed makes no difference there.
    """

    bios: Bios
    swapped: list[str]
    sha256: str
    dataset: Any
    vectors: FloatArray | None = None
    swapped_vectors: FloatArray | None = None
    encoder: CachedEncoder | None = None
    fitted: dict[str, Classifier] = field(default_factory=dict)

    @classmethod
    def read(
        cls,
        data: Any,
        *,
        split: str | None,
        scope: str,
        encoder: CachedEncoder | None,
        reading: Mapping[str, Any] | None = None,
    ) -> TrainingSet:
        """Read, check, swap and encode; ``reading`` holds further options of `load_bios`.

        Raises
        ------
        MlflowException
            When the data cannot be read or has a single occupation.
        """
        dataset = load_bios(data, split, **(reading or {}))
        bios = check_bios(dataset.df, find_columns(list(dataset.df.columns)))
        present = np.unique(bios.occupations)
        if len(present) < 2:
            raise invalid(
                "data",
                found=f"one occupation only, {bios.labels.names[int(present[0])]!r}",
                expected="at least two to tell apart",
                fix="add bios of other occupations",
            )
        swapped, _ = swap_with_directions(bios.texts, scope)
        vectors = swapped_vectors = None
        if encoder is not None:
            vectors, swapped_vectors = encode_pairs(encoder, bios.texts, swapped)
        return cls(
            bios=bios,
            swapped=swapped,
            sha256=bios.hash().hexdigest(),
            dataset=dataset,
            vectors=vectors,
            swapped_vectors=swapped_vectors,
            encoder=encoder,
        )


def find_encoder(
    features: str, *, cache: str | Path | None, config: EvaluationConfig
) -> CachedEncoder | None:
    """Load the encoder that ``features`` names; None for words.

    ``cache`` is the folder for its vectors; None is the user's own, an empty string none.
    """
    if features == TFIDF:
        return None
    folder = default_cache() if cache is None else Path(cache) if str(cache) else None
    return CachedEncoder(features, config, folder)


def encode_pairs(
    encoder: CachedEncoder, texts: Sequence[str], swapped: Sequence[str]
) -> tuple[FloatArray, FloatArray]:
    """Return the vectors of n texts and of their swapped copies; those unchanged once."""
    before = encoder(texts, what="bios")
    changed = [i for i, (a, b) in enumerate(zip(texts, swapped, strict=True)) if a != b]
    after = before.copy()
    if changed:
        after[changed] = encoder([swapped[i] for i in changed], what="swapped bios")
    return before, after


@dataclass(frozen=True, eq=False)
class Classifier:
    """A trained classifier, not yet logged.

    Attributes
    ----------
    classes : tuple of str
        The occupations, in the order of the columns that it returns.
    estimator : sklearn.pipeline.Pipeline or None
        From texts, where words are its features.
    head : dict of str to float32 array, or None
        Weights of the network on an encoder's vectors, see `training.network.fit_head`.
    encoder : CachedEncoder or None
    """

    classes: tuple[str, ...]
    estimator: Pipeline | None = None
    head: dict[str, FloatArray] | None = None
    encoder: CachedEncoder | None = None

    def predict(self, inputs: Any) -> pd.DataFrame:
        """Return one probability for each occupation, of words or of vectors.

        Parameters
        ----------
        inputs : DataFrame with the column ``hard_text``, or float32 array of shape (n, d)
            The latter where an encoder makes the features.
        """
        from biasbios_mlflow.training.model import OccupationClassifier

        model = OccupationClassifier()
        model.about = self._about()
        model.estimator = self.estimator
        if self.head is None:
            return model.predict(None, inputs)
        import torch

        model.head = {name: torch.from_numpy(weights) for name, weights in self.head.items()}
        with torch.inference_mode():
            found = model.classify(torch.from_numpy(inputs)).numpy()
        return pd.DataFrame(found, columns=list(self.classes))

    def _about(self) -> dict[str, Any]:
        return {"text_column": TEXT, "classes": list(self.classes)}

    def save(self, folder: Path) -> None:
        """Write the files that `biasbios_mlflow.training.model` reads."""
        about = self._about()
        if self.estimator is not None:
            import joblib  # type: ignore[import-untyped]

            joblib.dump(self.estimator, folder / "estimator.joblib")
        else:
            from safetensors.numpy import save_file

            assert self.head is not None
            assert self.encoder is not None
            save_file(self.head, folder / "head.safetensors")
            sentences = self.encoder.sentence_model
            sentences.model.save_pretrained(folder / "encoder")
            sentences.tokenizer.save_pretrained(folder / "encoder")
            about["pooling"] = sentences.pooling
            about["normalize"] = sentences.normalize
            about["max_length"] = self.encoder.max_length
        (folder / "about.json").write_text(json.dumps(about, indent=2), "utf-8")

    def requirements(self) -> list[str]:
        """Return what the logged model needs to be loaded."""
        names = _WITH_WORDS if self.estimator is not None else _WITH_ENCODER
        # Without a local part such as +cpu, which no index knows.
        return [f"{name}=={metadata.version(name).partition('+')[0]}" for name in names]


def fit(
    training: TrainingSet,
    *,
    method: str,
    settings: Settings,
    seed: int,
    curve: LossCurve | None = None,
) -> Classifier:
    """Train a classifier.

    Parameters
    ----------
    training : TrainingSet
    method : str
        One of `biasbios_mlflow.training.METHODS`.
    settings : Settings
        Of the network; words go through a logistic regression, which has none.
    seed : int
        Of the network; a logistic regression has one solution.
    curve : LossCurve, optional
        Takes the loss of each step of a network.

    Returns
    -------
    Classifier
    """
    names = training.bios.labels.names
    if training.vectors is None:
        if method not in training.fitted:
            texts = list(training.bios.texts)
            occupations = [names[code] for code in training.bios.occupations.tolist()]
            if method == "cda":
                texts += training.swapped
                occupations *= 2
            weights = None
            if method == "balanced":
                weights = balanced_weights(training.bios.genders, training.bios.occupations)
            estimator = _word_pipeline().fit(
                pd.DataFrame({TEXT: texts}),
                occupations,
                logisticregression__sample_weight=weights,
            )
            training.fitted[method] = Classifier(names, estimator=estimator)
        return training.fitted[method]
    from biasbios_mlflow.training.network import Examples, fit_head

    assert training.swapped_vectors is not None
    head = fit_head(
        Examples(
            features=training.vectors,
            counterfactuals=training.swapped_vectors,
            occupations=training.bios.occupations,
            genders=training.bios.genders,
            n_labels=len(names),
        ),
        method=method,
        settings=settings,
        seed=seed,
        report=None if curve is None else curve.add,
    )
    return Classifier(names, head=head, encoder=training.encoder)


def _word_pipeline() -> Pipeline:
    from sklearn.compose import ColumnTransformer
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    # A pipeline from a frame with a named column: pyfunc hands over frames, and a bare vectorizer
    # would read their column names as the texts.
    return make_pipeline(
        ColumnTransformer([("tfidf", TfidfVectorizer(sublinear_tf=True, min_df=2), TEXT)]),
        LogisticRegression(C=10.0, max_iter=1000),
    )


class LossCurve:
    """Logs the loss of each step, and what an auditor found, to a run, many at a time.

    Parameters
    ----------
    run_id : str
    """

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._points: list[Any] = []

    def add(self, step: int, figures: Mapping[str, float]) -> None:
        """Take the figures of a step."""
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        if len(self._points) + len(figures) > METRICS_A_REQUEST:
            self.flush()
        self._points += [Metric(f"training/{name}", v, now, step) for name, v in figures.items()]

    def flush(self) -> None:
        """Log what has not been logged."""
        from mlflow import MlflowClient

        if self._points:
            MlflowClient().log_batch(self._run_id, metrics=self._points)
            self._points = []

    @classmethod
    @contextmanager
    def of(cls, run_id: str) -> Iterator[LossCurve]:
        """Log to a run whatever comes before the block ends, also by an error."""
        curve = cls(run_id)
        try:
            yield curve
        finally:
            curve.flush()


def log_classifier(classifier: Classifier, *, register: str | None) -> Any:
    """Log a classifier to the active run.

    Returns
    -------
    mlflow.models.model.ModelInfo
    """
    import mlflow.pyfunc
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, DataType, Schema

    from biasbios_mlflow.prediction.trained import LAYOUT, TRAINED

    with temporary_folder() as folder:
        classifier.save(Path(folder))
        return mlflow.pyfunc.log_model(
            name="model",
            python_model=str(Path(__file__).with_name("model.py")),
            artifacts={"classifier": folder},
            registered_model_name=register,
            signature=ModelSignature(
                inputs=Schema([ColSpec(DataType.string, TEXT)]),
                outputs=Schema([ColSpec(DataType.double, name) for name in classifier.classes]),
            ),
            input_example=pd.DataFrame({TEXT: ["She has worked in a clinic for ten years."]}),
            # Given here: to infer them, MLflow would start another Python and load the model.
            pip_requirements=classifier.requirements(),
            metadata={TRAINED: LAYOUT},
        )


def train(
    data: Any = "sample",
    *,
    split: str | None = "train",
    method: str = "baseline",
    features: str = TFIDF,
    scope: str = "pronouns",
    seed: int = 0,
    register: str | None = None,
    cache: str | Path | None = None,
    device: str = "auto",
    **settings: Any,
) -> TrainedModel:
    """Train an occupation classifier and log it to the active run, or a new one.

    Parameters
    ----------
    data, split
        See `biasbios_mlflow.load_bios`.
    method : str, default="baseline"
        One of `METHODS`.
    features : str, default="tfidf"
        ``"tfidf"``: words, through a logistic regression (``baseline`` and ``cda`` only). Else the
        name or path of an encoder of the sentence-transformers or Hugging Face kind: its vectors go
        through a network with one hidden layer.
    scope : str, default="pronouns"
        Scope of the swap that the methods learn from.
    seed : int, default=0
        The same seed gives the same model on the same machine.
    register : str, optional
        Registered model to add a version to.
    cache : path, optional
        Folder for vectors; by default one of the user's, an empty string keeps none.
    device : str, default="auto"
        Where the encoder runs.
    **settings
        See `biasbios_mlflow.training.Settings`; also ``text_column``, ``occupation_column``,
        ``gender_column``, ``label_names`` and ``gender_values``, as for `load_bios`.

    Returns
    -------
    TrainedModel
        Its URI is ``models:/<register>/<version>``, or ``models:/m-…`` without ``register``.

    Raises
    ------
    MlflowException
        When the method is unknown or cannot be had on these features, a setting is wrong, an extra
        is not installed, or the data cannot be read or has a single occupation.
    """
    import mlflow

    check_methods((method,), features)
    reading = {name: settings.pop(name) for name in READING_OPTIONS if name in settings}
    chosen = Settings.of(method, settings)
    encoder = find_encoder(features, cache=cache, config=EvaluationConfig(device=device))
    training = TrainingSet.read(data, split=split, scope=scope, encoder=encoder, reading=reading)
    active = mlflow.active_run()
    with mlflow.start_run(run_name=method, nested=active is not None) as run:
        log_parameters(
            training, method=method, features=features, scope=scope, seed=seed, settings=chosen
        )
        with LossCurve.of(run.info.run_id) as curve:
            classifier = fit(training, method=method, settings=chosen, seed=seed, curve=curve)
        info = log_classifier(classifier, register=register)
    version = info.registered_model_version
    return TrainedModel(
        model_uri=info.model_uri if version is None else f"models:/{register}/{version}",
        model_version=None if version is None else str(version),
        run_id=run.info.run_id,
    )


def log_parameters(
    training: TrainingSet,
    *,
    method: str,
    features: str,
    scope: str,
    seed: int,
    settings: Settings,
) -> None:
    """Log to the active run what a classifier is made from."""
    import mlflow

    network: Mapping[str, Any] = {} if training.vectors is None else settings.relevant(method)
    mlflow.log_params(
        {
            "method": method,
            "features": redacted_uri(features),
            "scope": scope,
            "seed": seed,
            "bios": len(training.bios),
            "training_data_sha256": training.sha256,
            **network,
        }
    )
    mlflow.log_input(training.dataset, "training")
