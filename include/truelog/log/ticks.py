"""Ticks: the clock of the log, a topic in which the platform writes what time it is and how far every topic reaches.

A tick's time is taken first, its end offsets are read after: every record appended before that time lies below them
[12]. So at positions V the log says that it is at least the time of any tick that V has passed and whose ends V has
reached; the greatest of these is the clock at V, a function of V alone. Time passes on a quiet log, no partition
that stands still holds it back, and none that runs ahead hurries it. This takes for granted that the machine of this
service and those of the brokers agree about the time.

A tick is an event as all are (`include/events/ticks.py`): `occurred_at` is its time, and its field `ends` holds
`{topic: {partition: offset}}` as text, written by `Positions.as_json`, so `Positions.from_json` reads it, PostgreSQL
as jsonb, and Spark by `from_json(ends, 'map<string,map<int,bigint>>')`.

    python -m truelog.log.ticks
"""

import logging
import time
import uuid
from collections.abc import Iterable
from datetime import UTC, datetime

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient

from truelog.log import topics
from truelog.schema.event import EventType, load_events
from truelog.support.errors import ServiceDown
from truelog.support.service_main import run_until_terminated
from truelog.support.settings import Settings

TOPIC = "ticks"

log = logging.getLogger(__name__)


def run(settings: Settings) -> None:
    """Write a tick every `tick_seconds`, for ever; one that Kafka does not take is skipped, not made up."""
    types = load_events()
    topics.require_log_append_time(settings, types)
    broker, producer = topics.client(settings), _producer(settings)
    read = [name for name in types if name != TOPIC]
    due = time.monotonic()
    while True:
        try:
            _send(producer, _tick(broker, types[TOPIC], read))
        except ServiceDown as down:
            log.warning("no tick: %s", down)
        due = max(due + settings.tick_seconds, time.monotonic())
        time.sleep(max(0.0, due - time.monotonic()))


def _tick(broker: AdminClient, event_type: EventType, read: Iterable[str]) -> bytes:
    now = datetime.now(UTC)  # before the offsets, or a record could be older than a tick and yet beyond it
    ends = topics.ends(broker, read)
    event = event_type.model.model_validate(
        {"event_id": str(uuid.uuid4()), "occurred_at": now, "ends": ends.as_json()},
    )
    return event.model_dump_json(exclude_none=True).encode()


def _producer(settings: Settings) -> Producer:
    """A tick that waited long in the queue is true still, but of no use: it is given up."""
    return Producer(
        {
            **settings.kafka(),
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 0,
            "message.timeout.ms": 10_000,
            "log_level": 0,
        }
    )


def _send(producer: Producer, value: bytes) -> None:
    """Until Kafka has it; ServiceDown if it has not, KafkaException if this producer can go on no more."""
    failed: list[KafkaError] = []

    def answered(error: KafkaError | None, _: Message) -> None:
        failed.extend([error] if error else [])

    producer.produce(TOPIC, value, on_delivery=answered)
    producer.flush()
    for error in failed:
        if error.fatal():
            raise KafkaException(error)
        raise ServiceDown(f"Kafka did not take it: {error.str()}")


def main() -> None:
    """Run the service until SIGTERM or SIGINT."""
    run_until_terminated(lambda: run(Settings()))


if __name__ == "__main__":
    main()
