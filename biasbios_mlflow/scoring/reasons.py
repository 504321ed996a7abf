"""Why a metric is absent: the kinds there are, and one kind with its figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

__all__ = ["Absence", "Reason"]


class Absence(Enum):
    """The kinds of reason for which a metric cannot be computed, with the text of each."""

    NO_BIOS = "no bios"
    NO_MEN = "no bios of men"
    NO_WOMEN = "no bios of women"
    ONE_OCCUPATION = "only one occupation is present"
    NO_SCORED_OCCUPATION = "no occupation has at least {min_cell} bios of each gender"
    FEW_BIOS = "{men} bios of men and {women} of women; min_cell is {min_cell}"
    NO_VARIANCE = "every scored occupation has a single bio of one gender, which has no variance"
    NO_NEGATIVES = "no scored occupation has bios of other occupations of each gender"
    NO_COUNTERFACTUALS = "no counterfactual predictions"
    NO_SCORED_PAIRS = "no scored occupation has at least {min_cell} swapped bios of each gender"
    FEW_PAIRS = "{men} swapped bios of men and {women} of women; min_cell is {min_cell}"
    CHANGES_UNKNOWN = "not known which bios the swap changed"
    NO_CHANGE = "the swap changed no bio"
    NO_PROBABILITIES = "no probabilities"
    SOME_PROBABILITIES = "only {found} of {expected} bios have probabilities"
    NO_KNOWN_PREDICTION = "no prediction lies in the label set"
    NO_CHANGED_PROBABILITIES = "no changed bio has probabilities"
    NOT_RECORDED = "not recorded: {what}"
    UNDEFINED = "its formula has no value for these bios"


@dataclass(frozen=True)
class Reason:
    """Why one metric is absent.

    Attributes
    ----------
    absence : Absence
    figures : mapping
        What the text of the absence names.
    note : str
        What is known beyond that, such as why there are no probabilities.

    Examples
    --------
    >>> str(Reason(Absence.NO_SCORED_OCCUPATION, {"min_cell": 5}))
    'no occupation has at least 5 bios of each gender'
    >>> str(Reason(Absence.NO_PROBABILITIES, note="the model returns only labels"))
    'no probabilities: the model returns only labels'
    """

    absence: Absence
    figures: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""

    def __str__(self) -> str:
        text = self.absence.value.format(**self.figures)
        return f"{text}: {self.note}" if self.note else text
