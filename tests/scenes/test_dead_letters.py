"""Replays of dead letters on real services: killed at each point, suspended, and two at once."""

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition

import runtime
from tests.beds.archived import drop_archive
from tests.command import answer, truelog
from tests.deadline import deadline, until
from tests.deleted_records import delete_records
from tests.scenes import replay_process
from tests.scenes.collector_client import Client, read
from tests.scenes.declared import removed_at_the_end
from truelog.archive.commit import Append, commit
from truelog.archive.schema import TIME
from truelog.archive.table import Progress, ensure_table, open_catalog
from truelog.archive.writer import FileWriter, WriterSettings, blueprint, load_archived_file
from truelog.control import event_registry
from truelog.dead_letters import ledger as replay_ledger
from truelog.dead_letters.store import DeadLetter, LetterFilter, LetterStore
from truelog.log import kafka_reader, topics
from truelog.log.positions import Positions
from truelog.schema.event import EventType
from truelog.schema.loading.events import load_events
from truelog.storage.database import connect
from truelog.support.errors import ServiceDown
from truelog.support.settings import KafkaUser, Settings

pytestmark = pytest.mark.nightly

POINTS = ("replay.settled", "replay.reserved", "replay.sent", "replay.committed", "replay.confirmed")
DECLARATION = '''
from pydantic import Field

from truelog import Event, Topic

TOPIC = Topic(key="customer", subject=(), partitions=2, retention="1 day")


class Order(Event):
    """An order."""

    customer: str
    amount: int = Field(ge=0, le={most})
'''


@dataclass
class Orders:
    """An event type that the collector does not know yet, and replays that know it."""

    settings: Settings
    folder: Path
    name: str

    def declare(self, most: int = 1000) -> EventType:
        """Declare the event type, and make its topic."""
        (self.folder / f"{self.name}.py").write_text(DECLARATION.format(most=most))
        declared = load_events(self.folder)
        topics.sync_topics(self.settings, declared)
        return declared[self.name]

    def post(self, count: int = 20, **fields: object) -> list[str]:
        """Post events, which become dead letters, and return their ids."""
        ids = [f"{self.name}-{uuid.uuid4().hex}" for _ in range(count)]
        events = [
            {
                "type": self.name,
                "event_id": each,
                "occurred_at": "2026-11-20T10:00:00Z",
                "sent_at": "2026-11-20T10:00:05Z",
                "customer": each[-1],
                "amount": number,
            }
            | fields
            for number, each in enumerate(ids)
        ]
        response = Client(self.settings, self.settings.producer_key.get_secret_value()).post(events)
        assert response.status == 422
        assert len(response.body["bad"]) == count
        return ids

    def start(self, fault: str = "") -> "subprocess.Popen[bytes]":
        """Start a replay in portions of seven dead letters."""
        environment = {**os.environ, "TRUELOG_FAULT": fault, "TRUELOG_FAULT_FIRED": str(self.fired)}
        command = [sys.executable, "-m", "tests.scenes.replay_process", str(self.folder), self.name, "7"]
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def replay(self) -> dict[str, Any]:
        """Run a replay to its end. It needs no process of its own, which would take seconds to start."""
        return vars(replay_process.replay(self.folder, self.name))

    @property
    def fired(self) -> Path:
        return self.folder / "fired"

    def wait_fault(self) -> None:
        def require() -> None:
            if not self.fired.exists():
                raise ServiceDown("the fault has not fired")

        until(require, 60, "the fault")

    def events(self) -> list[dict[str, Any]]:
        """The committed events in the topic."""
        ends = closed_ends(self.settings, self.name)
        begins = topics.earliest_offsets(self.settings, [self.name])
        found = [
            message
            for part in begins.ranges_to(ends)
            for message in kafka_reader.messages(self.settings, self.name, part.partition, part.start, part.end)
        ]
        return [json.loads(message.value() or b"") for message in found]

    def counts(self) -> Counter[str]:
        """How often each event id is in the topic."""
        return Counter(event["event_id"] for event in self.events())

    def letters(self) -> list[DeadLetter]:
        return list(LetterStore(self.settings).read(LetterFilter(self.name)))


