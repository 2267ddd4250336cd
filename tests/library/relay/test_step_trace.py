"""The trace of an output record, on real servers: only that of events which all carry it, and never at a row's cost."""

import json
from collections.abc import Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest
from confluent_kafka import Producer

from tests.builders.outputs import older
from tests.deadline import deadline, until
from tests.library.relay.published import Published, declared, publish_all
from tests.library.relay.read_topic import records
from truelog.kernel import merge
from truelog.kernel.merge import Merge
from truelog.log import topics
from truelog.log.access import REPLAY_TRANSACTIONS
from truelog.log.kafka_reader import headers_of
from truelog.log.positions import Positions, Range
from truelog.relay import step_trace
from truelog.relay.step_trace import StepTraces
from truelog.storage.database import Connection
from truelog.support.errors import ServiceDown
from truelog.support.settings import KafkaUser, Settings
from truelog.tables.stage import NO_ROWS

ONE, OTHER = (f"00-{digit * 32}-00f067aa0ba902b7-01" for digit in "45")
UNSAMPLED, SIBLING = ONE.replace("-01", "-00"), ONE.replace("00f0", "11f0")  # of the same trace
MADE = [  # the traces of the records of a merge, and that of its rows
    ((ONE,), ONE),
    ((ONE, ONE), ONE),
    ((None,), None),
    ((ONE, OTHER), None),
    ((ONE, None), None),
    (("no trace",), None),
    ((UNSAMPLED, ONE, SIBLING), ONE),
]


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The relay reads traces for as long as a busy machine needs to make the test's transactions."""
    monkeypatch.setattr(step_trace, "_RECENT", timedelta(seconds=deadline(60)))
    monkeypatch.setattr(step_trace, "_SECONDS", deadline(20))


def send(settings: Settings, traces: Sequence[str | None]) -> list[Range]:
    """Send a record with each trace in one transaction, whose marker ends their range without a record."""

    def sent() -> list[Range]:
        return begin.ranges_to(topics.committed_ends(topics.client(settings), ["page_view"]))

    def require_marker() -> None:
        if sum(each.end - each.start for each in sent()) <= len(traces):
            raise ServiceDown("readers of committed records do not see the end of the transaction yet")

    producer = Producer({**settings.kafka(KafkaUser.PRODUCER), "transactional.id": REPLAY_TRANSACTIONS, "log_level": 0})
    producer.init_transactions(30)
    begin = topics.committed_ends(topics.client(settings), ["page_view"])
    producer.begin_transaction()
    for each in traces:
        headers: list[tuple[str, str | bytes | None]] = [] if each is None else [("traceparent", each)]
        producer.produce("page_view", b"{}", "v1", headers=headers)
    producer.commit_transaction(30)
    until(require_marker, 20, "the end of the transaction")
    return sent()


def traces_of(settings: Settings, view: Published) -> list[bytes | None]:
    publish_all(settings)
    return [dict(headers_of(each)).get("traceparent") for each in records(settings, view.topic)]


@pytest.mark.usefixtures("patient")
def test_a_row_has_the_trace_of_all_events_of_its_transaction(platform: Settings, view: Published) -> None:
    for traces, _ in MADE:
        number = str(view.number())
        view.change({"p1": number, "p2": number}, records=send(platform, traces))
    view.change({"p3": "1"})  # as a repair does
    expected = [each and each.encode() for _, each in MADE for _ in range(2)]
    assert traces_of(platform, view) == [*expected, None]
    view.require_read()


@pytest.mark.usefixtures("patient")
def test_a_relay_that_is_behind_reads_no_traces(platform: Settings, view: Published) -> None:
    view.change({"p1": "1"}, records=send(platform, [ONE]))
    older(view.connection, timedelta(hours=1))
    view.change({"p2": "1"}, records=send(platform, [ONE]))
    assert traces_of(platform, view) == [None, ONE.encode()]


def test_a_failure_leaves_the_trace_out(platform: Settings, view: Published) -> None:
    view.change({"p1": "1"}, records=[Range("page_view", 0, 10**9, 10**9 + 1)])
    view.change({"p2": "1"}, records=send(platform, [ONE]))
    assert traces_of(platform, view) == [None, None]
    view.require_read()


def test_after_a_failure_nothing_is_read_for_a_while(platform: Settings) -> None:
    sent = json.dumps([[each.topic, each.partition, each.start, each.end] for each in send(platform, [ONE])])
    with closing(StepTraces(platform)) as traces:
        found = traces.of("a", sent, datetime.now(UTC))
        assert found is not None
        assert found.traceparent == ONE
        assert traces.of("b", json.dumps([["page_view", 0, 10**9, 10**9 + 1]]), datetime.now(UTC)) is None
        assert traces.of("c", sent, datetime.now(UTC)) is None
        traces._begin_at = 0.0
        assert traces.of("c", sent, datetime.now(UTC)) == found


@pytest.mark.parametrize(
    ("begin", "end", "known"),
    [
        ({"page_view": {0: 3}}, {"page_view": {0: 4, 1: 2}}, [("page_view", 0, 3, 4), ("page_view", 1, 0, 2)]),
        ({"page_view": {0: 3}}, {"page_view": {0: 13}}, [("page_view", 0, 3, 13)]),
        ({"page_view": {0: 3}}, {"page_view": {0: 14}}, []),
    ],
)
def test_a_merge_knows_its_records_if_they_are_few(
    begin: dict[str, dict[int, int]], end: dict[str, dict[int, int]], known: list[tuple[str, int, int, int]]
) -> None:
    found = Merge(Positions(begin), Positions(end), NO_ROWS).few_records(declared("few"))
    assert [(each.topic, each.partition, each.start, each.end) for each in found] == known


@pytest.mark.parametrize(("minutes", "known"), [(0, 1), (1, 0)])
def test_a_merge_in_which_rows_may_have_expired_does_not_know_what_changed_them(
    connection: Connection, monkeypatch: pytest.MonkeyPatch, minutes: int, known: int
) -> None:
    """The clock may also move in a merge without a tick: the view reads the tick first, and then up to its ends."""
    begin, end = (Positions({"page_view": {0: offset}}) for offset in (3, 4))
    now = datetime(2026, 3, 1, tzinfo=UTC)
    monkeypatch.setattr(merge, "stored_clock", lambda *_: now - timedelta(minutes=minutes))
    assert len(merge._causes(connection, declared("expiring"), Merge(begin, end, NO_ROWS), now)) == known
