"""The embedded sample: invented bios, so that everything can be tried without the benchmark."""

from __future__ import annotations

import importlib.resources
import lzma

import pandas as pd

from biasbios_mlflow.errors import invalid

__all__ = ["SAMPLE_SPLITS", "read_sample"]

SAMPLE_SPLITS = ("train", "test")


def read_sample(split: str | None = None) -> pd.DataFrame:
    """Read the embedded sample.

    The bios are invented (``biasbios_mlflow.bios.invented``): figures measured on them say how a
    model behaves on this sample, not on the benchmark.

    Parameters
    ----------
    split : {"train", "test"}, optional
        By default both, the training bios first.

    Returns
    -------
    pandas.DataFrame
        Columns ``hard_text`` (str), ``profession`` (a name of ``OCCUPATIONS``) and ``gender``
        ("male" or "female").

    Raises
    ------
    mlflow.exceptions.MlflowException
        If the split is unknown.

    Examples
    --------
    >>> bios = read_sample("test")
    >>> list(bios.columns)
    ['hard_text', 'profession', 'gender']
    """
    if split is not None and split not in SAMPLE_SPLITS:
        raise invalid(
            "split of the sample",
            found=repr(split),
            expected="'train' or 'test'",
            fix="name one of them, or leave it out for both",
        )
    packed = importlib.resources.files("biasbios_mlflow.bios") / "sample.tsv.xz"
    lines = lzma.decompress(packed.read_bytes()).decode().splitlines()
    rows = [line.split("\t") for line in lines]
    return pd.DataFrame(
        [
            (text, profession, gender)
            for row_split, profession, gender, text in rows
            if split is None or row_split == split
        ],
        columns=["hard_text", "profession", "gender"],
    )
