"""The outputs of all published views. Each has a relay of its own, so no view waits for the trouble of another."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from confluent_kafka import KafkaException

from truelog.log.output_topic import create_topic, last_written
from truelog.relay.feed import RESYNC
from truelog.relay.relay import Relay
from truelog.relay.spans import Spans
from truelog.relay.step_trace import StepTraces
from truelog.relay.view_feed import ViewFeed, output_config
from truelog.storage.database import Connection, connect, storable
from truelog.support.errors import Resync, ServiceDown, TopicRefused, describe
from truelog.support.settings import KafkaUser, Settings

_LOOK_SECONDS = 2.0  # between the times that the relay tells that it looks
_RETRY_SECONDS = 5.0
_TRIM_SECONDS = 60.0

log = logging.getLogger("truelog.relay")

_Version = tuple[str, int]


@dataclass
class ViewOutputs:
    """The outputs of this database. `publish` is called again and again."""

    settings: Settings
    connection: Connection
    spans: Spans = field(default_factory=Spans)
    _relays: dict[_Version, Relay] = field(default_factory=dict)
    _retry_at: dict[_Version, float] = field(default_factory=dict)
    _due: dict[str, float] = field(default_factory=dict)
    _traces: StepTraces = field(init=False)

    def __post_init__(self) -> None:
        self._traces = StepTraces(self.settings, self.spans)

    def publish(self) -> int:
        """Publish the next rows of each view, and return how many there were.

        Raises:
            Fenced: another relay service has started.
        """
        numbers = self._numbers()
        for each in self._relays.keys() - numbers.keys():
            self._end(each)
        published = sum(self._publish_one(version, number) for version, number in numbers.items())
        if self._is_due("look", _LOOK_SECONDS):
            self._tell()
        if self._is_due("trim", _TRIM_SECONDS):
            for version in list(self._relays):
                self._attempt(version, self._keep_small)
        return published

    def end(self) -> None:
        for each in list(self._relays):
            self._end(each)
        self._traces.close()

    def _numbers(self) -> dict[_Version, int]:
        """The number of the last row of each output that is not held back after a restore."""
        query = (
            "SELECT view, version, number FROM truelog.output o WHERE beginning IS NOT NULL AND NOT EXISTS ("
            "SELECT FROM truelog.held h WHERE outputs_too AND (h.view, h.version) = (o.view, o.version)) ORDER BY 1, 2"
        )
        return {(str(view), int(str(v))): int(str(n)) for view, v, n in self.connection.execute(query).fetchall()}

    def _publish_one(self, version: _Version, number: int) -> int:
        if time.monotonic() < self._retry_at.get(version, 0.0):
            return 0

        def publish(relay: Relay) -> int:
            is_published = relay.place is not None and relay.place.number == number
            published = 0 if is_published else relay.publish()
            if published:
                self._record_progress(version, relay)
            return published

        return self._attempt(version, publish)

    def _keep_small(self, relay: Relay) -> int:
        """Let the outbox forget published rows, and let Kafka remove replaced rows.

        Kafka does not compact the segment to which it appends. After a quiet time, the last row is therefore published
        again, which begins another segment.
        """
        relay.trim()
        quiet = datetime.now(UTC) - timedelta(seconds=self.settings.output_compaction_seconds)
        if (written := last_written(self.settings, relay.feed.name)) and written < quiet:
            relay.repeat_last()
        return 0

    def _attempt(self, version: _Version, work: Callable[[Relay], int]) -> int:
        """Work with the relay of an output. After an error, another relay begins in a few seconds."""
        try:
            return work(self._relays.get(version) or self._begin(version))
        except (Resync, ServiceDown, TopicRefused, KafkaException) as error:
            self._end(version)
            self._retry_at[version] = time.monotonic() + _RETRY_SECONDS
            self._record_trouble(version, error)
            return 0

    def _begin(self, version: _Version) -> Relay:
        feed = ViewFeed(self.settings, self.connection, *version, self._traces)
        create_topic(self.settings, KafkaUser.RELAY, feed.name, output_config(self.settings))
        self._relays[version] = Relay(self.settings, KafkaUser.RELAY, feed)
        self._record_progress(version, self._relays[version])
        return self._relays[version]

    def _end(self, version: _Version) -> None:
        if relay := self._relays.pop(version, None):
            relay.__exit__(None, None, None)

    def _record_progress(self, version: _Version, relay: Relay) -> None:
        sent = relay.place.number if relay.place else 0
        self.connection.execute(
            "UPDATE truelog.output SET sent = %s, trouble = '' WHERE (view, version) = (%s, %s)", (sent, *version)
        )

    def _record_trouble(self, version: _Version, error: Exception) -> None:
        log.warning("%s v%s is not published: %s", *version, describe(error))
        text = f"{RESYNC} {error}" if isinstance(error, Resync) else describe(error)
        self.connection.execute(
            "UPDATE truelog.output SET trouble = %s WHERE (view, version) = (%s, %s)", (storable(text), *version)
        )

    def _tell(self) -> None:
        self.connection.execute(
            "INSERT INTO truelog.relay (looked_at) VALUES (now()) "
            "ON CONFLICT (one) DO UPDATE SET looked_at = excluded.looked_at"
        )

    def _is_due(self, what: str, seconds: float) -> bool:
        now = time.monotonic()
        if now < self._due.get(what, 0.0):
            return False
        self._due[what] = now + seconds
        return True


@contextmanager
def open_outputs(settings: Settings, spans: Spans | None = None) -> Iterator[ViewOutputs]:
    with connect(settings, autocommit=True) as connection:
        outputs = ViewOutputs(settings, connection, spans or Spans())
        try:
            yield outputs
        finally:
            outputs.end()
