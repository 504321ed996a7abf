"""What stands behind every version of a registered model, and behind its aliases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from biasbios_mlflow.gating.evidence import Evidence, evidence_of
from biasbios_mlflow.report.text import number
from biasbios_mlflow.scoring.scores import HEADLINE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["ModelStatus", "VersionStatus", "model_status"]


@dataclass(frozen=True)
class VersionStatus:
    """One version of a registered model.

    Attributes
    ----------
    version : str
    aliases : tuple of str
    evidence : Evidence or None
        None where it was never gated.
    """

    version: str
    aliases: tuple[str, ...]
    evidence: Evidence | None

    @property
    def verdict(self) -> str:
        """``passed``, ``failed``, ``error`` or ``not gated``."""
        return "not gated" if self.evidence is None else self.evidence.verdict

    def metrics(self) -> dict[str, tuple[float, float | None, float | None]]:
        """Return the five metrics with the ends of their intervals, where evidence has them."""
        scores = {} if self.evidence is None else self.evidence.summary.get("scores", {})
        found = {}
        for name in HEADLINE:
            if name in scores.get("metrics", {}):
                low, high = scores["intervals"].get(name, (None, None))
                found[name] = (scores["metrics"][name], low, high)
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain JSON values."""
        return {
            "version": self.version,
            "aliases": list(self.aliases),
            "verdict": self.verdict,
            "metrics": {
                name: {"value": value, "ci_low": low, "ci_high": high}
                for name, (value, low, high) in self.metrics().items()
            },
            "evidence": None if self.evidence is None else self.evidence.to_dict(),
        }


@dataclass(frozen=True)
class ModelStatus:
    """Every version of a registered model, the latest first.

    Attributes
    ----------
    name : str
    aliases : mapping of str to str
        The version each points at.
    versions : tuple of VersionStatus
    """

    name: str
    aliases: Mapping[str, str]
    versions: tuple[VersionStatus, ...]

    def why_not(self, alias: str, *, policy_sha256: str | None = None) -> str | None:
        """Say why an alias must not be deployed from; None where passing evidence holds.

        Parameters
        ----------
        alias : str
        policy_sha256 : str, optional
            Of the policy that it must have passed.
        """
        version = self.aliases.get(alias)
        if version is None:
            return f"there is no alias {alias}"
        found = next((v for v in self.versions if v.version == version), None)
        where = f"{alias} points at version {version}"
        if found is None:
            return f"{where}, which does not exist"
        if found.evidence is None:
            return f"{where}, which was never gated"
        if found.verdict != "passed":
            return f"{where}, whose gate says {found.verdict}: {found.evidence.reason}"
        if not found.evidence.holds:
            faults = "; ".join(found.evidence.faults)
            return f"{where}, whose evidence does not hold: {faults}"
        if policy_sha256 is not None and found.evidence.policy_sha256 != policy_sha256:
            return f"{where}, which passed another policy ({found.evidence.policy_sha256})"
        return None

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain JSON values."""
        return {
            "name": self.name,
            "aliases": dict(self.aliases),
            "versions": [version.to_dict() for version in self.versions],
        }

    def figure(self) -> Figure:
        """Draw the five metrics with their intervals over the versions."""
        from biasbios_mlflow.report.figures import versions_figure

        measured = [
            (v.version, v.aliases, v.verdict, v.metrics()) for v in self.versions if v.metrics()
        ]
        return versions_figure(self.name, measured[::-1])

    def __str__(self) -> str:
        return "\n".join([self.name, *(line for v in self.versions for line in _lines(v))])


def _lines(version: VersionStatus) -> list[str]:
    aliases = f" ({', '.join(version.aliases)})" if version.aliases else ""
    head = f"version {version.version}{aliases}: {version.verdict}"
    if version.evidence is None:
        return ["", head]
    evidence = version.evidence
    lines = ["", f"{head}, evidence {'holds' if evidence.holds else 'DOES NOT HOLD'}"]
    lines += [f"  {fault}" for fault in evidence.faults]
    if evidence.verdict != "passed":
        lines.append(f"  {evidence.reason}")
    for name, (value, low, high) in version.metrics().items():
        interval = "" if low is None or high is None else f"  [{number(low)}, {number(high)}]"
        lines.append(f"  {name:<23} {number(value)}{interval}")
    if evidence.run_id is not None:
        lines.append(f"  run {evidence.run_id}, policy {str(evidence.policy_sha256)[:12]}")
    return lines


def model_status(name: str) -> ModelStatus:
    """Look at every version of a registered model and check the evidence behind it.

    Parameters
    ----------
    name : str

    Raises
    ------
    MlflowException
        When there is no such model, or the server cannot be reached.
    """
    from mlflow import MlflowClient

    client = MlflowClient()
    aliases = {a: str(v) for a, v in client.get_registered_model(name).aliases.items()}
    versions = []
    for found in _all_versions(client, name):
        number_ = str(found.version)
        pointing = tuple(sorted(a for a, v in aliases.items() if v == number_))
        versions.append(VersionStatus(number_, pointing, evidence_of(client, found)))
    versions.sort(key=lambda v: int(v.version), reverse=True)
    return ModelStatus(name, aliases, tuple(versions))


def _all_versions(client: Any, name: str) -> Sequence[Any]:
    quoted = name.replace("'", "''")
    found: list[Any] = []
    token = None
    while True:
        page = client.search_model_versions(f"name='{quoted}'", page_token=token)
        found += page
        token = page.token
        if not token:
            return found