def closed_ends(settings: Settings, topic: str) -> Positions:
    """The end of a topic without open transactions. Kafka closes a transaction a moment after its commit."""
    broker = topics.client(settings)

    def closed() -> None:
        if topics.committed_ends(broker, [topic]) != topics.ends(broker, [topic]):
            raise ServiceDown("a transaction is open")

    until(closed, 30, topic)
    return topics.ends(broker, [topic])


def once(ids: list[str]) -> Counter[str]:
    return Counter(dict.fromkeys(ids, 1))


@pytest.fixture(scope="module")
def services(platform: Settings) -> Settings:
    runtime.up(platform, ("collector",), tethered=True)
    return platform


@pytest.fixture
def orders(services: Settings, tmp_path: Path) -> Orders:
    return Orders(services, tmp_path, f"order_{uuid.uuid4().hex[:8]}")


# --- each once --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", POINTS)
def test_a_replay_that_is_killed_and_run_again_sends_each_event_once(orders: Orders, point: str) -> None:
    ids = orders.post(20)
    orders.declare()
    nth = 1 if point == "replay.settled" else 2  # the second of three portions
    killed = orders.start(f"{point}:{nth}:kill")
    assert killed.wait(deadline(120)) == -signal.SIGKILL
    assert orders.fired.exists()
    again = orders.replay()
    assert again["sent"] + again["already_sent"] == 20
    assert again["already_sent"] == {"replay.settled": 0, "replay.reserved": 7, "replay.sent": 7}.get(point, 14)
    assert orders.counts() == once(ids)
    assert orders.replay() == {"sent": 0, "already_sent": 20, "invalid": {}, "skipped": {}}
    assert orders.counts() == once(ids)


@pytest.mark.parametrize("point", ["replay.reserved", "replay.sent"])
def test_a_suspended_replay_that_lost_its_lock_can_no_longer_send(orders: Orders, point: str) -> None:
    ids = orders.post(20)
    orders.declare()
    zombie = orders.start(f"{point}:2:stop")
    orders.wait_fault()
    refused = orders.start()
    assert b"another replay is running" in refused.communicate(timeout=deadline(120))[1]
    assert refused.returncode != 0
    with connect(orders.settings, autocommit=True) as connection:
        end = (
            "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND granted "
            "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
            "AND (classid::bigint << 32) | objid::bigint = hashtextextended('truelog.replay', 0)"
        )
        assert connection.execute(end).fetchall() == [(True,)]
    assert orders.replay()["sent"] == 13
    os.kill(zombie.pid, signal.SIGCONT)
    errors = zombie.communicate(timeout=deadline(120))[1].decode()
    assert "another replay has taken over" in errors, errors
    assert zombie.returncode != 0
    assert orders.counts() == once(ids)


def test_two_replays_at_once_send_each_event_once(orders: Orders) -> None:
    ids = orders.post(40)
    orders.declare()
    several = [orders.start() for _ in range(3)]
    codes = [process.wait(deadline(120)) for process in several]
    assert 0 in codes
    assert orders.counts() == once(ids)


# --- what is sent -----------------------------------------------------------------------------------------


def test_the_replayed_event_keeps_its_times(orders: Orders) -> None:
    before = time.time()
    orders.post(1)
    after = time.time()
    orders.declare()
    [letter] = orders.letters()
    assert orders.replay()["sent"] == 1
    [event] = orders.events()
    assert before - 1 < letter.received_at.timestamp() < after
    assert event["received_at"] == letter.received_at.isoformat().replace("+00:00", "Z")
    assert (event["occurred_at"], event["sent_at"]) == ("2026-11-20T10:00:00Z", "2026-11-20T10:00:05Z")
    with connect(orders.settings) as connection:
        [found] = replay_ledger.find_reservations(connection, [letter.at]).values()
    assert found.topic == orders.name
    assert found.place is not None
    partition, offset = found.place
    _, value = read(orders.settings, orders.name, partition, offset, offset + 1)[offset]
    assert json.loads(value or b"")["event_id"] == event["event_id"]


