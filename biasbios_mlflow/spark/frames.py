"""Bios in a Spark DataFrame: read, surveyed, and cut into the windows of the local engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from biasbios_mlflow.bios.checked import LEFT_OUT, Columns, Survey
from biasbios_mlflow.bios.occupations import (
    SPELLINGS_OF_NA,
    GenderValues,
    Labels,
    encode_genders,
    unknown_gender_error,
    unknown_genders,
)
from biasbios_mlflow.bios.readers import load_bios
from biasbios_mlflow.bios.sources.class_labels import names_in_metadata
from biasbios_mlflow.bios.sources.columnar import parquet_files
from biasbios_mlflow.bios.sources.files import spellings, split_files
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


def read_frame(
    source: str, session: SparkSession, split: str | None = None
) -> tuple[DataFrame, str]:
    """Read bios with Spark's own readers.

    Parameters
    ----------
    source : str
        ``"sample"``, or the path or URL of a parquet, csv, tsv or jsonl file (the last three also
        with .gz) or folder, as the executors see it. A name that does not say its format is taken
        for a folder of parquet files; one on this machine may be laid out as the Hugging Face hub
        has it.
    session : SparkSession
    split : str, optional
        Which part of it.

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
    folder = Path(source.removeprefix("file://"))
    files = split_files(folder) if folder.is_dir() else {}
    if not files:
        frame, name = _read_whole(source, session)
        return (frame, name) if split is None else (choose_split(frame, split), f"{name}-{split}")
    chosen = files if split is None else {k: files[k] for k in spellings(split) if k in files}
    if not chosen:
        raise invalid(
            "split", found=repr(split), expected=f"one of {list(files)}", fix="name one of these"
        )
    parts = [_read_whole(str(path), session)[0] for paths in chosen.values() for path in paths]
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.unionByName(part)
    return whole, folder.name if split is None else f"{folder.name}-{split}"


def _read_whole(source: str, session: SparkSession) -> tuple[DataFrame, str]:
    from pyspark.sql import functions as F  # noqa: N812

    if source == "sample":
        table = pa.Table.from_pandas(load_bios("sample").df, preserve_index=False)
        return session.createDataFrame(table), "biasbios-sample"
    path = PurePosixPath(source)
    if path.suffix.lower() == ".gz":
        path = path.with_suffix("")
    kind, reader = path.suffix.lower(), session.read.option("mode", "FAILFAST")
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
    elif kind in ("", ".parquet", ".pq"):
        frame = _with_class_names(session.read.parquet(source), source)
    else:
        raise invalid(
            "data",
            found=f"{source!r}",
            expected="parquet, csv, tsv or jsonl, or a folder of parquet files",
            fix="read it with Spark and pass the DataFrame",
        )
    return frame, path.stem or "bios"


