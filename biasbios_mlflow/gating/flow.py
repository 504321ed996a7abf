"""The gate: evaluate, decide, tag, promote."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from mlflow.exceptions import MlflowException

from biasbios_mlflow.api import evaluate, load_dataset, resolve_model_uri
from biasbios_mlflow.errors import invalid
from biasbios_mlflow.gating.decision import Measured, RuleVerdict, decide
from biasbios_mlflow.gating.policy import GatePolicy
from biasbios_mlflow.gating.promotion import AliasMovedError, alias_target, move_alias, turn
from biasbios_mlflow.runs import outcomes_at, outcomes_of, summary_at
from biasbios_mlflow.scoring import Comparison, Outcomes, compare

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.models import EvaluationResult

__all__ = ["GateResult", "gate", "rollback"]

_logger = logging.getLogger(__name__)

_TAG = "biasbios.gate"
_TAG_LIMIT = 5000  # characters MLflow keeps of a tag


@dataclass(frozen=True)
class GateResult:
    """What a gate came to.

    Attributes
    ----------
    verdict : {"passed", "failed"}
    rules : tuple of RuleVerdict
    name, version : str
        The version at the gate.
    champion_version : str or None
        The version it was compared with.
    promoted : bool
        Whether the alias was moved.
    reason : str
        The verdict in a sentence.
    run_id : str
        The run of the evaluation.
    policy_sha256, data_sha256 : str
    evaluation : mlflow.models.EvaluationResult
        For `mlflow.validate_evaluation_results`, and to look further.
    """

    verdict: str
    rules: tuple[RuleVerdict, ...]
    name: str
    version: str
    champion_version: str | None
    promoted: bool
    reason: str
    run_id: str
    policy_sha256: str
    data_sha256: str
    evaluation: EvaluationResult = field(repr=False, compare=False)

    @property
    def passed(self) -> bool:
        """Whether the version passed, and where an alias was to move, got it."""
        return self.verdict == "passed"

    @property
    def model_uri(self) -> str:
        """``models:/name/version``."""
        return f"models:/{self.name}/{self.version}"

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain JSON values."""
        return {
            "verdict": self.verdict,
            "reason": self.reason,
            "model_uri": self.model_uri,
            "model_version": self.version,
            "champion_version": self.champion_version,
            "promoted": self.promoted,
            "run_id": self.run_id,
            "policy_sha256": self.policy_sha256,
            "data_sha256": self.data_sha256,
            "rules": [dict(vars(rule)) for rule in self.rules],
            "metrics": dict(self.evaluation.metrics),
            "reasons": dict(_summary(self.evaluation)["scores"]["reasons"]),
        }


def gate(
    model_uri: str,
    data: Any,
    policy: Any,
    *,
    split: str | None = None,
    sample: int | None = None,
    champion: str | None = None,
    promote: str | None = None,
    dry_run: bool = False,
    env_manager: str = "local",
    model_config: dict[str, Any] | None = None,
    **config: Any,
) -> GateResult:
    """Evaluate a registered version, hold it against a policy, and promote it if it passes.

    Parameters
    ----------
    model_uri : str
        ``models:/name/version`` or ``models:/name@alias``; resolved to a version once.
    data, split, sample
        What `biasbios_mlflow.evaluate` takes.
    policy : GatePolicy, mapping, str or Path
        The rules, or the YAML file that holds them.
    champion, promote : str, optional
        Aliases, instead of the policy's own.
    dry_run : bool, default=False
        Evaluate and decide, but write no tag on the version and move no alias.
    env_manager, model_config, **config
        As for `biasbios_mlflow.evaluate`.

    Returns
    -------
    GateResult

    Raises
    ------
    MlflowException
        When the gate could not run; the version is then tagged ``biasbios.gate = error`` where the
        registry can be reached, and no alias has moved.
    """
    from mlflow import MlflowClient
    from mlflow.store.artifact.utils.models import _parse_model_uri

    checked = GatePolicy.parse(policy)
    aliases = {"champion": champion or checked.champion, "promote": promote or checked.promote}
    checked = GatePolicy.parse({**checked.model_dump(), **aliases})
    uri, version = resolve_model_uri(model_uri)
    if version is None:
        raise invalid(
            "model URI",
            found=repr(model_uri),
            expected="a registered version, which has tags and an alias can point at",
            fix="register the model and name models:/<name>/<version>",
        )
    name = _parse_model_uri(uri).name
    assert name is not None
    client = MlflowClient()
    registry = _Registry(client, name, version, write=not dry_run)
    try:
        return _run(
            registry,
            checked,
            dataset=load_dataset(data, split=split, sample=sample, config=config),
            options={"env_manager": env_manager, "model_config": model_config, **config},
        )
    except BaseException as error:
        registry.tag_error(error)
        raise


