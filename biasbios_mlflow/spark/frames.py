"""Bios in a Spark DataFrame: read, surveyed, and cut into the windows of the local engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]

from biasbios_mlflow.bios.checked import Columns, Survey
from biasbios_mlflow.bios.occupations import Labels, encode_genders
from biasbios_mlflow.bios.readers import load_bios
from biasbios_mlflow.errors import invalid
from biasbios_mlflow.spark.worker import POSITION, ROW

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

__all__ = [
    "Surveyed",
    "choose_split",
    "complete_bios",
    "count_duplicates",
    "cut_windows",
    "read_frame",
    "survey",
]

_WINDOW = "__biasbios_window"
_PARTITION_BITS = 33  # below which monotonically_increasing_id counts the rows of a partition
_MOST_OCCUPATIONS = 10_000

# What str.isspace calls white space, in a pattern of Java.
_SPACES = "".join(
    f"\\u{code:04x}"
    for code in (
        *range(0x09, 0x0E), *range(0x1C, 0x21), 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B),
        0x2028, 0x2029, 0x202F, 0x205F, 0x3000,
    )
)  # fmt: skip


def read_frame(source: str, session: SparkSession) -> tuple[DataFrame, str]:
    """Read bios with Spark's own readers.

    Parameters
    ----------
    source : str
        ``"sample"``, or the path or URL of a parquet, csv, tsv or jsonl file (the last three also
        with .gz) or folder, as the executors see it. A name that does not say its format is taken
        for a folder of parquet files.
    session : SparkSession

    Returns
    -------
    frame : pyspark.sql.DataFrame
    name : str
        A name for the dataset.

    Raises
    ------
    AnalysisException
        When there is no such path; see `biasbios_mlflow.spark.sessions.errors_told`.
    """
    from pyspark.sql import functions as F  # noqa: N812

    if source == "sample":
        table = pa.Table.from_pandas(load_bios("sample").df, preserve_index=False)
        return session.createDataFrame(table), "biasbios-sample"
    path = PurePosixPath(source)
    if path.suffix == ".gz":
        path = path.with_suffix("")
    kind, reader = path.suffix, session.read.option("mode", "FAILFAST")
    if kind in (".csv", ".tsv"):
        frame = reader.csv(
            source,
            header=True,
            inferSchema=True,
            sep="," if kind == ".csv" else "\t",
            multiLine=True,
            escape='"',
        )
        # An empty cell is missing, quoted or not.
        texts = {name for name, type in frame.dtypes if type == "string"}
        frame = frame.select(
            *(
                F.nullif(column(name), F.lit("")).alias(name) if name in texts else column(name)
                for name in frame.columns
            )
        )
    elif kind in (".json", ".jsonl"):
        frame = reader.json(source)
    elif kind in ("", ".parquet"):
        frame = session.read.parquet(source)
    else:
        raise invalid(
            "data",
            found=f"{source!r}",
            expected="parquet, csv, tsv or jsonl, or a folder of parquet files",
            fix="read it with Spark and pass the DataFrame",
        )
    return frame, path.stem or "bios"


def choose_split(frame: DataFrame, split: str) -> DataFrame:
    """Return the bios whose column ``split`` says so.

    Raises
    ------
    MlflowException
        When there is no such column, or no bio of that split.
    """
    from pyspark.sql import functions as F  # noqa: N812

    if "split" not in frame.columns:
        raise invalid(
            "split",
            found=f"{split!r}, and no column 'split' among {frame.columns}",
            expected="a column that says which split a bio belongs to",
            fix="leave split out",
        )
    part = frame.where(column("split") == F.lit(split))
    if part.isEmpty():
        there = [row[0] for row in frame.select("split").distinct().limit(20).collect()]
        raise invalid(
            "split",
            found=f"{split!r}",
            expected=f"one of {sorted(map(str, there))}",
            fix="name one of these",
        )
    return part


def column(name: str) -> Column:
    """Return a column by its exact name, whatever characters are in it."""
    from pyspark.sql import functions as F  # noqa: N812

    return F.col("`" + name.replace("`", "``") + "`")


@dataclass(frozen=True, eq=False)
class Surveyed:
    """What is known of a frame before the first bio is predicted.

    Attributes
    ----------
    survey : Survey
        As of a pandas frame.
    genders : mapping
        The code of each spelling of a gender.
    rows, complete : sequences of int
        Of each partition, how many rows and complete bios come before it.
    """

    survey: Survey
    genders: Mapping[Any, int]
    rows: Sequence[int]
    complete: Sequence[int]


def survey(
    frame: DataFrame, columns: Columns, *, gender_values: Mapping[Any, str] | None = None
) -> Surveyed:
    """Look at all bios once, by Spark's own operators: only counts and names reach the driver.

    Parameters
    ----------
    frame : pyspark.sql.DataFrame
    columns : Columns
    gender_values
        See `encode_genders`.

    Raises
    ------
    MlflowException
        Unknown gender values, a column of texts that holds none, far too many occupations.
    """
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.types import NumericType, StringType

    text_type = frame.schema[columns.text].dataType
    if not isinstance(text_type, StringType):
        raise invalid(
            f"column {columns.text!r}",
            found=f"values of type {text_type.simpleString()}",
            expected="texts",
            fix="set text_column to the column that holds the bios",
        )
    lacks = _lacking(frame, columns)
    found = (
        frame.select(
            F.spark_partition_id().alias("partition"),
            column(columns.occupation).alias("occupation"),
            column(columns.gender).alias("gender"),
            *(lack.alias(f"no_{part}") for part, lack in lacks.items()),
        )
        .withColumn("complete", ~(F.col("no_text") | F.col("no_occupation") | F.col("no_gender")))
        .groupBy("partition")
        .agg(
            F.count("*").alias("rows"),
            F.count_if("complete").alias("complete"),
            *(F.count_if(f"no_{part}").alias(f"no_{part}") for part in lacks),
            F.slice(
                F.collect_set(F.when(F.col("complete"), F.col("occupation"))),
                1,
                _MOST_OCCUPATIONS + 1,
            ).alias("occupations"),
            F.slice(
                F.collect_set(F.when(~F.col("no_gender"), F.col("gender"))), 1, _MOST_OCCUPATIONS
            ).alias("genders"),
        )
        .collect()
    )
    occupations = {name for row in found for name in row["occupations"]}
    if len(occupations) > _MOST_OCCUPATIONS:
        raise invalid(
            f"column {columns.occupation!r}",
            found=f"more than {_MOST_OCCUPATIONS:,} different values",
            expected="one occupation a bio",
            fix="set occupation_column to the column with the true occupation",
        )
    spellings = sorted({name for row in found for name in row["genders"]}, key=str)
    genders = encode_genders(spellings, gender_values=gender_values).tolist()
    # Partitions without a row have no entry.
    partitions = {row["partition"]: row for row in found}
    rows, complete = [0], [0]
    for partition in range(max(partitions, default=-1)):
        row = partitions.get(partition)
        rows.append(rows[-1] + (row["rows"] if row else 0))
        complete.append(complete[-1] + (row["complete"] if row else 0))
    whole = Survey(
        rows=sum(row["rows"] for row in found),
        complete=sum(row["complete"] for row in found),
        missing={part: sum(row[f"no_{part}"] for row in found) for part in lacks},
        occupations=tuple(sorted(occupations, key=str)),
        occupation_ids=isinstance(frame.schema[columns.occupation].dataType, NumericType),
    )
    return Surveyed(whole, dict(zip(spellings, genders, strict=True)), rows, complete)


def complete_bios(frame: DataFrame, columns: Columns) -> DataFrame:
    """Return the bios that lack no part."""
    lacks = _lacking(frame, columns)
    return frame.where(~(lacks["text"] | lacks["occupation"] | lacks["gender"]))


def count_duplicates(
    frame: DataFrame, columns: Columns, surveyed: Surveyed, labels: Labels
) -> tuple[int, int]:
    """Count the complete bios that are there twice, by Spark's own operators.

    Parameters
    ----------
    frame, columns
        As surveyed.
    surveyed : Surveyed
    labels : Labels
        Of the occupations.

    Returns
    -------
    duplicates, conflicting : int
        See `biasbios_mlflow.findings.Findings`.
    """
    from pyspark.sql import functions as F  # noqa: N812

    def coded(name: str, codes: Mapping[Any, int]) -> Column:
        pairs = [F.lit(part) for pair in codes.items() for part in pair]
        return F.create_map(*pairs)[column(name)]

    occupations = {name: labels.code(name) for name in surveyed.survey.occupations}
    cell = (
        coded(columns.gender, surveyed.genders) * len(labels)
        + coded(columns.occupation, occupations)
    )  # fmt: skip
    (row,) = (
        complete_bios(frame, columns)
        .select(F.xxhash64(column(columns.text)).alias("print"), cell.alias("cell"))
        .groupBy("print")
        .agg(F.count("*").alias("bios"), (F.min("cell") != F.max("cell")).alias("conflict"))
        .agg(
            F.sum(F.col("bios") - 1).alias("duplicates"),
            F.coalesce(F.sum(F.when(F.col("conflict"), F.col("bios"))), F.lit(0)).alias(
                "conflicting"
            ),
        )
        .collect()
    )
    return row["duplicates"], row["conflicting"]


def cut_windows(
    frame: DataFrame, columns: Columns, surveyed: Surveyed, size: int, *, partitions: int
) -> DataFrame:
    """Bring each window of complete bios into one partition, numbered and in order.

    The windows are those that the local engine cuts from the same rows: a model whose output
    depends on what else is in the batch then sees the same batches.

    Parameters
    ----------
    frame, columns
        As surveyed.
    surveyed : Surveyed
    size : int
        Bios in a window.
    partitions : int
        Among which the windows are spread.

    Returns
    -------
    pyspark.sql.DataFrame
        With the columns `ROW` and `POSITION`; partitions sorted by the latter.
    """
    from pyspark.sql import functions as F  # noqa: N812

    def numbered(rows: DataFrame, name: str, before: Sequence[int]) -> DataFrame:
        place = F.monotonically_increasing_id()
        marked = rows.select("*", place.alias(name))
        offsets = F.expr(f"array({', '.join(f'{count}L' for count in before)})")
        partition = F.shiftright(name, _PARTITION_BITS).cast("int")
        inside = F.col(name).bitwiseAND(F.lit((1 << _PARTITION_BITS) - 1))
        # A partition beyond those surveyed has no offset: its bios are found to be too many later.
        offset = F.coalesce(F.get(offsets, partition), F.lit(0))
        return marked.withColumn(name, offset + inside)

    bios = complete_bios(numbered(frame, ROW, surveyed.rows), columns)
    return (
        numbered(bios, POSITION, surveyed.complete)
        .withColumn(_WINDOW, F.floor(F.col(POSITION) / size))
        .repartition(partitions, _WINDOW)
        .drop(_WINDOW)
        .sortWithinPartitions(POSITION)
    )


def _lacking(frame: DataFrame, columns: Columns) -> dict[str, Column]:
    """Return of each part of a bio whether it is missing, as `check_bios` has it."""
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.types import DoubleType, FloatType

    lacks = {}
    for part in ("text", "occupation", "gender"):
        name = getattr(columns, part)
        values = column(name)
        lacks[part] = F.isnull(values)
        if isinstance(frame.schema[name].dataType, (DoubleType, FloatType)):
            lacks[part] = lacks[part] | F.isnan(values)
    something = column(columns.text).rlike(f"[^{_SPACES}]")
    lacks["text"] = ~F.coalesce(something, F.lit(False))
    return lacks
