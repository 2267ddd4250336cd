"""A range of the log is read whole or not at all, whether its end is a record, a marker, a gap or the log's end."""

import ctypes
import random
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from hypothesis import given
from hypothesis import strategies as st

from tests.deadline import deadline
from tests.deleted_records import delete_records
from truelog.log import range_reader, topics
from truelog.log.positions import Range
from truelog.support.errors import ServiceDown
from truelog.support.settings import KafkaUser, Settings

PARTITIONS = 2
_lengths = st.lists(st.integers(1, 1000), max_size=6)


@given(_lengths, st.integers(1, 5), st.integers(1, 500))
def test_shares_are_the_ranges(lengths: list[int], tasks: int, least: int) -> None:
    ranges = [Range("t", partition, 7, 7 + length) for partition, length in enumerate(lengths)]
    found = range_reader.shares(ranges, tasks, least)
    offsets = [(each.partition, offset) for share in found for each in share for offset in range(each.start, each.end)]
    assert offsets == [(r.partition, offset) for r in ranges for offset in range(r.start, r.end)]
    sizes = [sum(each.end - each.start for each in share) for share in found]
    assert len(sizes) <= max(1, min(tasks, sum(lengths) // least))
    assert all(size >= least for size in sizes[:-1])
    assert all(len({each.partition for each in share}) == len(share) for share in found)


@dataclass
class Log:
    """A topic with the offsets and values of its committed records."""

    settings: Settings
    topic: str
    committed: dict[tuple[int, int], bytes | None] = field(default_factory=dict)  # by partition and offset

    @property
    def client(self) -> dict[str, str]:
        return self.settings.kafka(KafkaUser.READER)

    def end(self, partition: int) -> int:
        return topics.committed_ends(topics.client(self.settings), [self.topic]).at(self.topic, partition)

    def send(self, producer: Producer, partition: int, count: int) -> None:
        def delivered(_: object, message: object) -> None:
            self.committed[partition, message.offset()] = message.value()  # type: ignore[attr-defined]

        for _ in range(count):
            producer.produce(self.topic, uuid.uuid4().bytes, partition=partition, on_delivery=delivered)
        assert producer.flush(deadline(10)) == 0

    def transaction(self, partition: int, count: int, *, commit: bool) -> None:
        producer, before = self.producer(transactional=True), dict(self.committed)
        producer.begin_transaction()
        self.send(producer, partition, count)
        if commit:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
            self.committed = before

    def producer(self, *, transactional: bool = False) -> Producer:
        extra = {"transactional.id": uuid.uuid4().hex} if transactional else {}
        producer = Producer({**self.settings.kafka(), "acks": "all", **extra})
        if transactional:
            producer.init_transactions()
        return producer

    def read(self, *ranges: Range) -> dict[tuple[int, int], bytes | None]:
        found: dict[tuple[int, int], bytes | None] = {}
        for batch in range_reader.read(self.client, ranges):
            assert batch.schema == range_reader.RAW
            assert batch["topic"].unique().to_pylist() == [self.topic]
            places = list(zip(batch["partition"].to_pylist(), batch["offset"].to_pylist(), strict=True))
            assert not found.keys() & set(places)
            found.update(zip(places, batch["value"].to_pylist(), strict=True))
        assert sorted(found) == list(found) or len(ranges) > 1
        return found

    def expected(self, *ranges: Range) -> dict[tuple[int, int], bytes | None]:
        return {
            (p, o): value
            for (p, o), value in self.committed.items()
            if any(each.partition == p and each.start <= o < each.end for each in ranges)
        }


@pytest.fixture(scope="module")
def empty(kafka: Settings) -> Log:
    """A topic without records; each test uses its own partition or adds to it."""
    name, admin = "ranges", AdminClient(kafka.kafka())
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result()
    return Log(kafka, name)


@pytest.fixture(scope="module")
def log(empty: Log) -> Log:
    """Both partitions have committed and aborted transactions, plain records, and a marker at their ends."""
    for partition in range(PARTITIONS):
        empty.transaction(partition, 3, commit=True)
        empty.transaction(partition, 4, commit=False)
        empty.send(empty.producer(), partition, 5)
        empty.transaction(partition, 2, commit=False)
        empty.transaction(partition, 1, commit=True)
        empty.transaction(partition, 2, commit=partition == 0)
    assert empty.end(0) == empty.end(1) == 22
    return empty


def test_every_range_has_the_committed_records_between_its_ends(log: Log) -> None:
    for start in range(22):
        for end in range(start + 1, 23):
            wanted = Range(log.topic, 0, start, end)
            assert log.read(wanted) == log.expected(wanted), wanted


def test_a_share_of_two_partitions_is_read_whole(log: Log) -> None:
    draw = random.Random(1)
    for _ in range(30):
        ends = [sorted(draw.sample(range(23), 2)) for _ in range(PARTITIONS)]
        ranges = [Range(log.topic, partition, *pair) for partition, pair in enumerate(ends)]
        assert log.read(*ranges) == log.expected(*ranges), ranges


def test_no_ranges_have_no_records(log: Log) -> None:
    assert log.read() == {}


def test_times_are_the_brokers(log: Log) -> None:
    [batch] = range_reader.read(log.client, [Range(log.topic, 0, 0, 3)])
    assert [each.microsecond % 1000 for each in batch["broker_time"].to_pylist()] == [0, 0, 0]
    assert datetime.now(UTC) - batch["broker_time"][0].as_py() < timedelta(hours=1)


def test_large_records_come_in_several_batches(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(range_reader, "_RECORDS", 2)
    batches = list(range_reader.read(log.client, [Range(log.topic, 0, 0, 22)]))
    assert len(batches) > 1
    assert sum(each.num_rows for each in batches) == len(log.expected(Range(log.topic, 0, 0, 22)))


def test_whole_records_have_their_keys_and_headers(log: Log) -> None:
    begin, producer = log.end(1), log.producer()
    producer.produce(log.topic, b"v", b"\xff", partition=1, headers=[("a", b"\x00\xff"), ("a", None)])
    producer.produce(log.topic, None, partition=1)
    producer.flush(deadline(10))
    produce_with_header(log, b"\xff\xfe", b"value")  # no usual client can send this key
    for _ in range(10):  # afterwards the interpreter has specialized the calls of this code
        list(range_reader.read(log.client, [Range(log.topic, 1, 0, begin)], range_reader.WHOLE))
    [batch] = range_reader.read(log.client, [Range(log.topic, 1, begin, begin + 3)], range_reader.WHOLE)
    assert batch.select(["key", "value", "headers"]).to_pylist() == [
        {"key": b"\xff", "value": b"v", "headers": [{"key": "a", "value": b"\x00\xff"}, {"key": "a", "value": None}]},
        {"key": None, "value": None, "headers": None},
        {"key": None, "value": None, "headers": [{"key": "\ufffd", "value": b"value"}]},
    ]
    log.committed |= {(1, begin + n): value for n, value in enumerate(batch["value"].to_pylist())}


def produce_with_header(log: Log, key: bytes, value: bytes) -> None:
    """Send a tombstone with one header through the C library, because the Python client accepts only valid keys."""
    [library] = Path(confluent_kafka.__file__).parents[1].glob("confluent_kafka.libs/librdkafka-*")
    kafka, error = ctypes.CDLL(str(library)), ctypes.create_string_buffer(512)
    kafka.rd_kafka_conf_new.restype = kafka.rd_kafka_new.restype = ctypes.c_void_p
    settings = ctypes.c_void_p(kafka.rd_kafka_conf_new())
    for name, text in log.settings.kafka().items():
        assert kafka.rd_kafka_conf_set(settings, name.encode(), str(text).encode(), error, 512) == 0
    producer = ctypes.c_void_p(kafka.rd_kafka_new(0, settings, error, 512))
    topic, partition, header, end = 1, 3, 9, 0  # rd_kafka_vtype_t
    size = ctypes.c_ssize_t(len(value))
    sent = kafka.rd_kafka_producev(
        producer, topic, log.topic.encode(), partition, ctypes.c_int32(1), header, key, value, size, end
    )
    assert (sent, kafka.rd_kafka_flush(producer, 10_000)) == (0, 0)
    kafka.rd_kafka_destroy(producer)


class TestShortRangesFail:
    @pytest.fixture(autouse=True)
    def impatient(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(range_reader, "_SILENT_SECONDS", deadline(1.0))

    def test_past_the_end_of_the_log(self, log: Log) -> None:
        with pytest.raises(ServiceDown, match=r"silent.*0 \[22, 23\)"):
            log.read(Range(log.topic, 0, 0, 23))
        assert len(log.read(Range(log.topic, 0, 0, 3))) == 3  # the next task of the same process reads again

    def test_inside_an_open_transaction(self, log: Log) -> None:
        producer, begin = log.producer(transactional=True), log.end(1)
        producer.begin_transaction()
        log.send(producer, 1, 3)
        log.send(log.producer(), 1, 1)
        try:
            assert log.end(1) == begin
            assert log.read(Range(log.topic, 1, 20, begin)) == log.expected(Range(log.topic, 1, 20, begin))
            with pytest.raises(ServiceDown, match="silent"):
                log.read(Range(log.topic, 1, 20, begin + 4))
        finally:
            producer.commit_transaction()
        assert log.read(Range(log.topic, 1, 20, begin + 4)) == log.expected(Range(log.topic, 1, 20, begin + 4))

    def test_dropped_by_retention(self, log: Log) -> None:
        delete_records(AdminClient(log.settings.kafka()), TopicPartition(log.topic, 0, 2))
        with pytest.raises(ServiceDown, match="cannot return"):
            log.read(Range(log.topic, 0, 1, 22))
        assert log.read(Range(log.topic, 0, 2, 22)) == log.expected(Range(log.topic, 0, 2, 22))

    def test_of_a_topic_that_does_not_exist(self, log: Log) -> None:
        with pytest.raises(ServiceDown, match="no-such-topic"):
            log.read(Range("no-such-topic", 0, 0, 1))

    def test_while_no_broker_answers(self, log: Log) -> None:
        with pytest.raises(ServiceDown, match="silent"):
            list(range_reader.read({**log.client, "bootstrap.servers": "127.0.0.1:1"}, [Range(log.topic, 0, 0, 1)]))

    def test_while_only_another_partition_speaks(self, log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
        """Such messages, which may be errors of the client, do not show that Kafka still returns the range."""
        looks: list[object] = []

        def of_another(messages: object) -> list[tuple[tuple[str, int], list[object]]]:
            looks.append(messages)
            assert len(looks) < deadline(30), "the reader waits for ever"
            return [(("another", 0), [])]

        monkeypatch.setattr(range_reader, "_by_partition", of_another)
        with pytest.raises(ServiceDown, match=r"silent.*0 \[22, 23\)"):
            log.read(Range(log.topic, 0, 22, 23))
