"""A gate's result for people and for CI: a table, Markdown, JUnit XML."""

from __future__ import annotations

import re
import textwrap
from xml.etree import ElementTree

from biasbios_mlflow.gating.decision import RuleVerdict
from biasbios_mlflow.gating.flow import GateResult

__all__ = ["junit", "markdown", "table"]

# What XML 1.0 cannot hold.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def table(result: GateResult) -> str:
    """Return the verdict and every rule as text for a terminal of 80 columns.

    A rule that failed is followed by the reason.
    """
    rows = [("", "metric", "rule", "value", "tested")]
    rows += [
        (
            "pass" if rule.passed else "FAIL",
            rule.metric,
            rule.rule,
            _number(rule.value),
            _number(rule.tested),
        )
        for rule in result.rules
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [_headline(result)]
    for row, rule in zip(rows, [None, *result.rules], strict=True):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        lines.append("  ".join(cells).rstrip())
        if rule is not None and rule.reason is not None:
            lines += textwrap.wrap(rule.reason, 72, initial_indent="      ")
    for sentence in (_consequence(result), *map(_noted, result.notes)):
        lines += textwrap.wrap(sentence, 80)
    return "\n".join(lines)


def markdown(result: GateResult) -> str:
    """Return the result as Markdown, for the summary of a CI job."""
    lines = [
        f"### {_headline(result)}",
        "",
        "| | metric | rule | value | tested | room |",
        "| --- | --- | --- | ---: | ---: | ---: |",
    ]
    for rule in result.rules:
        cells = (
            "✅" if rule.passed else "❌",
            f"`{rule.metric}`",
            rule.rule if rule.reason is None else f"{rule.rule} ({rule.reason})",
            _number(rule.value),
            _number(rule.tested),
            _number(rule.room),
        )
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    lines += [
        "",
        _consequence(result),
        "",
        *(line for note in result.notes for line in (_noted(note), "")),
        f"Run `{result.run_id}`, policy `{result.policy_sha256[:12]}`, "
        f"data `{result.data_sha256[:12]}`.",
        "",
    ]
    return "\n".join(lines)


def junit(result: GateResult) -> str:
    """Return the result as JUnit XML: one test case a rule, and one for the promotion."""
    cases = [(_case_name(rule), rule.passed, rule.reason) for rule in result.rules]
    lost = not result.passed and all(rule.passed for rule in result.rules)
    if lost:
        cases.append(("promotion", False, result.reason))
    suite = ElementTree.Element(
        "testsuite",
        name=f"biasbios gate {result.model_uri}",
        tests=str(len(cases)),
        failures=str(sum(not passed for _, passed, _ in cases)),
        errors="0",
    )
    for name, passed, reason in cases:
        case = ElementTree.SubElement(suite, "testcase", classname="biasbios.gate", name=_xml(name))
        if not passed:
            message = _xml(reason or "failed")
            ElementTree.SubElement(case, "failure", message=message).text = message
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _headline(result: GateResult) -> str:
    against = "" if result.champion_version is None else f" against {result.champion_version}"
    return f"Gate {result.verdict}: {result.name} version {result.version}{against}"


def _consequence(result: GateResult) -> str:
    what = "Promoted" if result.promoted else "No alias moved"
    return f"{what}: {result.reason}."


def _noted(note: str) -> str:
    return f"Note: {note}."


def _case_name(rule: RuleVerdict) -> str:
    return f"{rule.metric} {rule.rule}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _xml(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)
