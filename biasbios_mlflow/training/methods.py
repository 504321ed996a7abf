"""The methods that are compared, and their settings."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import pydantic

from biasbios_mlflow.errors import from_validation, invalid, missing_extra, nearest

__all__ = [
    "METHODS",
    "TFIDF",
    "TFIDF_METHODS",
    "Method",
    "Settings",
    "check_methods",
]


@dataclass(frozen=True)
class Method:
    """What is known of a method: all that the rest of the training needs to know of it.

    Attributes
    ----------
    adds : str
        What it adds to a plain classifier, and by whom it was published.
    acts_on : {"words", "gender", ""}
        What it learns to be blind to: the swap of gendered words, or all that tells women from men.
    on_words : bool
        Whether it can be had on words; all can on the vectors of an encoder.
    needs : tuple of str
        Packages beside those of the network.
    color, marker : str
        Its look in figures: colours of Okabe & Ito, and a shape, which tells it in grey as well.
    defaults : mapping
        Settings that differ from those of the others.
    """

    adds: str
    acts_on: str
    color: str
    marker: str
    on_words: bool = False
    needs: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.adds


_SWAP, _GENDER = "words", "gender"

METHODS: Mapping[str, Method] = {
    "baseline": Method("nothing about gender", "", "#000000", "o", on_words=True),
    "balanced": Method(
        "within each occupation women and men weigh the same (balanced training, Han et al. 2022)",
        *(_GENDER, "#999999", "X"),
        on_words=True,
    ),
    "project": Method(
        "the directions in which the swap moves features are projected out",
        *(_SWAP, "#56B4E9", "s"),
        needs=("inFairness",),
    ),
    "leace": Method(
        "no linear classifier can tell women from men by the features (least-squares concept "
        "erasure, Belrose et al. 2023)",
        *(_GENDER, "#F0E442", "p"),
        needs=("concept_erasure",),
    ),
    "inlp": Method(
        "the directions by which linear classifiers tell women from men are projected out, one "
        "after the other (iterative null-space projection, Ravfogel et al. 2020)",
        *(_GENDER, "#0072B2", "h"),
    ),
    "cda": Method(
        "every bio once more, swapped (counterfactual data augmentation, Lu et al. 2020)",
        *(_SWAP, "#009E73", "^"),
        on_words=True,
    ),
    "clp": Method(
        "the logits of a bio and its swapped copy are pulled together (counterfactual logit "
        "pairing, Garg et al. 2019)",
        *(_SWAP, "#E69F00", "D"),
    ),
    "sensr": Method(
        "trained on the worst bio nearby (sensitive subspace robustness, Yurochkin et al. 2020), "
        "where the swap's directions count as near",
        *(_SWAP, "#CC79A7", "v"),
        needs=("inFairness",),
    ),
    "sensei": Method(
        "the prediction for the worst bio nearby is pulled to that for the bio (sensitive set "
        "invariance, Yurochkin & Sun 2021)",
        *(_SWAP, "#D55E00", "P"),
        needs=("inFairness",),
    ),
}
"""The methods there are. Another one is a row here, and what it does in `training.network`."""

TFIDF = "tfidf"
"""Features that are no encoder's: words, for a logistic regression."""

TFIDF_METHODS = tuple(name for name, method in METHODS.items() if method.on_words)
"""Methods that need no dense features."""

_ALL = tuple(METHODS)


def _setting(default: Any, description: str, *, of: tuple[str, ...] = _ALL, **limits: Any) -> Any:
    """Return a setting, with the methods that it bears on."""
    told = "" if of == _ALL else f"{', '.join(of)}: "
    return pydantic.Field(
        default, description=told + description, json_schema_extra={"of": list(of)}, **limits
    )


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

    width: int = _setting(2000, "units of the hidden layer", ge=1)
    steps: int = _setting(300, "batches that are learned from", ge=1)
    bios_per_occupation: int = _setting(5, "bios of each occupation in a batch", ge=1)
    learning_rate: float = _setting(2e-4, "of Adam", gt=0)
    pairing: float = _setting(3.0, "weight of the distance between the logits", of=("clp",), ge=0)
    directions: int = _setting(
        25, "dimensions of the sensitive subspace", of=("project", "sensr", "sensei"), ge=1
    )
    projections: int = _setting(25, "most directions that are projected out", of=("inlp",), ge=1)
    rho: float = _setting(
        50.0, "weight of the distance between the predictions", of=("sensei",), ge=0
    )
    eps: float = _setting(
        1.0, "how far the auditor may go, in the fair metric", of=("sensr", "sensei"), gt=0
    )
    auditor_steps: int = _setting(
        5,
        "steps to the worst bio nearby, within the subspace and then everywhere",
        of=("sensr", "sensei"),
        ge=1,
    )
    auditor_rate: float = _setting(
        0.5, "learning rate of the steps within the subspace", of=("sensr", "sensei"), gt=0
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
            own = METHODS[method].defaults if method in METHODS else {}
            return cls.model_validate({**own, **(chosen or {})})
        except pydantic.ValidationError as error:
            raise from_validation("settings", error, cls) from error

    def relevant(self, method: str) -> dict[str, Any]:
        """Return the settings that bear on a method."""
        return {
            name: getattr(self, name)
            for name, info in type(self).model_fields.items()
            if isinstance(info.json_schema_extra, dict)
            and method in cast(list[str], info.json_schema_extra["of"])
        }


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
    if features == TFIDF:
        return
    needed = dict.fromkeys(("torch", "transformers", "safetensors"), f"features {features!r}")
    for method in methods:
        for package in METHODS[method].needs:
            needed.setdefault(package, f"method {method!r}")
    for package, what in needed.items():
        if importlib.util.find_spec(package) is None:
            raise missing_extra(package, "train", needed_for=what)
