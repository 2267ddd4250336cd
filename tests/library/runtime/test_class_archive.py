"""The archive of Spark's classes: used wherever it was made."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from truelog.spark import java
from truelog.spark.java import class_archive
from truelog.support.settings import Settings


def test_a_session_maps_it(spark: SparkSession, settings: Settings) -> None:
    """A Java that brings no archive of its own classes makes none of Spark's: then there is no file."""
    jvm = spark._jvm
    assert jvm is not None
    mapped = Path(f"/proc/{jvm.java.lang.ProcessHandle.current().pid()}/maps").read_text()
    assert (class_archive(settings).name in mapped) == class_archive(settings).is_file()


def test_options_by_the_way_make_no_other_java(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests give every Java such options, and looked for another archive than the one that installing makes."""
    named = class_archive(settings)
    monkeypatch.delenv("JAVA_TOOL_OPTIONS")
    java._version.cache_clear()
    assert class_archive(settings) == named
