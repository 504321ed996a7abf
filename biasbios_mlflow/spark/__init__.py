"""The Spark engine: bios on a cluster, the same numbers as on one machine."""

from biasbios_mlflow.spark.engine import evaluate

__all__ = ["evaluate"]
