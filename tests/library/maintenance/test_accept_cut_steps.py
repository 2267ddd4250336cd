"""The plan of `accept-cut`, and what its steps do. No log here was really cut, so no broker restarts."""

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.builders.views import a_view, an_exclusion, forget, merged_to
from tests.deadline import deadline
from truelog.archive.commit import Append, commit
from truelog.archive.table import Progress, ensure_table, identifier, open_catalog
from truelog.control import application, lease, log_cuts
from truelog.control.application import STREAM
from truelog.control.log_cuts import OpenCut
from truelog.log import topics
from truelog.log.kafka_reader import headers_of, messages
from truelog.log.leader_epochs import Cut
from truelog.log.positions import Positions
from truelog.maintenance import accept_cut
from truelog.maintenance.accept_cut import AcceptedCut, Plan, accept_cuts
from truelog.schema.event import Event, EventType, Topic
from truelog.storage.database import Connection, connect
from truelog.support import faults
from truelog.support.errors import Fenced, ServiceDown
from truelog.support.faults import FaultInjectedError
from truelog.support.settings import KafkaUser, Settings

# The epochs before and after the cut. The broker's first epoch is the one after it.
OLD, NEW, CUT_AT = -1, 0, 5
Reader = tuple[int, int | None]  # its position, and the epoch in which it reached the position


@dataclass(frozen=True)
class Case:
    """Where each reader is, and the plan."""

    archive: Reader | None
    views: dict[str, Reader]
    plan: tuple[int, bool, int, tuple[str, ...]]  # trusted_from, moves, lost, views
    topic: str = "page_view"
    others: dict[str, Reader] = field(default_factory=dict)  # views that read another topic or partition
    cut_at: int = CUT_AT
    archived: int = 0  # the partition that the archive contains


CASES = {
    "nothing is archived": Case(None, {"v": (10, OLD), "w": (8, OLD)}, (10, False, 5, ("v", "w"))),
    "no view is past the cut": Case(None, {"v": (5, OLD), "w": (9, NEW)}, (5, False, 0, ())),
    "the archive is at the cut": Case((5, OLD), {"v": (7, OLD)}, (7, False, 2, ("v",))),
    "the archive has gone on": Case((9, NEW), {"v": (6, OLD)}, (6, False, 1, ("v",))),
    "the archive is past the cut": Case((6, OLD), {"v": (6, OLD)}, (6, True, 0, ())),
    "the archive's epoch is unknown": Case((6, None), {"v": (2, OLD)}, (6, True, 0, ())),
    "a view is past the archive": Case((6, OLD), {"v": (8, OLD), "w": (6, OLD)}, (8, True, 2, ("v",))),
    "a view has gone on": Case((7, OLD), {"v": (6, OLD), "w": (9, NEW)}, (9, True, 0, ("w",))),
    "a view is at the cut": Case((7, OLD), {"w": (5, NEW)}, (7, True, 0, ())),
    "views elsewhere": Case((6, OLD), {}, (6, True, 0, ()), others={"o": (40, OLD)}),
    "nothing is archived, and the log was cut at its beginning": Case(
        None, {"v": (3, OLD)}, (3, False, 3, ("v",)), cut_at=0
    ),
    "only another partition is archived": Case((9, OLD), {"v": (3, OLD)}, (3, False, 3, ("v",)), cut_at=0, archived=1),
    "a compacted topic": Case((6, OLD), {"v": (7, OLD)}, (12, True, 1, ("v",)), topic="customers"),
}
END = 12  # of both topics; only a compacted topic is appended again up to its end