def _run(
    registry: _Registry, policy: GatePolicy, *, dataset: Any, options: Mapping[str, Any]
) -> GateResult:
    import mlflow

    alias_was = None if policy.promote is None else registry.target(policy.promote)
    champion = None if policy.champion is None else registry.target(policy.champion)
    with mlflow.start_run(run_name=f"gate {registry.name} {registry.version}", nested=True) as run:
        result = evaluate(registry.uri, dataset, **options)
        summary = _summary(result)
        comparisons = _comparisons(policy, registry, champion, result, dataset, options)
        rules = tuple(decide(policy, Measured.from_summary(summary), comparisons))
        failed = [rule for rule in rules if not rule.passed]
        reason = _sentence(rules)
        found = GateResult(
            verdict="failed" if failed else "passed",
            rules=rules,
            name=registry.name,
            version=registry.version,
            champion_version=champion,
            promoted=False,
            reason=reason,
            run_id=run.info.run_id,
            policy_sha256=policy.sha256(),
            data_sha256=summary["data"]["sha256"],
            evaluation=result,
        )
        found = registry.conclude(found, policy.promote, alias_was)
        mlflow.log_dict(found.to_dict(), "biasbios/gate.json")
    return found


def _sentence(rules: tuple[RuleVerdict, ...]) -> str:
    failed = [rule for rule in rules if not rule.passed]
    if not failed:
        return f"all {len(rules)} rules passed"
    shown = "; ".join(f"{r.metric} {r.rule}: {r.reason}" for r in failed[:5])
    more = f"; and {len(failed) - 5} more" if len(failed) > 5 else ""
    return f"{len(failed)} of {len(rules)} rules failed: {shown}{more}"


def _summary(result: EvaluationResult) -> Mapping[str, Any]:
    content: Mapping[str, Any]
    [content] = [
        artifact.content
        for artifact_name, artifact in result.artifacts.items()
        if artifact_name.endswith("biasbios/summary")
    ]
    return content


def _comparisons(
    policy: GatePolicy,
    registry: _Registry,
    champion: str | None,
    result: EvaluationResult,
    dataset: Any,
    options: Mapping[str, Any],
) -> dict[float, Comparison] | None:
    """Compare with the champion at each confidence that a rule asks for; None without champion."""
    rules = [r.no_worse_than_champion for r in policy.rules if r.no_worse_than_champion]
    if champion is None or not rules:
        return None
    ours = outcomes_of(result)
    theirs = registry.stored_outcomes(champion, _summary(result))
    if theirs is None:
        import mlflow

        uri = f"models:/{registry.name}/{champion}"
        with mlflow.start_run(run_name=f"champion {champion}", nested=True):
            theirs = outcomes_of(evaluate(uri, dataset, **options))
    config = _summary(result)["config"]
    chosen = {name: config[name] for name in ("n_replicates", "seed", "min_cell")}
    return {
        confidence: compare(theirs, ours, confidence=confidence, **chosen)
        for confidence in {rule.confidence for rule in rules}
    }


