"""The files of an evaluation: one function a file."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pandas.api.types import is_bool_dtype, is_numeric_dtype

from biasbios_mlflow.fingerprint import SCHEMA, package_versions
from biasbios_mlflow.pipeline import Evaluation
from biasbios_mlflow.redaction import redacted, redacted_content
from biasbios_mlflow.report.figures import (
    flips_figure,
    gaps_figure,
    has_parts,
    parts_figure,
    save_png,
)
from biasbios_mlflow.report.marks import spreadsheet_safe
from biasbios_mlflow.report.page import report_page
from biasbios_mlflow.rows import ROWS_FILE, SUMMARY_FILE, file_digest

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

__all__ = ["TABLE_FILE", "artifact_name", "summary", "write_files"]

TABLE_FILE = "occupation_gaps.json"
"""The file that MLflow shows as a table."""


def write_files(
    evaluation: Evaluation,
    folder: Path,
    *,
    model: Mapping[str, Any],
    data: Mapping[str, Any],
) -> dict[str, Path]:
    """Write all files of an evaluation.

    Parameters
    ----------
    evaluation : Evaluation
    folder : Path
        An empty folder.
    model : mapping
        What is known of the model: URI, version, ids.
    data : mapping
        What is known of the dataset: name, digest.

    Returns
    -------
    dict of str to Path
        The files by the name under which `mlflow.models.EvaluationResult.artifacts` lists them.
    """
    scores = evaluation.scores.to_dict()
    content = summary(evaluation, model=model, data=data)
    rows = evaluation.predictions_path
    if rows is not None:
        content["files"] = {ROWS_FILE: file_digest(rows)}
    flips = _flips_table(evaluation)
    figures = {"occupation_gaps": gaps_figure(scores), "flips": flips_figure(scores)}
    writers: dict[str, Callable[[Path], None]] = {
        SUMMARY_FILE: lambda path: _write_json(content, path),
        "occupation_gaps.csv": lambda path: _write_csv(evaluation.scores.occupations, path),
        "occupation_gaps.json": lambda path: _write_table(evaluation.scores.occupations, path),
        "occupation_gaps.png": lambda path: save_png(figures["occupation_gaps"], path),
        "flips.csv": lambda path: _write_csv(flips, path),
        "flips.png": lambda path: save_png(figures["flips"], path),
        "report.html": lambda path: _write_page(evaluation, content, flips, figures, path),
    }
    if has_parts(scores):
        figures["gap_parts"] = parts_figure(scores)
        writers["gap_parts.png"] = lambda path: save_png(figures["gap_parts"], path)
    if rows is not None:
        writers[ROWS_FILE] = lambda path: _link(rows, path)
    paths = {}
    for name, write in writers.items():
        path = folder / name
        write(path)
        paths[artifact_name(name)] = path
    return paths


def artifact_name(file: str) -> str:
    """Return the name under which `mlflow.models.EvaluationResult.artifacts` lists a file.

    Examples
    --------
    >>> [artifact_name(f"occupation_gaps.{suffix}") for suffix in ("csv", "json", "png")]
    ['occupation_gaps', 'occupation_gaps_table', 'occupation_gaps_plot']
    """
    stem, suffix = os.path.splitext(file)
    return stem + {TABLE_FILE: "_table"}.get(file, "_plot" if suffix == ".png" else "")


def summary(
    evaluation: Evaluation, *, model: Mapping[str, Any], data: Mapping[str, Any]
) -> dict[str, Any]:
    """Return everything about an evaluation but its per-bio results, as plain JSON values.

    No secret that the user named stands in it, see `biasbios_mlflow.redaction`.
    """
    config = evaluation.config
    return {
        "schema": SCHEMA,
        "model": redacted_content({**model, "path": evaluation.path}),
        "data": {
            **redacted_content(data),
            "bios": evaluation.bios,
            "left_out": dict(evaluation.missing),
            "bios_cut": evaluation.result.cut,
            "sha256": evaluation.data_sha256,
            "labels": list(evaluation.labels),
            "findings": evaluation.result.findings.to_dict(),
        },
        "scores": evaluation.scores.to_dict(),
        "unknown_predictions": dict(evaluation.result.unknown.most_common(100)),
        "answers": None if evaluation.answers is None else dict(evaluation.answers),
        "flips": evaluation.result.flips.found,
        "warnings": [redacted(warning) for warning in evaluation.warnings],
        "config": redacted_content(config.as_json()),
        "seconds": {phase: round(value, 4) for phase, value in evaluation.seconds.items()},
        "versions": dict(package_versions()),
        "fingerprint": evaluation.fingerprint.to_dict(),
    }


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


def _write_csv(frame: pd.DataFrame, path: Path) -> None:
    # Texts come from the data: no cell may become a formula in a spreadsheet.
    safe = frame.apply(lambda column: column.map(spreadsheet_safe) if _texts(column) else column)
    safe.to_csv(path, index=False, encoding="utf-8")


def _texts(column: pd.Series[Any]) -> bool:
    return not (is_bool_dtype(column) or is_numeric_dtype(column))


def _write_table(frame: pd.DataFrame, path: Path) -> None:
    """Write what `mlflow.log_table` would: it appends to a file that is already there."""
    frame.to_json(path, orient="split", index=False, double_precision=15)


def _flips_table(evaluation: Evaluation) -> pd.DataFrame:
    config = evaluation.config
    return evaluation.result.flips.table(
        texts=config.log_texts, scope=None if config.counterfactual_column else config.scope
    )


def _write_page(
    evaluation: Evaluation,
    content: Mapping[str, Any],
    flips: pd.DataFrame,
    figures: Mapping[str, Figure],
    path: Path,
) -> None:
    page = report_page(
        content,
        evaluation.result.flips.sample,
        texts=evaluation.config.log_texts,
        changed_words=flips["changed_words"].tolist() if "changed_words" in flips else None,
        figures=figures,
    )
    path.write_text(page, encoding="utf-8")
