"""From a policy and what was measured to a verdict on every rule: pure, no registry."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from biasbios_mlflow.gating.metric_names import is_pattern, matching_metrics
from biasbios_mlflow.gating.policy import ChampionRule, GatePolicy, Rule
from biasbios_mlflow.scoring import Comparison
from biasbios_mlflow.scoring.scores import ONE_CELL
from biasbios_mlflow.scoring.specs import logged_bounds, spec_of

__all__ = ["Measured", "RuleVerdict", "decide"]


@dataclass(frozen=True)
class Measured:
    """What an evaluation measured, by metric name without prefix."""

    metrics: Mapping[str, float]
    intervals: Mapping[str, tuple[float, float]]
    reasons: Mapping[str, str]
    warnings: tuple[str, ...] = ()

    @classmethod
    def from_summary(cls, summary: Mapping[str, Any]) -> Measured:
        """Take them from the content of a ``summary.json``."""
        scores = summary["scores"]
        intervals = {name: (low, high) for name, (low, high) in scores["intervals"].items()}
        warnings = tuple(scores.get("warnings", ()))
        return cls(scores["metrics"], intervals, scores["reasons"], warnings)

    def doubt(self, metric: str) -> str | None:
        """Return the warning that one cell decides a gap metric, if there is one."""
        if not spec_of(metric).hangs_on_cells:
            return None
        return next((said for said in self.warnings if said.startswith(ONE_CELL)), None)


@dataclass(frozen=True)
class RuleVerdict:
    """What one limit on one metric came to.

    Attributes
    ----------
    metric : str
    rule : str
        The limit in words, e.g. ``max 0.15``.
    value : float or None
        Point estimate; for a comparison, the difference to the champion.
    tested : float or None
        What was held against the limit: the estimate, the pessimistic end of its interval, or the
        probability of being worse than the champion by more than the margin.
    limit : float
    room : float or None
        How far ``tested`` is on the good side of the limit; negative where it failed.
    passed : bool
    reason : str or None
        Why it failed, passed without a test, or passed but hangs on a few bios.
    """

    metric: str
    rule: str
    value: float | None
    tested: float | None
    limit: float
    room: float | None
    passed: bool
    reason: str | None = None


def decide(
    policy: GatePolicy, measured: Measured, comparisons: Mapping[float, Comparison] | None
) -> list[RuleVerdict]:
    """Hold every rule against what was measured.

    Parameters
    ----------
    policy : GatePolicy
    measured : Measured
        Of the version at the gate.
    comparisons : mapping of float to Comparison, or None
        By confidence, the comparison of the champion (a) with the version (b); None where there is
        no champion.

    Returns
    -------
    list of RuleVerdict
        At least one for each rule; the gate passes when all have passed.

    Examples
    --------
    >>> policy = GatePolicy.parse({"rules": [{"metric": "gap_rms", "max": 0.15}]})
    >>> measured = Measured({"gap_rms": 0.12}, {"gap_rms": (0.1, 0.16)}, {})
    >>> [verdict] = decide(policy, measured, None)
    >>> verdict.passed, verdict.tested, verdict.reason
    (False, 0.16, '0.16 is above the limit')
    """
    return [
        verdict
        for rule in policy.rules
        for metric in _metrics(rule, measured)
        for verdict in _verdicts(policy, rule, metric, measured, comparisons)
    ]


def _metrics(rule: Rule, measured: Measured) -> list[str]:
    """Return the metrics a rule is about; a pattern without a match is about itself, and fails."""
    matches = matching_metrics(rule.metric, measured.metrics)
    if is_pattern(rule.metric):
        bounds = {end for name in measured.intervals for end in logged_bounds(name) or ()}
        matches = sorted(set(matches) - bounds)
    return matches or matching_metrics(rule.metric, measured.reasons)[:1] or [rule.metric]


def _verdicts(
    policy: GatePolicy,
    rule: Rule,
    metric: str,
    measured: Measured,
    comparisons: Mapping[float, Comparison] | None,
) -> Iterator[RuleVerdict]:
    for kind, limit in rule.limits():
        if limit is not None:
            yield _limit(kind, limit, rule.bound, metric, measured)
    if rule.no_worse_than_champion is not None:
        yield _against_champion(policy, rule.no_worse_than_champion, metric, comparisons)


def _limit(kind: str, limit: float, bound: str, metric: str, measured: Measured) -> RuleVerdict:
    words = f"{kind} {limit:g}" + (" (point)" if bound == "point" else "")
    value = measured.metrics.get(metric)
    if value is None:
        why = measured.reasons.get(metric, "no such metric was measured")
        return RuleVerdict(metric, words, None, None, limit, None, False, f"missing: {why}")
    if bound == "point":
        low = high = value
    elif metric in measured.intervals:
        low, high = measured.intervals[metric]
    else:
        why = "it has no interval; set bound: point"
        return RuleVerdict(metric, words, value, None, limit, None, False, why)
    if kind == "min":
        tested, room, side = low, low - limit, "below"
    elif kind == "max":
        tested, room, side = high, limit - high, "above"
    else:
        tested = max(abs(low), abs(high))
        room, side = limit - tested, "above"
    passed = room >= 0
    why_not = None if passed else f"{tested:.4g} is {side} the limit"
    reason = "; ".join(filter(None, (why_not, measured.doubt(metric)))) or None
    return RuleVerdict(metric, words, value, tested, limit, room, passed, reason)


def _against_champion(
    policy: GatePolicy,
    rule: ChampionRule,
    metric: str,
    comparisons: Mapping[float, Comparison] | None,
) -> RuleVerdict:
    words = f"no worse than {policy.champion} by {rule.margin:g}"
    limit = 1 - rule.confidence
    if comparisons is None:
        allowed = policy.first_champion == "allow"
        why = f"the alias {policy.champion} does not exist yet"
        return RuleVerdict(metric, words, None, None, limit, None, allowed, why)
    comparison = comparisons[rule.confidence]
    if metric not in comparison.differences.index:
        why = comparison.reasons.get(metric, "it is not a metric that is compared")
        return RuleVerdict(metric, words, None, None, limit, None, False, f"missing: {why}")
    difference = float(comparison.differences["difference"][metric])
    worse = comparison.probability_worse(metric, rule.margin)
    passed = worse <= limit
    why_not = None if passed else f"worse with probability {worse:.3f}"
    return RuleVerdict(metric, words, difference, worse, limit, limit - worse, passed, why_not)
