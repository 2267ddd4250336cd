"""The files of a batch with its log times, or without its copies. Both differ from batch to batch.

Spark would make them a part of a plan, which could then not be repeated.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from truelog.log.records import Coordinates
from truelog.tables.dedupe.compile import LogTimes
from truelog.tables.staging import event_files
from truelog.tables.staging.event_files import EventFiles

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TIME = "broker_time"


def with_log_times(folder: Path, batch: EventFiles, topics: Iterable[str], before: LogTimes) -> EventFiles:
    """The events in these topics, with their log times as broker times. `before` has those of earlier events."""

    def timed(topic: str, events: pa.Table) -> pa.Table:
        times = _log_times(events, {partition: time for (name, partition), time in before.items() if name == topic})
        index = events.schema.get_field_index(_TIME)
        return events.set_column(index, events.schema.field(index), times.cast(events.schema.field(index).type))

    return _changed(folder, batch, topics, timed)


def without(folder: Path, batch: EventFiles, topics: Iterable[str], coordinates: Iterable[Coordinates]) -> EventFiles:
    """The events in these topics without the records at these coordinates."""
    left_out: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for topic, partition, offset in coordinates:
        left_out[topic][partition].append(offset)

    def remaining(topic: str, events: pa.Table) -> pa.Table:
        for partition, offsets in left_out[topic].items():
            is_of = pc.is_in(events["offset"], value_set=pa.array(offsets, pa.int64()))
            events = events.filter(pc.invert(pc.and_(pc.equal(events["partition"], partition), is_of)))
        return events

    return _changed(folder, batch, topics, remaining)


def _changed(
    folder: Path, batch: EventFiles, topics: Iterable[str], change: Callable[[str, pa.Table], pa.Table]
) -> EventFiles:
    schemas = {topic: batch.schemas[topic] for topic in topics}
    found = {topic: change(topic, event_files.read(topic, [batch])) for topic in schemas if topic in batch.filled}
    return event_files.save(folder, schemas, {topic: each.to_batches() for topic, each in found.items() if len(each)})


def _log_times(events: pa.Table, before: dict[int, datetime]) -> pa.Array:
    """The log time of each event: the greatest broker time of its partition up to it."""
    times = events[_TIME].cast(pa.int64()).to_numpy().copy()
    partitions, offsets = events["partition"].to_numpy(), events["offset"].to_numpy()
    for partition in np.unique(partitions):
        rows = np.flatnonzero(partitions == partition)
        rows = rows[np.argsort(offsets[rows])]
        least = _micros(before.get(int(partition), _EPOCH))
        times[rows] = np.maximum.accumulate(np.maximum(times[rows], least))
    return pa.array(times)


def _micros(time: datetime) -> Any:
    return (time - _EPOCH) // timedelta(microseconds=1)
