"""Reads ranges of the log inside Spark's tasks, with librdkafka, so that the JVM never copies a raw record.

Spark decides which offsets a batch has, and this module reads them. A range [start, end) is read to its end when a
record at or past `end` arrives, or when the partition itself ends there. A missing offset says nothing: transaction
markers, aborted transactions and compaction leave offsets without records. Everything else is an error, so a range is
never short: the log has dropped `start`, the log ends before `end`, or Kafka does not answer.
"""

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from truelog.kafka.consumer import open_consumer
from truelog.log.kafka_reader import headers_of
from truelog.log.positions import Range
from truelog.log.topics import PartitionKey
from truelog.support.errors import ServiceDown

PLACE = pa.schema(
    [
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("broker_time", pa.timestamp("us", "UTC")),
    ]
)
RAW = PLACE.append(pa.field("value", pa.binary()))
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
WHOLE = RAW.append(pa.field("key", pa.binary())).append(pa.field("headers", HEADERS))

_RECORDS = 16_384  # in a batch, about
_BYTES = 32 * 2**20  # in a batch, about
_POLL_SECONDS = 1.0
_SILENT_SECONDS = 30.0
_READING = {
    # A task stops at its last record. What the client has fetched beyond it is discarded, so it must not be much.
    "queued.min.messages": 20_000,
    "queued.max.messages.kbytes": 16_384,
    "fetch.queue.backoff.ms": 10,  # a full queue is empty again after some milliseconds, not after a second
    "fetch.wait.max.ms": 10,  # a partition's end is reported with the next answer of the broker
    "reconnect.backoff.max.ms": 1_000,
    "group.id": "truelog-ranges",  # required, but a reader with assigned partitions joins no group
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "isolation.level": "read_committed",
    "auto.offset.reset": "error",
    "check.crcs": True,
    "log_level": 0,  # an outage is an error here; otherwise each attempt to connect prints a line
}

_idle: dict[Any, Consumer] = {}  # of this worker process, by configuration

Share = Sequence[Range]  # what one task reads: at most one range of each partition