class _Registry:
    """The version at the gate, and what is written on it.

    Parameters
    ----------
    client : MlflowClient
    name, version : str
    write : bool
        False for a dry run: nothing is tagged, nothing moves.
    """

    def __init__(self, client: MlflowClient, name: str, version: str, *, write: bool) -> None:
        self.name = name
        self.version = version
        self.uri = f"models:/{name}/{version}"
        self._client = client
        self._write = write

    def target(self, alias: str) -> str | None:
        return alias_target(self._client, self.name, alias)

    def conclude(self, result: GateResult, alias: str | None, was: str | None) -> GateResult:
        """Tag the verdict and, on a pass, move the alias from where it was.

        The verdict is tagged before the alias moves: a crash in between leaves the old champion.
        """
        if not self._write:
            return result
        if alias is None or not result.passed:
            self._tag_verdict(result)
            return result
        try:
            with turn(self._client, self.name, alias):
                if self.target(alias) == was:
                    self._tag_verdict(result)
                    if was is not None and was != self.version:
                        self._tag(self.version, "replaces", f"{alias}: {was}")
                move_alias(self._client, self.name, alias, version=self.version, expected=was)
                if was is not None and was != self.version:
                    self._tag(was, "replaced_by", self.version)
        except AliasMovedError as error:
            lost = replace(result, verdict="failed", reason=str(error))
            self._tag_verdict(lost)
            return lost
        return replace(result, promoted=True)

    def tag_error(self, error: BaseException) -> None:
        """Say on the version that the gate could not run, as far as the registry can be reached."""
        if not self._write:
            return
        try:
            self._tag(self.version, "reason", f"{type(error).__name__}: {error}")
            self._tag(self.version, None, "error")
        except Exception as second:  # the first error is what the user must see
            _logger.warning("The version could not be tagged: %s", second)

    def stored_outcomes(self, version: str, summary: Mapping[str, Any]) -> Outcomes | None:
        """Return the champion's stored predictions if nothing that matters differs.

        Model, data, configuration and versions of all packages must be the same.
        """
        described = self._client.get_model_version(self.name, version)
        run_id = described.tags.get(f"{_TAG}.run_id")
        if run_id is None:
            return None
        try:
            stored = summary_at(run_id)
            same = (
                stored["model"]["uri"] == f"models:/{self.name}/{version}"
                and described.source == f"models:/{stored['model']['model_id']}"
                and stored["data"]["sha256"] == summary["data"]["sha256"]
                and stored["versions"] == summary["versions"]
                and _comparable(stored["config"]) == _comparable(summary["config"])
            )
            return (
                outcomes_at(f"runs:/{run_id}/biasbios/predictions.parquet", stored)
                if same
                else None
            )
        except (MlflowException, KeyError, TypeError, OSError) as error:
            _logger.info("The champion is evaluated anew: %s", error)
            return None

    def _tag_verdict(self, result: GateResult) -> None:
        for key, value in {
            "run_id": result.run_id,
            "policy_sha256": result.policy_sha256,
            "data_sha256": result.data_sha256,
            "reason": result.reason,
        }.items():
            self._tag(self.version, key, value)
        # The verdict last: where it stands, the rest does too.
        self._tag(self.version, None, result.verdict)

    def _tag(self, version: str, key: str | None, value: str) -> None:
        full = _TAG if key is None else f"{_TAG}.{key}"
        self._client.set_model_version_tag(self.name, version, full, value[:_TAG_LIMIT])


def _comparable(config: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in config.items() if name != "model_uri"}


def rollback(name: str, alias: str) -> tuple[str, str]:
    """Put an alias back to the version that the current one replaced.

    Parameters
    ----------
    name : str
        The registered model.
    alias : str

    Returns
    -------
    current, previous : str
        The version the alias pointed at and the one it points at now.

    Raises
    ------
    MlflowException
        When the alias does not exist, or its version does not say what it replaced.
    """
    from mlflow import MlflowClient

    client = MlflowClient()
    with turn(client, name, alias):
        current = alias_target(client, name, alias)
        if current is None:
            raise invalid(
                "alias",
                found=f"no alias {alias!r} on {name!r}",
                expected="an alias that a gate has moved",
                fix="check the names of the model and the alias",
            )
        replaces = client.get_model_version(name, current).tags.get(f"{_TAG}.replaces", "")
        replaced_alias, _, previous = replaces.partition(": ")
        if replaced_alias != alias or not previous:
            raise invalid(
                f"version {current} of {name!r}",
                found=f"no tag {_TAG}.replaces for the alias {alias!r}",
                expected="the version it replaced",
                fix=f"set the alias by hand to the version whose tag {_TAG}.replaced_by names it",
            )
        move_alias(client, name, alias, version=previous, expected=current)
        client.delete_model_version_tag(name, previous, f"{_TAG}.replaced_by")
        client.set_model_version_tag(name, current, f"{_TAG}.rolled_back_to", previous)
    return current, previous
