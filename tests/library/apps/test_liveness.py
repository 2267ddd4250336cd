"""A silent application with work to do has hung, with or without ticks. If it has no work, a restart cannot help."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest
from confluent_kafka import Producer

from tests.builders.views import a_view, forget, merged_to
from tests.deadline import deadline
from truelog.apps.liveness import diagnose
from truelog.control import view_status
from truelog.control.application import ApplicationStatus, Diagnosis
from truelog.log import topics
from truelog.schema.loading.events import load_events
from truelog.storage.database import Connection
from truelog.support.settings import Settings

NAME, VIEW, TOPIC = "diagnosed", "diagnosed_view", "click"
LATER = timedelta(hours=1)  # longer than any limit


@dataclass(frozen=True)
class Silent:
    """An application whose only view has read the log to its end. No record has arrived since its last batch."""

    settings: Settings
    connection: Connection
    status: ApplicationStatus

    def verdict(self, status: ApplicationStatus | None = None) -> Diagnosis | None:
        """The diagnosis an hour after the application's last batch."""
        return diagnose(self.settings, status or self.status, datetime.now(UTC) + LATER)

    def execute(self, query: str) -> None:
        self.connection.execute(query.encode(), (VIEW,))


@pytest.fixture
def silent(postgresql: Settings, kafka: Settings, connection: Connection) -> Iterator[Silent]:
    topics.sync_topics(kafka, load_events())
    send(kafka)
    ends = topics.end_offsets(kafka, [TOPIC])
    a_view(connection, VIEW)
    merged_to(connection, VIEW, ends)
    view_status.record_state(connection, NAME, VIEW, 1)
    now = datetime.now(UTC)
    yield Silent(
        kafka, connection, ApplicationStatus(NAME, epoch=1, pid=1, host="here", taken_at=now, batch_at=now, alive=True)
    )
    forget(connection, VIEW)


def send(settings: Settings) -> None:
    producer = Producer(settings.kafka())
    producer.produce(TOPIC, json.dumps({"event_id": "of a diagnosis"}).encode(), "k")
    assert producer.flush(deadline(30)) == 0


def test_an_application_that_has_read_everything_has_no_input(silent: Silent) -> None:
    assert silent.verdict() is Diagnosis.NO_INPUT


def test_an_application_with_a_new_event_has_hung(silent: Silent) -> None:
    send(silent.settings)
    assert silent.verdict() is Diagnosis.HUNG


def test_an_application_without_a_first_batch_has_hung(silent: Silent) -> None:
    assert silent.verdict(replace(silent.status, batch_at=None)) is Diagnosis.HUNG


def test_an_application_with_unread_events_has_hung_unless_its_view_advances_or_is_stalled(silent: Silent) -> None:
    """The unread events arrived before the last batch. A view that is catching up on its own is not silent."""
    silent.execute("UPDATE truelog.position SET next_offset = 0 WHERE view = %s")
    assert silent.verdict() is Diagnosis.HUNG
    silent.execute("UPDATE truelog.position SET advanced_at = now() + interval '1 h' WHERE view = %s")
    assert silent.verdict() is None
    view_status.record_state(silent.connection, NAME, VIEW, 1, "its transform fails")
    assert silent.verdict() is Diagnosis.NO_INPUT


def test_an_application_whose_view_never_merged_has_hung(silent: Silent) -> None:
    silent.execute("DELETE FROM truelog.position WHERE view = %s")
    silent.execute("UPDATE truelog.view SET reads = '{click}' WHERE view = %s")
    assert silent.verdict() is Diagnosis.HUNG
