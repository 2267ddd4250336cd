"""Which readers are past an open cut, compared with a log that remembers its records, and what is stored of cuts."""

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.builders.commands import a_read_event, states_of
from truelog.control import log_cuts
from truelog.control.log_cuts import OpenCut, ReaderState
from truelog.log import leader_epochs
from truelog.log.leader_epochs import Cut, Epochs
from truelog.log.positions import Positions
from truelog.storage.database import Connection
from truelog.support.errors import LogCut
from truelog.support.settings import Settings


@dataclass
class Log:
    """One partition. Each epoch begins with a restart, which may cut the log; readers keep what they have read."""

    records: list[int] = field(default_factory=list)
    starts: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])  # of epochs: epoch, first offset
    readers: list[tuple[int, list[int]]] = field(default_factory=list)  # epoch, records
    sent: int = 0

    def send(self, count: int) -> None:
        self.records += range(self.sent, self.sent + count)
        self.sent += count

    def restart(self, lost: int) -> None:
        end, epoch = max(0, len(self.records) - lost), self.starts[-1][0] + 1
        self.records = self.records[:end]
        self.starts = [(e, start) for e, start in self.starts if start < end] + [(epoch, end)]

    def read(self, count: int) -> None:
        self.readers.append((self.starts[-1][0], self.records[:count]))

    def end_of(self, epoch: int) -> int:
        """The broker's answer: where the newest epoch up to this one ends."""
        return next((start for e, start in self.starts if e > epoch), len(self.records))

    def cuts(self) -> set[tuple[int, int]]:
        """The end and the epoch of each cut that a reader finds."""
        found = ((self.end_of(epoch), epoch, len(read)) for epoch, read in self.readers)
        return {(end, epoch) for end, epoch, position in found if end < position}


steps = st.lists(st.tuples(st.sampled_from(["send", "restart", "read"]), st.integers(0, 12)), max_size=25)


@given(steps)
def test_exactly_the_readers_that_have_read_lost_records_are_past_a_cut(history: list[tuple[str, int]]) -> None:
    log = Log()
    for step, count in history:
        getattr(log, step)(count)
    cuts = sorted(log.cuts())
    cut = OpenCut("t", "id", 0, tuple(end for end, _ in cuts), tuple(epoch for _, epoch in cuts), None)
    for epoch, read in log.readers:
        assert cut.is_past(len(read), epoch) == (read != log.records[: len(read)])


@dataclass
class Topic:
    """A topic whose cuts are stored."""

    connection: Connection
    name: str = field(default_factory=lambda: f"t{uuid.uuid4().hex[:8]}")

    @property
    def id(self) -> str:
        return f"id of {self.name}"

    def cut(self, partition: int, epoch: int, end: int) -> Cut:
        return Cut(self.name, self.id, partition, epoch, 40, end)

    def record(self, *cuts: Cut) -> None:
        log_cuts.record_cuts(self.connection, cuts, "a test")

    def open(self) -> list[OpenCut]:
        return [each for each in log_cuts.open_cuts(self.connection) if each.topic == self.name]

    def at(self, *offsets: int) -> Positions:
        """These offsets in partitions 0, 1 and so on."""
        return Positions({self.name: dict(enumerate(offsets))}, {self.name: self.id})

    def trusted(self) -> Mapping[int, int]:
        return log_cuts.trusted_from(self.connection, self.at()).offsets.get(self.name, {})


@pytest.fixture
def topic(connection: Connection) -> Topic:
    return Topic(connection)


def test_cuts_are_open_until_those_of_their_partition_are_accepted(topic: Topic) -> None:
    other = Topic(topic.connection)
    topic.record(topic.cut(0, 1, 5), topic.cut(1, 1, 7))
    topic.record(topic.cut(0, 2, 3), topic.cut(0, 1, 5))  # another reader finds the first cut, too
    other.record(other.cut(0, 1, 5))
    both = OpenCut(topic.name, topic.id, 0, (3, 5), (2, 1), None)
    first, second = topic.open()
    assert (first, second) == (both, OpenCut(topic.name, topic.id, 1, (7,), (1,), None))
    assert (first.end, second.end) == (3, 7)
    log_cuts.store_plan(topic.connection, first, {"trusted_from": 9})
    assert [each.plan for each in (*topic.open(), *other.open())] == [{"trusted_from": 9}, None, None]
    log_cuts.accept(topic.connection, first, 9, "ann")
    assert (topic.open(), topic.trusted(), other.trusted()) == ([second], {0: 9}, {})
    assert len(other.open()) == 1