@pytest.fixture(scope="module")
def ids(platform: Settings) -> dict[str, str]:
    broker, producer = topics.client(platform, KafkaUser.ADMIN), Producer({**platform.kafka(), "acks": "all"})
    ends = topics.ends(broker, ["page_view", "customers"])
    for topic in ends.ids:
        for n in range(ends.at(topic, 0), END):
            producer.produce(topic, b"{}", f"k{n}", partition=0)
    assert producer.flush(deadline(10)) == 0
    found = topics.ends(broker, ends.ids)
    assert [found.at(topic, 0) for topic in ends.ids] == [END, END]
    assert topics.compacted_topics(platform, found.ids) == {"customers"}
    return dict(found.ids)


@pytest.fixture
def prefix(connection: Connection) -> Iterator[str]:
    made = uuid.uuid4().hex[:8]
    yield made
    forget(connection, *(f"{made}_{view}" for case in CASES.values() for view in case.views | case.others))


@pytest.mark.parametrize("why", CASES)
def test_the_plan_for_readers(
    platform: Settings, connection: Connection, ids: dict[str, str], prefix: str, why: str
) -> None:
    case = CASES[why]
    topic, topic_id = case.topic, ids[case.topic]

    def place(view: str, reader: Reader, reached: Positions) -> None:
        a_view(connection, f"{prefix}_{view}")
        merged_to(connection, f"{prefix}_{view}", reached, leader_epoch=reader[1])

    for view, reader in case.views.items():
        place(view, reader, Positions({topic: {0: reader[0]}}, {topic: topic_id}))
    for view, reader in case.others.items():
        elsewhere = {topic: {1: reader[0]}, "click": {0: reader[0]}}
        place(view, reader, Positions(elsewhere, {topic: topic_id, "click": "another-id"}))
    archive = None
    if case.archive is not None:
        position, epoch = case.archive
        epochs = {} if epoch is None else {case.archived: epoch}
        archive = Progress(topic_id, {case.archived: position}, {}, {case.archived: 0}, epochs=epochs)
    cut = OpenCut(topic, topic_id, 0, (case.cut_at,), (OLD,), None)
    plan = accept_cut._plan(platform, topics.client(platform), connection, cut, archive)
    trusted_from, moves, lost, views = case.plan
    assert plan == Plan(trusted_from, moves, lost, tuple(f"{prefix}_{view}" for view in views))


STEPS = ("accept_cut.planned", "accept_cut.filled", "accept_cut.moved", "accept_cut.archived")
FILLER = (b"filler", None, [("truelog-filler", b"")])
Record = tuple[Any, Any, Any]  # key, value, headers


class Text(Event):
    """An event with a text."""

    what: str


@dataclass
class CutLog:
    """A topic with records, and readers that have read other records from the cut on."""

    settings: Settings
    connection: Connection
    topic: str
    topic_id: str

    def goes_on(self, view: str, position: int, epoch: int) -> None:
        reached = Positions({self.topic: {0: position}}, {self.topic: self.topic_id})
        merged_to(self.connection, f"{self.topic} {view}", reached, leader_epoch=epoch)

    def accept(self) -> AcceptedCut:
        [accepted] = accept_cuts(self.settings, self.topic, lambda _: None)
        return accepted

    def accepted(self, trusted_from: int, moved: int, lost: int, *views: str) -> AcceptedCut:
        named = tuple(f"{self.topic} {view}" for view in views)
        return AcceptedCut(self.topic, 0, CUT_AT, trusted_from, moved, lost, named)

    def send(self, *records: Record) -> None:
        producer = Producer({**self.settings.kafka(), "acks": "all"})
        for key, value, headers in records:
            producer.produce(self.topic, value, key, partition=0, headers=headers)
        assert producer.flush(deadline(10)) == 0

    def copy(self, offset: int) -> Record:
        """The record at this offset, as it is appended again."""
        mark = f"{self.topic_id}/0/{offset}/{NEW}".encode()
        return f"k{offset}".encode(), f"{offset}".encode(), [("trace", b"kept"), ("truelog-moved", mark)]

    def log(self, begin: int) -> list[Record]:
        end = topics.end_offsets(self.settings, [self.topic]).at(self.topic, 0)
        found = messages(self.settings, self.topic, 0, begin, end)
        return [(each.key(), each.value(), headers_of(each)) for each in found]

    def archive(self) -> tuple[int, list[tuple[int, int]], int]:
        """The archive's position, what it lacks below it, and the epoch in which it reached the position."""
        with open_catalog(self.settings) as catalog:
            found = Progress.of(catalog.load_table(identifier(self.topic)).metadata)
        return found.positions[0], found.lost.get(0, []), found.epochs[0]

    def open(self) -> list[OpenCut]:
        return [each for each in log_cuts.open_cuts(self.connection) if each.topic == self.topic]

    def excluded(self) -> list[object]:
        query = 'SELECT DISTINCT "offset" FROM truelog.exclusion WHERE topic_id = %s ORDER BY 1'
        return [offset for (offset,) in self.connection.execute(query, (self.topic_id,)).fetchall()]


