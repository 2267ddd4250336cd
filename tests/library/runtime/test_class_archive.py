"""The archive of Spark's classes, which every Spark process uses."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from truelog.spark import java
from truelog.spark.java import class_archive
from truelog.support.settings import Settings


def test_a_session_maps_it(spark: SparkSession, settings: Settings) -> None:
    """If Java has no archive of its own classes, it cannot make one for Spark, so there is no file."""
    jvm = spark._jvm
    assert jvm is not None
    mapped = Path(f"/proc/{jvm.java.lang.ProcessHandle.current().pid()}/maps").read_text()
    assert (class_archive(settings).name in mapped) == class_archive(settings).is_file()


def test_java_tool_options_do_not_change_the_archive(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests set these options but must find the same archive that `make install` makes."""
    expected = class_archive(settings)
    monkeypatch.delenv("JAVA_TOOL_OPTIONS")
    java._version.cache_clear()
    assert class_archive(settings) == expected
