"""The gate: evaluate, decide, tag, promote."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from mlflow.exceptions import MlflowException

from biasbios_mlflow.api import evaluate, load_dataset, resolve_model_uri
from biasbios_mlflow.calls import public_call
from biasbios_mlflow.config import EvaluationConfig
from biasbios_mlflow.errors import invalid
from biasbios_mlflow.evaluator import read_bios
from biasbios_mlflow.fingerprint import Fingerprint
from biasbios_mlflow.gating.decision import Measured, RuleVerdict, decide
from biasbios_mlflow.gating.evidence import (
    ERROR_TAG,
    EVIDENCE_TAG,
    GATE_FILE,
    REASON_TAG,
    REPLACED_TAG,
    VERDICT_TAG,
    Evidence,
    content_hash,
    read_evidence,
)
from biasbios_mlflow.gating.metric_names import check_occupation
from biasbios_mlflow.gating.policy import GatePolicy
from biasbios_mlflow.gating.promotion import (
    AliasMovedError,
    alias_target,
    move_alias,
    remember_move,
    steps_back,
    turn,
    write_alias_history,
)
from biasbios_mlflow.mlflow_private import parse_models_uri
from biasbios_mlflow.pipeline import data_hash
from biasbios_mlflow.redaction import logger, redacted
from biasbios_mlflow.report.description import describe, is_ours
from biasbios_mlflow.rows import ROWS_FILE, SUMMARY_FILE
from biasbios_mlflow.runs import (
    artifact_bytes,
    outcomes_at,
    outcomes_of,
    summary_artifact,
    summary_of,
)
from biasbios_mlflow.scoring import Comparison, Outcomes, compare
from biasbios_mlflow.tracking import describe_run

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.models import EvaluationResult

__all__ = ["GateResult", "gate", "rollback"]

_logger = logger(__name__)

_TAG_LIMIT = 5000  # characters MLflow keeps of a tag
_ROLLED_BACK_TAG = "biasbios.gate.rolled_back_to"
# Of earlier versions of this package, each in a tag of its own; the evidence holds them all.
_OLD_TAGS = tuple(
    f"biasbios.gate.{name}" for name in ("run_id", "policy_sha256", "data_sha256", "replaces")
)


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
    promote : str or None
        The alias that a pass moves.
    promoted : bool
        Whether it was moved.
    reason : str
        The verdict in a sentence.
    run_id : str
        The run of the evaluation.
    policy_sha256, data_sha256, fingerprint : str
        Hashes of what was asked, of the bios, and of all that the numbers depend on.
    policy : mapping
        The policy itself, defaults included.
    files : mapping of str to str
        SHA-256 of the files of the evaluation that the verdict rests on, by name.
    notes : tuple of str
        What was done otherwise than one may think, e.g. that the champion was evaluated anew.
    evaluation : mlflow.models.EvaluationResult
        For `mlflow.validate_evaluation_results`, and to look further.
    """

    verdict: str
    rules: tuple[RuleVerdict, ...]
    name: str
    version: str
    champion_version: str | None
    promote: str | None
    promoted: bool
    reason: str
    run_id: str
    policy_sha256: str
    data_sha256: str
    fingerprint: str
    policy: Mapping[str, Any] = field(repr=False, compare=False)
    files: Mapping[str, str] = field(repr=False, compare=False)
    notes: tuple[str, ...]
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
            "promote": self.promote,
            "promoted": self.promoted,
            "run_id": self.run_id,
            "policy_sha256": self.policy_sha256,
            "data_sha256": self.data_sha256,
            "fingerprint": self.fingerprint,
            "policy": dict(self.policy),
            "files": dict(self.files),
            "notes": list(self.notes),
            "rules": [dict(vars(rule)) for rule in self.rules],
            "metrics": dict(self.evaluation.metrics),
            "reasons": dict(summary_of(self.evaluation)["scores"]["reasons"]),
        }


