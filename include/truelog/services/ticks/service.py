"""The tick service: writes the clock of the log. It puts the time and the end offsets of each topic into a topic.

The service determines a tick's time first and reads the end offsets afterwards, so every record appended before that
time is below these offsets. If positions V have passed a tick and reached its end offsets, the time at V is therefore
at least the tick's time. The latest such time is the clock at V, which depends on V alone. The clock advances even on a
quiet log, and neither an idle nor a fast partition affects it. The service's clock and the brokers' clocks must agree.

A tick is an ordinary event (`include/events/ticks.py`). `occurred_at` is the tick's time. The `ends` field contains
`{topic: {partition: offset}}` as text, written by `Positions.as_json`. `Positions.from_json` parses this text,
PostgreSQL reads it as jsonb, and Spark reads it with `from_json(ends, 'map<string,map<int,bigint>>')`.

    python -m truelog.services.ticks.service
"""

import logging
import uuid
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import partial
from threading import Event
from time import monotonic

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient

from truelog.control import event_registry
from truelog.kafka.producer import open_producer
from truelog.log import topics
from truelog.log.clock_guard import ClockGuard, newest_tick
from truelog.schema.event import EventType
from truelog.schema.names import TICKS
from truelog.services.ticks.registered_topics import RegisteredTopics
from truelog.support.errors import ServiceDown, TopicRefused
from truelog.support.service_main import run_until_terminated
from truelog.support.settings import KafkaUser, Settings
from truelog.support.wait import outlast

log = logging.getLogger(__name__)


def run(settings: Settings, stopped: Event) -> None:
    """Write a tick every `tick_seconds` until stopped. A tick that Kafka does not accept is skipped, not repeated."""
    settings.require_own_events("the service ticks")
    event_type, guard = outlast(partial(_begin, settings), stopped)
    broker, producer, registered = topics.client(settings), _producer(settings), RegisteredTopics(settings)
    due = monotonic()
    while not stopped.is_set():
        try:
            read = registered.names() & topics.existing_topics(broker)
            _send(producer, _tick(broker, event_type, read, guard))
        except (ServiceDown, TopicRefused) as error:  # refused: a topic was deleted after the topics were listed
            log.warning("tick skipped: %s", error)
        due = max(due + settings.tick_seconds, monotonic())
        stopped.wait(max(0.0, due - monotonic()))


def _begin(settings: Settings) -> tuple[EventType, ClockGuard]:
    """What the first tick needs."""
    event_type = event_registry.event_types(settings)[TICKS]
    topics.require_log_append_time(settings, [TICKS])
    return event_type, ClockGuard(settings, newest_tick(settings, event_type))


def _tick(broker: AdminClient, event_type: EventType, read: Iterable[str], guard: ClockGuard) -> bytes:
    # before the offsets: a record past a tick's offsets must be later than the tick
    time = guard.tick_time(datetime.now(UTC))
    ends = topics.ends(broker, read)
    event = event_type.model.model_validate(
        {"event_id": str(uuid.uuid4()), "occurred_at": time, "ends": ends.as_json()},
    )
    return event.model_dump_json(exclude_none=True).encode()


def _producer(settings: Settings) -> Producer:
    """A producer that discards a tick after ten seconds in the queue. A late tick is correct but useless."""
    return open_producer(
        {
            **settings.kafka(KafkaUser.TICKS),
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 0,
            "message.timeout.ms": 10_000,
            "log_level": 0,
        }
    )


def _send(producer: Producer, value: bytes) -> None:
    """Send a tick and wait for its acknowledgement.

    Raises:
        ServiceDown: Kafka did not accept the tick.
        KafkaException: the producer failed permanently.
    """
    errors: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        errors.extend([error] if error else [])

    producer.produce(TICKS, value, on_delivery=delivered)
    producer.flush()
    for error in errors:
        if error.fatal():
            raise KafkaException(error)
        raise ServiceDown(f"Kafka did not accept it: {error.str()}")


def main() -> None:
    """Run the service until SIGTERM or SIGINT."""
    run_until_terminated(lambda stopped: run(Settings(), stopped))


if __name__ == "__main__":
    main()
