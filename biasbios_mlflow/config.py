"""The evaluator's options, checked at the door."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar

import pydantic

from biasbios_mlflow.errors import from_validation

__all__ = ["BEARING", "EvaluationConfig"]

# Options of MLflow's own evaluators: with evaluators=None one flat dictionary reaches them all.
_OPTIONS_OF_MLFLOW = frozenset(
    {
        "average",
        "col_mapping",
        "eval_results_mode",
        "eval_results_path",
        "explainability_algorithm",
        "explainability_kernel_link",
        "explainability_nsamples",
        "ignore_exceptions",
        "label_list",
        "log_explainer",
        "log_model_explainability",
        "max_classes_for_multiclass_roc_pr",
        "pos_label",
        "retriever_k",
        "sample_weights",
    }
)


BEARING: Mapping[str, str] = {
    "reading": "which bios there are; in a fingerprint the hash over all rows stands for it",
    "model": "what is asked; in a fingerprint the identity of model and encoder stands for it",
    "asking": "how the model is asked",
    "measuring": "what is measured",
    "scoring": "what is made of the rows afterwards",
    "nothing": "no number",
}
"""What an option can bear on; each says so itself, in its type."""


@dataclass(frozen=True)
class _Bears:
    on: str


_T = TypeVar("_T")
Reading = Annotated[_T, _Bears("reading")]
Model = Annotated[_T, _Bears("model")]
Asking = Annotated[_T, _Bears("asking")]
Measuring = Annotated[_T, _Bears("measuring")]
Scoring = Annotated[_T, _Bears("scoring")]
Nothing = Annotated[_T, _Bears("nothing")]


_LONGEST_PREFIX = 100


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

    text_column: Reading[str | None] = pydantic.Field(
        None, description="column with the bio; by default the usual names are tried"
    )
    occupation_column: Reading[str | None] = pydantic.Field(
        None, description="column with the true occupation; by default MLflow's targets"
    )
    gender_column: Reading[str | None] = pydantic.Field(None, description="column with the gender")
    id_column: Reading[str | None] = pydantic.Field(None, description="column that names a bio")
    counterfactual_column: Reading[str | None] = pydantic.Field(
        None, description="column with your own counterfactual texts, instead of the swap"
    )
    scope: Measuring[Literal["pronouns", "titles", "words", "names"]] = pydantic.Field(
        "pronouns", description="which gendered words the swap exchanges"
    )
    label_names: Measuring[tuple[str, ...] | None] = pydantic.Field(
        None, description="occupations in the order of their integer ids; by default the 28"
    )
    gender_values: Reading[dict[Any, Literal["male", "female"] | None] | None] = pydantic.Field(
        None,
        description="what the values of the gender column mean, instead of the usual ones; null "
        "leaves bios out",
    )
    allow_missing: Reading[bool] = pydantic.Field(
        False, description="go on when more than 5 % of the bios are incomplete"
    )
    prediction: Asking[Literal["auto", "pyfunc"]] = pydantic.Field(
        "auto", description="pyfunc: only the model's own predict, no fast path"
    )
    predictions: Asking[str | None] = pydantic.Field(
        None, description="which column of a wider model output (or of the data) holds predictions"
    )
    prompt: Asking[str | None] = pydantic.Field(
        None,
        description="what a language model is asked, with {bio} and {occupations}; by default a "
        "built-in prompt for chat models and bare text generation, the bio alone for others",
    )
    answers: Asking[Literal["auto", "labels", "text"]] = pydantic.Field(
        "auto",
        description="how labels are read: as words (text), as they stand (labels), or as words "
        "where the model is known to write them (auto)",
    )
    label_score: Asking[Literal["sum", "mean"]] = pydantic.Field(
        "sum",
        description="of a local language model: an occupation's log-likelihood is that of all its "
        "tokens (sum), or of one on average (mean)",
    )
    label_from: Asking[Literal["answer", "likelihood"]] = pydantic.Field(
        "answer",
        description="of a registered text-generation pipeline: its label is the answer of its own "
        "predict, or the most likely occupation",
    )
    counterfactual_predictions: Asking[str | None] = pydantic.Field(
        None, description="without a model: column with the predictions on the swapped bios"
    )
    probabilities: Asking[str | None] = pydantic.Field(
        None, description="without a model: column with a list of class probabilities a bio"
    )
    counterfactual_probabilities: Asking[str | None] = pydantic.Field(
        None, description="without a model: column with those for the swapped bios"
    )
    encoder: Model[str | Callable[..., Any] | None] = pydantic.Field(
        None,
        description="for models that take vectors: model URI, sentence-transformers or Hugging "
        "Face name or path, or a callable from texts to a matrix",
    )
    features: Asking[str | None] = pydantic.Field(
        None, description="for models that take vectors: column with one vector a bio"
    )
    counterfactual_features: Asking[str | None] = pydantic.Field(
        None, description="column with the vectors of the swapped bios"
    )
    device: Nothing[str] = pydantic.Field(
        "auto", description="where a transformers model runs: auto, cuda, cuda:1, mps, cpu"
    )
    dtype: Asking[Literal["auto", "float32", "float16", "bfloat16"]] = pydantic.Field(
        "auto", description="precision of a transformers model; auto is its own"
    )
    max_length: Asking[int | None] = pydantic.Field(
        None,
        ge=1,
        description="of an encoder: tokens after which a bio is cut; by default its limit",
    )
    concurrency: Nothing[int] = pydantic.Field(
        8, ge=1, description="requests at a time to an openai:/ model"
    )
    max_retries: Nothing[int] = pydantic.Field(
        5, ge=0, description="of an openai:/ model: so often a request that failed is tried again"
    )
    request_timeout: Nothing[float] = pydantic.Field(
        60.0, gt=0, description="of an openai:/ model: seconds after which a request has failed"
    )
    samples: Asking[int] = pydantic.Field(
        1,
        ge=1,
        description="of an openai:/ model: so often each question is asked (1, or 3 and more); the "
        "first answer is the label, the others' shares are probabilities",
    )
    temperature: Asking[float] = pydantic.Field(
        0.0, ge=0, description="of an openai:/ model; 0: the answer it finds best"
    )
    max_answer_tokens: Asking[int | None] = pydantic.Field(
        None, ge=1, description="of an openai:/ model: tokens after which an answer is cut off"
    )
    token_budget: Nothing[int | None] = pydantic.Field(
        None, ge=1, description="tokens in a batch, padding counted; by default by the device"
    )
    n_jobs: Nothing[int] = pydantic.Field(
        1, description="processes that swap and predict with a scikit-learn model; -1 for all cores"
    )
    window_size: Nothing[int] = pydantic.Field(
        2048, ge=1, description="bios that go through swap, prediction and counting at a time"
    )
    confidence: Scoring[float] = pydantic.Field(
        0.95, gt=0, lt=1, description="level of the intervals"
    )
    n_replicates: Scoring[int] = pydantic.Field(
        10_000, ge=100, description="replicates behind the intervals"
    )
    seed: Scoring[int] = pydantic.Field(
        0, ge=0, description="seed of the replicates, and of the sample"
    )
    min_cell: Scoring[int] = pydantic.Field(
        5, ge=1, description="bios of each gender that an occupation needs to be scored"
    )
    metric_prefix: Nothing[str] = pydantic.Field(
        "", description="goes in front of biasbios/<metric>"
    )
    max_flips: Nothing[int] = pydantic.Field(1000, ge=0, description="most rows of flips.csv")
    model_uri: Nothing[str | None] = pydantic.Field(
        None, description="where the model came from, for the summary"
    )
    log_predictions: Nothing[bool] = pydantic.Field(
        True, description="false: no predictions.parquet with one row a bio"
    )
    loaded_with: Nothing[dict[str, Any] | None] = pydantic.Field(
        None,
        exclude=True,  # it may hold passwords
        description="how the model was loaded (env_manager, model_config), for the fingerprint",
    )
    resume_dir: Nothing[str | None] = pydantic.Field(
        None, description="folder for finished windows; after a kill only the others are predicted"
    )
    log_texts: Nothing[bool] = pydantic.Field(True, description="false: no text leaves the process")

    @pydantic.field_validator("n_jobs")
    @classmethod
    def _no_zero_processes(cls, n_jobs: int) -> int:
        if n_jobs == 0:
            raise ValueError("a number of processes from 1 on, or -1 for all cores")
        return n_jobs

    @pydantic.field_validator("samples")
    @classmethod
    def _enough_samples(cls, samples: int) -> int:
        if samples == 2:
            raise ValueError("1, or 3 and more: of one share the noise cannot be told")
        return samples

    @pydantic.field_validator("prompt")
    @classmethod
    def _check_prompt(cls, prompt: str | None) -> str | None:
        if prompt is not None and "{bio}" not in prompt:
            raise ValueError("a text with {bio} where the biography goes")
        return prompt

    @pydantic.field_validator("metric_prefix")
    @classmethod
    def _check_prefix(cls, prefix: str) -> str:
        # What MLflow takes in the name of a metric, and in a path: no way out of the run's folder.
        whole = f"{prefix}biasbios"
        legal = re.fullmatch(r"[\w\-./: ]*", prefix) and len(prefix) <= _LONGEST_PREFIX
        if not legal or posixpath.normpath(whole) != whole or whole.startswith(("/", "..")):
            raise ValueError(
                "letters, digits and _ - . : / or space, no empty part or dots between slashes, at "
                f"most {_LONGEST_PREFIX} characters"
            )
        return prefix

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
            raise from_validation("evaluator_config", error, cls) from None  # it holds the input

    @staticmethod
    def options_of_mlflow(options: Mapping[str, Any] | None) -> list[str]:
        """Return the options that only MLflow's own evaluators read.

        Examples
        --------
        >>> EvaluationConfig.options_of_mlflow({"pos_label": 1, "seed": 1})
        ['pos_label']
        """
        return sorted(set(options or ()) & _OPTIONS_OF_MLFLOW)

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

    @classmethod
    def bears_on(cls, option: str) -> str:
        """Return what an option bears on, one of `BEARING`.

        Examples
        --------
        >>> EvaluationConfig.bears_on("min_cell"), EvaluationConfig.bears_on("device")
        ('scoring', 'nothing')
        """
        [bears] = [m for m in cls.model_fields[option].metadata if isinstance(m, _Bears)]
        return bears.on

    @classmethod
    def bearing(cls, options: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """Sort options by what they bear on, for a fingerprint; see `bearing_options`."""
        kinds: dict[str, dict[str, Any]] = {"asking": {}, "measuring": {}, "scoring": {}}
        for name, value in options.items():
            kind = cls.bears_on(name)
            if kind in kinds:
                kinds[kind][name] = value
        return kinds

    def bearing_options(self) -> dict[str, dict[str, Any]]:
        """Return the options that bear on the numbers, defaults included, as plain JSON values.

        Those are left out that something else of a fingerprint stands for: the hash over all rows
        for how they are read, the identity of the encoder for its name.

        Examples
        --------
        >>> EvaluationConfig(confidence=0.9).bearing_options()["scoring"]["confidence"]
        0.9
        """
        return self.bearing(self.as_json())

    def as_json(self) -> dict[str, Any]:
        """Return the options as plain JSON values, those at their default included."""
        loaded: dict[str, Any] = json.loads(self.model_dump_json())
        return loaded
