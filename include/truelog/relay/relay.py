"""Relay: publishes a feed to Kafka. For readers of committed records, each row arrives once, in order.

1. A relay takes the feed's transactional id. From then on, no predecessor can write, and an open transaction of one is
   aborted.
2. It reads the place that was committed last.
3. It publishes the next rows of the feed and its new place in one transaction, again and again.

A relay that is killed at any moment leaves either both the rows and the place, or neither. After an error, it is
unknown which, so the relay is not used again, and the next relay begins with step 1.

A database that was restored from a backup has smaller numbers, and later other rows under the same numbers. The id of
the last published row therefore belongs to the place, and the feed keeps that row. If the ids differ, the relay
publishes nothing more, because it would repeat or skip rows: see `Resync`.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from confluent_kafka import KafkaError, KafkaException

from truelog.kafka.producer import open_producer
from truelog.log.access import RELAY_PLACES, RELAY_TRANSACTIONS
from truelog.log.kafka_producer import client_error
from truelog.log.output_topic import create_topic
from truelog.relay.feed import Beginning, Feed, Row
from truelog.relay.place import PLACES_CONFIG, Place, read_places
from truelog.relay.publish_spans import PublishSpan
from truelog.support.errors import Fenced, Resync, ServiceDown
from truelog.support.faults import reach
from truelog.support.settings import KafkaUser, Settings

# Readers of committed records wait so long for a relay that died and has no successor. The rows of a large table must
# fit into this time.
_TRANSACTION_MS = 300_000
_ANSWER_SECONDS = 60.0


class Relay:
    """The only relay of a feed, until another one starts. `user` is the principal that writes the records.

    Raises:
        Fenced: another relay of the feed has started.
        ServiceDown: Kafka did not answer. Start another relay.
        Resync: the feed does not continue where it was published last.
    """

    def __init__(self, settings: Settings, user: KafkaUser, feed: Feed) -> None:
        self.feed = feed
        self._producer = open_producer(_configuration(settings, user, feed))
        create_topic(settings, user, RELAY_PLACES, PLACES_CONFIG)
        with _understood(feed):
            self._producer.init_transactions(_ANSWER_SECONDS)  # 1
            reach("relay.started")
            self.place = read_places(settings).get(feed.name)  # 2

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        """Drop what is not sent yet. The next relay aborts the transaction."""
        self._producer.purge()

    def publish(self) -> int:
        """Publish the next rows in one transaction, and return how many there are."""
        beginning = self.feed.beginning()
        if beginning is None:
            self._require_no_place()
            return 0
        number = self._next_number(beginning)
        rows = self.feed.next_rows(number)
        if not rows or self.feed.beginning() != beginning:  # the rows may belong to a beginning since then
            return 0
        if rows[0].number != number:
            raise Resync(f"{self.feed.name} lacks row {number}, which was never published")
        with _understood(self.feed):
            self._publish(rows, beginning)  # 3
        return len(rows)

    def trim(self) -> None:
        """Let the feed remove rows that are published. It keeps the last one."""
        if self.place is not None:
            self.feed.trim(self.place.number)

    def repeat_last(self) -> None:
        """Publish the row at the place of the relay again, unless the feed has begun again. The place stays."""
        place, beginning = self.place, self.feed.beginning()
        if place is None or beginning is None or beginning.id != place.beginning:
            return
        rows = [each for each in self.feed.next_rows(place.number) if each.id == place.id]
        if rows:
            with _understood(self.feed):
                self._publish(rows[-1:], beginning)

    def _next_number(self, beginning: Beginning) -> int:
        """The number of the row to publish next."""
        place = self.place
        if place is None or (beginning.id != place.beginning and beginning.number > place.number):
            return beginning.number
        if beginning.id != place.beginning or self.feed.id_of(place.number) != place.id:
            raise Resync(f"row {place.number} of {self.feed.name} was published, but the database has another history")
        return place.number + 1

    def _require_no_place(self) -> None:
        if self.place is not None:
            raise Resync(f"{self.feed.name} was published to row {self.place.number}, but its outbox is gone")

    def _publish(self, rows: Sequence[Row], beginning: Beginning) -> None:
        place = Place(rows[-1].number, rows[-1].id, beginning.id)
        self._producer.begin_transaction()
        for row in rows:
            self._produce(row.topic, row.key, row.value, row.headers, row.span)
        self._produce(RELAY_PLACES, self.feed.name.encode(), place.as_json(), {})
        reach("relay.sent")
        self._producer.commit_transaction(_ANSWER_SECONDS)  # waits until Kafka has every record
        reach("relay.committed")
        self.place = place
        for span in dict.fromkeys(row.span for row in rows if row.span):
            span.published()

    def _produce(
        self,
        topic: str,
        key: bytes,
        value: bytes | None,
        headers: Mapping[str, bytes],
        span: PublishSpan | None = None,
    ) -> None:
        """Put a record into the producer's queue, and wait while the queue is full."""
        delivery = {"on_delivery": span.delivered} if span else {}
        while True:
            try:
                self._producer.produce(topic, value, key, headers=dict(headers), **delivery)
            except BufferError:
                self._producer.poll(0.1)
            else:
                self._producer.poll(0)
                return


def _configuration(settings: Settings, user: KafkaUser, feed: Feed) -> dict[str, Any]:
    return {
        **settings.kafka(user),
        "transactional.id": f"{RELAY_TRANSACTIONS}{feed.name}",
        "transaction.timeout.ms": _TRANSACTION_MS,
        "message.timeout.ms": 60_000,
        "partitioner": "murmur2_random",
        "compression.type": "lz4",
        "linger.ms": 5,
        "log_level": 0,
    }


@contextmanager
def _understood(feed: Feed) -> Iterator[None]:
    """Turn the client's errors into those of a relay."""
    try:
        yield
    except (KafkaException, SystemError) as failed:
        error = client_error(failed)
        if error.fatal() or error.code() in (KafkaError._FENCED, KafkaError._FATAL):
            raise Fenced(f"another relay of {feed.name} has started ({error.str()})") from failed
        raise ServiceDown(f"Kafka did not accept the rows of {feed.name}: {error.str()}") from failed