def test_events_that_are_mended_later_are_sent_later(orders: Orders) -> None:
    ids = orders.post(20)
    never = orders.post(3, customer=5)
    assert orders.replay() == {"sent": 0, "already_sent": 0, "invalid": {unknown(load_events()): 23}, "skipped": {}}
    orders.declare(most=9)
    above = {"amount: Input should be less than or equal to 9": 10, "customer: Input should be a valid string": 3}
    assert orders.replay() == {"sent": 10, "already_sent": 0, "invalid": above, "skipped": {}}
    assert orders.counts() == once(ids[:10])
    orders.declare(most=1000)
    result = orders.replay()
    assert (result["sent"], result["already_sent"], sum(result["invalid"].values())) == (10, 10, 3)
    assert orders.counts() == once(ids)
    assert not set(never) & orders.counts().keys()


def unknown(types: Mapping[str, EventType]) -> str:
    known = sorted(name for name, each in types.items() if not each.topic.internal)
    return f"type: not an event type; use one of {', '.join(known)}"


def test_a_type_whose_topic_is_missing_is_skipped_with_the_reason(orders: Orders) -> None:
    ids = orders.post(2)
    (orders.folder / f"{orders.name}.py").write_text(DECLARATION.format(most=1000))
    result = orders.replay()
    assert (result["sent"], list(result["skipped"].values())) == (0, [2])
    assert f"Kafka has no topic {orders.name}" in next(iter(result["skipped"]))
    orders.declare()
    assert orders.replay()["sent"] == 2
    assert orders.counts() == once(ids)


# --- the archive ------------------------------------------------------------------------------------------


def archive(settings: Settings, event_type: EventType) -> None:
    """Archive the whole topic without Spark, and drop its archived records from the log."""
    topic, broker = event_type.name, topics.client(settings, KafkaUser.ADMIN)
    ends, begins = closed_ends(settings, topic), topics.begins(broker, [topic])
    topic_id = ends.ids[topic]
    with open_catalog(settings) as catalog:
        metadata = ensure_table(catalog, event_type, topic_id, begins.offsets[topic]).metadata
        progress = Progress.of(metadata)
        tables = {topic: blueprint(metadata)}
        files, records = [], dict.fromkeys(progress.positions, 0)
        for partition, end in ends.offsets[topic].items():
            found = list(kafka_reader.messages(settings, topic, partition, progress.positions[partition], end))
            records[partition] = len(found)
            columns = {
                "topic": [topic] * len(found),
                "partition": pa.array([partition] * len(found), pa.int32()),
                "offset": pa.array([each.offset() for each in found], pa.int64()),
                "broker_time": pa.array([each.timestamp()[1] * 1000 for each in found], pa.int64()).cast(TIME),
                "key": pa.array([each.key() for each in found], pa.binary()),
                "value": pa.array([each.value() for each in found], pa.binary()),
                "headers": [[{"key": k, "value": v} for k, v in dict(each.headers() or ()).items()] for each in found],
            }
            if found:
                writer = FileWriter(WriterSettings.of(settings), {topic: event_type}, tables, {})
                batches = list(writer(iter([pa.RecordBatch.from_pydict(columns)])))
                files += [load_archived_file(b["file"][0].as_py(), tables).data_file for b in batches]
        append = Append(topic, topic_id, progress.positions, dict(ends.offsets[topic]), records, tuple(files))
        commit(catalog, append)
    drop = [TopicPartition(topic, partition, end) for partition, end in ends.offsets[topic].items()]
    delete_records(broker, *drop)


@pytest.fixture
def archived_letters(services: Settings) -> Iterator[None]:
    yield
    with open_catalog(services) as catalog:
        drop_archive(catalog, "dead_letter")


