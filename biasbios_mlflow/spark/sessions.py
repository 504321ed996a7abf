"""Spark sessions: the user's, or one of our own; and Spark's errors as user errors."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from biasbios_mlflow.config import EvaluationConfig
from biasbios_mlflow.errors import invalid, missing_extra
from biasbios_mlflow.spark.worker import user_error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = [
    "arrow_map",
    "errors_told",
    "find_session",
    "is_spark_frame",
    "prepare_folder",
    "require_pyspark",
]

_PYTHON = "PYSPARK_PYTHON"
_PACKAGE = "biasbios_mlflow"


def require_pyspark() -> None:
    """Raise where pyspark is not installed.

    Raises
    ------
    MlflowException
        With the pip line that installs it.
    """
    try:
        import pyspark.sql  # noqa: F401
    except ImportError as error:
        raise missing_extra("pyspark", "spark", needed_for="the Spark engine") from error


def is_spark_frame(data: Any) -> bool:
    """Tell whether something is a Spark DataFrame, classic or Connect."""
    from pyspark.sql import DataFrame

    return isinstance(data, DataFrame)


def find_session() -> SparkSession:
    """Return the active session, else start one with the settings that the environment gives.

    Without any, that is a local one on all cores. Its Python workers run this interpreter, unless
    ``PYSPARK_PYTHON`` names another.

    Raises
    ------
    MlflowException
        When none can be started, as without Java.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    os.environ.setdefault(_PYTHON, sys.executable)
    try:
        return SparkSession.builder.appName("biasbios").getOrCreate()
    except (PySparkException, OSError) as error:
        raise invalid(
            "Spark",
            found=f"no session, and none starts ({_first_line(error)})",
            expected="Java 17 or later, or a Spark Connect server",
            fix="install a Java runtime (JAVA_HOME says where it is), or set SPARK_REMOTE",
        ) from error


def arrow_map(frame: DataFrame, function: Any, schema: str) -> DataFrame:
    """Map the partitions of a frame, by this interpreter where Spark runs on this machine.

    Parameters
    ----------
    frame : pyspark.sql.DataFrame
    function : callable
        From an iterator of Arrow record batches to another.
    schema : str
        Of what it returns, as DDL.
    """
    context = _local_context(frame.sparkSession)
    if context is None or _PYTHON in os.environ:
        return frame.mapInArrow(function, schema)
    # Else it would be whatever "python3" is in the path. Spark reads this when a function is handed
    # over, not later.
    before, context.pythonExec = context.pythonExec, sys.executable
    try:
        return frame.mapInArrow(function, schema)
    finally:
        context.pythonExec = before


def prepare_folder(folder: str, session: SparkSession, config: EvaluationConfig) -> None:
    """Write the options of an evaluation to the folder where its rows will lie.

    So that a folder that cannot be written to is found before anything is predicted.

    Raises
    ------
    MlflowException
        When executors cannot write there.
    """
    from pyspark.sql import functions as F  # noqa: N812

    about = json.dumps(config.as_json(), ensure_ascii=False)
    try:
        session.range(1).select(F.lit(about)).coalesce(1).write.text(f"{folder}/config")
    except _spark_errors() as error:
        raise invalid(
            "output",
            found=f"{folder!r} ({_cause(error)})",
            expected="a folder or URL that all executors can write to",
            fix="name another",
        ) from error


@contextmanager
def errors_told(thing: str) -> Iterator[None]:
    """Turn Spark's errors that a user can mend into user errors.

    Parameters
    ----------
    thing : str
        What Spark is busy with, for messages.

    Raises
    ------
    MlflowException
        What the code on the executors raised as such; a table, path or column that Spark does not
        find or cannot read; workers that lack this package.
    """
    from pyspark.errors import AnalysisException

    try:
        yield
    except _spark_errors() as error:
        text = str(error)
        told = user_error(text)
        if told is not None:
            raise told from None
        if f"No module named '{_PACKAGE}" in text or "PYTHON_VERSION_MISMATCH" in text:
            python = f"Python {sys.version_info.major}.{sys.version_info.minor}"
            raise invalid(
                "Spark's Python workers",
                found="another Python, or one without this package",
                expected=f"{python} with {_PACKAGE}",
                fix=f"install it on all executors, and set {_PYTHON} before the session starts",
            ) from error
        unreadable = any(word in text for word in ("FAILED_READ_FILE", "MALFORMED_RECORD"))
        if isinstance(error, AnalysisException) or unreadable:
            raise invalid(
                thing,
                found=_first_line(error),
                expected="what Spark can read",
                fix="check path, format and columns",
            ) from error
        raise


def _local_context(session: SparkSession) -> Any | None:
    """Return the Spark context where its workers run on this machine; None on a cluster."""
    from pyspark.errors import PySparkException

    try:
        context = session.sparkContext
    except PySparkException:  # Spark Connect has none
        return None
    return context if str(context.master).startswith("local") else None


def _spark_errors() -> tuple[type[Exception], ...]:
    from pyspark.errors import PySparkException

    if importlib.util.find_spec("py4j") is None:  # a client of Spark Connect alone
        return (PySparkException,)
    from py4j.protocol import Py4JJavaError

    return PySparkException, Py4JJavaError


def _cause(error: BaseException) -> str:
    """Return what Java says of an error in one line."""
    for line in str(error).splitlines():
        found = re.search(r"[\w.]+(Exception|Error): (?!.*(Exception|Error): )(.+)", line)
        if found is not None:
            return found.group(3).strip()
    return _first_line(error)


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines()]
    return next((line for line in lines if line), type(error).__name__)
