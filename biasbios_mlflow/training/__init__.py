"""Train the classifiers that the paper compares, and compare them."""

from biasbios_mlflow.training.runs import METHODS, TrainedModel, train

__all__ = ["METHODS", "TrainedModel", "train"]
