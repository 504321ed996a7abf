"""What a result depends on: the fingerprint of an evaluation."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from typing import Any

from biasbios_mlflow.config import EvaluationConfig
from biasbios_mlflow.counterfactual import swap_version

__all__ = ["SCHEMA", "Fingerprint", "Identity", "json_hash", "package_versions"]

SCHEMA = 1
"""Of ``summary.json``; files of before it had a number count as 0."""

_PACKAGES = ("biasbios-mlflow", "mlflow", "numpy", "pandas", "scikit-learn", "scipy")
_PACKAGES_OF_MODELS = ("torch", "transformers", "pyspark")


def json_hash(content: Any) -> str:
    """Return the SHA-256 of plain JSON values, whatever the order of their keys.

    Examples
    --------
    >>> json_hash({"a": 1, "b": 2}) == json_hash({"b": 2, "a": 1})
    True
    """
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()


@cache
def package_versions() -> Mapping[str, str]:
    """Return the versions of Python and of the packages that numbers depend on."""
    there = {name for name in _PACKAGES_OF_MODELS if importlib.util.find_spec(name) is not None}
    versions = {name: metadata.version(name) for name in (*_PACKAGES, *sorted(there))}
    return {"python": platform.python_version(), **versions}


@dataclass(frozen=True)
class Identity:
    """What tells a model, as it was asked, from others; None where nothing does.

    Attributes
    ----------
    model : str or None
        The model's own id, or a hash of its content.
    model_config : str
        Hash of the configuration it was loaded with; empty where there was none.
    env_manager : str
        Of the environment it predicts in.
    encoder : str or None
        Hash of the content of the encoder before it; empty where there is none.
    """

    model: str | None
    model_config: str = ""
    env_manager: str = "local"
    encoder: str | None = ""

    @property
    def known(self) -> bool:
        """Whether model and encoder can be told from others."""
        return self.model is not None and self.encoder is not None


@dataclass(frozen=True)
class Fingerprint:
    """All that a result depends on.

    Attributes
    ----------
    model : Identity
    data : str or None
        Hash over the rows: text, occupation, gender, counterfactual; see `Bios.hash`.
    inputs : str or None
        Hash over the order of the rows and over all other columns, which a model may read.
    options : mapping
        The options that bear on the numbers, by what they bear on (see `EvaluationConfig`).
    swap : str or None
        Of the swap's own rules and tables, see `swap_version`.
    packages : mapping of str to str
        Versions.
    schema : int

    Examples
    --------
    >>> config = EvaluationConfig(min_cell=9)
    >>> data = {"data": "3f", "inputs": "9a"}
    >>> ours = Fingerprint.of(Identity("m-1"), config, **data)
    >>> theirs = Fingerprint.of(Identity("m-2"), EvaluationConfig(scope="names"), **data)
    >>> for difference in ours.differences(theirs, but=("model",)):
    ...     print(difference)
    option scope: pronouns and names
    option min_cell: 9 and 5
    >>> Fingerprint.read({"fingerprint": ours.to_dict()}) == ours
    True
    """

    model: Identity
    data: str | None
    inputs: str | None
    options: Mapping[str, Mapping[str, Any]]
    swap: str | None
    packages: Mapping[str, str] = field(default_factory=package_versions)
    schema: int = SCHEMA

    @classmethod
    def of(
        cls,
        model: Identity,
        config: EvaluationConfig,
        *,
        data: str | None = None,
        inputs: str | None = None,
    ) -> Fingerprint:
        """Take the fingerprint of an evaluation, or without data of all its windows."""
        return cls(model, data, inputs, config.bearing_options(), swap_version())

    @classmethod
    def read(cls, summary: Mapping[str, Any]) -> Fingerprint:
        """Read it from the content of a ``summary.json`` of any version.

        What an earlier version did not write is unknown, and what a later one added is left out:
        neither agrees with anything.
        """
        kept = summary.get("fingerprint")
        if kept is None:
            config = {k: v for k, v in summary["config"].items() if k in _OPTIONS}
            return cls(
                model=Identity(None),
                data=summary["data"]["sha256"],
                inputs=None,
                options=EvaluationConfig.bearing(config),
                swap=None,
                packages=dict(summary["versions"]),
                schema=0,
            )
        return cls(
            model=Identity(**{name: kept["model"].get(name) for name in _IDENTITY}),
            data=kept["data"],
            inputs=kept["inputs"],
            options=kept["options"],
            swap=kept["swap"],
            packages=kept["packages"],
            schema=int(kept["schema"]),
        )

    def sha256(self) -> str:
        """Return one hash over all of it."""
        return json_hash({k: v for k, v in self.to_dict().items() if k != "sha256"})

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain JSON values, and the hash over it."""
        content = {
            "schema": self.schema,
            "model": dict(vars(self.model)),
            "data": self.data,
            "inputs": self.inputs,
            "options": {kind: dict(options) for kind, options in self.options.items()},
            "swap": self.swap,
            "packages": dict(self.packages),
        }
        return {**content, "sha256": json_hash(content)}

    def differences(
        self, other: Fingerprint, *, but: tuple[str, ...] = (), unknown: bool = True
    ) -> list[str]:
        """Say in what two results do not depend on the same.

        Parameters
        ----------
        other : Fingerprint
        but : tuple of str
            Parts that may differ: ``model``, ``data``, ``inputs``, ``swap``, ``packages``, and the
            kinds of options ``asking``, ``measuring``, ``scoring``.
        unknown : bool, default=True
            Whether a part that one of them does not know is a difference.
        """
        found = []
        if unknown and self.schema != other.schema:
            found.append(f"schema of the summary: {self.schema} and {other.schema}")
        if "model" not in but:
            found += _differing("model", vars(self.model), vars(other.model), unknown)
        own, others = vars(self), vars(other)
        for part in ("data", "inputs", "swap"):
            if part not in but:
                found += _differing("", {part: own[part]}, {part: others[part]}, unknown)
        for kind in sorted({*self.options, *other.options} - {*but}, key=_kind_order):
            ours, theirs = self.options.get(kind, {}), other.options.get(kind, {})
            found += _differing("option", ours, theirs, False)
            if unknown:
                found += [f"option {name}: in one only" for name in sorted({*ours} ^ {*theirs})]
        if "packages" not in but:
            found += [
                f"package {name}: {self.packages.get(name, 'none')} and "
                f"{other.packages.get(name, 'none')}"
                for name in sorted({*self.packages, *other.packages})
                if self.packages.get(name) != other.packages.get(name)
            ]
        return found


_IDENTITY = tuple(Identity.__dataclass_fields__)
_OPTIONS = frozenset(EvaluationConfig.model_fields)
_KINDS = ("asking", "measuring", "scoring")


def _kind_order(kind: str) -> int:
    return _KINDS.index(kind) if kind in _KINDS else len(_KINDS)


def _differing(
    thing: str, ours: Mapping[str, Any], theirs: Mapping[str, Any], unknown: bool
) -> list[str]:
    found = []
    for name in ours:
        if name not in theirs:
            continue
        a, b = ours[name], theirs[name]
        label = f"{thing} {name}".strip()
        if thing != "option" and (a is None or b is None):
            if unknown:
                found.append(f"{label}: not known")
        elif a != b:
            found.append(f"{label}: {_shown(a)} and {_shown(b)}")
    return found


def _shown(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:59]}…"
