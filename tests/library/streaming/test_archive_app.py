"""The log days of topics that Kafka no longer has, and the code that an archive application says it runs."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from pyiceberg.catalog import Catalog

from tests.beds.archived import drop_archive
from tests.builders.log import a_log_day
from tests.deadline import deadline, until
from tests.library.registered import forget
from truelog.archive import reader
from truelog.archive.commit import Append, commit
from truelog.archive.table import ensure_table, open_catalog
from truelog.archive.writer import ArchivedTick
from truelog.batch.run_interval import topics_behind
from truelog.control import application, event_registry, lease
from truelog.control.application import ARCHIVE
from truelog.control.lease import Holder
from truelog.log import topics
from truelog.log.positions import Positions
from truelog.log.topic_health import TopicGuard
from truelog.schema.event import Event, EventType, Topic
from truelog.storage.database import Connection
from truelog.streaming.archive_app import ArchiveApp, run_archive
from truelog.support.errors import Fenced, ServiceDown
from truelog.support.settings import KafkaUser, Settings

LIVE, ENDED = "days_live", "days_ended"


class Text(Event):
    """An event with a text."""

    what: str


TYPES = {name: EventType(name, Text, Topic(None, (), 1, "7 days")) for name in (LIVE, ENDED)}


@dataclass
class Days:
    """The archive of two topics with two records each; a record has begun the second day in one of them."""

    settings: Settings
    catalog: Catalog
    connection: Connection
    holder: Holder
    first: datetime

    @property
    def second(self) -> datetime:
        return self.first + timedelta(seconds=self.settings.log_day_seconds)

    def archive_tick(self) -> None:
        """The application has archived a tick of the second day. It can read one of the topics."""
        begin = Positions({LIVE: {0: 2}}, topics.topic_ids(self.settings, [LIVE]))
        tables = {LIVE: self.catalog.load_table(f"log.{LIVE}").metadata}
        unused: Any = None
        app = ArchiveApp(
            self.settings,
            self.catalog,
            TYPES,
            tables,
            begin,
            Path(),
            self.holder,
            TopicGuard(self.settings),
            reached={},
            patience=unused,
            runs=unused,
            clock=None,
        )
        app.pending_ticks.append(ArchivedTick(self.second, Positions({LIVE: {0: 2}, ENDED: {0: 2}}).as_json()))
        app._start_quiet_days(self.connection, begin)

    def behind(self) -> set[str]:
        return {LIVE, ENDED} & set(topics_behind(self.settings, self.second))

    def delete(self) -> None:
        """Delete the topic whose second day has not begun."""
        broker = topics.client(self.settings, KafkaUser.ADMIN)
        broker.delete_topics([ENDED])[ENDED].result(deadline(30))

        def gone() -> None:
            if ENDED in topics.existing_topics(broker):
                raise ServiceDown("the broker still has it")

        until(gone, 30, "the end of the topic")


@pytest.fixture
def days(platform: Settings, connection: Connection) -> Iterator[Days]:
    topics.sync_topics(platform, TYPES)
    ids, first = topics.topic_ids(platform, TYPES), datetime(2026, 3, 1, tzinfo=UTC)
    taken = lease.take_lease(platform, "a test of log days")
    with open_catalog(platform) as catalog:
        made = Days(platform, catalog, connection, taken.holder, first)
        for name, each in TYPES.items():
            event_registry.register(platform, each)
            ensure_table(catalog, each, ids[name], {0: 0})
            commit(catalog, Append(name, ids[name], {0: 0}, {0: 2}, {0: 2}, ()))
            a_log_day(connection, name, first.timestamp(), topic_id=ids[name])
        a_log_day(connection, LIVE, made.second.timestamp(), topic_id=ids[LIVE], first_offset=1)
        yield made
        for name in TYPES:
            drop_archive(catalog, name)
    taken.release()
    broker = topics.client(platform, KafkaUser.ADMIN)
    for name in TYPES.keys() & topics.existing_topics(broker):
        broker.delete_topics([name])[name].result(deadline(30))
    for name in TYPES:
        forget(platform, name)


def test_a_topic_that_is_gone_keeps_no_log_day_open(days: Days) -> None:
    """A topic that is only suspended does: it may get further records of the day."""
    days.archive_tick()
    assert days.behind() == {ENDED}
    days.delete()
    days.archive_tick()
    assert days.behind() == set()
    begin, end = reader.day_range(days.settings, [LIVE, ENDED], days.first)
    assert (begin.plain(), end.plain()) == ({LIVE: {0: 0}, ENDED: {0: 0}}, {LIVE: {0: 1}, ENDED: {0: 2}})


def test_an_application_takes_the_digest_of_its_files_before_it_waits_for_its_lease(
    postgresql: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files may change meanwhile, and it has imported them already."""
    digest = mock.Mock(return_value="digest")
    monkeypatch.setattr(application, "library_digest", digest)
    running = lease.take_lease(postgresql, ARCHIVE)
    try:
        with pytest.raises(Fenced):
            run_archive(postgresql, threading.Event())
    finally:
        running.release()
    digest.assert_called_once_with()
