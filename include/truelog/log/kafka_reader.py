"""The committed records of one partition, read for the audit with a plain Kafka client, independently of Spark."""

from collections.abc import Callable, Iterator
from operator import methodcaller
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from truelog.kafka.consumer import open_consumer
from truelog.log.positions import Range
from truelog.support.errors import ServiceDown
from truelog.support.settings import KafkaUser, Settings

_TIMEOUT_SECONDS = 30
_NO_KEY = "(<NULL>"  # how Python shows a header whose key the client could not make
# A plain call that runs often becomes an instruction that ignores the client's error. The key would then be a null
# pointer, which kills the process. This call always checks.
_headers = methodcaller("headers")


def messages(settings: Settings, topic: str, partition: int, begin: int, end: int) -> Iterator[Message]:
    """Every record in [begin, end) that the broker still has, in order.

    Raises:
        ServiceDown: an open transaction hides the end of the range, or Kafka returned no record in time.
        KafkaException: Kafka refused the range.
    """
    consumer = open_reader(settings)
    try:
        yield from read_range(consumer, Range(topic, partition, begin, end), lambda: _TIMEOUT_SECONDS)
    finally:
        consumer.close()


def open_reader(settings: Settings, **more: Any) -> Consumer:
    """A client that reads committed records. The caller closes it."""
    return open_consumer(
        {
            **settings.kafka(KafkaUser.READER),
            "group.id": "truelog-audit",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            **more,
        }
    )


def read_range(consumer: Consumer, wanted: Range, wait: Callable[[], float]) -> Iterator[Message]:
    """Every record of a range that the broker still has, in order. `wait` says how many seconds the next may take.

    Readers of committed records see nothing after the beginning of a transaction that has not ended. A range that
    contains such a beginning is refused, because the caller would take what is visible for all of it.

    Raises:
        ServiceDown: an open transaction hides the end of the range, or Kafka returned no record in time.
        KafkaException: Kafka refused the range.
    """
    consumer.assign([TopicPartition(wanted.topic, wanted.partition, wanted.start)])
    position = wanted.start
    while position < wanted.end:
        seconds = wait()
        message = consumer.poll(seconds)
        if message is None:
            where = f"{wanted.topic} {wanted.partition}"
            raise ServiceDown(f"Kafka returned no record of {where} within {seconds:.3g} s")
        error = message.error()
        if error is not None and error.code() == KafkaError._PARTITION_EOF:
            position = message.offset() or 0
            if position < wanted.end:
                raise ServiceDown(_hidden(wanted, position))
            return
        if error is not None:
            raise KafkaException(error)
        position = (message.offset() or 0) + 1
        if position <= wanted.end:
            yield message


def _hidden(wanted: Range, position: int) -> str:
    return (
        f"{wanted.topic} {wanted.partition}: a transaction at {position} has not ended and hides the records below "
        f"{wanted.end}. It ends when its sender starts again, or else after some minutes. Then try again. "
        "Otherwise, the log has lost these records."
    )


def headers_of(message: Message) -> list[tuple[str, bytes | None]]:
    """The headers of a record. A key that is not UTF-8 becomes U+FFFD.

    No usual client can send such a key, but a hostile sender can. The client then raises an error once, and afterwards
    returns headers without these keys, which a program must not touch.
    """
    try:
        found: Any = _headers(message) or []
    except SystemError:
        found = _headers(message) or []
        found = [("\ufffd", each[1]) if repr(each).startswith(_NO_KEY) else each for each in found]
    return list(found)
