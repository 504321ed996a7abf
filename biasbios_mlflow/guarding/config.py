"""What the guard watches: the content of ``guard.yaml``, checked at the door."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pydantic
import yaml
from mlflow.exceptions import MlflowException

from biasbios_mlflow.config import EvaluationConfig
from biasbios_mlflow.errors import from_validation, invalid, nearest
from biasbios_mlflow.gating.policy import GatePolicy
from biasbios_mlflow.mlflow_private import check_alias_name

__all__ = ["DEFAULT_SECRET_ENV", "GuardConfig", "WatchedModel", "read_secret"]

DEFAULT_SECRET_ENV = "BIASBIOS_WEBHOOK_SECRET"

_ALIAS = "alias:"


def _check_alias(name: str) -> None:
    try:
        check_alias_name(name)
    except MlflowException as error:
        raise ValueError(error.message) from error


class _Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)


class WatchedModel(_Strict):
    """What is done for one registered model.

    Examples
    --------
    >>> WatchedModel(policy="gate.yaml", gate_on="alias:candidate").gated_alias
    'candidate'
    >>> WatchedModel(policy="gate.yaml").gated_alias is None
    True
    """

    policy: str = pydantic.Field(description="YAML file with the rules of the gate")
    data: str | None = pydantic.Field(
        None, description="what biasbios gate takes as --data; by default the policy's own"
    )
    split: str | None = pydantic.Field(None, description="which part of the data")
    sample: int | None = pydantic.Field(None, ge=1, description="draw so many bios")
    options: dict[str, Any] = pydantic.Field(
        default_factory=dict,
        description="options of the evaluation that do not bear on the numbers, such as device",
    )
    gate_on: str = pydantic.Field(
        "version", description="version: every new version; alias:NAME: what that alias is set to"
    )
    from_version: int = pydantic.Field(
        1, ge=1, description="versions before this one are not gated by themselves"
    )
    protect: tuple[str, ...] = pydantic.Field(
        (), description="aliases that may only point at versions that passed"
    )

    @pydantic.field_validator("gate_on")
    @classmethod
    def _known_occasion(cls, value: str) -> str:
        if value.startswith(_ALIAS):
            _check_alias(value.removeprefix(_ALIAS))
        elif value != "version":
            raise ValueError("version, or alias:NAME")
        return value

    @pydantic.field_validator("protect")
    @classmethod
    def _usable_aliases(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for alias in value:
            _check_alias(alias)
        return value

    @property
    def gated_alias(self) -> str | None:
        """The alias whose versions are gated; None where every new version is."""
        return self.gate_on.removeprefix(_ALIAS) if self.gate_on.startswith(_ALIAS) else None

    def gate_arguments(self, name: str, version: str) -> dict[str, Any]:
        """Return the keywords of `biasbios_mlflow.gate` for one version, plain JSON values."""
        return {
            "model_uri": f"models:/{name}/{version}",
            "data": self.data,
            "policy": self.policy,
            "split": self.split,
            "sample": self.sample,
            **self.options,
        }


class GuardConfig(_Strict):
    """Options of the guard.

    Examples
    --------
    >>> GuardConfig.parse({"models": {"occupations": {"policy": "sample.yaml", "gate": "version"}}})
    Traceback (most recent call last):
        ...
    mlflow.exceptions.MlflowException: guard.models.occupations: found the key 'gate', expected \