def _with_class_names(frame: DataFrame, source: str) -> DataFrame:
    """Put names in the place of ids, where the file says what they mean (see `names_in_metadata`).

    Spark does not hand on what `datasets` writes beside the columns; it is read from files on this
    machine.
    """
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.types import NumericType

    path = Path(source.removeprefix("file://"))
    first = next(iter(parquet_files(path)), None) if path.is_dir() else str(path)
    if first is None or not Path(first).is_file():
        return frame
    for name, classes in names_in_metadata(pq.read_schema(first).metadata).items():
        if name in frame.columns and isinstance(frame.schema[name].dataType, NumericType):
            pairs = [F.lit(part) for pair in enumerate(classes) for part in pair]
            names = F.create_map(*pairs)[column(name).cast("int")]
            wrong = ~column(name).between(-1, len(classes) - 1)
            told = F.raise_error(F.lit(f"column {name!r} holds an id without a name"))
            frame = frame.withColumn(name, F.when(wrong, told.cast("string")).otherwise(names))
    return frame


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
    plain = F.lower(F.trim(column("split").cast("string")))
    part = frame.where(plain.isin(*spellings(split)))
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
    left_out : sequence
        The spellings of a gender that the user's ``gender_values`` leave out.
    """

    survey: Survey
    genders: Mapping[Any, int]
    rows: Sequence[int]
    complete: Sequence[int]
    left_out: Sequence[Any] = ()


def survey(
    frame: DataFrame, columns: Columns, *, gender_values: GenderValues | None = None
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
    from pyspark.sql.types import ArrayType, MapType, StringType, StructType

    for part in ("text", "counterfactual"):
        name = getattr(columns, part)
        if name is not None and not isinstance(frame.schema[name].dataType, StringType):
            raise invalid(
                f"column {name!r}",
                found=f"values of type {frame.schema[name].dataType.simpleString()}",
                expected="texts",
                fix=f"set {part}_column to a column of texts",
            )
    for part in ("occupation", "gender"):
        name = getattr(columns, part)
        if isinstance(frame.schema[name].dataType, (ArrayType, MapType, StructType)):
            raise invalid(
                f"column {name!r}",
                found=f"values of type {frame.schema[name].dataType.simpleString()}",
                expected="one name or number a bio",
                fix="hand in a column with one value a cell",
            )
    left_out = _left_out(frame, columns, gender_values)
    lacks = _lacking(frame, columns, left_out)
    if columns.counterfactual is not None:
        lacks["counterfactual"] = _is_blank(frame, columns.counterfactual)
    parts = frame.select(
        F.spark_partition_id().alias("partition"),
        column(columns.occupation).alias("occupation"),
        column(columns.gender).alias("gender"),
        *(lack.alias(f"no_{part}") for part, lack in lacks.items()),
    ).withColumn(
        "complete",
        ~(F.col("no_text") | F.col("no_occupation") | F.col("no_gender") | F.col(f"no_{LEFT_OUT}")),
    )
    if columns.counterfactual is not None:
        lacking = F.col("no_counterfactual") & F.col("complete")
        parts = parts.withColumn("no_counterfactual", lacking)
    found = (
        parts.groupBy("partition")
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
    spelled = sorted({name for row in found for name in row["genders"]}, key=str)
    if unknown := unknown_genders(spelled, gender_values=gender_values):
        raise unknown_gender_error(
            unknown, gender_values=gender_values, thing=f"gender (column {columns.gender!r})"
        )
    genders = encode_genders(spelled, gender_values=gender_values).tolist()
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
        missing={
            part: count
            for part in lacks
            if (count := sum(row[f"no_{part}"] for row in found)) or part != LEFT_OUT
        },
        occupations=tuple(sorted(occupations, key=str)),
    )
    codes = dict(zip(spelled, genders, strict=True))
    return Surveyed(whole, codes, rows, complete, left_out)


def complete_bios(frame: DataFrame, columns: Columns, left_out: Sequence[Any] = ()) -> DataFrame:
    """Return the bios that lack no part, and whose gender is not left out."""
    lacks = _lacking(frame, columns, left_out)
    return frame.where(~(lacks["text"] | lacks["occupation"] | lacks["gender"] | lacks[LEFT_OUT]))


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
        complete_bios(frame, columns, surveyed.left_out)
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

    bios = complete_bios(numbered(frame, ROW, surveyed.rows), columns, surveyed.left_out)
    return (
        numbered(bios, POSITION, surveyed.complete)
        .withColumn(_WINDOW, F.floor(F.col(POSITION) / size))
        .repartition(partitions, _WINDOW)
        .drop(_WINDOW)
        .sortWithinPartitions(POSITION)
    )


def _left_out(
    frame: DataFrame, columns: Columns, gender_values: GenderValues | None
) -> Sequence[Any]:
    """Return the spellings of a gender that are to be left out; these must be known before."""
    if gender_values is None or None not in gender_values.values():
        return ()
    genders = frame.select(column(columns.gender)).distinct().limit(_MOST_OCCUPATIONS).collect()
    spelled = sorted({row[0] for row in genders if row[0] is not None}, key=str)
    wrong = set(unknown_genders(spelled, gender_values=gender_values))
    known = [value for value in spelled if value not in wrong]  # the others are told of later
    codes = encode_genders(known, gender_values=gender_values).tolist()
    return [value for value, code in zip(known, codes, strict=True) if code == -2]


def _lacking(frame: DataFrame, columns: Columns, left_out: Sequence[Any]) -> dict[str, Column]:
    """Return of each part of a bio whether it is missing, as `check_bios` has it."""
    from pyspark.sql import functions as F  # noqa: N812

    away = column(columns.gender).isin(*left_out) if left_out else F.lit(False)
    away = F.coalesce(away, F.lit(False))
    return {
        "text": _is_blank(frame, columns.text),
        "occupation": _is_missing(frame, columns.occupation),
        "gender": _is_missing(frame, columns.gender) & ~away,
        LEFT_OUT: away,
    }


def _is_blank(frame: DataFrame, name: str) -> Column:
    """Tell whether a cell of text is missing, see `is_missing`."""
    from pyspark.sql import functions as F  # noqa: N812

    return ~F.coalesce(column(name).rlike(f"[^{_SPACES}]"), F.lit(False))


def _is_missing(frame: DataFrame, name: str) -> Column:
    """Tell whether an occupation or a gender is missing, see `is_missing`."""
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.types import DoubleType, FloatType, StringType

    kind = frame.schema[name].dataType
    missing = F.isnull(column(name))
    if isinstance(kind, (DoubleType, FloatType)):
        return missing | F.isnan(column(name))
    if isinstance(kind, StringType):
        bare = F.regexp_replace(column(name), f"^[{_SPACES}]+|[{_SPACES}]+$", "")
        return missing | F.coalesce(bare.isin("", *SPELLINGS_OF_NA), F.lit(False))
    return missing
