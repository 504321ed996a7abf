"""From counts to scores: pure functions, no MLflow tracking."""

from __future__ import annotations

from biasbios_mlflow.scoring.comparison import Comparison, JointCounts, compare, compare_counts
from biasbios_mlflow.scoring.counts import Counts
from biasbios_mlflow.scoring.outcomes import Outcomes, ctf_values
from biasbios_mlflow.scoring.scores import HEADLINE, Scores, score, scores_from_counts

__all__ = [
    "HEADLINE",
    "Comparison",
    "Counts",
    "JointCounts",
    "Outcomes",
    "Scores",
    "compare",
    "compare_counts",
    "ctf_values",
    "score",
    "scores_from_counts",
]
