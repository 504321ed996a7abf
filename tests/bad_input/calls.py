"""What the calls of the table are made of: tiny bios, files of them, models in a line."""

from __future__ import annotations

import gzip
import json
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import biasbios_mlflow
from biasbios_mlflow.bios.checked import check_bios, find_columns
from biasbios_mlflow.config import EvaluationConfig
from biasbios_mlflow.data_report import examine_data
from biasbios_mlflow.gating.policy import GatePolicy
from biasbios_mlflow.pipeline import Evaluation, evaluate_bios
from biasbios_mlflow.prediction.predictor import find_predictor
from biasbios_mlflow.tracking import metric_names

__all__ = ["namespace"]

TEXTS = (
    "She heals the sick and he writes.",
    "He heals the sick.",
    "She writes verses.",
    "He writes verses, and his brother prints them.",
)
JOBS = ("nurse", "nurse", "poet", "poet")
GENDERS = ("female", "male", "female", "male")


def bios(times: int = 2, **columns: Any) -> pd.DataFrame:
    """Return four invented bios, so many times, with columns in the place of the usual ones."""
    frame = pd.DataFrame(
        {"hard_text": TEXTS * times, "profession": JOBS * times, "gender": GENDERS * times}
    ).astype(object)
    for name, cells in columns.items():
        values = [cells] * 4 if isinstance(cells, str) else list(cells)
        frame[name] = pd.Series(values * times, dtype=object)
    return frame


class Model:
    """A model that says what it is told to."""

    def __init__(self, predict: Callable[[pd.DataFrame], Any]) -> None:
        self.predict = predict


def says(*answers: Any) -> Model:
    """Return a model whose answers to the texts are these, in turn."""
    return Model(lambda frame: [answers[i % len(answers)] for i in range(len(frame))])


def returns(output: Any) -> Model:
    """Return a model that returns this, or what a function makes of the number of texts."""
    return Model(lambda frame: output(len(frame)) if callable(output) else output)


def evaluate(frame: pd.DataFrame, model: Any = None, **options: Any) -> Evaluation:
    """Evaluate without a run; by default a model that answers nurse."""
    config = EvaluationConfig.parse({"n_replicates": 100, "min_cell": 1, **options})
    found = check_bios(
        frame,
        find_columns(list(frame.columns), **config.named_columns()),
        label_names=config.label_names,
        gender_values=config.gender_values,
        allow_missing=config.allow_missing,
    )
    if model is None and config.predictions is None:
        model = says("nurse")
    return evaluate_bios(found, find_predictor(model, config), config)


def namespace(folder: Path) -> dict[str, Any]:
    """Return the names that the calls of the table use.

    Parameters
    ----------
    folder : Path
        Where their files go.
    """

    def file(name: str, content: Any = None) -> str:
        """Write text, bytes or a frame, the four bios by default."""
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        content = bios(1) if content is None else content
        if isinstance(content, str):
            content = content.encode()
        if isinstance(content, bytes):
            path.write_bytes(content)
        elif path.suffix.lower() in (".parquet", ".pq"):
            content.to_parquet(path)
        elif path.suffix.lower().startswith(".json"):
            content.to_json(path, orient="records", lines=True)
        else:
            content.to_csv(path, index=False)
        return str(path)

    def files(*names: str) -> str:
        """Write the four bios under these names into one folder."""
        for name in names:
            file(f"release/{name}")
        return str(folder / "release")

    def classes(frame: pd.DataFrame, **names: list[str]) -> str:
        """Write a parquet file as `datasets` does, ids with their names beside them."""
        import datasets

        features = datasets.Features(
            {
                column: datasets.ClassLabel(names=names[column])
                if column in names
                else datasets.Value("string")
                for column in frame.columns
            }
        )
        data = datasets.Dataset.from_pandas(frame, features=features, preserve_index=False)
        path = folder / "classes.parquet"
        data.to_parquet(path)
        return str(path)

    def ids(frame: pd.DataFrame, column: str, values: list[int], names: list[str]) -> str:
        """Write a parquet file whose ids go beyond the names beside them."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        table = pa.Table.from_pandas(frame.assign(**{column: values}), preserve_index=False)
        feature = {"names": names, "_type": "ClassLabel"}
        about = json.dumps({"info": {"features": {column: feature}}}).encode()
        path = folder / "ids.parquet"
        pq.write_table(table.replace_schema_metadata({b"huggingface": about}), path)
        return str(path)

    def policy(text: str) -> Any:
        """Read a policy from a file."""
        return GatePolicy.parse(file("gate.yaml", text))

    def cli(*arguments: str) -> str:
        """Return what the command line says."""
        from click.testing import CliRunner

        from biasbios_mlflow.cli import main

        done = CliRunner().invoke(main, list(arguments))
        return f"exit code {done.exit_code}: {' '.join(done.output.split())}"

    return {
        "EvaluationConfig": EvaluationConfig,
        "Model": Model,
        "bios": bios,
        "classes": classes,
        "cli": cli,
        "evaluate": evaluate,
        "examine_data": examine_data,
        "file": file,
        "files": files,
        "folder": str(folder),
        "gzip": gzip,
        "ids": ids,
        "load_bios": biasbios_mlflow.load_bios,
        "metric_names": metric_names,
        "nan": float("nan"),
        "np": np,
        "os": os,
        "pd": pd,
        "pickle": pickle,
        "policy": policy,
        "returns": returns,
        "says": says,
        "score": biasbios_mlflow.score,
        "swap_gender": biasbios_mlflow.swap_gender,
    }
