"""How accurate an occupation classifier is, and how unfairly it treats women and men.

An evaluator plugin for MLflow: ``mlflow.models.evaluate(..., evaluators=["biasbios"])``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from biasbios_mlflow.api import evaluate
    from biasbios_mlflow.bios.readers import load_bios
    from biasbios_mlflow.counterfactual import swap_gender
    from biasbios_mlflow.gating.flow import gate
    from biasbios_mlflow.gating.policy import GatePolicy
    from biasbios_mlflow.runs import plot_comparison
    from biasbios_mlflow.scoring import Scores, compare, score

__version__ = "0.1.0"

__all__ = [
    "GatePolicy",
    "Scores",
    "compare",
    "evaluate",
    "gate",
    "load_bios",
    "plot_comparison",
    "score",
    "swap_gender",
]

# Public names by the module that defines them; loaded on first use, since MLflow imports every
# installed evaluator and most callers need one name.
_HOMES = {
    "GatePolicy": "biasbios_mlflow.gating.policy",
    "Scores": "biasbios_mlflow.scoring",
    "compare": "biasbios_mlflow.scoring",
    "evaluate": "biasbios_mlflow.api",
    "gate": "biasbios_mlflow.gating.flow",
    "load_bios": "biasbios_mlflow.bios.readers",
    "plot_comparison": "biasbios_mlflow.runs",
    "score": "biasbios_mlflow.scoring",
    "swap_gender": "biasbios_mlflow.counterfactual",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
