"""What problems bios have, before any model sees them."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from biasbios_mlflow.bios.checked import (
    LEFT_OUT,
    Columns,
    Survey,
    check_not_empty,
    encode_bios,
    find_columns,
)
from biasbios_mlflow.bios.occupations import OCCUPATIONS, GenderValues, unknown_genders
from biasbios_mlflow.bios.sources import open_source
from biasbios_mlflow.bios.stream import sample_rows
from biasbios_mlflow.counterfactual import swap_with_directions
from biasbios_mlflow.findings import Findings

__all__ = ["DataReport", "examine_data"]

_SHOWN = 60
"""Most occupations, and most values of a kind, that the text shows."""

_SPLITS = 4
"""Most splits that the text shows beside all bios."""

_WIDTH = 80


@dataclass(frozen=True, eq=False)
class DataReport:
    """What was found in some bios.

    Attributes
    ----------
    name : str
    where : str or None
        The path or URI.
    columns : Columns
        What was taken for what.
    available : tuple of str
        All columns.
    survey : Survey
        Rows, and those of them that lack a part.
    unknown_genders : mapping of str to int
        Values of the gender column that mean neither, and in how many rows: left out as missing.
    not_texts : int
        Rows whose text is something else than a text: left out as missing.
    splits : mapping of str to Findings
        By split; under ``"all"`` where there is but one.
    shared : mapping of (str, str) to int
        Bios of the first split whose text is in the second too.
    """

    name: str
    where: str | None
    columns: Columns
    available: tuple[str, ...]
    survey: Survey
    unknown_genders: Mapping[str, int]
    not_texts: int
    splits: Mapping[str, Findings]
    shared: Mapping[tuple[str, str], int]

    @property
    def all(self) -> Findings:
        """The findings of all splits together."""
        first, *others = self.splits.values()
        for other in others:
            first = first + other
        return first

    def occupations(self) -> pd.DataFrame:
        """Return bios, women and women's share by occupation."""
        found = self.all
        bios, women = found.counts.sum(axis=0), found.counts[1]
        return pd.DataFrame(
            {
                "occupation": found.labels,
                "bios": bios,
                "women": women,
                "share_of_women": [w / n if n else None for w, n in zip(women, bios, strict=True)],
            }
        )

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain JSON values."""
        columns = {part: name for part, name in vars(self.columns).items() if name is not None}
        return {
            "name": self.name,
            "source": self.where,
            "columns": columns,
            "other_columns": [name for name in self.available if name not in columns.values()],
            "rows": self.survey.rows,
            "complete": self.survey.complete,
            "missing": dict(self.survey.missing),
            "unknown_genders": dict(self.unknown_genders),
            "not_texts": self.not_texts,
            "benchmark_labels": self.all.labels == OCCUPATIONS,
            "splits": {
                split: {"bios": found.bios, "women": int(found.counts[1].sum()), **found.to_dict()}
                for split, found in {"all": self.all, **self.splits}.items()
            },
            "texts_in_two_splits": [
                {"bios_of": one, "also_in": other, "bios": count}
                for (one, other), count in self.shared.items()
            ],
            "occupations": [
                {**row, "share_of_women": None if row["bios"] == 0 else row["share_of_women"]}
                for row in self.occupations().to_dict("records")
            ],
        }

    def __str__(self) -> str:
        """Return everything as a text of 80 columns."""
        parts = [self._source(), self._rows(), self._findings(), self._by_occupation()]
        return "\n\n".join(part for part in parts if part)

    def _source(self) -> str:
        found = self.columns
        used = [(part, name) for part, name in vars(found).items() if name is not None]
        others = [name for name in self.available if name not in {name for _, name in used}]
        lines = [("Source", self.where or self.name)]
        lines += [(part.capitalize(), f"column {name!r}") for part, name in used]
        if others:
            lines.append(("Others", ", ".join(map(repr, others))))
        return "\n".join(_wrapped(f"{head:<16}", text) for head, text in lines)

    def _rows(self) -> str:
        survey = self.survey
        lines = [("Rows", f"{survey.rows:,}"), ("Complete", f"{survey.complete:,}")]
        lines += [
            ("Gender left out" if part == LEFT_OUT else f"Without {part}", f"{count:,}")
            for part, count in survey.missing.items()
            if count
        ]
        if self.not_texts:
            lines.append(("Not a text", f"{self.not_texts:,}, counted as without text"))
        if self.unknown_genders:
            values = ", ".join(
                f"{value!r} ({count:,})"
                for value, count in list(self.unknown_genders.items())[:_SHOWN]
            )
            lines.append(("Unknown gender", f"{values}; say what they mean with gender_values"))
        return "\n".join(_wrapped(f"{head:<20}", text) for head, text in lines)

    def _findings(self) -> str:
        whole = self.all
        columns = [whole, *(list(self.splits.values())[:_SPLITS] if len(self.splits) > 1 else [])]
        rows = [
            ("bios", [found.bios for found in columns], None),
            ("women", [int(found.counts[1].sum()) for found in columns], whole.bios),
        ]
        parts = [found.to_dict() for found in columns]
        rows += [(head, [part[key] for part in parts], whole.bios) for key, head in _HEADS.items()]
        rows += [
            (f"words, {head}", [part["words"][key] for part in parts], None)
            for key, head in (("median", "median"), ("p95", "95 %"), ("longest", "longest"))
        ]
        text = _aligned(
            ["", "all", "share", *list(self.splits)[: len(columns) - 1]],
            [
                (
                    head,
                    [
                        f"{counts[0]:,}",
                        f"{counts[0] / of:.1%}" if of else "",
                        *(f"{count:,}" for count in counts[1:]),
                    ],
                )
                for head, counts, of in rows
            ],
        )
        pairs = [pair for pair in self.shared if _first(pair, list(self.splits))]
        if pairs:
            lines = [
                f"{one} and {other} share texts, those of {self.shared[one, other]:,} and "
                f"{self.shared[other, one]:,} bios"
                for one, other in pairs
            ]
            text += "\n\n" + "\n".join(_wrapped("", line) for line in lines)
        return text

    def _by_occupation(self) -> str:
        table = self.occupations()
        shown = table[table["bios"] > 0]
        rows = [
            (str(row.occupation), [f"{row.bios:,}", f"{row.women:,}", f"{row.share_of_women:.1%}"])
            for row in shown.head(_SHOWN).itertuples()
        ]
        lines = [_aligned(["occupation", "bios", "women", "share"], rows)]
        if len(shown) > _SHOWN:
            lines.append(f"and {len(shown) - _SHOWN:,} more")
        absent = table.loc[table["bios"] == 0, "occupation"].tolist()
        if absent:
            lines.append(_wrapped("Without a bio:  ", ", ".join(absent)))
        return "\n".join(lines)


_HEADS = {
    "duplicates": "text of a bio before",
    "duplicates_with_other_labels": "text with other labels",
    "without_gendered_words": "no gendered word",
    "gender_contradicted": "words of the other gender",
    "occupation_in_first_sentence": "first sentence names job",
    "broken_characters": "broken characters",
}


def examine_data(
    source: Any,
    split: str | None = None,
    *,
    sample: int | None = None,
    seed: int = 0,
    scope: str = "pronouns",
    text_column: str | None = None,
    occupation_column: str | None = None,
    gender_column: str | None = None,
    label_names: Sequence[str] | None = None,
    gender_values: GenderValues | None = None,
) -> DataReport:
    """Look for problems in bios; what an evaluation would refuse is counted here.

    The source is read twice, in chunks; in memory are some 12 bytes a bio.

    Parameters
    ----------
    source, split, sample, seed
        See `biasbios_mlflow.load_bios`.
    scope : str, default="pronouns"
        Which gendered words count (see `swap_gender`).
    text_column, occupation_column, gender_column, label_names, gender_values
        As for `biasbios_mlflow.evaluate`.

    Returns
    -------
    DataReport
        Its ``str`` is a text of 80 columns.

    Raises
    ------
    MlflowException
        Where the source cannot be read, is empty, or has no such columns.

    Examples
    --------
    >>> report = examine_data("sample", sample=1000)
    >>> report.all.bios, list(report.splits), report.all.duplicates
    (1000, ['train', 'test'], 0)
    """
    opened = open_source(source, split, mark_splits=True)
    columns = find_columns(
        opened.columns, text=text_column, occupation=occupation_column, gender=gender_column
    )
    look = _Look(columns, gender_values)
    if sample is not None:
        opened = sample_rows(opened, columns, sample, seed=seed, gender_values=gender_values)
    survey: Survey | None = None
    for chunk in opened.chunks():
        found = Survey.of(look.mended(chunk, count=True), columns, gender_values=gender_values)
        survey = found if survey is None else survey + found
    assert survey is not None
    check_not_empty(survey.rows)
    labels = survey.labels(label_names)
    splits: dict[str, Findings] = {}
    for chunk in opened.chunks():
        for name, part in _by_split(look.mended(chunk)):
            bios = encode_bios(part, columns, labels, gender_values=gender_values)
            found_here = Findings.of(bios, swap_with_directions(bios.texts, scope)[1])
            splits[name] = splits[name] + found_here if name in splits else found_here
    shared = {
        (one, other): count
        for one in splits
        for other in splits
        if one != other and (count := splits[one].also_in(splits[other]))
    }
    return DataReport(
        name=opened.name,
        where=opened.where,
        columns=columns,
        available=tuple(opened.columns),
        survey=survey,
        unknown_genders=dict(look.unknown.most_common()),
        not_texts=look.not_texts,
        splits=splits,
        shared=shared,
    )


class _Look:
    """Empties the cells that an evaluation would refuse, and counts them."""

    def __init__(self, columns: Columns, gender_values: GenderValues | None) -> None:
        self.unknown: Counter[str] = Counter()
        self.not_texts = 0
        self._columns = columns
        self._gender_values = gender_values

    def mended(self, chunk: pd.DataFrame, *, count: bool = False) -> pd.DataFrame:
        genders, texts = chunk[self._columns.gender], chunk[self._columns.text]
        unknown = unknown_genders(genders.unique(), gender_values=self._gender_values)
        refused = genders.isin(unknown)
        no_text = texts.map(lambda text: not isinstance(text, str)) & texts.notna()
        if count:
            self.unknown.update(map(str, genders[refused]))
            self.not_texts += int(no_text.sum())
        changes = (
            {self._columns.gender: genders.astype(object).mask(refused, None)} if unknown else {}
        )
        if no_text.any():
            changes[self._columns.text] = texts.astype(object).mask(no_text, None)
        return chunk.assign(**changes)


def _by_split(chunk: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    if "split" not in chunk.columns:
        return [("all", chunk)]
    names = chunk["split"].astype(object).where(chunk["split"].notna(), "none").map(str)
    return [(name, chunk[names == name]) for name in names.unique()]


def _first(pair: tuple[str, str], order: list[str]) -> bool:
    return order.index(pair[0]) < order.index(pair[1])


def _aligned(head: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]]) -> str:
    """Align a table: the first column to the left, all others to the right."""
    table = [list(head), *([name, *cells] for name, cells in rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    # Names are cut before numbers go over the edge.
    widths[0] = max(8, min(widths[0], _WIDTH - sum(widths[1:]) - 2 * (len(widths) - 1)))
    for row in table:
        row[0] = row[0] if len(row[0]) <= widths[0] else f"{row[0][: widths[0] - 1]}…"
    return "\n".join(
        "  ".join(
            cell.ljust(width) if place == 0 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in table
    )


def _wrapped(head: str, text: str) -> str:
    return textwrap.fill(
        text, _WIDTH, initial_indent=head, subsequent_indent=" " * len(head), break_long_words=False
    )
