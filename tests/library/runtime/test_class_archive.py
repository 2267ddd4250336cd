"""The archive of Spark's classes, which every Spark process uses."""

import subprocess
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from runtime import class_archive as archive
from truelog.spark import java, submit
from truelog.spark.java import class_archive
from truelog.support.settings import Settings


def test_a_session_maps_it(spark: SparkSession, settings: Settings) -> None:
    """`make install` has made it, unless Java has no archive of its own classes."""
    own = java.java_home(settings) / "lib" / "server" / "classes.jsa"
    assert class_archive(settings).is_file() == own.is_file()
    jvm = spark._jvm
    assert jvm is not None
    mapped = Path(f"/proc/{jvm.java.lang.ProcessHandle.current().pid()}/maps").read_text()
    assert (class_archive(settings).name in mapped) == class_archive(settings).is_file()


@pytest.mark.nightly  # `make install` runs the same, and the test above requires its result
def test_the_run_that_loads_the_classes_succeeds(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_TOOL_OPTIONS", raising=False)  # with the options of tests, Java makes no archive
    monkeypatch.setattr(submit, "class_archive", lambda _: tmp_path / "none")
    folder = tmp_path / ("a-path-too-long-for-a-socket" * 5)
    folder.mkdir()
    ended = archive.run(settings, folder / "classes.jsa")
    assert ended.returncode == 0, ended.stdout[-20_000:].decode()


def test_a_failure_is_kept_and_not_repeated_at_every_start(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, runs = tmp_path / "classes-1.jsa", list[Path]()

    def fail(_: Settings, fresh: Path) -> "subprocess.CompletedProcess[bytes]":
        runs.append(fresh)
        return subprocess.CompletedProcess([], 1, b"why")

    monkeypatch.setattr(archive, "class_archive", lambda _: found)
    monkeypatch.setattr(archive, "run", fail)
    for retry in (False, False, True):
        archive.make(settings, retry=retry)
    assert len(runs) == 2
    assert found.with_suffix(".log").read_text() == "why"


def test_other_jars_have_another_archive(settings: Settings, tmp_path: Path) -> None:
    """Java ignores an archive that was made with another class path."""
    (tmp_path / "spark").mkdir()
    (tmp_path / "spark" / "other.jar").touch()
    assert class_archive(settings.model_copy(update={"jars_folder": tmp_path})).name != class_archive(settings).name


def test_java_tool_options_do_not_change_the_archive(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests set these options but must find the same archive that `make install` makes."""
    expected = class_archive(settings)
    monkeypatch.delenv("JAVA_TOOL_OPTIONS")
    java._version.cache_clear()
    assert class_archive(settings) == expected
