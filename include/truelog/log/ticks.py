"""Ticks: the clock of the log. The platform writes the time and the end offsets of every topic into a topic.

The service takes a tick's time first and reads the end offsets afterwards, so every record appended before that time
is below these offsets. At positions V it is therefore at least the time of any tick that V has passed and whose end
offsets V has reached. The latest such time is the clock at V, which depends on V alone. The clock advances on a quiet
log, and neither an idle partition nor a fast one affects it. The clocks of this service and of the brokers must agree.

A tick is an ordinary event (`include/events/ticks.py`). `occurred_at` is its time. The field `ends` holds
`{topic: {partition: offset}}` as text, written by `Positions.as_json`. `Positions.from_json` parses it, PostgreSQL
reads it as jsonb, and Spark by `from_json(ends, 'map<string,map<int,bigint>>')`.

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
    """Write a tick every `tick_seconds`, for ever. A tick that Kafka does not accept is skipped and not repeated."""
    types = load_events()
    topics.require_log_append_time(settings, types)
    broker, producer = topics.client(settings), _producer(settings)
    read = [name for name in types if name != TOPIC]
    due = time.monotonic()
    while True:
        try:
            _send(producer, _tick(broker, types[TOPIC], read))
        except ServiceDown as down:
            log.warning("tick skipped: %s", down)
        due = max(due + settings.tick_seconds, time.monotonic())
        time.sleep(max(0.0, due - time.monotonic()))


def _tick(broker: AdminClient, event_type: EventType, read: Iterable[str]) -> bytes:
    now = datetime.now(UTC)  # before the offsets: a record past the offsets of a tick must be later than its time
    ends = topics.ends(broker, read)
    event = event_type.model.model_validate(
        {"event_id": str(uuid.uuid4()), "occurred_at": now, "ends": ends.as_json()},
    )
    return event.model_dump_json(exclude_none=True).encode()


def _producer(settings: Settings) -> Producer:
    """A producer that discards a tick after ten seconds in the queue. A late tick is correct, but useless."""
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
    """Send a tick and wait for its acknowledgement.

    Raises:
        ServiceDown: Kafka did not accept it.
        KafkaException: the producer failed permanently.
    """
    errors: list[KafkaError] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        errors.extend([error] if error else [])

    producer.produce(TOPIC, value, on_delivery=delivered)
    producer.flush()
    for error in errors:
        if error.fatal():
            raise KafkaException(error)
        raise ServiceDown(f"Kafka did not accept it: {error.str()}")


def main() -> None:
    """Run the service until SIGTERM or SIGINT."""
    run_until_terminated(lambda: run(Settings()))


if __name__ == "__main__":
    main()
