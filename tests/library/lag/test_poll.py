"""Lag polls when the brokers or the database return incomplete results."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Node, TopicPartitionInfo, Uuid
from confluent_kafka.admin import TopicDescription

from tests.builders.views import a_view, forget, merged_to
from tests.library.registered import forget_rows, registered
from truelog.apps import reader_positions
from truelog.apps.reader_positions import ReaderPosition
from truelog.lag import poll as lag_poll
from truelog.lag.poll import PartitionBounds, PolledReader
from truelog.lag.unread import Lag
from truelog.lag.verdict import Limits, assess
from truelog.log import topics
from truelog.log.positions import Positions
from truelog.log.topics import PartitionOffsets
from truelog.schema.loading.events import load_events
from truelog.services.monitor.lag_polls import LagPolls
from truelog.storage.database import Connection
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings

NOW = 1_000_000.0
IDS = {"page_view": "now", "click": "now"}
LOG = PartitionBounds(
    PartitionOffsets(Positions({"page_view": {0: 0, 1: 0}, "click": {0: 0}}, IDS), {}),
    PartitionOffsets(
        Positions({"page_view": {0: 9}, "click": {0: 7}}, IDS), {("page_view", 1): "page_view 1 has no leader"}
    ),
    {"page_view": None, "click": None},
)
NOBODY: Node | None = None


def described(name: str, *leaders: Node | None) -> TopicDescription:
    parts = [TopicPartitionInfo(number, leader, [], []) for number, leader in enumerate(leaders)]
    return TopicDescription(name, Uuid(1, 1), False, parts)


def test_a_partition_without_a_leader_is_reported_at_once() -> None:
    here, gone = Node(1, "here", 1), Node(-1, "", 0)
    found = topics.partitions_without_leader([described("a", here, NOBODY), described("b", gone, here)])
    assert found == {
        ("a", 1): "a 1 has no leader: is a broker missing? See `truelog status`.",
        ("b", 0): "b 0 has no leader: is a broker missing? See `truelog status`.",
    }


def test_a_caller_that_needs_all_partitions_learns_which_one_is_missing() -> None:
    assert LOG.begins.whole() is LOG.begins.positions
    with pytest.raises(ServiceDown, match="page_view 1 has no leader"):
        LOG.ends.whole()


def test_a_partition_without_a_leader_is_unknown_to_its_readers_only() -> None:
    assert LOG.known_ends.partitions() == [("click", 0), ("page_view", 0)]
    both = PolledReader(1, Positions({"page_view": {0: 9, 1: 3}, "click": {0: 7}}, IDS), NOW)
    samples = LOG.samples(both, dict.fromkeys(LOG.known_ends.partitions(), Lag(0, 0.0)), NOW)
    verdicts = {partition: assess([sample], NOW, Limits()).verdict for partition, sample in samples.items()}
    assert verdicts == {("click", 0): "OK", ("page_view", 0): "OK", ("page_view", 1): "UNKNOWN"}
    assert samples["page_view", 1].blind == "page_view 1 has no leader"
    clicks = PolledReader(1, Positions({"click": {0: 7}}, IDS), NOW)
    assert list(LOG.samples(clicks, {("click", 0): Lag(0, 0.0)}, NOW)) == [("click", 0)]


@pytest.fixture
def made(connection: Connection) -> Iterator[Connection]:
    """The newest version of `merged` has not merged anything yet. The topics of `old` were not recorded."""
    a_view(connection, "merged", 1, reads=("click",))
    a_view(connection, "merged", 2, reads=("click",))
    a_view(connection, "first", reads=("click", "page_view"))
    a_view(connection, "old")
    merged_to(connection, "merged", Positions({"click": {0: 5}}, {"click": "now"}))
    yield connection
    forget(connection, "merged", "first", "old")


def test_a_version_that_has_merged_nothing_is_at_the_beginning(made: Connection) -> None:
    found = reader_positions.view_positions(made, ["first", "merged", "old", "unmade"])
    beginning = Positions({"click": {}})
    assert (found["merged"], found["old"], found["unmade"]) == (
        ReaderPosition(2, beginning),
        ReaderPosition(1, Positions()),
        ReaderPosition(0, Positions()),
    )
    assert found["first"] == ReaderPosition(1, Positions({"click": {}, "page_view": {}}))


def test_a_view_that_never_merged_gets_the_verdict_stall_or_stop() -> None:
    reader = PolledReader(2, Positions({"click": {}}), NOW)
    [sample] = LOG.samples(reader, {("click", 0): Lag(7, 900.0)}, NOW).values()
    history = [replace(sample, at=NOW - ago * 10, seconds=900.0 - ago * 10) for ago in reversed(range(60))]
    assert (sample.position, sample.end) == (0, 7)
    assert assess(history, NOW, Limits(backed=True)).verdict == "STALL"
    silent = [replace(each, batch_at=None) for each in history]
    assert assess(silent, NOW, Limits(backed=True)).verdict == "STOP"


def test_the_registered_topics_are_polled_whatever_files_there_are(
    postgresql: Settings, connection: Connection, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    polled: list[list[str]] = []

    def poll(*given: object) -> tuple[dict[str, PolledReader], list[object]]:
        polled.append(list(given[2]))  # type: ignore[call-overload]
        return {}, []

    monkeypatch.setattr(lag_poll, "poll_once", poll)
    changed = postgresql.model_copy(update={"events_folder": tmp_path})
    service = LagPolls(changed, topics.client(postgresql))
    with registered(postgresql, "an-id"):
        service.poll("views")
        forget_rows(connection, "click")
        service.poll("views")
    assert set(polled[0]) == load_events().keys()
    assert set(polled[0]) - set(polled[1]) == {"click"}
