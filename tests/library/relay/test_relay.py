"""A relay on real servers: killed and suspended at each point, it publishes each row once and in order."""

import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from psycopg import sql

from tests.library.open_transaction import open_transaction
from tests.library.relay import relay_process
from tests.library.relay.read_topic import values
from tests.library.relay.relay_process import FENCED, RESYNC, TableFeed
from tests.nightly_cases import nightly_except
from tests.scenes.applications import STARTED, Application, start
from truelog.log import topics
from truelog.log.access import RELAY_PLACES
from truelog.log.output_topic import create_topic
from truelog.relay.feed import Row
from truelog.relay.place import read_places
from truelog.relay.relay import Relay
from truelog.storage.database import Connection
from truelog.support.errors import Resync, ServiceDown
from truelog.support.settings import KafkaUser, Settings

ROWS = 35
POINTS = ("relay.started", "relay.sent", "relay.committed")


@pytest.fixture
def feed(platform: Settings, connection: Connection) -> Iterator[TableFeed]:
    made = TableFeed(connection, f"f{uuid.uuid4().hex[:8]}")
    made.create()
    create_topic(platform, KafkaUser.RELAY, made.topic, {})
    made.append(ROWS, begins=True)
    yield made
    for process in STARTED:
        process.die()


def relay(settings: Settings, feed: TableFeed, *disarmed: str, fault: str | None = None) -> Application:
    script = str(Path(relay_process.__file__))
    return start(settings, script, feed.name, str(feed.last()), *disarmed, fault=fault)


def finish(settings: Settings, feed: TableFeed, *disarmed: str) -> None:
    assert relay(settings, feed, *disarmed).wait_death(60) == 0


@pytest.mark.parametrize("point", nightly_except(["relay.sent"], POINTS))
def test_a_relay_that_is_killed_publishes_each_row_once(platform: Settings, feed: TableFeed, point: str) -> None:
    killed = relay(platform, feed, fault=f"{point}:{1 if point == 'relay.started' else 2}:kill")
    killed.wait_kill()
    finish(platform, feed)
    assert values(platform, feed.topic) == [*range(1, ROWS + 1)]


def test_a_place_outside_the_transaction_repeats_rows(platform: Settings, feed: TableFeed) -> None:
    """The planted defect, which the test above must notice."""
    relay(platform, feed, "place", fault="relay.committed:1:kill").wait_kill()
    finish(platform, feed, "place")
    assert values(platform, feed.topic) == [*range(1, 11), *range(1, ROWS + 1)]


@pytest.mark.parametrize("point", nightly_except(["relay.sent"], POINTS))
def test_a_second_relay_ends_the_first(platform: Settings, feed: TableFeed, point: str) -> None:
    first = relay(platform, feed, fault=f"{point}:1:stop")
    first.wait_fault()
    finish(platform, feed)
    feed.append(5)
    first.resume()
    assert first.wait_death(60) in {FENCED, 0}  # 0 if it found, before its first transaction, that all was published
    finish(platform, feed)
    assert values(platform, feed.topic) == [*range(1, ROWS + 6)]


def test_an_open_transaction_of_another_feed_hides_no_place(platform: Settings, feed: TableFeed) -> None:
    """The relay of another feed may have died in its transaction. The own place then lies behind it."""
    with Relay(platform, KafkaUser.RELAY, feed) as first:
        assert first.publish() == 10
        with open_transaction(platform, RELAY_PLACES):
            assert first.publish() == 10
            with pytest.raises(ServiceDown, match="has not ended"):
                Relay(platform, KafkaUser.RELAY, feed)
    finish(platform, feed)
    assert values(platform, feed.topic) == [*range(1, ROWS + 1)]


def test_a_restored_database_is_noticed_even_if_its_numbers_have_caught_up(platform: Settings, feed: TableFeed) -> None:
    finish(platform, feed)
    feed.delete(sql.SQL("number > 20"))
    assert relay_until(platform, feed, ROWS).wait_death(60) == RESYNC
    feed.append(ROWS)
    assert relay(platform, feed).wait_death(60) == RESYNC
    assert values(platform, feed.topic) == [*range(1, ROWS + 1)]


def relay_until(settings: Settings, feed: TableFeed, until: int) -> Application:
    return start(settings, str(Path(relay_process.__file__)), feed.name, str(until + 1))


def test_a_new_beginning_at_greater_numbers_ends_a_resync(platform: Settings, feed: TableFeed) -> None:
    finish(platform, feed)
    feed.delete(sql.SQL("number = 35"))
    feed.append(1)  # another row under the same number
    feed.append(10, begins=True)
    finish(platform, feed)
    assert values(platform, feed.topic) == [*range(1, ROWS + 11)]


def test_a_beginning_while_rows_are_read_is_noticed(
    platform: Settings, feed: TableFeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows that were read may be those of the new beginning. The place must not say that they continue the old."""
    finish(platform, feed)

    def begin(number: int) -> Sequence[Row]:
        feed.append(10, begins=True)
        monkeypatch.undo()
        return feed.next_rows(number)

    monkeypatch.setattr(feed, "next_rows", begin)
    with Relay(platform, KafkaUser.RELAY, feed) as mine:
        assert [mine.publish(), mine.publish(), mine.publish()] == [0, 10, 0]
    assert values(platform, feed.topic) == [*range(1, ROWS + 11)]


def test_a_beginning_whose_rows_are_gone_is_not_published(platform: Settings, feed: TableFeed) -> None:
    """For example if the topic of places was lost after the first rows had been removed."""
    feed.delete(sql.SQL("number < 5"))
    with Relay(platform, KafkaUser.RELAY, feed) as mine, pytest.raises(Resync, match="lacks row 1"):
        mine.publish()


def test_rows_are_removed_once_they_are_published_except_the_last(platform: Settings, feed: TableFeed) -> None:
    with Relay(platform, KafkaUser.RELAY, feed) as mine:
        mine.trim()  # nothing is published yet
        assert (mine.publish(), feed.id_of(1) is not None) == (10, True)
        mine.trim()
        assert (feed.id_of(9), feed.id_of(10)) == (None, mine.place and mine.place.id)
        while mine.publish():
            mine.trim()
        assert mine.place == read_places(platform)[feed.name]
        assert mine.place is not None
        assert (mine.place.number, feed.last()) == (ROWS, ROWS)
    assert values(platform, feed.topic) == [*range(1, ROWS + 1)]


def test_the_topic_of_places_is_compacted_and_has_one_partition(platform: Settings, feed: TableFeed) -> None:
    finish(platform, feed)
    assert topics.end_offsets(platform, [RELAY_PLACES]).offsets[RELAY_PLACES].keys() == {0}
    assert topics.retention_seconds(topics.client(platform), [RELAY_PLACES]) == {RELAY_PLACES: None}
