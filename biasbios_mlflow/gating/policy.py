"""What a version must achieve to be promoted."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import pydantic
import yaml
from mlflow.exceptions import MlflowException
from pydantic.json_schema import SkipJsonSchema

from biasbios_mlflow.config import EvaluationConfig
from biasbios_mlflow.errors import from_validation, invalid
from biasbios_mlflow.fingerprint import json_hash
from biasbios_mlflow.gating.metric_names import read_metric
from biasbios_mlflow.mlflow_private import check_alias_name
from biasbios_mlflow.prediction.identity import content_digest
from biasbios_mlflow.redaction import redacted_uri

__all__ = ["ChampionRule", "GatePolicy", "Measurement", "Rule"]


def _check_alias(name: str) -> str:
    try:
        check_alias_name(name)
    except MlflowException as error:
        raise ValueError(error.message) from error
    return name


_Alias = Annotated[str, pydantic.AfterValidator(_check_alias)]
_NOT_IN_SCHEMA: Any = cast(Any, SkipJsonSchema)()
_Metric = Annotated[str, pydantic.AfterValidator(read_metric)]
_Number = Annotated[float, pydantic.Field(allow_inf_nan=False)]


class _Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


class ChampionRule(_Strict):
    """How sure one must be that a version is not worse than the champion, and by how much."""

    margin: _Number = pydantic.Field(
        ge=0, description="by how much the version may be worse than the champion"
    )
    confidence: float = pydantic.Field(
        0.95, gt=0.5, lt=1, description="confidence that it is not worse by more than that"
    )


class Rule(_Strict):
    """A limit, or several, on one metric or on all whose name fits a pattern.

    Examples
    --------
    >>> Rule(metric="gap_rms", max=0.15).bound
    'ci'
    """

    metric: _Metric = pydantic.Field(description="e.g. gap_rms, tpr_gap/nurse, tpr_gap/*")
    min: _Number | None = pydantic.Field(None, description="least value allowed")
    max: _Number | None = pydantic.Field(None, description="largest value allowed")
    abs_max: _Number | None = pydantic.Field(
        None, ge=0, description="largest distance from zero allowed"
    )
    bound: Literal["ci", "point"] = pydantic.Field(
        "ci", description="ci: the pessimistic end of the interval is held against the limit"
    )
    no_worse_than_champion: ChampionRule | None = pydantic.Field(
        None, description="compare with the champion on the same bios"
    )

    @pydantic.model_validator(mode="after")
    def _limits_something(self) -> Rule:
        if all(limit is None for _, limit in self.limits()) and not self.no_worse_than_champion:
            raise ValueError(
                f"the rule on {self.metric} needs min, max, abs_max or no_worse_than_champion"
            )
        return self

    def limits(self) -> Iterator[tuple[Literal["min", "max", "abs_max"], float | None]]:
        """Yield the three limits, those that are not set as None."""
        yield "min", self.min
        yield "max", self.max
        yield "abs_max", self.abs_max


class _Data(_Strict):
    """Which bios, and how the model is loaded."""

    data: str | None = pydantic.Field(
        None, description="file, folder or URI of the bios; left out, the call says it"
    )
    split: str | None = pydantic.Field(None, description="which part of them, e.g. test")
    sample: int | None = pydantic.Field(
        None, ge=1, description="draw so many bios by gender and occupation; seed says which"
    )
    data_sha256: str | None = pydantic.Field(
        None,
        pattern="^[0-9a-f]{64}$",
        description="hash over all rows, as in summary.json; other data is an error",
    )
    min_bios: int | None = pydantic.Field(
        None, ge=1, description="complete bios there must be; fewer is an error"
    )
    env_manager: Literal["local", "virtualenv", "uv", "conda"] = pydantic.Field(
        "local", description="environment in which the model predicts"
    )
    # pydantic keeps the name model_config for itself.
    configuration: dict[str, Any] | None = pydantic.Field(
        None, alias="model_config", description="passed on when the model is loaded"
    )


def _bearing_fields() -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, field in EvaluationConfig.model_fields.items():
        if EvaluationConfig.bears_on(name) != "nothing":
            kind: Any = field.annotation
            if name == "encoder":  # a callable has no place in a schema
                kind = str | Annotated[Callable[..., Any], _NOT_IN_SCHEMA] | None
            fields[name] = (kind, field)
    return fields


if TYPE_CHECKING:

    class Measurement(_Data):
        """What is measured: the bios, and every option that bears on the numbers."""
else:
    Measurement = pydantic.create_model(
        "Measurement",
        __base__=_Data,
        __doc__="What is measured: the bios, and every option that bears on the numbers.",
        __module__=__name__,
        **_bearing_fields(),
    )


class GatePolicy(_Strict):
    """What is measured, the rules, the champion to compare with, and the alias to move on a pass.

    Examples
    --------
    >>> policy = GatePolicy.parse({"rules": [{"metric": "gap_rms", "max": 0.15}]})
    >>> policy.first_champion
    'refuse'
    >>> GatePolicy.parse({"rule": []})
    Traceback (most recent call last):
        ...
    mlflow.exceptions.MlflowException: policy: found the key 'rule', expected one of champion, \