@pytest.mark.usefixtures("archived_letters")
def test_letters_and_replayed_records_are_found_in_the_archive(orders: Orders) -> None:
    """The log has dropped the dead letters, and also the records of a replay that was killed."""
    ids = orders.post(10)
    declared = orders.declare()
    archive(orders.settings, load_events()["dead_letter"])
    ids += orders.post(10)
    assert len(orders.letters()) == 20
    assert len({letter.at for letter in orders.letters()}) == 20
    killed = orders.start("replay.committed:1:kill")
    assert killed.wait(deadline(120)) == -signal.SIGKILL
    first = orders.counts()
    assert len(first) == 7
    archive(orders.settings, declared)
    assert not orders.counts()
    assert orders.replay() == {"sent": 13, "already_sent": 7, "invalid": {}, "skipped": {}}
    assert first + orders.counts() == once(ids)


@pytest.mark.usefixtures("archived_letters")
def test_a_database_from_a_backup_learns_what_was_replayed(orders: Orders) -> None:
    """The archive has the first replay, and the log has the second."""
    first = orders.post(10)
    declared = orders.declare()
    assert orders.replay()["sent"] == 10
    archive(orders.settings, declared)
    second = orders.post(10)
    assert orders.replay()["sent"] == 10
    with removed_at_the_end(orders.settings, orders.name):
        event_registry.register(orders.settings, declared)
        with connect(orders.settings) as connection:
            connection.execute("DELETE FROM truelog.replay WHERE target = %s", (orders.name,))
        assert replay_ledger.restore(orders.settings) == len(first + second)
        assert orders.replay() == {"sent": 0, "already_sent": 20, "invalid": {}, "skipped": {}}
        assert orders.counts() == once(second)


# --- the command ------------------------------------------------------------------------------------------


def test_the_command_lists_shows_and_replays(orders: Orders) -> None:
    ids = orders.post(60)
    client = Client(orders.settings, orders.settings.producer_key.get_secret_value())
    client.post(b'{"type":"' + orders.name.encode() + b'","text":"\\u001b[31m \x1b[2J\xff"}')
    first = answer("dead-letters", "list", "--type", orders.name)
    second = answer("dead-letters", "list", "--type", orders.name, "--before", first["next"])
    listed = first["dead_letters"] + second["dead_letters"]
    assert (len(first["dead_letters"]), len(listed), second["next"]) == (50, 61, None)
    assert len({each["place"] for each in listed}) == 61
    received = [each["received_at"] for each in listed]
    assert received == sorted(received, reverse=True)

    hostile = truelog("dead-letters", "show", listed[0]["place"])
    assert hostile.returncode == 0
    assert "\x1b" not in hostile.stdout
    assert "\\x1b[2J\\xff" in hostile.stdout
    shown = answer("dead-letters", "show", listed[1]["place"])
    assert shown["valid_now"] is False
    why = unknown(event_registry.event_types(orders.settings))
    assert shown["reason_now"] == why
    assert any(each in shown["text"] for each in ids)

    filters = ("--type", orders.name, "--reason", "NOT AN EVENT", "--since", "1h")
    dry = answer("dead-letters", "replay", "--dry-run", *filters)
    assert (dry["sent"], dry["invalid"], dry["dry_run"]) == (0, {why: 61}, True)
    real = answer("dead-letters", "replay", *filters)
    assert (real["sent"], real["invalid"]) == (0, {why: 61})


@pytest.mark.parametrize(
    "words",
    [
        ("show", "0"),
        ("show", "a:b"),
        ("show", "0:999999999999999999"),
        ("list", "--before", "x"),
        ("list", "--since", "soon"),
        ("replay", "--since", "999999w"),
    ],
)
def test_bad_arguments_are_usage_errors(services: Settings, words: tuple[str, ...]) -> None:
    ended = truelog("dead-letters", *words)
    assert ended.returncode == 2, ended.stderr
    assert "Traceback" not in ended.stderr
