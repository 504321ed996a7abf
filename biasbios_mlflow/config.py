"""The evaluator's options, checked at the door."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Literal

import pydantic

from biasbios_mlflow.errors import from_validation

__all__ = ["EvaluationConfig"]

# Options of MLflow's own evaluators: with evaluators=None one flat dictionary reaches them all.
_OPTIONS_OF_MLFLOW = frozenset(
    {
        "average",
        "col_mapping",
        "explainability_algorithm",
        "explainability_kernel_link",
        "explainability_nsamples",
        "log_explainer",
        "log_model_explainability",
        "max_classes_for_multiclass_roc_pr",
        "pos_label",
        "retriever_k",
        "sample_weights",
    }
)


# Options that are used only after the predictions have been made.
_AFTER_PREDICTION = {
    "confidence",
    "log_predictions",
    "log_texts",
    "max_flips",
    "metric_prefix",
    "min_cell",
    "model_uri",
    "n_jobs",
    "n_replicates",
    "resume_dir",
    "seed",
    "window_size",
}


class EvaluationConfig(pydantic.BaseModel):
    """Options of one evaluation (``evaluator_config={"biasbios": {...}}``).

    Examples
    --------
    >>> EvaluationConfig.parse({"min_cell": 10}).min_cell
    10
    >>> EvaluationConfig.parse({"min_cell": 0})
    Traceback (most recent call last):
        ...
    mlflow.exceptions.MlflowException: evaluator_config.min_cell: found 0, expected greater than \
or equal to 1. Fix: bios of each gender that an occupation needs to be scored.
    """

    # "model_uri" would clash with the names that older versions of pydantic keep for themselves.
    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, protected_namespaces=())

    text_column: str | None = pydantic.Field(
        None, description="column with the bio; by default the usual names are tried"
    )
    occupation_column: str | None = pydantic.Field(
        None, description="column with the true occupation; by default MLflow's targets"
    )
    gender_column: str | None = pydantic.Field(None, description="column with the gender")
    id_column: str | None = pydantic.Field(None, description="column that names a bio")
    counterfactual_column: str | None = pydantic.Field(
        None, description="column with your own counterfactual texts, instead of the swap"
    )
    scope: Literal["pronouns", "titles", "words", "names"] = pydantic.Field(
        "pronouns", description="which gendered words the swap exchanges"
    )
    label_names: tuple[str, ...] | None = pydantic.Field(
        None, description="occupations in the order of their integer ids; by default the 28"
    )
    gender_values: dict[Any, Literal["male", "female"]] | None = pydantic.Field(
        None, description="what other values of the gender column mean"
    )
    allow_missing: bool = pydantic.Field(
        False, description="go on when more than 5 % of the bios are incomplete"
    )
    prediction: Literal["auto", "pyfunc"] = pydantic.Field(
        "auto", description="pyfunc: only the model's own predict, no fast path"
    )
    predictions: str | None = pydantic.Field(
        None, description="which column of a wider model output (or of the data) holds predictions"
    )
    counterfactual_predictions: str | None = pydantic.Field(
        None, description="without a model: column with the predictions on the swapped bios"
    )
    probabilities: str | None = pydantic.Field(
        None, description="without a model: column with a list of class probabilities a bio"
    )
    counterfactual_probabilities: str | None = pydantic.Field(
        None, description="without a model: column with those for the swapped bios"
    )
    encoder: str | Callable[..., Any] | None = pydantic.Field(
        None,
        description="for models that eat vectors: model URI, sentence-transformers or Hugging Face "
        "name or path, or a callable from texts to a matrix",
    )
    features: str | None = pydantic.Field(
        None, description="for models that eat vectors: column with one vector a bio"
    )
    counterfactual_features: str | None = pydantic.Field(
        None, description="column with the vectors of the swapped bios"
    )
    device: str = pydantic.Field(
        "auto", description="where a transformers model runs: auto, cuda, cuda:1, mps, cpu"
    )
    dtype: Literal["auto", "float32", "float16", "bfloat16"] = pydantic.Field(
        "auto", description="precision of a transformers model; auto is its own"
    )
    max_length: int | None = pydantic.Field(
        None, ge=1, description="tokens after which a bio is cut; by default the model's limit"
    )
    token_budget: int | None = pydantic.Field(
        None, ge=1, description="tokens in a batch, padding counted; by default by the device"
    )
    n_jobs: int = pydantic.Field(
        1, description="processes that swap and predict with a scikit-learn model; -1 for all cores"
    )
    window_size: int = pydantic.Field(
        2048, ge=1, description="bios that go through swap, prediction and counting at a time"
    )
    confidence: float = pydantic.Field(0.95, gt=0, lt=1, description="level of the intervals")
    n_replicates: int = pydantic.Field(
        10_000, ge=100, description="replicates behind the intervals"
    )
    seed: int = pydantic.Field(0, ge=0, description="seed of the replicates, and of the sample")
    min_cell: int = pydantic.Field(
        5, ge=1, description="bios of each gender that an occupation needs to be scored"
    )
    metric_prefix: str = pydantic.Field("", description="goes in front of biasbios/<metric>")
    max_flips: int = pydantic.Field(1000, ge=0, description="most rows of flips.csv")
    model_uri: str | None = pydantic.Field(
        None, description="where the model came from, for the summary"
    )
    log_predictions: bool = pydantic.Field(
        True, description="false: no predictions.parquet with one row a bio"
    )
    resume_dir: str | None = pydantic.Field(
        None, description="folder for finished windows; after a kill only the others are predicted"
    )
    log_texts: bool = pydantic.Field(True, description="false: no text leaves the process")

    @pydantic.field_serializer("encoder")
    def _name_encoder(self, encoder: str | Callable[..., Any] | None) -> str | None:
        if encoder is None or isinstance(encoder, str):
            return encoder
        return getattr(encoder, "__qualname__", type(encoder).__qualname__)

    @classmethod
    def parse(cls, options: Mapping[str, Any] | None) -> EvaluationConfig:
        """Check a dictionary of options.

        Raises
        ------
        MlflowException
            At an unknown key (with the nearest known one) or a value that does not fit.
        """
        options = {k: v for k, v in (options or {}).items() if k not in _OPTIONS_OF_MLFLOW}
        try:
            return cls.model_validate(options)
        except pydantic.ValidationError as error:
            raise from_validation("evaluator_config", error, cls) from error

    @classmethod
    def names_own_option(cls, options: Mapping[str, Any] | None) -> bool:
        """Tell whether a dictionary holds an option that only this evaluator knows."""
        return any(key in cls.model_fields and key != "metric_prefix" for key in options or {})

    def named_columns(self, *, occupation: str | None = None) -> dict[str, str | None]:
        """Return the columns the user named, by their part in a bio, as `find_columns` takes them.

        Parameters
        ----------
        occupation : str, optional
            Holds the occupations where the user named no column for them.

        Examples
        --------
        >>> EvaluationConfig(text_column="cv").named_columns()["text"]
        'cv'
        """
        return {
            "text": self.text_column,
            "occupation": self.occupation_column or occupation,
            "gender": self.gender_column,
            "id": self.id_column,
            "counterfactual": self.counterfactual_column,
        }

    def prediction_options(self) -> str:
        """Return the options that bear on the predictions, as one line of JSON."""
        return json.dumps(
            self.model_dump(mode="json", exclude=_AFTER_PREDICTION), sort_keys=True, default=str
        )

    def as_json(self) -> dict[str, Any]:
        """Return the options as plain JSON values, those at their default included."""
        loaded: dict[str, Any] = json.loads(self.model_dump_json())
        return loaded
