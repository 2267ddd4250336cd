"""The archive of Spark's classes, which every Spark process uses."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from runtime import class_archive as archive
from truelog.spark import java, submit
from truelog.spark.class_archive import base_archive, class_archive, class_path, mapping
from truelog.support.settings import ENVIRONMENT_FILE, Settings

MAPS = """
from truelog.spark.session import session
from truelog.support.settings import Settings
jvm = session(Settings(), "maps")._jvm
print(open(f"/proc/{jvm.java.lang.ProcessHandle.current().pid()}/maps").read())
"""


def test_a_session_maps_it(spark: SparkSession, settings: Settings) -> None:
    """`make install` has made it, and the archive of Java's own classes that it needs."""
    jvm = spark._jvm
    assert jvm is not None
    mapped = Path(f"/proc/{jvm.java.lang.ProcessHandle.current().pid()}/maps").read_text()
    for each in (class_archive(settings), base_archive(settings)):
        assert each is None or each.name in mapped


def test_the_class_path_lists_each_jar_once_and_spark_s_own_jars_first(settings: Settings) -> None:
    """Java 21 maps no archive if a jar is listed again before other jars."""
    given = {"spark.driver.extraClassPath": "/opt/given.jar"}
    changed = settings.model_copy(update={"spark_conf": given})
    own, ours = f"{java.pyspark_home()}/jars/*", [str(jar) for jar in settings.jars("spark")]
    assert class_path(settings).split(":") == [own, *ours]
    assert submit.submit_conf(changed, settings.home)["spark.driver.extraClassPath"].split(":") == [
        "/opt/given.jar",
        own,
        *ours,
    ]
    assert class_archive(changed) != class_archive(settings)


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
    """Java ignores an archive that was made with other jars, or before a jar was installed again."""
    other = tmp_path / "spark" / "other.jar"
    other.parent.mkdir()
    other.touch()
    changed = settings.model_copy(update={"jars_folder": tmp_path})
    before = class_archive(changed).name
    assert before != class_archive(settings).name
    os.utime(other, (0, 0))
    assert class_archive(changed).name != before


def test_java_tool_options_do_not_change_the_archive(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests set these options but must find the same archive that `make install` makes."""
    expected = class_archive(settings)
    monkeypatch.delenv("JAVA_TOOL_OPTIONS")
    java.java_version.cache_clear()
    assert class_archive(settings) == expected


@pytest.fixture
def own_jars(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A home without an archive, whose folder of jars a test may change."""
    monkeypatch.delenv("JAVA_TOOL_OPTIONS")
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "spark").symlink_to(settings.jars_home / "spark")
    return settings.model_copy(update={"home": tmp_path, "jars_folder": tmp_path / "jars"})


