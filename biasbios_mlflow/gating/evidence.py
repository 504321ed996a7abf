"""What a verdict is bound to: written on the version, and checked against the run it names."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from biasbios_mlflow.rows import SUMMARY_FILE
from biasbios_mlflow.runs import artifact_bytes

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion

__all__ = [
    "ERROR_TAG",
    "EVIDENCE_TAG",
    "GATE_FILE",
    "REASON_TAG",
    "REPLACED_TAG",
    "VERDICT_TAG",
    "Evidence",
    "content_hash",
    "evidence_of",
    "read_evidence",
]

VERDICT_TAG = "biasbios.gate"
REASON_TAG = "biasbios.gate.reason"
EVIDENCE_TAG = "biasbios.gate.evidence"
REPLACED_TAG = "biasbios.gate.replaced_by"
ERROR_TAG = "biasbios.gate.error"
"""Why a later gate on the version could not run, while its verdict stands."""

GATE_FILE = "gate.json"
"""The verdict on every rule, beside the evaluation's own files."""

_SCHEMA = 1
# What earlier versions wrote, a tag each, without hashes of the files.
_OLD_TAGS = ("run_id", "policy_sha256", "data_sha256")


@dataclass(frozen=True)
class Evidence:
    """What stands behind the verdict on a version.

    Attributes
    ----------
    name, version : str
    verdict : str
        ``passed``, ``failed`` or ``error``.
    reason : str
        The verdict in a sentence.
    run_id, policy_sha256, data_sha256, fingerprint : str or None
        As the version's tags name them; None where they do not.
    folder : str
        Where in the run the files lie.
    files : mapping of str to str
        SHA-256 of each file by its name; empty in evidence of earlier versions of this package.
    faults : tuple of str
        Why it does not hold: what is missing, or does not agree.
    summary : mapping
        The content of ``summary.json``, empty where it is missing or was changed.
    """

    name: str
    version: str
    verdict: str
    reason: str
    run_id: str | None = None
    policy_sha256: str | None = None
    data_sha256: str | None = None
    fingerprint: str | None = None
    folder: str = "biasbios"
    files: Mapping[str, str] = field(default_factory=dict)
    faults: tuple[str, ...] = ()
    summary: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def holds(self) -> bool:
        """Whether all that the version's tags name is there and agrees."""
        return not self.faults

    @property
    def passes(self) -> bool:
        """Whether the version passed a gate, by evidence that holds."""
        return self.verdict == "passed" and self.holds

    def tag(self) -> str:
        """Return it as the version's tag holds it, one line of JSON.

        Examples
        --------
        >>> Evidence("occupations", "3", "passed", "all 2 rules passed", run_id="7f").tag()[:29]
        '{"schema": 1, "run_id": "7f",'
        """
        return json.dumps(
            {
                "schema": _SCHEMA,
                "run_id": self.run_id,
                "folder": self.folder,
                "policy_sha256": self.policy_sha256,
                "data_sha256": self.data_sha256,
                "fingerprint": self.fingerprint,
                "files": dict(self.files),
            }
        )

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain JSON values."""
        return {
            "verdict": self.verdict,
            "reason": self.reason,
            "holds": self.holds,
            "faults": list(self.faults),
            "run_id": self.run_id,
            "policy_sha256": self.policy_sha256,
            "data_sha256": self.data_sha256,
            "fingerprint": self.fingerprint,
        }


def content_hash(content: bytes) -> str:
    """Return the SHA-256 of a file's content as 64 hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def read_evidence(client: MlflowClient, name: str, version: str) -> Evidence | None:
    """Read what stands behind the verdict on a version, and check it.

    The run must be there, and in it ``gate.json`` and ``summary.json`` as they were written; both
    must be about this version and agree with its tags on verdict, policy and data. (The rows are
    checked where they are used.)

    Parameters
    ----------
    client : MlflowClient
    name, version : str
        The registered version.

    Returns
    -------
    Evidence or None
        None where the version was never gated.

    Raises
    ------
    mlflow.exceptions.MlflowException
        When there is no such version, or the server or the artifacts cannot be reached: that says
        nothing about the evidence.
    """
    return evidence_of(client, client.get_model_version(name, version))


