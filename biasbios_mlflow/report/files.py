"""The files of an evaluation: one function a file."""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import shutil
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from biasbios_mlflow.pipeline import Evaluation

__all__ = ["write_files"]

_PACKAGES = ("biasbios-mlflow", "mlflow", "numpy", "pandas", "scikit-learn", "scipy")
_PACKAGES_OF_MODELS = ("torch", "transformers", "pyspark")


def write_files(
    evaluation: Evaluation, folder: Path, *, model: Mapping[str, Any]
) -> dict[str, Path]:
    """Write all files of an evaluation.

    Parameters
    ----------
    evaluation : Evaluation
    folder : Path
        An empty folder.
    model : mapping
        What is known of the model: URI, version, ids.

    Returns
    -------
    dict of str to Path
        The files by the name under which `mlflow.models.EvaluationResult.artifacts` lists them.
    """
    writers: dict[str, Callable[[Path], None]] = {
        "summary.json": lambda path: _write_json(summary(evaluation, model=model), path),
        "occupation_gaps.csv": lambda path: evaluation.scores.occupations.to_csv(path, index=False),
        "flips.csv": lambda path: _write_flips(evaluation, path),
    }
    rows = evaluation.predictions_path
    if rows is not None:
        writers["predictions.parquet"] = lambda path: _link(rows, path)
    paths = {}
    for name, write in writers.items():
        path = folder / name
        write(path)
        paths[path.stem] = path
    return paths


def summary(evaluation: Evaluation, *, model: Mapping[str, Any]) -> dict[str, Any]:
    """Return everything about an evaluation but its per-bio results, as plain JSON values."""
    config = evaluation.config
    return {
        "model": {**model, "path": evaluation.path},
        "data": {
            "bios": evaluation.bios,
            "left_out": dict(evaluation.missing),
            "sha256": evaluation.data_sha256,
            "labels": list(evaluation.labels),
        },
        "scores": evaluation.scores.to_dict(),
        "unknown_predictions": dict(evaluation.result.unknown.most_common(100)),
        "flips": evaluation.result.flips.found,
        "warnings": list(evaluation.warnings),
        "config": config.as_json(),
        "seconds": {phase: round(value, 4) for phase, value in evaluation.seconds.items()},
        "versions": {"python": platform.python_version(), **_versions()},
    }


def _versions() -> dict[str, str]:
    there = {name for name in _PACKAGES_OF_MODELS if importlib.util.find_spec(name) is not None}
    return {name: metadata.version(name) for name in (*_PACKAGES, *sorted(there))}


def _link(source: Path, path: Path) -> None:
    """Give a file a second name; copy it where the file system cannot."""
    try:
        os.link(source, path)
    except OSError:
        shutil.copyfile(source, path)


def _write_json(content: Mapping[str, Any], path: Path) -> None:
    path.write_text(
        json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8"
    )


def _write_flips(evaluation: Evaluation, path: Path) -> None:
    config = evaluation.config
    table = evaluation.result.flips.table(
        texts=config.log_texts, scope=None if config.counterfactual_column else config.scope
    )
    table.to_csv(path, index=False, encoding="utf-8", errors="backslashreplace")
