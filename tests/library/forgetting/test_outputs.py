"""The outbox forgets the keys and rows of a person as soon as they are published. Readers of the topic miss nothing."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from psycopg.errors import LockNotAvailable

from tests.builders.erasures import an_erasure, forget_erasures, lacks
from tests.builders.notifications import (
    forget_place,
    notifier_is_at,
    notifier_is_at_the_end,
    the_notifier_has_read,
)
from tests.builders.outputs import another_history, deploy_and_settle
from tests.deadline import until
from tests.library.forgetting.byte_search import places_with
from tests.library.forgetting.relayed import relayed
from tests.library.relay.published import Published, declared, publish_all, publishing
from tests.library.relay.read_topic import records
from truelog.erasure import ledger
from truelog.erasure.erasure import Erasure
from truelog.erasure.ledger import Entry, Step
from truelog.erasure.subject import Subject, secret_check
from truelog.forgetting import outputs
from truelog.forgetting.outputs import delete_unwritten, forget_published
from truelog.forgetting.receipt import receipt_of
from truelog.log import output_topic, topics
from truelog.log.output_topic import create_topic, delete_topics
from truelog.log.positions import Positions
from truelog.relay import view_feed, view_outputs
from truelog.relay.place import read_places
from truelog.relay.view_feed import OUTPUT_CONFIG
from truelog.storage.database import Connection, connect
from truelog.support.errors import NotForgotten, ServiceDown
from truelog.support.settings import KafkaUser, Settings
from truelog.tables.output import outbox

PERSON = "xanthippe-4711"


@pytest.fixture
def view(platform: Settings, connection: Connection) -> Iterator[Published]:
    with publishing(platform, connection) as made:
        yield made


@pytest.mark.parametrize("others", [{}, {"p1": "1"}])
def test_nothing_is_left_in_the_outbox(platform: Settings, view: Published, others: dict[str, str]) -> None:
    view.change({PERSON: "7", **others})
    view.change({}, PERSON)
    assert places_with(platform, view.connection, [PERSON], ()) == ["truelog.outbox"]
    with relayed(platform):
        forget_published(platform, view.connection, [view.compiled])
        forget_published(platform, view.connection, [view.compiled])
        assert places_with(platform, view.connection, [PERSON], ()) == []
        view.change({"p2": "2"})
        forget_published(platform, view.connection, [view.compiled])  # waits for the relay
    view.require_read()
    assert len(view.rows()) == len(others) + 1


@pytest.mark.parametrize("others", [{}, {"p1": "1"}])
def test_without_a_relay_nothing_leaves_the_outbox(
    platform: Settings, view: Published, others: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outputs, "_RELAY_SECONDS", 0.1)
    view.change({PERSON: "7", **others})
    view.change({}, PERSON)
    for _ in range(2):
        with pytest.raises(NotForgotten, match="Start the services `relay`"):
            forget_published(platform, view.connection, [view.compiled])
    with relayed(platform):
        monkeypatch.undo()
        forget_published(platform, view.connection, [view.compiled])
    view.require_read()
    assert places_with(platform, view.connection, [PERSON], ()) == []


@pytest.mark.parametrize("others", [{}, {"p1": "1"}])
def test_the_row_that_is_published_once_more_is_no_news_to_the_notifier(
    platform: Settings, view: Published, others: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The notifier goes on behind it, once it has read what was before. Until then, nothing is published once more."""
    name = view.compiled.name
    view.change({PERSON: "7", **others})
    view.change({}, PERSON)
    end = view.number()
    try:
        with relayed(platform):
            the_notifier_has_read(view.connection, name, end - 1)
            with monkeypatch.context() as impatient:
                impatient.setattr(outputs, "_RELAY_SECONDS", 2.0)
                with pytest.raises(NotForgotten, match="the notifier has not read them"):
                    forget_published(platform, view.connection, [view.compiled])
            assert view.number() == end
            forget_place(view.connection, name)
            the_notifier_has_read(view.connection, name, end)
            forget_published(platform, view.connection, [view.compiled])
        assert view.number() == end + len(others)
        assert notifier_is_at_the_end(view.connection, name)
    finally:
        forget_place(view.connection, name)


