"""The output topics of Kafka Streams, as a reader of committed records sees them."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.five.marks import VIEWS
from truelog.support.settings import Settings

_PREFIX = "bench-streams-"
_PARTITIONS = 4
_RECORDS = 1_000  # per call of the consumer
_SECONDS = 30.0
# The part of a row's key that has the name of a mark.
_PART = {"page_views": 1, "request_rates": 1, "cart": 0, "click_through": 0, "home_timeline": 0}
_END = "\x01"  # separates the parts


@dataclass(frozen=True)
class Topics:
    """The names that have occurred in the rows of each view so far."""

    consumer: Consumer
    seen: Mapping[str, set[str]] = field(default_factory=lambda: {view: set() for view in VIEWS})

    def find(self, view: str, marks: Mapping[str, datetime]) -> set[str]:
        while records := self.consumer.consume(_RECORDS, timeout=0):
            for record in records:
                self._take(record)
        return self.seen[view] & marks.keys()

    def _take(self, record: Message) -> None:
        if (error := record.error()) is not None:
            raise KafkaException(error)
        view, key = str(record.topic()).removeprefix(_PREFIX), (record.key() or b"").decode()
        if is_complete(view, record.value()):
            self.seen[view].add(key.split(_END)[_PART[view]])


def is_complete(view: str, row: bytes | None) -> bool:
    """Whether the row of a mark has all that the mark's records add. A search may have no click yet."""
    return row is not None and (view != "click_through" or json.loads(row).keys() >= {"asked_at", "clicked"})


@contextmanager
def created(settings: Settings) -> Iterator[Topics]:
    """Create the output topics, and read them from their beginning during the block."""
    names = [_PREFIX + view for view in VIEWS]
    admin = AdminClient(settings.kafka())
    for future in admin.create_topics([NewTopic(name, _PARTITIONS, 1) for name in names]).values():
        future.result(_SECONDS)
    consumer = Consumer(settings.kafka() | {"group.id": "bench-five-reader", "isolation.level": "read_committed"})
    try:
        consumer.assign([TopicPartition(name, n, OFFSET_BEGINNING) for name in names for n in range(_PARTITIONS)])
        yield Topics(consumer)
    finally:
        consumer.close()