class Safe(Producer):  # type: ignore[misc]  # confluent-kafka has no types
    """The command's producer. With other settings, a request that the client repeats could append a record twice."""

    def __init__(self, config: dict[str, Any]) -> None:
        assert (config["acks"], config["enable.idempotence"]) == ("all", True)
        super().__init__(config)


MakeLog = Callable[..., CutLog]


@pytest.fixture
def cut_log(platform: Settings, connection: Connection, monkeypatch: pytest.MonkeyPatch) -> MakeLog:
    """Makes a log with so many records, an archive, and views at their positions."""
    monkeypatch.setattr(accept_cut, "Producer", Safe)

    def made(*, archived: int, records: int, **views: int) -> CutLog:
        topic = f"cut_{uuid.uuid4().hex[:8]}"
        declared = EventType(topic, Text, Topic("what", (), 1, "7 days"))
        topics.sync_topics(platform, {topic: declared})
        topic_id = topics.topic_ids(platform, [topic])[topic]
        log = CutLog(platform, connection, topic, topic_id)
        log.send(*((f"k{n}".encode(), f"{n}".encode(), [("trace", b"kept")]) for n in range(records)))
        with open_catalog(platform) as catalog:
            ensure_table(catalog, declared, topic_id, {0: 0})
            commit(catalog, Append(topic, topic_id, {0: 0}, {0: archived}, {0: 0}, (), epochs={0: OLD}))
        for view, position in views.items():
            a_view(connection, f"{topic} {view}")
            log.goes_on(view, position, OLD)
            for offset in (CUT_AT - 1, CUT_AT):
                an_exclusion(connection, f"{topic} {view}", offset, topic=topic, topic_id=topic_id)
        log_cuts.record_cuts(connection, [Cut(topic, topic_id, 0, OLD, archived, CUT_AT)], "a test")
        return log

    return made


@pytest.fixture
def interrupt(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[CutLog, str], None]:
    """Lets the command fail at a step."""

    def interrupted(log: CutLog, step: str) -> None:
        monkeypatch.setenv("TRUELOG_FAULT_FIRED", str(tmp_path / "fired"))
        monkeypatch.setattr(faults, "_armed", f"{step}:1:raise")
        monkeypatch.setattr(faults, "_reached", 0)
        with pytest.raises(FaultInjectedError):
            log.accept()
        monkeypatch.setattr(faults, "_armed", "")

    return interrupted


@pytest.mark.parametrize("step", ["", *STEPS])
def test_records_are_appended_again_once_although_the_command_fails_at_a_step(
    cut_log: MakeLog, interrupt: Callable[[CutLog, str], None], step: str
) -> None:
    log = cut_log(archived=7, records=8, v=10, w=6)
    if step:
        interrupt(log, step)
        [cut] = log.open()
        assert cut.plan is not None
        log.goes_on("w", 13, NEW)  # past the offset that the plan has chosen
    assert log.accept() == log.accepted(10, 3, 3, "v")
    assert log.log(8) == [FILLER, FILLER, *map(log.copy, (5, 6, 7))]
    assert log.archive() == (10, [(7, 10)], NEW)
    assert log.excluded() == [CUT_AT - 1, CUT_AT]
    assert accept_cuts(log.settings, log.topic, lambda _: None) == []


