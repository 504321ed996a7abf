"""The methods that are compared, and their settings."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import Any

import pydantic

from biasbios_mlflow.errors import from_validation, invalid, missing_extra, nearest

__all__ = [
    "METHODS",
    "SUBSPACE_METHODS",
    "TFIDF",
    "TFIDF_METHODS",
    "Settings",
    "check_methods",
]

METHODS: Mapping[str, str] = {
    "baseline": "nothing about gender",
    "project": "the directions in which the swap moves features are projected out",
    "cda": "every bio once more, swapped (counterfactual data augmentation, Lu et al. 2020)",
    "clp": "the logits of a bio and its swapped copy are pulled together (counterfactual logit "
    "pairing, Garg et al. 2019)",
    "sensr": "trained on the worst bio nearby (sensitive subspace robustness, Yurochkin et al. "
    "2020), where the swap's directions count as near",
    "sensei": "the prediction for the worst bio nearby is pulled to that for the bio (sensitive "
    "set invariance, Yurochkin & Sun 2021)",
}
"""What each method adds to a plain classifier."""

TFIDF = "tfidf"
"""Features that are no encoder's: words, for a logistic regression."""

TFIDF_METHODS = ("baseline", "cda")
"""Methods that need no dense features."""

SUBSPACE_METHODS = ("project", "sensr", "sensei")
"""Methods that know the directions in which the swap moves features, from inFairness."""


class Settings(pydantic.BaseModel):
    """Settings of the network and of the methods.

    The defaults were chosen on a held-out part of the sample's training split (docs/training.md).

    Examples
    --------
    >>> Settings.of("sensei").directions
    25
    >>> Settings.of("sensei", {"directions": 10}).directions
    10
    """

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)

    width: int = pydantic.Field(2000, ge=1, description="units of the hidden layer")
    steps: int = pydantic.Field(300, ge=1, description="batches that are learned from")
    bios_per_occupation: int = pydantic.Field(
        5, ge=1, description="bios of each occupation in a batch"
    )
    learning_rate: float = pydantic.Field(2e-4, gt=0, description="of Adam")
    pairing: float = pydantic.Field(
        3.0, ge=0, description="clp: weight of the distance between the logits"
    )
    directions: int = pydantic.Field(
        25, ge=1, description="project, sensr, sensei: dimensions of the sensitive subspace"
    )
    rho: float = pydantic.Field(
        50.0, ge=0, description="sensei: weight of the distance between the predictions"
    )
    eps: float = pydantic.Field(
        1.0, gt=0, description="sensr, sensei: how far the auditor may go, in the fair metric"
    )
    auditor_steps: int = pydantic.Field(
        5, ge=1, description="sensr, sensei: steps to the worst bio nearby"
    )
    auditor_rate: float = pydantic.Field(
        0.5, gt=0, description="sensr, sensei: learning rate of these steps"
    )
    multiplier_rate: float = pydantic.Field(
        0.1, gt=0, description="sensr: learning rate of the multiplier that holds eps"
    )

    @classmethod
    def of(cls, method: str, chosen: Mapping[str, Any] | None = None) -> Settings:
        """Return the settings of a method, with those that the user chose.

        Raises
        ------
        MlflowException
            At an unknown setting or a value that does not fit.
        """
        try:
            return cls.model_validate({**_OF_METHOD.get(method, {}), **(chosen or {})})
        except pydantic.ValidationError as error:
            raise from_validation("settings", error, cls) from error

    def relevant(self, method: str) -> dict[str, Any]:
        """Return the settings that bear on a method."""
        about = {name: field.description or "" for name, field in type(self).model_fields.items()}
        return {
            name: getattr(self, name)
            for name, text in about.items()
            if ":" not in text or method in text.partition(":")[0].split(", ")
        }


_OF_METHOD: dict[str, dict[str, Any]] = {}


def check_methods(methods: tuple[str, ...], features: str) -> None:
    """Raise where a method is unknown, cannot be had on these features, or lacks a package."""
    for method in methods:
        if method not in METHODS:
            raise invalid(
                "method",
                found=repr(method),
                expected=f"one of {', '.join(METHODS)}",
                fix=f"use {nearest(method, METHODS) or 'baseline'!r}",
            )
        if features == TFIDF and method not in TFIDF_METHODS:
            raise invalid(
                f"method {method!r}",
                found=f"features {TFIDF!r}: sparse words",
                expected="the vectors of an encoder, on which this method works",
                fix="name an encoder (features='sentence-transformers/all-MiniLM-L6-v2', or the "
                f"path of one), or use {' or '.join(TFIDF_METHODS)}",
            )
    packages = [] if features == TFIDF else ["torch", "transformers", "safetensors"]
    needy = [method for method in methods if method in SUBSPACE_METHODS]
    for package in (*packages, *(["inFairness"] if needy else [])):
        if importlib.util.find_spec(package) is None:
            what = f"method {needy[0]!r}" if package == "inFairness" else f"features {features!r}"
            raise missing_extra(package, "train", needed_for=what)