@pytest.fixture
def packaged(own_jars: Settings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    """A host without Java, so that the Java from PyPI is used, which has no archive of its own classes."""
    monkeypatch.setattr(java, "host_java", lambda: None)
    return own_jars


def run_java(settings: Settings, *options: str, jars: str = "") -> "subprocess.CompletedProcess[bytes]":
    """Run a small program of Spark's jars."""
    command = [java.java(settings), *options, "-cp", jars or class_path(settings), "org.apache.hadoop.util.VersionInfo"]
    return subprocess.run(command, capture_output=True, check=False)


def run_shortly(settings: Settings, fresh: Path, *, jars: str = "") -> "subprocess.CompletedProcess[bytes]":
    """Stands for the run of Spark, which takes half a minute."""
    return run_java(settings, *mapping(settings, fresh), f"-XX:ArchiveClassesAtExit={fresh}", jars=jars)


def spark_s_class_path() -> str:
    """The beginning of the class path that Spark would have by itself. It lists the first jar twice."""
    jars = java.pyspark_home() / "jars"
    return f"{next(jars.glob('slf4j-api-*.jar'))}:{jars}/*"


def test_java_without_an_archive_of_its_own_classes_gets_one(
    packaged: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "run", run_shortly)
    base = base_archive(packaged)
    assert base is not None
    assert mapping(packaged, class_archive(packaged)) == []
    archive.make(packaged)
    assert {each.name for each in packaged.jars_home.iterdir()} == {"spark", base.name, class_archive(packaged).name}
    options = mapping(packaged, class_archive(packaged))
    assert options == [f"-XX:SharedArchiveFile={class_archive(packaged)}"]
    output = run_java(packaged, "-Xlog:class+load", *options).stdout.decode()
    assert "java.lang.Object source: shared objects file\n" in output
    assert "org.apache.hadoop.util.VersionInfo source: shared objects file (top)\n" in output
    class_archive(packaged).unlink()
    assert mapping(packaged, class_archive(packaged)) == [f"-XX:SharedArchiveFile={base}"]


def test_an_archive_that_java_cannot_map_is_not_kept(packaged: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    by_itself = spark_s_class_path()
    monkeypatch.setattr(archive, "run", lambda settings, fresh: run_shortly(settings, fresh, jars=by_itself))
    archive.make(packaged)
    assert not class_archive(packaged).exists()
    assert "shared class paths mismatch" in class_archive(packaged).with_suffix(".log").read_text()


@pytest.mark.parametrize("host", ["own_jars", "packaged"])
def test_java_starts_without_an_archive_that_it_cannot_map(host: str, request: pytest.FixtureRequest) -> None:
    """Java prints nothing to standard output, which may contain a command's JSON."""
    settings: Settings = request.getfixturevalue(host)
    unusable = class_archive(settings)
    unusable.write_text("damaged")
    require_start(settings)
    unusable.unlink()
    if (base := base_archive(settings)) is not None:
        archive._dump(settings, base)
    run_shortly(settings, unusable, jars=spark_s_class_path())
    require_start(settings)


def require_start(settings: Settings) -> None:
    """Require that Java starts with the options of a Spark process, which name the archive."""
    options = submit.submit_conf(settings, settings.home)["spark.driver.extraJavaOptions"].split()
    assert f"-XX:SharedArchiveFile={class_archive(settings)}" in options
    ended = run_java(settings, *options)
    assert ended.returncode == 0
    assert ended.stdout.startswith(b"Hadoop ")


def test_if_java_s_own_classes_cannot_be_archived_the_reason_is_kept(
    packaged: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run of Spark could not write an archive either."""
    failed = subprocess.CompletedProcess([], 1, b"no space")
    monkeypatch.setattr(archive, "_dump", lambda *_: failed)
    monkeypatch.delattr(archive, "run")
    archive.make(packaged)
    assert class_archive(packaged).with_suffix(".log").read_text() == "no space"


@pytest.mark.nightly  # the run of Spark, and a session, each without the host's Java
def test_spark_maps_both_archives_on_a_host_without_java(
    settings: Settings, packaged: Settings, tmp_path: Path
) -> None:
    archive.make(packaged)
    no_java = tmp_path / "bin" / "java"
    no_java.parent.mkdir()
    no_java.write_text("#!/bin/sh\nexit 1\n")
    no_java.chmod(0o700)
    environment = {name: each for name, each in os.environ.items() if name not in ("JAVA_HOME", "JAVA_TOOL_OPTIONS")}
    environment |= {"PATH": f"{no_java.parent}:{environment['PATH']}", "TRUELOG_JARS": str(packaged.jars_home)}
    with tempfile.TemporaryDirectory() as home:  # Spark's sockets need a short path
        shutil.copy(settings.home / ENVIRONMENT_FILE, home)
        command = [sys.executable, "-c", MAPS]
        maps = subprocess.run(command, env=environment | {"TRUELOG_HOME": home}, capture_output=True, check=True).stdout
    base = base_archive(packaged)
    assert base is not None
    assert {line.split()[-1] for line in maps.decode().splitlines() if line.endswith(".jsa")} == {
        str(base),
        str(class_archive(packaged)),
    }
