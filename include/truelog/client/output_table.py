"""Reads an output topic as a table. It needs `confluent-kafka`, which the clients of HTTP do not need.

with OutputTable("view.cart.v1", {"bootstrap.servers": "127.0.0.1:19092", …}) as table:
    print(len(table.rows))
    while True:
        table.follow(seconds=1.0)

A compacted topic lacks earlier records, so the rows before its end were never in the view together. The reader
therefore asks where the topic ends, and shows nothing before it has read up to there. Tombstones stay in the topic for
`delete.retention.ms`. A reader that was away for longer may have missed some, so it begins again from nothing. So does
a reader whose next record is gone: the topic was created again, or lost records. The log of the program says why.

Some releases of the Kafka client may never connect again after a broker has restarted. A reader that got no answer
therefore makes new clients when it is asked again, and goes on where it was.
"""

import json
import logging
import time
from collections.abc import Mapping
from decimal import Decimal
from types import TracebackType
from typing import Any, Self

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    OffsetSpec,
    ResourceType,
)

from truelog.client.errors import Unavailable

_RETENTION = "delete.retention.ms"
_ANSWER_SECONDS = 10.0
_EARLIEST, _LATEST = OffsetSpec.earliest(), OffsetSpec.latest()
_READING = {
    "isolation.level": "read_committed",
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
}

log = logging.getLogger(__name__)


class _OffsetGone(Unavailable):
    """The topic does not have the next offset."""


