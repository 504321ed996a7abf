"""Train the classifiers that the demo compares: plain, and counterfactually augmented."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Any

import pandas as pd

from biasbios_mlflow.bios.checked import check_bios, find_columns
from biasbios_mlflow.bios.readers import as_dataset, read_bios
from biasbios_mlflow.counterfactual import swap_with_directions
from biasbios_mlflow.errors import invalid, nearest

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

__all__ = ["METHODS", "TrainedModel", "train"]

METHODS = ("baseline", "cda")
"""``baseline``: tf-idf and logistic regression. ``cda``: the same, on the training bios and once
more on their gender-swapped copies (counterfactual data augmentation, Lu et al. 2020)."""

_TEXT = "hard_text"
_PACKAGES = ("numpy", "pandas", "scikit-learn", "scipy")


@dataclass(frozen=True)
class TrainedModel:
    """Where a trained model was logged."""

    model_uri: str
    model_version: str | None
    run_id: str


def train(
    data: Any = "sample",
    *,
    split: str | None = "train",
    method: str = "baseline",
    scope: str = "pronouns",
    seed: int = 0,
    register: str | None = None,
) -> TrainedModel:
    """Train an occupation classifier and log it to the active run, or a new one.

    Parameters
    ----------
    data, split
        See `biasbios_mlflow.load_bios`.
    method : {"baseline", "cda"}, default="baseline"
        See `METHODS`.
    scope : str, default="pronouns"
        Scope of the swap that ``cda`` augments with.
    seed : int, default=0
        Seed of the classifier.
    register : str, optional
        Registered model to add a version to.

    Returns
    -------
    TrainedModel
        Its URI is ``models:/<register>/<version>``, or ``models:/m-…`` without ``register``.

    Raises
    ------
    MlflowException
        When the method is unknown, the data cannot be read or has a single occupation.
    """
    import mlflow
    import mlflow.sklearn

    if method not in METHODS:
        raise invalid(
            "method",
            found=repr(method),
            expected=f"one of {', '.join(METHODS)}",
            fix=f"use {nearest(method, METHODS) or METHODS[0]!r}",
        )
    frame, name, where = read_bios(data, split)
    bios = check_bios(frame, find_columns(list(frame.columns)))
    texts = list(bios.texts)
    occupations = [bios.labels.names[code] for code in bios.occupations.tolist()]
    if len(set(occupations)) < 2:
        raise invalid(
            "data",
            found=f"one occupation only, {occupations[0]!r}",
            expected="at least two to tell apart",
            fix="add bios of other occupations",
        )
    if method == "cda":
        texts += swap_with_directions(bios.texts, scope)[0]
        occupations *= 2
    pipeline = _pipeline(seed)
    pipeline.fit(pd.DataFrame({_TEXT: texts}), occupations)

    active = mlflow.active_run()
    with mlflow.start_run(run_name=method, nested=active is not None) as run:
        mlflow.log_params({"method": method, "scope": scope, "seed": seed, "bios": len(texts)})
        mlflow.log_text(bios.hash().hexdigest(), "training_data_sha256.txt")
        mlflow.log_input(
            as_dataset(frame, targets=bios.columns.occupation, name=name, source=where), "training"
        )
        info = mlflow.sklearn.log_model(
            pipeline,
            name="model",
            registered_model_name=register,
            # Given here: to infer them, MLflow would start another Python and load the model.
            pip_requirements=[f"{name}=={metadata.version(name)}" for name in _PACKAGES],
            input_example=pd.DataFrame({_TEXT: ["She has worked in a clinic for ten years."]}),
        )
        version = info.registered_model_version
    return TrainedModel(
        model_uri=info.model_uri if version is None else f"models:/{register}/{version}",
        model_version=None if version is None else str(version),
        run_id=run.info.run_id,
    )


def _pipeline(seed: int) -> Pipeline:
    from sklearn.compose import ColumnTransformer
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    # A pipeline from a frame with a named column: pyfunc hands over frames, and a bare vectorizer
    # would read their column names as the texts.
    return make_pipeline(
        ColumnTransformer([("tfidf", TfidfVectorizer(sublinear_tf=True, min_df=2), _TEXT)]),
        LogisticRegression(C=10.0, max_iter=1000, random_state=seed),
    )