def test_a_later_cut_is_accepted_by_itself(topic: Topic) -> None:
    """Its plan is not that of the earlier cut, and the log is trusted from the last decision on."""
    topic.record(topic.cut(0, 1, 5))
    [first] = topic.open()
    log_cuts.store_plan(topic.connection, first, {"trusted_from": 20})
    log_cuts.accept(topic.connection, first, 20, "ann")
    topic.record(topic.cut(0, 2, 15))
    [second] = topic.open()
    assert second.plan is None
    log_cuts.store_plan(topic.connection, second, {"trusted_from": 17})
    log_cuts.accept(topic.connection, second, 17, "ann")
    assert topic.trusted() == {0: 20}
    query = "SELECT log_end, trusted_from, accepted_by, plan FROM truelog.log_cut WHERE topic = %s ORDER BY 1"
    assert topic.connection.execute(query, (topic.name,)).fetchall() == [
        (5, 20, "ann", {"trusted_from": 20}),
        (15, 17, "ann", {"trusted_from": 17}),
    ]


def test_what_commands_have_made_from_lost_records_is_forgotten(topic: Topic) -> None:
    """The places of lost events, and the states of the topic."""
    other = Topic(topic.connection)
    for number, (event, partition, offset) in enumerate(
        [(topic, 0, 4), (topic, 0, 5), (topic, 1, 5), (other, 0, 5)], 1
    ):
        a_read_event(topic.connection, event.name, number, partition, offset)
    for each in (topic, other):
        states_of(topic.connection, each.name, {0: 9})
    topic.record(topic.cut(0, 1, 5))
    log_cuts.accept(topic.connection, topic.open()[0], 9, "ann")
    query = 'SELECT number, partition, "offset" FROM truelog.command_event WHERE event = ANY(%s) ORDER BY number'
    assert topic.connection.execute(query, ([topic.name, other.name],)).fetchall() == [
        (1, 0, 4),
        (2, None, None),
        (3, 1, 5),
        (4, 0, 5),
    ]
    query = "SELECT event FROM truelog.command_position WHERE event = ANY(%s)"
    assert topic.connection.execute(query, ([topic.name, other.name],)).fetchall() == [(other.name,)]


class Asked:
    """What the broker is asked: the epochs in which positions were reached. It answers with these cuts."""

    def __init__(self, *cuts: Cut) -> None:
        self.cuts, self.asked = cuts, list[Epochs]()

    def require_intact(self, _: Settings, __: Positions, reached: Epochs, ___: Epochs) -> None:
        self.asked.append(reached)
        if self.cuts:
            raise LogCut("the log was cut", self.cuts)


def test_the_log_is_compared_where_an_epoch_has_changed_past_what_was_accepted(
    postgresql: Settings, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, here = Asked(), topic.name
    monkeypatch.setattr(leader_epochs, "require_intact", broker.require_intact)
    topic.record(topic.cut(0, 1, 5), topic.cut(1, 1, 5))
    for cut in topic.open():
        log_cuts.accept(topic.connection, cut, 9, "ann")
    reader = ReaderState("v", topic.at(9, 10, 3), {(here, partition): 1 for partition in range(3)})
    unchanged: list[Epochs] = [{}, reader.epochs, {(here, 2): 1}]
    for now in unchanged:
        log_cuts.require_intact(postgresql, topic.connection, reader, now)
    assert broker.asked == []
    log_cuts.require_intact(postgresql, topic.connection, reader, {**reader.epochs, (here, 2): 2})
    assert broker.asked == [{(here, 1): 1, (here, 2): 1}]


def test_a_cut_that_a_reader_finds_is_recorded(
    postgresql: Settings, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leader_epochs, "require_intact", Asked(topic.cut(0, 1, 5)).require_intact)
    reader = ReaderState("v", topic.at(9), {(topic.name, 0): 1})
    with pytest.raises(LogCut):
        log_cuts.require_intact(postgresql, topic.connection, reader, {(topic.name, 0): 2})
    assert topic.open() == [OpenCut(topic.name, topic.id, 0, (5,), (1,), None)]
    query = "SELECT found_by FROM truelog.log_cut WHERE topic = %s"
    assert topic.connection.execute(query, (topic.name,)).fetchall() == [("v",)]