class OutputTable:
    """The rows of an output topic, by the text of their keys, as the view had them after one of its transactions."""

    def __init__(self, topic: str, kafka: Mapping[str, Any], seconds: float = 60.0) -> None:
        """Read the whole topic. `kafka` has the settings of a Kafka client, such as `bootstrap.servers`.

        Raises:
            Unavailable: Kafka did not answer in time, or there is no such topic.
        """
        self._topic, self._seconds = topic, seconds
        self._settings = {"log_level": 0, **kafka}
        self._connect()
        self._read: dict[str, Mapping[str, Any]] = {}
        self._shown: Mapping[str, Mapping[str, Any]] = {}
        self._next, self._epoch, self._is_gone, self._is_lost = 0, dict[str, int](), False, False
        try:
            self._begin()
        except BaseException:
            self.close()
            raise

    @property
    def rows(self) -> Mapping[str, Mapping[str, Any]]:
        """The rows at the end of the topic, as it was when the reader last asked."""
        return self._shown

    def follow(self, seconds: float = 0.0) -> bool:
        """Read up to the present end of the topic. If it has not moved, wait for it. True if there was a record.

        Raises:
            Unavailable: Kafka did not answer in time, or the topic is gone.
        """
        until = time.monotonic() + seconds
        try:
            if self._is_lost:
                self._connect_again()
            while not (reason := self._reason_to_begin()):
                asked, end = _now(), self._offset(_LATEST)
                if end > self._next:
                    self._read_to(end, asked)
                    return True
                if (rest := until - time.monotonic()) <= 0:
                    self._since = asked
                    return False
                self._keep(self._consumer.poll(min(rest, 0.5)))
        except _OffsetGone as gone:
            reason = str(gone)
        except Unavailable:
            self._is_lost = True
            raise
        log.warning("%s: the table begins again: %s", self._topic, reason)
        self._begin()
        return True

    def close(self) -> None:
        """Close the connections. The rows stay."""
        self._consumer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _connect(self) -> None:
        self._admin = AdminClient({name: value for name, value in self._settings.items() if name != "group.id"})
        self._consumer = Consumer({"group.id": "truelog-table", **self._settings, **_READING})

    def _connect_again(self) -> None:
        """Go on with new clients. With the leader epoch, they notice records that the topic has lost."""
        self._consumer.close()
        self._connect()
        self._consumer.assign([TopicPartition(self._topic, 0, self._next, **self._epoch)])
        self._is_lost = False

    def _begin(self) -> None:
        """Read everything from the beginning. The earlier rows stay visible until the end is reached."""
        since, topic_id, retention = _now(), self._topic_id(), self._retention_seconds()
        first, end = self._offset(_EARLIEST), self._offset(_LATEST)
        # Nothing is set before the last answer. Without one of them, the reason to begin stays.
        self._since, self._id, self._retention = since, topic_id, retention
        self._read, self._next, self._epoch, self._is_gone = {}, first, {}, False
        self._consumer.assign([TopicPartition(self._topic, 0, first)])
        self._read_to(end, since)

    def _reason_to_begin(self) -> str:
        """Why the records behind the next offset do not continue the rows. Empty if they do."""
        if self._is_gone:
            return f"it no longer has offset {self._next}"
        if self._age() > self._retention:
            return f"tombstones may be gone that were not read within {_RETENTION}"
        return "" if self._topic_id() == self._id else "it was created again"

    def _age(self) -> float:
        """How long ago nothing was unread. A machine that slept shows it in the time of day."""
        return max(now - then for now, then in zip(_now(), self._since, strict=True))

    def _read_to(self, end: int, asked: tuple[float, float]) -> None:
        """Read up to an end, and then show the rows. `asked` is when the topic had this end."""
        limit = time.monotonic() + self._seconds
        while self._next < end:
            if self._keep(self._consumer.poll(1.0)):
                limit = time.monotonic() + self._seconds
            elif time.monotonic() > limit:
                raise Unavailable(f"{self._topic}: Kafka returned no record within {self._seconds:g} s")
        if self._age() > self._retention:
            raise Unavailable(
                f"{self._topic}: a whole reading took longer than {_RETENTION}, so it may lack tombstones"
            )
        self._since, self._shown = asked, dict(self._read)

    def _keep(self, message: Message | None) -> bool:
        """Take over a record, or the knowledge that there is none before an offset."""
        if message is None:
            return False
        error = message.error()
        if error is not None and error.code() == KafkaError._AUTO_OFFSET_RESET:
            self._is_gone = True  # the client reads no further, and says so only once
            raise _OffsetGone(f"{self._topic}: {error.str()}")
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            return False  # the client goes on by itself
        if error is not None:
            self._next = max(self._next, message.offset() or 0)
            return True
        key, value = _text(message.key()), message.value()
        self._next = (message.offset() or 0) + 1
        if (epoch := message.leader_epoch()) is not None:
            self._epoch = {"leader_epoch": epoch}
        if value is None:
            self._read.pop(key, None)
        else:
            self._read[key] = json.loads(value, parse_float=Decimal)
        return True

    def _offset(self, spec: OffsetSpec) -> int:
        partition, isolation = TopicPartition(self._topic, 0), IsolationLevel.READ_COMMITTED
        futures = self._admin.list_offsets(
            {partition: spec}, isolation_level=isolation, request_timeout=_ANSWER_SECONDS
        )
        return int(self._result(futures).offset)

    def _topic_id(self) -> str:
        futures = self._admin.describe_topics(TopicCollection([self._topic]), request_timeout=_ANSWER_SECONDS)
        return str(self._result(futures).topic_id)

    def _retention_seconds(self) -> float:
        resource = ConfigResource(ResourceType.TOPIC, self._topic)
        found = self._result(self._admin.describe_configs([resource], request_timeout=_ANSWER_SECONDS))
        return int(found[_RETENTION].value) / 1_000

    def _result(self, futures: Mapping[Any, Any]) -> Any:
        """The only answer."""
        try:
            return next(iter(futures.values())).result(_ANSWER_SECONDS * 2)
        except (KafkaException, TimeoutError) as error:
            raise Unavailable(f"{self._topic}: {error}") from error


def _now() -> tuple[float, float]:
    return time.monotonic(), time.time()


def _text(key: str | bytes | None) -> str:
    return key if isinstance(key, str) else (key or b"").decode()