def shares(ranges: Iterable[Range], tasks: int, least: int) -> Sequence[Share]:
    """Divide ranges evenly among at most this many tasks, and fewer if a task would get less than `least` offsets.

    A range may be divided between two tasks, because no task depends on the records of another.
    """
    ranges = list(ranges)
    total = sum(each.end - each.start for each in ranges)
    size = -(-total // max(1, min(tasks, total // least)))  # rounded up
    found: list[list[Range]] = []
    room = 0
    for each in ranges:
        start = each.start
        while start < each.end:
            if not room:
                found.append([])
                room = size
            end = min(each.end, start + room)
            found[-1].append(Range(each.topic, each.partition, start, end))
            start, room = end, room - (end - start)
    return found


def read(client: Mapping[str, Any], share: Share, schema: pa.Schema = RAW) -> Iterator[pa.RecordBatch]:
    """Every committed record of the ranges, with the columns of `RAW` or `WHOLE`. Each batch is of one topic.

    The records of each partition are in offset order.

    Raises:
        ServiceDown: Kafka did not return some of these records.
    """
    pending: dict[str, list[pa.RecordBatch]] = {}
    for topic, batch in _small_batches(client, share, schema):
        small = pending.setdefault(topic, [])
        small.append(batch)
        if sum(each.num_rows for each in small) >= _RECORDS or sum(each.nbytes for each in small) >= _BYTES:
            yield pa.concat_batches(small)
            small.clear()
    yield from (pa.concat_batches(each) for each in pending.values() if each)


def _small_batches(client: Mapping[str, Any], share: Share, schema: pa.Schema) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The records as they arrive, with their topics; each batch is of one partition."""
    cursors = {(each.topic, each.partition): _Cursor(each, each.start) for each in share}
    with _assigned(client, share) as consumer:
        heard = time.monotonic()
        while cursors:
            arrived = [(key, each) for key, each in _by_partition(_arrived(consumer)) if key in cursors]
            if not arrived and time.monotonic() - heard > _SILENT_SECONDS:
                raise ServiceDown(f"Kafka has been silent for {_SILENT_SECONDS:.0f} s; missing: {_missing(cursors)}")
            for key, messages in arrived:
                heard, cursor = time.monotonic(), cursors[key]
                batch = cursor.take(messages, schema)
                if cursor.is_at_end:
                    del cursors[key]
                    consumer.incremental_unassign([TopicPartition(*key)])
                if batch.num_rows:
                    yield cursor.range.topic, batch


@contextmanager
def _assigned(client: Mapping[str, Any], share: Share) -> Iterator[Consumer]:
    """A consumer at the starts of the ranges. A worker process keeps it for its next task, unless reading failed."""
    config = tuple(sorted(client.items()))
    consumer = _idle.pop(config, None) or open_consumer({**client, **_READING})
    consumer.incremental_assign([TopicPartition(each.topic, each.partition, each.start) for each in share])
    yield consumer
    _idle[config] = consumer


def _arrived(consumer: Consumer) -> list[Message]:
    """The messages that have arrived, or after a second without any, none."""
    first = consumer.poll(_POLL_SECONDS)
    return [] if first is None else [first, *consumer.consume(_RECORDS, 0)]


def _by_partition(messages: Iterable[Message]) -> Iterable[tuple[PartitionKey, list[Message]]]:
    found: dict[Any, list[Message]] = defaultdict(list)
    for each in messages:
        found[each.topic(), each.partition()].append(each)
    return found.items()


def _missing(cursors: Mapping[PartitionKey, "_Cursor"]) -> str:
    return ", ".join(f"{t} {p} [{each.reached}, {each.range.end})" for (t, p), each in cursors.items())


@dataclass
class _Cursor:
    """How far a range has been read: every record before the offset `reached` has been returned."""

    range: Range
    reached: int

    @property
    def is_at_end(self) -> bool:
        return self.reached >= self.range.end

    def take(self, messages: list[Message], schema: pa.Schema) -> pa.RecordBatch:
        """The next records of the range, from the next messages of its partition."""
        end_of_partition = _end_of_partition(messages)
        records = messages if end_of_partition is None else [each for each in messages if each.error() is None]
        offsets = np.array([each.offset() for each in records], np.int64)
        if np.any(np.diff(offsets, prepend=self.reached - 1) <= 0):
            raise RuntimeError(f"Kafka returned records of {self.range.topic} {self.range.partition} out of order")
        self.reached = max(int(offsets[-1]) + 1 if records else self.reached, end_of_partition or 0)
        count = int(np.searchsorted(offsets, self.range.end))
        return self._batch(records[:count], offsets[:count], schema)

    def _batch(self, taken: list[Message], offsets: "np.ndarray[Any, Any]", schema: pa.Schema) -> pa.RecordBatch:
        count = len(taken)
        times = np.array([each.timestamp()[1] for each in taken], np.int64)
        columns = [
            pa.repeat(pa.scalar(self.range.topic), count),
            pa.repeat(pa.scalar(self.range.partition, pa.int32()), count),
            pa.array(offsets),
            pa.array(times * 1000).cast(RAW.field("broker_time").type),
            pa.array([each.value() for each in taken], pa.binary()),
        ]
        if schema is not RAW:
            columns += [pa.array([each.key() for each in taken], pa.binary()), _headers(taken)]
        return pa.RecordBatch.from_arrays(columns, schema=schema)


def _headers(messages: Iterable[Message]) -> pa.Array:
    listed = ([{"key": key, "value": value} for key, value in headers_of(each)] or None for each in messages)
    return pa.array(listed, HEADERS)


def _end_of_partition(messages: Iterable[Message]) -> int | None:
    """Where the partition ends, if these messages say so.

    Raises:
        ServiceDown: one of them is an error.
    """
    end = None
    for each in messages:
        error = each.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            raise ServiceDown(f"Kafka cannot return the records of {each.topic()} {each.partition()}: {error.str()}")
        if error is not None:
            end = each.offset()
    return end