def evidence_of(client: MlflowClient, version: ModelVersion) -> Evidence | None:
    """Check the evidence of a version whose tags were read already; see `read_evidence`."""
    if VERDICT_TAG not in version.tags:
        return None
    told = Evidence(
        name=version.name,
        version=str(version.version),
        verdict=version.tags[VERDICT_TAG],
        reason=version.tags.get(REASON_TAG, ""),
    )
    try:
        told = replace(told, **_told(version.tags))
    except (AttributeError, KeyError, TypeError, ValueError):
        return replace(told, faults=(f"the tag {EVIDENCE_TAG} is not what a gate writes",))
    files: dict[str, Any] = {}
    faults = tuple(_faults(client, told, version, files))
    return replace(told, faults=faults, summary=files.get(SUMMARY_FILE, {}))


def _told(tags: Mapping[str, str]) -> dict[str, Any]:
    if EVIDENCE_TAG in tags:
        content = json.loads(tags[EVIDENCE_TAG])
        names = (*_OLD_TAGS, "fingerprint")
        values = {
            name: None if content[name] is None else str(content[name])
            for name in names
            if name in content
        }
        return {
            **values,
            "folder": str(content.get("folder", "biasbios")),
            "files": dict(content["files"]),
        }
    return {name: tags.get(f"{VERDICT_TAG}.{name}") for name in _OLD_TAGS}


def _faults(
    client: MlflowClient, told: Evidence, version: ModelVersion, files: dict[str, Any]
) -> Iterator[str]:
    """Yield what is missing or does not agree; fill in the content of the files that are sound."""
    if told.run_id is None:
        yield "no run is named"
        return
    missing = _missing_run(client, told.run_id)
    if missing is not None:
        yield missing
        return
    for name in (GATE_FILE, SUMMARY_FILE):
        content = artifact_bytes(client, told.run_id, f"{told.folder}/{name}")
        if content is None:
            yield f"{name} is not in run {told.run_id}"
            continue
        if told.files and told.files.get(name) != content_hash(content):
            yield f"{name} was changed after the gate wrote it"
            continue
        try:
            files[name] = json.loads(content)
        except ValueError:
            yield f"{name} is no JSON"
    try:
        if GATE_FILE in files:
            yield from _differences_to_gate(told, files[GATE_FILE])
        if SUMMARY_FILE in files:
            yield from _differences_to_summary(told, files[SUMMARY_FILE], version)
    except (AttributeError, KeyError, TypeError) as error:
        yield f"the files of the run are not what a gate writes ({type(error).__name__}: {error})"


def _missing_run(client: MlflowClient, run_id: str) -> str | None:
    from mlflow.exceptions import MlflowException

    try:
        run = client.get_run(run_id)
    except MlflowException as error:
        if error.error_code in ("RESOURCE_DOES_NOT_EXIST", "INVALID_PARAMETER_VALUE"):
            return f"there is no run {run_id}"
        raise
    return f"run {run_id} is deleted" if run.info.lifecycle_stage != "active" else None


def _differences_to_gate(told: Evidence, gate: Mapping[str, Any]) -> Iterator[str]:
    expected = {
        "model_uri": f"models:/{told.name}/{told.version}",
        "verdict": told.verdict,
        "run_id": told.run_id,
        "policy_sha256": told.policy_sha256,
        "data_sha256": told.data_sha256,
    }
    for key, value in expected.items():
        if gate[key] != value:
            yield f"{key} is {gate[key]} in {GATE_FILE} and {value} on the version"


def _differences_to_summary(
    told: Evidence, summary: Mapping[str, Any], version: ModelVersion
) -> Iterator[str]:
    if summary["data"]["sha256"] != told.data_sha256:
        yield f"summary.json is of other data ({summary['data']['sha256']})"
    model_id = summary["model"]["model_id"]
    source = str(version.source)
    if source.startswith("models:/m-") and source != f"models:/{model_id}":
        yield f"summary.json is of another model ({model_id})"
    if told.fingerprint is not None:
        found = summary["fingerprint"]["sha256"]
        if found != told.fingerprint:
            yield f"summary.json has another fingerprint ({found})"
