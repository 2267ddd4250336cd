"""Reads the ticks of a batch in the driver. Most batches have one tick, for which a Spark job would cost too much."""

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from truelog.log import range_reader
from truelog.log.positions import Range
from truelog.log.valid_tick import TickRow
from truelog.schema.event import EventType
from truelog.schema.event_version import judge
from truelog.support.settings import KafkaUser, Settings

_COLUMNS = ("occurred_at", "ends")


def read_ticks(settings: Settings, event_type: EventType, ranges: Iterable[Range]) -> Iterator[TickRow]:
    """The valid events of the `ticks` topic in these ranges. They are ticks if `tick_ends` accepts them.

    Raises:
        ServiceDown: Kafka did not return some of these records.
    """
    for records in range_reader.read(settings.kafka(KafkaUser.READER), list(ranges)):
        judged = judge(event_type, records, _COLUMNS)
        valid = pc.is_null(judged["invalid"])
        columns = [records["offset"], _micros(judged["occurred_at"]), _micros(records["broker_time"]), judged["ends"]]
        yield from zip(*(each.filter(valid).to_pylist() for each in columns), strict=True)


def _micros(times: pa.Array) -> pa.Array:
    return times.cast(pa.timestamp("us", "UTC")).cast(pa.int64())