def test_nothing_leaves_the_outbox_before_the_notifier_has_read_it(
    platform: Settings, view: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = view.compiled.name, view.compiled.view.version
    notifier_is_at(view.connection, *version, 0)
    view.change({PERSON: "7", "p1": "1"})
    view.change({}, PERSON)
    try:
        with relayed(platform):
            with monkeypatch.context() as impatient:
                impatient.setattr(outputs, "_RELAY_SECONDS", 2.0)
                with pytest.raises(NotForgotten, match="the notifier has not read them"):
                    forget_published(platform, view.connection, [view.compiled])
            assert places_with(platform, view.connection, [PERSON], ()) == ["truelog.outbox"]
            notifier_is_at(view.connection, *version, 1_000_000)
            forget_published(platform, view.connection, [view.compiled])
        assert places_with(platform, view.connection, [PERSON], ()) == []
    finally:
        forget_place(view.connection, view.compiled.name)


def test_what_is_published_meanwhile_waits_for_the_notifier(
    platform: Settings, view: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The relay sends two more changes after the erasure has passed, and the notifier has read neither."""
    connection, version = view.connection, (view.compiled.name, view.compiled.view.version)
    notified = list[int]()

    def until_and_change(step: Callable[[], None], seconds: float, name: str) -> None:
        until(step, seconds, name)
        if notified:
            return
        notified.append(view.number())
        notifier_is_at(connection, *version, notified[0])
        for amount in "12":
            view.change({"p1": amount})
        until(partial(require_published, platform, view, notified[0] + 2), 30, "the relay")

    monkeypatch.setattr(outputs, "until", until_and_change)
    view.change({PERSON: "7", "p2": "1"})
    view.change({}, PERSON)
    try:
        with relayed(platform):
            forget_published(platform, connection, [view.compiled])
    finally:
        forget_place(connection, view.compiled.name)
    steps = connection.execute("SELECT last FROM truelog.output_step WHERE (view, version) = (%s, %s)", version)
    assert {number for (number,) in steps.fetchall()} >= {notified[0] + 1, notified[0] + 2}
    assert places_with(platform, connection, [PERSON], ()) == []


def require_published(settings: Settings, view: Published, number: int) -> None:
    place = read_places(settings).get(view.topic)
    if place is None or place.number < number:
        raise ServiceDown(f"{number} is not published")


def an_entry(topic: str = "page_view") -> Entry:
    """A finished erasure of people in this topic."""
    now, subjects = datetime.now(UTC), frozenset({Subject.of(b"secret", "visitor_id", PERSON)})
    ends = Positions({topic: {0: 1}}, {topic: "an-id"})
    erasure = Erasure(uuid4(), subjects, {topic: ("visitor_id",)}, ends, secret_check(b"secret"))
    return Entry(erasure, Step.PROVED, now, now, {})


def test_an_output_that_no_view_writes_is_deleted(platform: Settings, view: Published) -> None:
    """If the view publishes again, its output begins with the whole table. An erasure in other topics keeps it."""
    made, other = an_entry(), an_entry("tweet")
    erasure = an_erasure(view.connection, made.erasure)
    view.change({PERSON: "7", "p1": "1"})
    with relayed(platform):
        forget_published(platform, view.connection, [view.compiled])
    delete_unwritten(platform, view.connection, erasure)
    assert receipt_of(platform, made).unwritten == []
    assert PERSON in str(view.read())
    deploy_and_settle(view.connection, declared(view.compiled.name, publish=False))
    delete_unwritten(platform, view.connection, other.erasure)
    assert receipt_of(platform, other).unwritten == []
    assert receipt_of(platform, made).unwritten == [view.topic]

    for _ in range(2):
        delete_unwritten(platform, view.connection, erasure)
    [entry] = [each for each in ledger.entries(view.connection) if each.erasure == erasure]
    receipt = receipt_of(platform, entry).as_dict()
    assert (view.topic in receipt["deleted_outputs"], receipt["unwritten_outputs"]) == (True, [])
    assert view.topic not in topics.existing_topics(topics.client(platform))
    view.change_unpublished({}, PERSON)
    deploy_and_settle(view.connection, view.compiled)
    with relayed(platform):
        forget_published(platform, view.connection, [view.compiled])
    assert view.read()[0] == view.rows()
    forget_erasures(view.connection)


def test_the_output_of_a_version_that_is_gone_is_deleted(platform: Settings, connection: Connection) -> None:
    """It is not known what the version has read. A topic with another name belongs to another program."""
    foreign = "view.of-another-program"
    for topic in ("view.gone.v3", foreign):
        create_topic(platform, KafkaUser.RELAY, topic, {})
    delete_unwritten(platform, connection, an_entry("tweet").erasure)
    assert {"view.gone.v3", foreign} & topics.existing_topics(topics.client(platform)) == {foreign}
    delete_topics(platform, KafkaUser.ERASER, [foreign])


def test_merges_go_on_while_topics_are_deleted_and_no_output_begins(
    platform: Settings, view: Published, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone, erasure, seen = "view.gone.v4", an_entry("tweet").erasure, list[list[str]]()
    create_topic(platform, KafkaUser.RELAY, gone, {})
    monkeypatch.setattr(outputs, "_LOCK_TIMEOUT", "200ms")
    with connect(platform, autocommit=True) as other:
        elsewhere = replace(view, connection=other)
        other.execute("SET lock_timeout = '200ms'")

        def delete_meanwhile(*given: Any) -> None:
            elsewhere.change({"p1": "1"})
            with pytest.raises(LockNotAvailable), other.transaction():
                outbox.begin(other, view.compiled)
            seen.append(given[2])
            delete_topics(*given)

        monkeypatch.setattr(output_topic, "delete_topics", delete_meanwhile)
        with other.transaction():
            outbox.begin(other, view.compiled)
            with pytest.raises(NotForgotten, match="begins at this moment"):
                delete_unwritten(platform, connection, erasure)
        delete_unwritten(platform, connection, erasure)
    assert seen == [[gone]]
    assert gone not in topics.existing_topics(topics.client(platform))


def test_an_output_that_another_erasure_holds_back_is_not_waited_for(view: Published, connection: Connection) -> None:
    lacks(connection, 1)
    with pytest.raises(NotForgotten, match="held back after a restore"):
        forget_published(view.settings, connection, [view.compiled])
    forget_erasures(connection)


def test_an_output_that_needs_a_resync_is_not_waited_for(platform: Settings, view: Published) -> None:
    """As after a restore. The error names the command that helps."""
    view.change({PERSON: "7"})
    publish_all(platform)
    another_history(view.connection)
    view.change({}, PERSON)
    with relayed(platform), pytest.raises(NotForgotten, match=f"truelog output resync {view.compiled.name}"):
        forget_published(platform, view.connection, [view.compiled])


def test_the_receipt_says_by_when_an_output_is_compacted(platform: Settings, view: Published) -> None:
    """An earlier release has made the topic, without a limit. The relay sets one when it starts."""
    create_topic(platform, KafkaUser.RELAY, view.topic, OUTPUT_CONFIG)
    view.change({PERSON: "7"})
    entry = an_entry()
    assert receipt_of(platform, entry).as_dict()["outputs"] == {view.topic: None}
    assert any("Start the relay" in line for line in receipt_of(platform, entry).rest)
    with relayed(platform):
        forget_published(platform, view.connection, [view.compiled])
    receipt = receipt_of(platform, entry)
    latest = receipt.outputs[view.topic]
    assert latest is not None
    assert (latest - entry.advanced_at).days == 8
    assert any(view.topic in line and "until 20" in line for line in receipt.rest)
    assert receipt_of(platform, an_entry("tweet")).outputs == {}


@pytest.mark.nightly
def test_kafka_removes_the_rows_and_keys_of_a_person_in_time(
    platform: Settings, view: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing changes the view after the erasure. Without repeated rows, Kafka would keep the last segment for ever."""
    quick = platform.model_copy(update={"output_compaction_seconds": 2.0})
    monkeypatch.setattr(view_outputs, "_TRIM_SECONDS", 1.0)
    monkeypatch.setattr(view_feed, "OUTPUT_CONFIG", OUTPUT_CONFIG | {"delete.retention.ms": "1000"})

    def require_gone() -> None:
        if PERSON in str([(each.key(), each.value()) for each in records(platform, view.topic)]):
            raise ServiceDown("a record names the person")

    view.change({PERSON: "7", "p1": "1"})
    view.change({}, PERSON)
    with relayed(quick):
        forget_published(quick, view.connection, [view.compiled])
        with pytest.raises(ServiceDown):
            require_gone()
        latest = receipt_of(quick, an_entry()).outputs[view.topic]
        assert latest is not None
        until(require_gone, (latest - datetime.now(UTC)).total_seconds(), "the compaction")
    assert view.read()[0] == view.rows()
