"""One Spark session and one migrated database for all laws."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.laws.lab import Lab
from truelog.database import Connection, connect, migrate
from truelog.event import load_events
from truelog.session import session
from truelog.settings import Settings


@pytest.fixture(scope="session")
def spark(settings: Settings) -> Iterator[SparkSession]:
    running = session(settings, "laws")
    yield running
    running.stop()


@pytest.fixture(scope="session")
def migrated(postgresql: Settings) -> Settings:
    migrate(postgresql)
    return postgresql


@pytest.fixture
def connection(migrated: Settings) -> Iterator[Connection]:
    with connect(migrated, autocommit=True) as opened:
        yield opened


@pytest.fixture
def lab(spark: SparkSession, migrated: Settings, connection: Connection) -> Lab:
    return Lab(spark, migrated, connection, load_events())
