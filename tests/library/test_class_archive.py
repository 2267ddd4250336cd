"""The archive of Spark's classes: used wherever it was made."""

from pathlib import Path

from pyspark.sql import SparkSession

from runtime.java import class_archive
from truelog.settings import Settings


def test_a_session_maps_it(spark: SparkSession, settings: Settings) -> None:
    """A Java that brings no archive of its own classes makes none of Spark's: then there is no file."""
    jvm = spark._jvm
    assert jvm is not None
    mapped = Path(f"/proc/{jvm.java.lang.ProcessHandle.current().pid()}/maps").read_text()
    assert (class_archive(settings).name in mapped) == class_archive(settings).is_file()
