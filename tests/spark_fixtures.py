"""Fixtures for Spark, a migrated database and the lab. `tests/conftest.py` loads this module as a plugin."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from truelog.support.settings import Settings

if TYPE_CHECKING:
    # Imported where they are used, so that a run without Spark does not wait for the import.
    from pyspark.sql import SparkSession

    from tests.laws.lab import Lab
    from truelog.storage.database import Connection


@pytest.fixture(scope="session")
def _spark_ends(settings: Settings) -> Iterator[None]:
    """End Spark and its JVM with the home, which has the JVM's temporary files."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    yield
    if running := SparkSession.getActiveSession():
        running.stop()
    if gateway := SparkContext._gateway:
        gateway.shutdown()
        gateway.proc.stdin.close()  # the JVM exits when its standard input ends
        gateway.proc.wait(30)  # on exit, it removes files of the home
        SparkContext._gateway = SparkContext._jvm = None


@pytest.fixture
def spark(settings: Settings, _spark_ends: None) -> SparkSession:
    """The test run's Spark session, restarted if a test has stopped it."""
    from truelog.spark.session import session

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


@pytest.fixture(scope="session")
def migrated(postgresql: Settings) -> Settings:
    from truelog.storage.database import migrate

    migrate(postgresql)
    return postgresql


@pytest.fixture
def connection(migrated: Settings) -> Iterator[Connection]:
    from truelog.storage.database import connect

    with connect(migrated, autocommit=True) as opened:
        yield opened


@pytest.fixture
def lab(spark: SparkSession, migrated: Settings, connection: Connection) -> Lab:
    from tests.laws.lab import Lab
    from truelog.schema.event import load_events

    return Lab(spark, migrated, connection, load_events())
