"""What a version must achieve to be promoted."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic
import yaml
from mlflow.exceptions import MlflowException
from mlflow.utils.validation import (
    _validate_model_alias_name,
    _validate_model_alias_name_reserved,
)

from biasbios_mlflow.errors import from_validation, invalid

__all__ = ["ChampionRule", "GatePolicy", "Rule"]


def _check_alias(name: str) -> str:
    try:
        _validate_model_alias_name(name)
        _validate_model_alias_name_reserved(name)
    except MlflowException as error:
        raise ValueError(error.message) from error
    return name


_Alias = Annotated[str, pydantic.AfterValidator(_check_alias)]
_Number = Annotated[float, pydantic.Field(allow_inf_nan=False)]


class _Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid", frozen=True)


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

    metric: str = pydantic.Field(
        min_length=1, description="name without prefix, e.g. gap_rms, tpr_gap/nurse, tpr_gap/*"
    )
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


class GatePolicy(_Strict):
    """The rules of a gate, the champion to compare with, and the alias to move on a pass.

    Examples
    --------
    >>> policy = GatePolicy.parse({"rules": [{"metric": "gap_rms", "max": 0.15}]})
    >>> policy.first_champion
    'refuse'
    >>> GatePolicy.parse({"rule": []})
    Traceback (most recent call last):
        ...
    mlflow.exceptions.MlflowException: policy: found the key 'rule', expected one of champion, \
first_champion, promote, rules. Fix: did you mean 'rules'?
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

    @pydantic.model_validator(mode="after")
    def _names_the_champion(self) -> GatePolicy:
        if self.champion is None and any(rule.no_worse_than_champion for rule in self.rules):
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
            raise from_validation("policy", error, cls) from error

    def sha256(self) -> str:
        """Return the hash of the policy's meaning: order and spelling of the file do not count."""
        content = json.dumps(self.model_dump(mode="json"), sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()


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