one of data, from_version, gate_on, options, policy, protect, sample, split. \
Fix: did you mean 'gate_on'?
    """

    secret_env: str = pydantic.Field(
        DEFAULT_SECRET_ENV, description="environment variable that holds the webhook's secret"
    )
    state: str = pydantic.Field(
        "guard.db", description="file that keeps the queue over restarts (SQLite)"
    )
    reconcile_seconds: float = pydantic.Field(
        60.0, ge=1, description="how often the registry is looked through for missed events"
    )
    workers: int = pydantic.Field(
        1, ge=1, description="gates that run at once, each of another model"
    )
    timeout_minutes: float = pydantic.Field(
        24 * 60.0, gt=0, description="a gate that takes longer ends with the verdict error"
    )
    drain_seconds: float = pydantic.Field(
        60.0, ge=0, description="at SIGTERM, how long a gate may finish before it is put back"
    )
    models: dict[str, WatchedModel] = pydantic.Field(
        min_length=1, description="by name of the registered model, what is done for it"
    )

    @classmethod
    def parse(cls, content: Any) -> GuardConfig:
        """Check the content of a configuration.

        Raises
        ------
        MlflowException
            At an unknown key (with the nearest known one) or a value that does not fit.
        """
        try:
            return cls.model_validate(content)
        except pydantic.ValidationError as error:
            # Not from the error, which holds the input.
            raise (_named(error, content) or from_validation("guard", error, cls)) from None

    @classmethod
    def read(cls, path: str | Path) -> GuardConfig:
        """Read a YAML file, and try all that it names.

        Paths in it are relative to its own folder.

        Raises
        ------
        MlflowException
            When the file, a policy or an option in it is not as it must be.
        """
        path = Path(path)
        try:
            content = yaml.safe_load(path.read_text("utf-8"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise invalid(
                f"guard {str(path)!r}",
                found=" ".join(str(error).split()),
                expected="a YAML file with the key models",
                fix="check the path and the file",
            ) from error
        config = cls.parse(content)
        folder = path.absolute().parent
        models = {}
        for name, model in config.models.items():
            update: dict[str, Any] = {"policy": str(folder / model.policy)}
            if model.data is not None and (folder / model.data).exists():
                update["data"] = str(folder / model.data)
            models[name] = model.model_copy(update=update)
            _check(name, models[name])
        return config.model_copy(update={"state": str(folder / config.state), "models": models})


def _check(name: str, model: WatchedModel) -> None:
    """Raise now at what every gate of a model would raise at."""
    policy = GatePolicy.parse(model.policy)
    EvaluationConfig.parse(model.options)
    for option in model.options:
        if EvaluationConfig.bears_on(option) != "nothing":
            raise invalid(
                f"guard.models.{name}.options",
                found=f"{option!r}",
                expected="it in the policy, whose hash holds all that bears on the numbers",
                fix=f"write it under evaluation: in {model.policy}",
            )
    for key in ("data", "split", "sample"):
        here, there = getattr(model, key), getattr(policy.evaluation, key)
        if here is not None and there is not None:
            raise invalid(
                f"guard.models.{name}.{key}",
                found="it here and in the policy",
                expected="it in one of them",
                fix="take it out here",
            )
    if model.data is None and policy.evaluation.data is None:
        raise invalid(
            f"guard.models.{name}.data",
            found="none here or in the policy",
            expected="the bios to evaluate on",
            fix="name them here, or as evaluation.data in the policy",
        )


def _named(error: pydantic.ValidationError, content: Any) -> MlflowException | None:
    """Build the error for an unknown key of a model, whose name is no field of a pydantic model."""
    for problem in error.errors():
        path = problem["loc"]
        if problem["type"] == "extra_forbidden" and len(path) == 3 and path[0] == "models":
            near = nearest(str(path[2]), WatchedModel.model_fields)
            return invalid(
                f"guard.models.{path[1]}",
                found=f"the key {path[2]!r}",
                expected=f"one of {', '.join(sorted(WatchedModel.model_fields))}",
                fix=f"did you mean {near!r}?" if near else "use one of these",
            )
    return None


def read_secret(variable: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return the secret that an environment variable holds.

    Raises
    ------
    MlflowException
        When it is not set, or empty.
    """
    secret = environment.get(variable, "")
    if not secret:
        raise invalid(
            "secret of the webhook",
            found=f"nothing in the environment variable {variable}",
            expected="the secret that the webhook was created with",
            fix=f"export {variable}=<a long random string>",
        )
    return secret