evaluation, first_champion, promote, rules. Fix: did you mean 'rules'?
    """

    rules: tuple[Rule, ...] = pydantic.Field(min_length=1, description="all must pass")
    champion: _Alias | None = pydantic.Field(
        None, description="alias of the version that no_worse_than_champion compares with"
    )
    promote: _Alias | None = pydantic.Field(
        None, description="alias that moves to the version on a pass; left out, only decide"
    )
    first_champion: Literal["allow", "refuse"] = pydantic.Field(
        "refuse", description="what comparisons come to while the alias does not exist"
    )
    evaluation: Measurement = pydantic.Field(
        default_factory=Measurement,
        description="what is measured; defaults are part of the policy's hash",
    )

    @pydantic.model_validator(mode="after")
    def _names_the_champion(self) -> GatePolicy:
        if self.champion is None and self.compares:
            raise ValueError("no_worse_than_champion needs champion: <alias>")
        return self

    @classmethod
    def parse(cls, source: Any) -> GatePolicy:
        """Read a policy.

        Parameters
        ----------
        source : GatePolicy, mapping, str or Path
            A policy, its content, or the path of a YAML (or JSON) file.

        Raises
        ------
        MlflowException
            At an unknown key (with the nearest known one) or a value that does not fit.
        """
        if isinstance(source, cls):
            return source
        if isinstance(source, (str, Path)):
            source = _read_yaml(Path(source))
        try:
            return cls.model_validate(source)
        except pydantic.ValidationError as error:
            raise from_validation("policy", error, cls) from None  # it holds the input

    @property
    def compares(self) -> bool:
        """Whether a rule compares with the champion."""
        return any(rule.no_worse_than_champion is not None for rule in self.rules)

    def with_aliases(self, *, champion: str | None, promote: str | None) -> GatePolicy:
        """Return the policy with other aliases, where they are given."""
        aliases = {"champion": champion or self.champion, "promote": promote or self.promote}
        return GatePolicy.parse({**self.model_dump(by_alias=True), **aliases})

    def content(self) -> dict[str, Any]:
        """Return all of it, defaults included, as plain JSON values.

        A callable encoder stands there by the hash of its content, and so does ``model_config``,
        which may hold passwords. URIs stand there without user info and signatures.

        Raises
        ------
        MlflowException
            When nothing tells the encoder from others: such a policy pins nothing.
        """
        dumped = self.model_dump(mode="python", by_alias=True)
        if dumped["evaluation"]["model_config"] is not None:
            loaded_with = json_hash(dumped["evaluation"]["model_config"])
            dumped["evaluation"]["model_config"] = {"content": loaded_with}
        encoder = dumped["evaluation"]["encoder"]
        if callable(encoder):
            dumped["evaluation"]["encoder"] = {"content": content_digest(encoder)}
            if dumped["evaluation"]["encoder"]["content"] is None:
                raise invalid(
                    "policy.evaluation.encoder",
                    found=f"{encoder!r}, which cannot be pickled",
                    expected="an encoder that can be told from others",
                    fix="log it as a model and name its URI",
                )
        for name in ("data", "encoder"):
            if isinstance(dumped["evaluation"][name], str):
                dumped["evaluation"][name] = redacted_uri(dumped["evaluation"][name])
        loaded: dict[str, Any] = json.loads(json.dumps(dumped, default=str))
        return loaded

    def sha256(self) -> str:
        """Return the hash of the policy's meaning: order and spelling of the file do not count.

        Examples
        --------
        >>> rules = [{"metric": "gap-rms", "max": 0.15}]
        >>> policy = GatePolicy.parse({"rules": rules})
        >>> spelled = {"rules": [{"metric": "gap_rms", "max": 0.15}], "evaluation": {"seed": 0}}
        >>> GatePolicy.parse(spelled).sha256() == policy.sha256()
        True
        >>> looser = GatePolicy.parse({"rules": rules, "evaluation": {"confidence": 0.01}})
        >>> looser.sha256() == policy.sha256()
        False
        """
        return json_hash(self.content())

    def options(self) -> dict[str, Any]:
        """Return the evaluator's options that the policy pins, those at their default included."""
        chosen = self.evaluation.model_dump()
        return {
            name: chosen[name]
            for name in EvaluationConfig.model_fields
            if chosen.get(name) is not None
        }


def _read_yaml(path: Path) -> Any:
    try:
        return yaml.safe_load(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise invalid(
            f"policy {str(path)!r}",
            found=" ".join(str(error).split()),
            expected="a YAML file with the key rules",
            fix="check the path and the file",
        ) from error