@public_call
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
    **config: Any,
) -> GateResult:
    """Evaluate a registered version, hold it against a policy, and promote it if it passes.

    Parameters
    ----------
    model_uri : str
        ``models:/name/version`` or ``models:/name@alias``; resolved to a version once.
    data, split, sample
        What `biasbios_mlflow.evaluate` takes; None where the policy says it.
    policy : GatePolicy, mapping, str or Path
        What is measured and the rules, or the YAML file that holds them.
    champion, promote : str, optional
        Aliases, instead of the policy's own.
    dry_run : bool, default=False
        Evaluate and decide, but write no tag on the version and move no alias.
    **config
        Those of the evaluator's options that bear on no number, such as ``device``, ``n_jobs`` or
        ``resume_dir``. All others stand in the policy, whose hash holds them.

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

    checked = GatePolicy.parse(policy)
    _check_call(checked, config)
    chosen = _chosen_data(checked, data, split, sample)
    checked = checked.with_aliases(champion=champion, promote=promote)
    checked.sha256()  # an encoder that cannot be pinned is an error now
    uri, version = resolve_model_uri(model_uri)
    if version is None:
        raise invalid(
            "model URI",
            found=repr(model_uri),
            expected="a registered version, which has tags and an alias can point at",
            fix="register the model and name models:/<name>/<version>",
        )
    name = parse_models_uri(uri).name
    assert name is not None
    client = MlflowClient()
    registry = _Registry(client, name, version, write=not dry_run)
    options = {**checked.options(), **config}
    try:
        dataset = load_dataset(chosen[0], split=chosen[1], sample=chosen[2], config=options)
        _check_data(checked, dataset, options)
        measurement = checked.evaluation
        options["env_manager"] = measurement.env_manager
        options["model_config"] = measurement.configuration
        return _run(registry, checked, dataset=dataset, options=options)
    except BaseException as error:
        registry.tag_error(error)
        raise


def _check_call(policy: GatePolicy, config: Mapping[str, Any]) -> None:
    """Raise at an option of the call that the policy must pin, or that is none."""
    pinned = {"env_manager", "model_config"}
    for name in config:
        bears = name in EvaluationConfig.model_fields and EvaluationConfig.bears_on(name)
        if name in pinned or bears not in (False, "nothing"):
            raise invalid(
                name,
                found="it in the call of the gate",
                expected="it in the policy, whose hash holds all that bears on the numbers",
                fix=f"write it under evaluation: in the policy, {name}: …",
            )
    EvaluationConfig.parse(config)
    if config.get("log_predictions") is False and policy.compares:
        raise invalid(
            "log_predictions",
            found="false, and a rule no_worse_than_champion",
            expected="true: two models are compared bio by bio",
            fix="leave log_predictions at its default",
        )


def _chosen_data(
    policy: GatePolicy, data: Any, split: str | None, sample: int | None
) -> tuple[Any, str | None, int | None]:
    """Return which bios: the policy's or the call's, never something of both."""
    own = policy.evaluation
    pairs = {
        "data": (data, own.data),
        "split": (split, own.split),
        "sample": (sample, own.sample),
    }
    for name, (called, pinned) in pairs.items():
        if called is not None and pinned is not None:
            raise invalid(
                name,
                found="it in the call and in the policy",
                expected="it in one of them",
                fix=f"leave {name} out of the call",
            )
    if data is None and own.data is None:
        raise invalid(
            "data",
            found="none in the call or the policy",
            expected="the bios to evaluate on",
            fix="name them in the call, or as evaluation.data in the policy",
        )
    return (
        own.data if data is None else data,
        own.split if split is None else split,
        own.sample if sample is None else sample,
    )


def _check_data(policy: GatePolicy, dataset: Any, options: Mapping[str, Any]) -> None:
    """Raise where the bios are not those of the policy, before any of them is predicted."""
    config = EvaluationConfig.parse(options)
    bios, _ = read_bios(dataset.to_evaluation_dataset(), config, strict=False)
    for rule in policy.rules:
        check_occupation(rule.metric, bios.labels.names)
    expected = policy.evaluation
    if expected.min_bios is not None and len(bios) < expected.min_bios:
        raise invalid(
            "data",
            found=f"{len(bios):,} complete bios",
            expected=f"at least {expected.min_bios:,}, the policy's min_bios",
            fix="gate on the whole of the data",
        )
    if expected.data_sha256 is not None:
        found = data_hash(bios, config)
        if found != expected.data_sha256:
            raise invalid(
                "data",
                found=f"bios with the hash {found}",
                expected=f"{expected.data_sha256}, the policy's data_sha256",
                fix="gate on the data that the policy names, or change the policy",
            )


def _run(
    registry: _Registry, policy: GatePolicy, *, dataset: Any, options: Mapping[str, Any]
) -> GateResult:
    import mlflow

    alias_was = None if policy.promote is None else registry.target(policy.promote)
    champion = None if policy.champion is None else registry.target(policy.champion)
    found: GateResult | None = None
    try:
        name = f"gate {registry.name} {registry.version}"
        with mlflow.start_run(run_name=name, nested=True) as run:
            result = evaluate(registry.uri, dataset, **options)
            summary = summary_of(result)
            notes: list[str] = []
            comparisons = _comparisons(
                policy, registry, champion, result, dataset, options, notes=notes
            )
            rules = tuple(decide(policy, Measured.from_summary(summary), comparisons))
            failed = [rule for rule in rules if not rule.passed]
            decided = GateResult(
                verdict="failed" if failed else "passed",
                rules=rules,
                name=registry.name,
                version=registry.version,
                champion_version=champion,
                promote=policy.promote,
                promoted=False,
                reason=_sentence(rules),
                run_id=run.info.run_id,
                policy_sha256=policy.sha256(),
                data_sha256=summary["data"]["sha256"],
                fingerprint=summary["fingerprint"]["sha256"],
                policy=policy.content(),
                files=dict(summary.get("files", {})),
                notes=tuple(notes),
                evaluation=result,
            )
            found = registry.conclude(decided, alias_was)
            with _only_warns("described"):
                registry.describe(found, run.info.experiment_id)
    except Exception as error:
        if found is None:
            raise
        # The verdict stands on the version, and perhaps the alias has moved.
        _logger.warning("biasbios: after the verdict (%s): %s", found.verdict, error)
    return found


@contextmanager
def _only_warns(what: str) -> Iterator[None]:
    """Warn where something fails that no longer bears on the verdict."""
    try:
        yield
    except Exception as error:
        _logger.warning("biasbios: the gate's verdict stands, but it was not %s: %s", what, error)


def _sentence(rules: tuple[RuleVerdict, ...]) -> str:
    failed = [rule for rule in rules if not rule.passed]
    if not failed:
        return f"all {len(rules)} rules passed"
    shown = "; ".join(f"{r.metric} {r.rule}: {r.reason}" for r in failed[:5])
    more = f"; and {len(failed) - 5} more" if len(failed) > 5 else ""
    return f"{len(failed)} of {len(rules)} rules failed: {shown}{more}"


def _comparisons(
    policy: GatePolicy,
    registry: _Registry,
    champion: str | None,
    result: EvaluationResult,
    dataset: Any,
    options: Mapping[str, Any],
    *,
    notes: list[str],
) -> dict[float, Comparison] | None:
    """Compare with the champion at each confidence that a rule asks for; None without champion."""
    if champion is None or not policy.compares:
        return None
    ours = outcomes_of(result)
    theirs, why_not = registry.stored_outcomes(champion, summary_of(result))
    if theirs is None:
        import mlflow

        notes.append(f"the champion, version {champion}, was evaluated anew: {why_not}")
        _logger.warning("biasbios: %s", notes[-1])
        uri = f"models:/{registry.name}/{champion}"
        with mlflow.start_run(run_name=f"champion {champion}", nested=True):
            theirs = outcomes_of(evaluate(uri, dataset, **options))
    config = summary_of(result)["config"]
    chosen = {name: config[name] for name in ("n_replicates", "seed", "min_cell")}
    confidences = {
        r.no_worse_than_champion.confidence for r in policy.rules if r.no_worse_than_champion
    }
    return {c: compare(theirs, ours, confidence=c, **chosen) for c in confidences}


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
        self._concluded = False

    def target(self, alias: str) -> str | None:
        return alias_target(self._client, self.name, alias)

    def conclude(self, result: GateResult, was: str | None) -> GateResult:
        """Write the verdict down and, on a pass, move the alias from where it was.

        The evidence is complete and the verdict tagged before the alias moves: a crash in between
        leaves the old champion. What fails after it has moved is a warning.
        """
        alias = result.promote
        if alias is None or not result.passed or not self._write:
            self._tag_verdict(result)
            return result
        moved = False
        try:
            with turn(self._client, self.name, alias):
                if self.target(alias) == was:
                    self._tag_verdict(result)
                move_alias(self._client, self.name, alias, version=self.version, expected=was)
                moved = self._concluded = True
                with _only_warns("added to the history of the alias"):
                    remember_move(self._client, self.name, alias, version=self.version, was=was)
                    self._remove(self.version, REPLACED_TAG, _ROLLED_BACK_TAG)
                    if was is not None and was != self.version:
                        self._tag(was, REPLACED_TAG, self.version)
        except AliasMovedError as error:
            lost = replace(result, verdict="failed", reason=str(error))
            self._tag_verdict(lost)
            return lost
        except MlflowException as error:
            if not moved:
                raise
            _logger.warning("biasbios: after %s moved: %s", alias, error)
        return replace(result, promoted=True)

    def tag_error(self, error: BaseException) -> None:
        """Say on the version that the gate could not run, as far as the registry can be reached.

        A verdict that stands, on evidence that holds, is not taken off: that a gate broke says
        nothing against it, and a champion must not lose its proof to an outage.
        """
        if not self._write or self._concluded:
            return
        try:
            before = read_evidence(self._client, self.name, self.version)
            if before is not None and before.verdict in ("passed", "failed") and before.holds:
                said = redacted(f"{type(error).__name__}: {error}")
                self._tag(self.version, ERROR_TAG, said)
                return
            self._tag(self.version, REASON_TAG, redacted(f"{type(error).__name__}: {error}"))
            self._tag(self.version, VERDICT_TAG, "error")
        except Exception as second:  # the first error is what the user must see
            _logger.warning("The version could not be tagged: %s", second)

    def stored_outcomes(
        self, version: str, summary: Mapping[str, Any]
    ) -> tuple[Outcomes | None, str]:
        """Return the champion's stored predictions, or why they cannot be used.

        They are what its evidence says, and depend on the same as ours in all but the model.
        """
        evidence = read_evidence(self._client, self.name, version)
        if evidence is None or evidence.run_id is None:
            return None, "no gate has evaluated it before"
        if not evidence.holds:
            return None, "; ".join(evidence.faults)
        try:
            stored = evidence.summary
            theirs, ours = Fingerprint.read(stored), Fingerprint.read(summary)
            # Whose they are the evidence has checked.
            theirs = replace(theirs, model=replace(theirs.model, model=ours.model.model))
            differences = theirs.differences(ours, but=("scoring",))
            if differences:
                return None, "; ".join(differences)
            uri = f"runs:/{evidence.run_id}/{evidence.folder}/{ROWS_FILE}"
            return outcomes_at(uri, stored), ""
        except (MlflowException, KeyError, TypeError, OSError) as error:
            return None, str(error)

    def describe(self, result: GateResult, experiment_id: str) -> None:
        """Describe the run, and the version where nobody else has."""
        text = describe(
            summary_of(result.evaluation),
            run_id=result.run_id,
            experiment_id=experiment_id,
            folder=_folder(result.evaluation),
            verdict=f"{result.verdict}: {result.reason}",
        )
        describe_run(self._client, result.run_id, text)
        if self._write:
            described = self._client.get_model_version(self.name, self.version).description
            if not described or is_ours(described):
                self._client.update_model_version(self.name, self.version, text)

    def _tag_verdict(self, result: GateResult) -> None:
        """Write gate.json and, but for a dry run, the tags that are bound to it."""
        folder = _folder(result.evaluation)
        summary = artifact_bytes(self._client, result.run_id, f"{folder}/{SUMMARY_FILE}")
        if summary is None:
            raise MlflowException(f"{folder}/{SUMMARY_FILE} of run {result.run_id} is gone")
        files = {SUMMARY_FILE: content_hash(summary), **result.files}
        content = replace(result, files=files).to_dict()
        del content["promoted"]  # what comes after the verdict
        text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        self._client.log_text(result.run_id, text, f"{folder}/{GATE_FILE}")
        if not self._write:
            return
        evidence = Evidence(
            name=self.name,
            version=self.version,
            verdict=result.verdict,
            reason=result.reason,
            run_id=result.run_id,
            policy_sha256=result.policy_sha256,
            data_sha256=result.data_sha256,
            fingerprint=result.fingerprint,
            folder=folder,
            files={GATE_FILE: content_hash(text.encode()), **files},
        )
        self._tag(self.version, EVIDENCE_TAG, evidence.tag())
        self._tag(self.version, REASON_TAG, result.reason)
        # The verdict last: where it stands, the rest does too.
        self._tag(self.version, VERDICT_TAG, result.verdict)
        self._remove(self.version, ERROR_TAG, *_OLD_TAGS)
        self._concluded = result.promote is None or not result.passed

    def _tag(self, version: str, key: str, value: str) -> None:
        self._client.set_model_version_tag(self.name, version, key, value[:_TAG_LIMIT])

    def _remove(self, version: str, *keys: str) -> None:
        there = self._client.get_model_version(self.name, version).tags
        for key in there.keys() & {*keys}:
            self._client.delete_model_version_tag(self.name, version, key)


def _folder(result: EvaluationResult) -> str:
    """Return where in its run an evaluation lies."""
    parts = PurePosixPath(summary_artifact(result).uri).parent.parts
    return "/".join(parts[len(parts) - 1 - parts[::-1].index("biasbios") :])


def rollback(name: str, alias: str) -> tuple[str, str]:
    """Put an alias back to the version it pointed at before; again, a step further back.

    Each alias has a history of its own (see `biasbios_mlflow.gating.promotion.alias_history`).

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
        When the alias does not exist, or no version is known that it pointed at before.
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
        versions = steps_back(client, name, alias, current)
        if not versions:
            raise invalid(
                f"alias {alias!r} of {name!r}",
                found=f"no version that it pointed at before version {current}",
                expected="one that a gate replaced and that still exists",
                fix="set the alias by hand",
            )
        previous = versions[-1]
        move_alias(client, name, alias, version=previous, expected=current)
        with _only_warns("written down"):
            write_alias_history(client, name, alias, versions)
            if REPLACED_TAG in client.get_model_version(name, previous).tags:
                client.delete_model_version_tag(name, previous, REPLACED_TAG)
            client.set_model_version_tag(name, current, _ROLLED_BACK_TAG, previous)
    return current, previous
