"""What the source of alerts about applications finds: real leases in a database that has recorded nothing else."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from tests.builders.applications import a_launch, end_lease, last_batch, took_lease
from tests.library.alert_tables import emptied
from truelog.alerts.kind import KINDS
from truelog.alerts.rules import Observation
from truelog.alerts.sources import applications
from truelog.control import application, lease
from truelog.control.application import ARCHIVE, STREAM
from truelog.storage.database import Connection
from truelog.support.settings import Settings

HOUR = timedelta(hours=1)


@pytest.fixture
def database(postgresql: Settings) -> Iterator[Connection]:
    with emptied(postgresql, "launch", "lease", "application") as connection:
        yield connection


def keys(observation: Observation) -> set[str]:
    assert {finding.kind for finding in observation.findings} <= KINDS.keys()
    return {finding.key for finding in observation.findings}


def test_an_application_from_its_start_to_its_death(postgresql: Settings, database: Connection) -> None:
    """Before the application's first batch, its alert is unseen. After its death, the next look finds it down."""

    def observed() -> tuple[set[str], bool]:
        observation = applications.observe(postgresql)
        return keys(observation), observation.sees("application_down/stream")

    assert observed() == (set(), False)
    taken = lease.take_lease(postgresql, STREAM)
    application.declare(database, [STREAM])
    assert observed() == (set(), False)
    lease.record_batch(database, taken.holder)
    assert observed() == (set(), True)
    end_lease(database, taken)
    assert observed()[0] == {"application_down/stream"}
    application.set_desired(database, STREAM, "stopped", "a test")
    assert observed() == (set(), True)


def test_an_application_that_keeps_dying_is_reported(postgresql: Settings, database: Connection) -> None:
    for reason, minutes in (("down", 1), ("hung", 2), ("changed", 3), ("cleared by hand", 4), ("down", 11)):
        a_launch(database, STREAM, reason, ago=timedelta(minutes=minutes))
    assert "application_restarting/stream" not in keys(applications.observe(postgresql))
    a_launch(database, STREAM, ago=timedelta(minutes=5))
    assert "application_restarting/stream" in keys(applications.observe(postgresql))


def test_without_ticks_a_silent_application_is_not_blamed(postgresql: Settings, database: Connection) -> None:
    """If Kafka is unreachable, there is one incident, with the log as its subject."""
    away = postgresql.model_copy(update={"kafka_bootstrap": "127.0.0.1:1"})
    held = lease.take_lease(postgresql, STREAM)
    last_batch(database, STREAM, ago=HOUR)
    application.declare(database, [STREAM])
    observation = applications.observe(away)
    end_lease(database, held)
    assert keys(observation) == {"no_input/log"}
    assert not observation.sees("application_down/stream")
    assert observation.findings[0].cause == "no input for stream"


def test_only_a_batch_is_evidence_of_input(postgresql: Settings, database: Connection) -> None:
    """Applications that start again during an outage of Kafka cannot tell."""

    def is_seen() -> bool:
        observation = applications.observe(postgresql)
        assert "no_input/log" not in keys(observation)
        return observation.sees("no_input/log")

    application.declare(database, [ARCHIVE, STREAM])
    assert not is_seen()
    taken = lease.take_lease(postgresql, STREAM)
    assert not is_seen()
    lease.record_batch(database, taken.holder)
    assert is_seen()
    took_lease(database, STREAM, ago=timedelta())  # again, after an outage of PostgreSQL
    assert not is_seen()
    lease.record_batch(database, taken.holder)
    assert is_seen()
    end_lease(database, taken)
    assert not is_seen()
    for each in (ARCHIVE, STREAM):
        application.set_desired(database, each, "stopped", "a test")
    assert is_seen()
