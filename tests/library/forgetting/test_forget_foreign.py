"""Erasures of the other environment, whose topics that one has deleted or created again since. No view is rebuilt."""

import uuid
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import cast

import pytest
from confluent_kafka import Producer
from pydantic import create_model
from pyspark.sql import SparkSession

from tests.builders.views import a_view
from tests.deadline import deadline, until
from tests.library.two_environments import outside
from tests.library.whole_environments import destroyed_afterwards, reading, set_up
from truelog.archive.audit_evidence import run_audit
from truelog.archive.commit import Append, commit
from truelog.archive.table import ensure_table, open_catalog
from truelog.batch.batch_context import BatchContext
from truelog.control import event_registry
from truelog.erasure import hold, ledger
from truelog.erasure.erasure import Erasure
from truelog.erasure.ledger import Step
from truelog.erasure.secret import secret_of
from truelog.erasure.subject import Subject, secret_check
from truelog.forgetting import erasure_log, forget
from truelog.forgetting.request import of_this_environment, wait_for_archive
from truelog.kafka.producer import open_producer
from truelog.log import topics
from truelog.schema.event import Event, EventType, Topic
from truelog.storage.database import Connection, connect
from truelog.support.errors import ArchiveBehind, NotForgotten, NotReady
from truelog.support.settings import Settings

DELETED, AGAIN, LATE, STAYS = "deleted", "again", "late", "page_view"
VIEW = "notes"


@dataclass(frozen=True)
class Both:
    """`red`, which writes the events, and `blue`, which reads them, with a connection to its database."""

    red: Settings
    blue: Settings
    connection: Connection
    published: Erasure

    def context(self) -> BatchContext:
        return BatchContext(cast(SparkSession, None), self.blue, event_registry.confirmed_types(self.blue))


def declared(name: str) -> EventType:
    return EventType(
        name, create_model("Note", __base__=Event, author_id=(str, ...)), Topic(None, ("author_id",), 1, "1 day")
    )


def make(settings: Settings, name: str, records: int = 3) -> None:
    """A topic of the environment with some records."""
    topics.sync_topics(settings, {name: declared(name)})
    producer: Producer = open_producer({**settings.kafka(), "acks": "all"})
    for _ in range(records):
        producer.produce(name, b"{}", partition=0)
    assert producer.flush(deadline(15)) == 0


def delete(settings: Settings, name: str) -> None:
    broker = outside(settings)  # in a variable, because its requests end with the client
    broker.delete_topics([f"red.{name}"])[f"red.{name}"].result(deadline(30))

    def gone() -> None:
        assert name not in topics.existing_topics(topics.client(settings))

    until(gone, 30, "the end of the topic")


def erasure_of(settings: Settings, names: Collection[str]) -> Erasure:
    secret, ends = secret_of(settings), topics.end_offsets(settings, names)
    subjects = frozenset({Subject.of(secret, "author_id", "ann")})
    return Erasure(uuid.uuid4(), subjects, dict.fromkeys(names, ("author_id",)), ends, secret_check(secret))


@pytest.fixture(scope="module")
def both(platform: Settings) -> Iterator[Both]:
    """`blue` is set up after one topic of an erasure was deleted, and another one was created again."""
    with destroyed_afterwards(set_up(platform, "red")) as red:
        for name in (DELETED, AGAIN):
            make(red, name)
            event_registry.register(red, declared(name))
        erasure = erasure_of(red, [DELETED, AGAIN, STAYS])
        erasure_log.publish(red, event_registry.confirmed_types(red), erasure)
        for name in (DELETED, AGAIN):
            delete(red, name)
        make(red, AGAIN, records=1)
        event_registry.register(red, declared(AGAIN))
        made = reading(platform, "blue", red, without=[DELETED], archive_wait_seconds=0.1)
        with (
            destroyed_afterwards(made) as blue,
            connect(blue, autocommit=True) as connection,
        ):
            yield Both(red, blue, connection, erasure)


def test_an_erasure_of_topics_that_are_gone_is_finished(both: Both) -> None:
    """A restored database holds the views of such a topic back until then."""
    types = event_registry.confirmed_types(both.blue)
    assert (DELETED in types, AGAIN in types) == (False, True)
    a_view(both.connection, VIEW, reads=[AGAIN])
    hold.record_reading(both.connection, 1)
    with ledger.exclusive(both.connection):
        for _ in range(2):  # as if the bucket were restored later, too
            forget.add_published(both.blue, both.connection)
        assert ledger.unfinished(both.connection) == [both.published]
        with pytest.raises(NotReady, match="notes is held back"):
            hold.require_not_held(both.connection, VIEW)
        [done] = forget.perform_all(both.context(), both.connection, [both.published], "tester")
    assert done.entry.is_finished
    assert done.entry.erasure == both.published
    hold.require_not_held(both.connection, VIEW)
    hold.require_none_held(both.connection)


def test_a_topic_that_is_not_registered_here_yet_is_not_left_out(both: Both) -> None:
    make(both.red, "new")
    with pytest.raises(NotForgotten, match=r"covers new, not registered here yet: see `truelog status`"):
        of_this_environment(both.blue, event_registry.confirmed_types(both.blue), erasure_of(both.red, ["new"]))


def test_what_was_archived_of_a_deleted_topic_is_erased_and_the_rest_not_waited_for(both: Both) -> None:
    make(both.red, LATE)
    event_registry.register(both.red, declared(LATE))
    erasure, types = erasure_of(both.red, [LATE]), event_registry.confirmed_types(both.blue)
    topic_id = erasure.ends.ids[LATE]
    with open_catalog(both.blue) as catalog:
        ensure_table(catalog, types[LATE], topic_id, {0: 0})
        commit(catalog, Append(LATE, topic_id, {0: 0}, {0: 2}, {0: 2}, ()))
    with pytest.raises(ArchiveBehind, match="1 events behind"):
        wait_for_archive(both.blue, erasure)
    delete(both.red, LATE)
    assert of_this_environment(both.blue, types, erasure) == erasure
    with ledger.exclusive(both.connection):
        ledger.restore(both.connection, erasure, Step.PUBLISHED)
        [done] = forget.perform_all(both.context(), both.connection, [erasure], "tester")
    assert done.entry.is_finished
    audited = {each.topic for each in run_audit(both.blue).partitions}
    assert (LATE in audited, STAYS in audited) == (False, True)