def test_records_that_an_earlier_attempt_has_appended_are_counted_and_stay(cut_log: MakeLog) -> None:
    log = cut_log(archived=10, records=10, v=9)
    log.send(log.copy(5))
    assert log.accept() == log.accepted(10, 5, 0)
    assert log.log(10) == [*map(log.copy, range(5, 10))]
    assert log.archive() == (10, [], NEW)


def test_a_copy_that_an_earlier_cut_has_left_below_this_one_is_appended_once(cut_log: MakeLog) -> None:
    """The log below the offset that is trusted has a record and its copy, so both have the same first coordinates."""
    log = cut_log(archived=10, records=9)
    log.send(log.copy(5))
    assert log.accept() == log.accepted(10, 4, 0)
    assert log.log(10) == [*map(log.copy, (5, 6, 7, 8))]


def test_an_archive_that_is_not_past_the_cut_stays_as_it_is(cut_log: MakeLog) -> None:
    """The new records have the offsets of lost records, so nothing is excluded there any longer."""
    log = cut_log(archived=3, records=8, v=10, w=7)
    other = cut_log(archived=3, records=0, v=4)
    assert log.accept() == log.accepted(10, 0, 5, "v", "w")
    assert log.log(8) == [FILLER, FILLER]
    assert log.archive() == (3, [], OLD)
    assert (log.excluded(), other.excluded()) == ([CUT_AT - 1], [CUT_AT - 1, CUT_AT])
    assert other.open(), "the cuts of other topics stay open"
    reported = list[AcceptedCut]()
    assert accept_cuts(log.settings, None, reported.append) == reported == [other.accepted(5, 0, 0)]


def test_nothing_is_accepted_while_an_application_runs(cut_log: MakeLog) -> None:
    log = cut_log(archived=3, records=5)
    running = lease.take_lease(log.settings, STREAM)
    with pytest.raises(Fenced):
        log.accept()
    running.release()
    assert log.open()
    held = list[bool]()
    with connect(log.settings) as connection:
        application.declare(connection, [STREAM])

    def report(_: AcceptedCut) -> None:
        with connect(log.settings) as connection:
            held.append(application.load_status(connection, STREAM).held_by_command)

    accept_cuts(log.settings, log.topic, report)
    assert held == [True], "Airflow must not take the command for the application"
    lease.take_lease(log.settings, STREAM).release()  # the command holds nothing any longer


CUT = OpenCut("any", "an-id", 0, (CUT_AT,), (OLD,), None)
AWAY = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0, "message.timeout.ms": 200}


class Asked(Producer):  # type: ignore[misc]  # confluent-kafka has no types
    """A producer without a broker. It fails if it is asked in a loop without a pause."""

    times = 0

    def produce(self, *given: Any, **more: Any) -> None:
        self.times += 1
        assert self.times < 1000
        super().produce(*given, **more)


@pytest.mark.parametrize(("queue", "seconds"), [(10, deadline(20)), (1, deadline(20)), (10, 0.01)])
def test_records_that_kafka_has_not_acknowledged_are_an_error(
    monkeypatch: pytest.MonkeyPatch, queue: int, seconds: float
) -> None:
    """Whether Kafka refuses them, or has not answered when the wait ends. A full queue is waited for."""
    monkeypatch.setattr(accept_cut, "_FLUSH_SECONDS", seconds)
    producer = Asked(AWAY | {"queue.buffering.max.messages": queue})
    with pytest.raises(ServiceDown, match="Kafka did not accept all records") as raised:
        accept_cut._append(producer, CUT, [(None, b"1", []), (None, b"2", [])])
    assert str(raised.value).count("KafkaError{") == (seconds > 1)
