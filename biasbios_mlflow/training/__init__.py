"""Train the classifiers that the paper compares, and compare them."""

from biasbios_mlflow.training.classifiers import TrainedModel, train
from biasbios_mlflow.training.methods import METHODS, Settings

__all__ = ["METHODS", "Settings", "TrainedModel", "train"]
