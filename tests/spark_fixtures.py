"""Fixtures for Spark, a connection to PostgreSQL and the lab. `tests/conftest.py` loads this module as a plugin."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.deadline import deadline
from truelog.support.settings import Settings

if TYPE_CHECKING:
    # Imported where they are used, so that a run without Spark does not wait for the import.
    from pyspark.sql import SparkSession

    from tests.beds.lab import Lab
    from tests.servers import SharedServers
    from truelog.storage.database import Connection


# Most plans of tests are new and see some rows, so Spark would take longer to compile code for them than it saves.
# Law 1 and the jobs of scenes run generated code.
INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


@pytest.fixture(scope="session")
def spark_servers(servers: SharedServers) -> Iterator[Settings]:
    """The settings of Spark's JVM, which all files share. At the end, the JVM ends, unless it is that of
    `make platform`.
    """
    from tests.warm import WarmServers

    if isinstance(servers, WarmServers):
        servers.attach_jvm()
    yield servers.settings
    end_spark()


def end_spark() -> None:
    """Stop Spark, and end the JVM if this process has started it."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if running := SparkSession.getActiveSession():
        running.stop()
    gateway = SparkContext._gateway
    if gateway and gateway.proc:
        gateway.shutdown()
        gateway.proc.stdin.close()  # the JVM exits when its standard input ends
        gateway.proc.wait(deadline(30))  # on exit, it removes files of the home
        SparkContext._gateway = SparkContext._jvm = None


@pytest.fixture(scope="module")
def spark_session(settings: Settings, spark_servers: Settings) -> None:
    """A Spark session of the file, since a session keeps the archive's catalog that it has used once.

    Afterwards, `truelog.spark.session.session` returns this session.
    """
    _begin_session(spark_servers)


def _begin_session(servers: Settings) -> None:
    from pyspark.sql import SparkSession

    from truelog.spark.session import session

    home = os.environ["TRUELOG_HOME"]
    running = session(servers, "tests")
    os.environ["TRUELOG_HOME"] = home  # for the processes that the file starts: the file's own, not that of the servers
    SparkSession._instantiatedSession = None  # so that others get the new session
    made = running.newSession()
    for name, value in INTERPRETED.items():
        made.conf.set(name, value)


@pytest.fixture
def spark(settings: Settings, spark_servers: Settings, spark_session: None) -> SparkSession:
    """The file's Spark session, restarted if a test has stopped Spark."""
    from pyspark.sql import SparkSession

    from truelog.spark.session import session

    if SparkSession.getActiveSession() is None:
        _begin_session(spark_servers)
    return session(settings, "tests")


@pytest.fixture
def spark_home(tmp_path: Path) -> Path:
    """A Spark home with PySpark's programs and jars, where a local cluster's workers can create folders."""
    from truelog.spark.java import pyspark_home

    home = tmp_path / "spark"
    home.mkdir()
    for name in ("bin", "jars"):
        (home / name).symlink_to(pyspark_home() / name)
    return home


@pytest.fixture
def connection(postgresql: Settings) -> Iterator[Connection]:
    from truelog.storage.database import connect

    with connect(postgresql, autocommit=True) as opened:
        yield opened


@pytest.fixture
def lab(spark: SparkSession, postgresql: Settings, connection: Connection) -> Lab:
    """The search for the causes of differing rows has enough time, however busy the machine is."""
    from tests.beds.lab import Lab
    from truelog.schema.loading.events import load_events

    return Lab(spark, postgresql.model_copy(update={"cause_seconds": 600.0}), connection, load_events())
