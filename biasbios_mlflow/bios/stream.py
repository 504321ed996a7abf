"""Bios that are read window by window, however many there are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from biasbios_mlflow.bios.checked import Bios, Columns, Survey, encode_bios
from biasbios_mlflow.bios.drawing import draw, keyed_hashes
from biasbios_mlflow.bios.occupations import (
    GenderValues,
    as_objects,
    canonical,
    encode_genders,
    is_missing,
)
from biasbios_mlflow.bios.sources.parts import ChosenRows
from biasbios_mlflow.bios.sources.source import Source
from biasbios_mlflow.errors import invalid

__all__ = ["BiosStream", "sample_rows"]


class BiosStream:
    """Bios that are read from their source each time that they are walked.

    The same to an evaluation as `Bios`, of which one window at a time is in memory.

    Parameters
    ----------
    source : Source
    columns : Columns
    survey : Survey
        Of the whole source.
    label_names, gender_values, allow_missing
        See `check_bios`.

    Raises
    ------
    MlflowException
        As `check_bios`; while windows are read, when the source is not what was surveyed.
    """

    def __init__(
        self,
        source: Source,
        columns: Columns,
        survey: Survey,
        *,
        label_names: Sequence[str] | None = None,
        gender_values: GenderValues | None = None,
        allow_missing: bool = False,
    ) -> None:
        survey.check(allow_missing=allow_missing)
        self.columns = columns
        self.labels = survey.labels(label_names)
        self.missing = survey.missing
        self.occupation_ids = survey.occupation_ids
        self._source = source
        self._survey = survey
        self._gender_values = gender_values

    def __len__(self) -> int:
        return self._survey.complete

    def windows(self, size: int) -> Iterator[Bios]:
        """Yield all bios in order, ``size`` at a time but for the last ones."""
        rest: list[Bios] = []
        waiting = rows = 0
        for chunk in self._source.chunks():
            rows += len(chunk)
            bios = encode_bios(
                chunk,
                self.columns,
                self.labels,
                gender_values=self._gender_values,
                rows=chunk.index.to_numpy(dtype=np.int64),
            )
            rest.append(bios)
            waiting += len(bios)
            if waiting > size:
                *whole, last = _joined(rest).windows(size)
                yield from whole
                # The last one waits for more, even when it is full.
                rest, waiting = [last], len(last)
        if waiting:
            yield _joined(rest)
        if rows != self._survey.rows:
            raise invalid(
                "data",
                found=f"{rows} rows, and {self._survey.rows} when they were first read",
                expected="data that does not change while it is evaluated",
                fix="evaluate a copy",
            )


def _joined(parts: Sequence[Bios]) -> Bios:
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    return Bios(
        columns=first.columns,
        labels=first.labels,
        rows=np.concatenate([part.rows for part in parts]),
        texts=[text for part in parts for text in part.texts],
        genders=np.concatenate([part.genders for part in parts]),
        occupations=np.concatenate([part.occupations for part in parts]),
        inputs=pd.concat([part.inputs for part in parts]),
    )


def sample_rows(
    source: Source,
    columns: Columns,
    size: int,
    *,
    seed: int = 0,
    gender_values: GenderValues | None = None,
) -> Source:
    """Draw some of the bios of a source, every gender and occupation by its share.

    Parameters
    ----------
    source : Source
    columns : Columns
    size : int
        How many; all, where there are no more.
    seed : int, default=0
        Another seed draws other bios. Which bios are drawn depends on their texts, not on their
        order, nor on the format they are stored in.
    gender_values
        See `encode_genders`.

    Raises
    ------
    MlflowException
        When the size is not positive, or a gender unknown.
    """
    if size < 1:
        raise invalid(
            "sample", found=size, expected="a whole number of at least 1", fix="draw more bios"
        )
    codes: dict[tuple[int, str], int] = {}
    strata, hashes = [], []
    for chunk in source.chunks():
        genders = encode_genders(chunk[columns.gender], gender_values=gender_values)
        places, distinct = pd.factorize(
            as_objects(chunk[columns.occupation]), use_na_sentinel=False
        )
        names = ["" if is_missing(name) else canonical(name) for name in distinct]
        cells = [(int(g), names[p]) for g, p in zip(genders, places, strict=True)]
        strata.append([codes.setdefault(cell, len(codes)) for cell in cells])
        hashes.append(keyed_hashes(chunk[columns.text], f"biasbios sample {seed}"))
    # By name and not by first appearance, so that the order of the data does not matter.
    order = {codes[cell]: place for place, cell in enumerate(sorted(codes))}
    numbered = np.array([order[code] for part in strata for code in part], dtype=np.int64)
    drawn = draw(numbered, np.concatenate(hashes), size)
    return ChosenRows(source, drawn, f"{source.name}-sample{size}")
