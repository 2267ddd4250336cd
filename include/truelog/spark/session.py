"""The Spark session of every Truelog application.

If `spark-submit` started the process, the command line has set the master and the configuration. A process started as
plain Python sets both here. The catalog secrets are set on the running session, because PySpark passes all earlier
settings to the JVM as arguments, which other users can read.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from py4j.java_gateway import JavaClass
from pyspark.sql import SparkSession

from truelog.spark.callback import require_token
from truelog.spark.scratch import process_folder
from truelog.spark.submit import UMASK, job_environment, properties_file, submit_conf
from truelog.support.settings import Settings

# PySpark asks the JVM for one of these classes whenever it makes a column. For a short name, Java searches every jar.
_CLASSES = ("PythonSQLUtils", "PythonUtils", "functions", "org.apache.spark.sql.functions")
_SMALL = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # Without generated code, Spark keeps the values of common expressions in a cache that costs more than it saves.
    "spark.sql.subexpressionElimination.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
}
_SUBMITTED = "PYSPARK_GATEWAY_PORT"  # set if the spark-submit JVM started this Python process


def session(settings: Settings, name: str, *, quick: bool = False, batch: bool = False) -> SparkSession:
    """A session named `name` in UTC, with the archive as the `archive` Iceberg catalog.

    If spark-submit started the process, its command line has decided whether the process is `quick` and `batch`.
    """
    builder = SparkSession.builder.appName(name)
    if _SUBMITTED not in os.environ:
        scratch = process_folder(settings)
        os.environ.update(job_environment(settings, scratch))
        os.environ["PYSPARK_SUBMIT_ARGS"] = f"--properties-file '{properties_file(settings)}' pyspark-shell"
        builder = builder.master(settings.spark_master)
        for key, value in submit_conf(settings, scratch, quick=quick, batch=batch).items():
            builder = builder.config(key, value)
    with _private_files():
        spark: SparkSession = builder.getOrCreate()
    require_token(spark)
    _remember_classes(spark)
    for key, value in settings.spark_catalog().items():
        spark.conf.set(key, value)
    return spark


def small_session(spark: SparkSession, further: Mapping[str, str] | None = None) -> SparkSession:
    """A session of the same application for small batches: one partition, and no generated code.

    To generate and compile code for a plan takes longer than to interpret it for some thousand rows. Plans do not
    adapt themselves, because one partition leaves nothing to decide. `further` has more of the session's configuration.
    """
    small = spark.newSession()
    for key, value in (_SMALL | dict(further or {})).items():
        small.conf.set(key, value)
    return small


class _Remembered(JavaClass):  # type: ignore[misc]
    """A class of the JVM that is asked for each of its members only once."""

    def __getattr__(self, name: str) -> object:
        self.__dict__[name] = member = super().__getattr__(name)
        return member


def _remember_classes(spark: SparkSession) -> None:
    java: Any = spark.sparkContext._jvm
    for name in _CLASSES:
        found = getattr(java, name)
        if not isinstance(found, _Remembered):  # of an earlier session of this process
            setattr(java, name, _Remembered(found._fqn, java._gateway_client))


@contextmanager
def _private_files() -> Iterator[None]:
    """Only this user can read the files of the JVM that starts in this block."""
    before = os.umask(UMASK)
    try:
        yield
    finally:
        os.umask(before)
