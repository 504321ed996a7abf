"""Names of the options that say how a table of bios is read.

Apart from the readers: the command line lists them, and must not load pandas for its help.
"""

from __future__ import annotations

__all__ = ["READING_OPTIONS"]

READING_OPTIONS = (
    "text_column", "occupation_column", "gender_column", "label_names", "gender_values",
)  # fmt: skip
"""Options of `biasbios_mlflow.load_bios` that say how a table is read."""
