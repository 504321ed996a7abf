"""The counterfactual room: the same text with every gendered word exchanged for its counterpart."""

from __future__ import annotations

from biasbios_mlflow.counterfactual.swap import (
    DIRECTIONS,
    SCOPES,
    changed_words,
    swap_gender,
    swap_with_directions,
)
from biasbios_mlflow.counterfactual.version import swap_version

__all__ = [
    "DIRECTIONS",
    "SCOPES",
    "changed_words",
    "swap_gender",
    "swap_version",
    "swap_with_directions",
]
