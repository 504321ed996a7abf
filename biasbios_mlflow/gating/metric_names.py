"""The names of metrics as people write them in a policy."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Sequence

from biasbios_mlflow.bios.occupations import canonical
from biasbios_mlflow.errors import invalid, nearest
from biasbios_mlflow.scoring.specs import BOUNDS, EACH, METRICS, logged_bounds

__all__ = ["check_occupation", "is_pattern", "known_metrics", "matching_metrics", "read_metric"]


def known_metrics() -> frozenset[str]:
    """Return every metric that is declared; one that each occupation has ends in ``/<occupation>``.

    With the bounds that are logged of metrics of all bios.

    Examples
    --------
    >>> sorted(name for name in known_metrics() if name.startswith("tpr_gap"))[:1]
    ['tpr_gap/<occupation>']
    """
    bounds = (logged_bounds(name) for name, spec in METRICS.items() if not spec.of_each)
    return frozenset([*METRICS, *(end for both in bounds for end in both or ())])


def is_pattern(metric: str) -> bool:
    """Tell whether a name stands for all that it matches."""
    return any(sign in metric for sign in "*?[")


def read_metric(written: str) -> str:
    """Return the name of a metric, or the pattern for several, in the one spelling used inside.

    Parameters
    ----------
    written : str
        With or without ``biasbios/``; case, spaces, hyphens and underscores do not matter.

    Raises
    ------
    ValueError
        When there is no such metric; says which is the nearest.

    Examples
    --------
    >>> (
    ...     read_metric("biasbios/Gap-RMS"),
    ...     read_metric("tpr_gap/Yoga Teacher"),
    ...     read_metric("tpr gap/*"),
    ... )
    ('gap_rms', 'tpr_gap/yoga_teacher', 'tpr_gap/*')
    >>> read_metric("gap_rsm")
    Traceback (most recent call last):
        ...
    ValueError: the name of a metric (nearest: gap_rms)
    """
    family, slash, rest = written.strip().removeprefix("biasbios/").partition("/")
    name = f"{canonical(family)}/{canonical(rest)}" if slash else canonical(family)
    known = known_metrics()
    if is_pattern(name):
        if fnmatch.filter(known, name) or any(
            fnmatch.fnmatchcase(one.partition("/")[0], canonical(family))
            for one in known
            if slash and one.endswith(f"/{EACH}")
        ):
            return name
    elif name in known or (slash and rest and f"{canonical(family)}/{EACH}" in known):
        return name
    raise ValueError(f"the name of a metric{_hint(canonical(family), canonical(rest))}")


def _hint(family: str, rest: str) -> str:
    known = known_metrics()
    each = sorted(n.partition("/")[0] for n in known if n.endswith(f"/{EACH}"))
    if family in each:
        near: str | None = f"{family}/*"
    elif rest and (nearest_family := nearest(family, each)):
        near = f"{nearest_family}/{rest}"
    else:
        near = nearest(family, known)
    return f" (nearest: {near})" if near else f", e.g. {', '.join(sorted(known)[:5])}"


def check_occupation(metric: str, labels: Sequence[str]) -> None:
    """Raise where a metric names an occupation that the data does not have.

    Parameters
    ----------
    metric : str
        From `read_metric`.
    labels : sequence of str
        The occupations.

    Raises
    ------
    MlflowException
    """
    family, _, rest = metric.partition("/")
    if not rest or metric in known_metrics():
        return
    there = {canonical(label): label for label in labels}
    wanted = [rest, *(rest.removesuffix(end) for end in BOUNDS if rest.endswith(end))]
    if any(name in there or fnmatch.filter(there, name) for name in wanted):
        return
    near = nearest(wanted[-1], there)
    raise invalid(
        f"policy: the metric {metric!r}",
        found=f"no occupation {rest!r} in the data",
        expected=f"one of {', '.join(sorted(labels)[:40])}",
        fix=f"did you mean {family}/{near}?" if near else "use one of these",
    )


def matching_metrics(metric: str, names: Iterable[str]) -> list[str]:
    """Return those of some names that a metric of a policy is about, in the policy's spelling.

    Examples
    --------
    >>> matching_metrics("tpr_gap/*", ["gap_rms", "tpr_gap/Yoga Teacher"])
    ['tpr_gap/Yoga Teacher']
    """
    spelled = {_spelled(name): name for name in names}
    if not is_pattern(metric):
        return [spelled[metric]] if metric in spelled else []
    return sorted(spelled[name] for name in fnmatch.filter(spelled, metric))


def _spelled(name: str) -> str:
    return "/".join(map(canonical, name.split("/", 1)))
