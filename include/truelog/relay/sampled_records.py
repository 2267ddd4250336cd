"""Finds the sampled records in a batch of the log, and makes the spans of their archiving.

Arrow compares the headers. Python looks only at those few records that it finds, and at none without headers.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from truelog.relay import trace
from truelog.relay.spans import Spans, nanoseconds

MOST = 1_000  # spans of one file; its other records have none
_SAMPLED = "^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f][13579bdf](-|$)"


class SampledRecord(NamedTuple):
    """A record with the `traceparent` of a sampled trace."""

    offset: int
    traceparent: str
    logged_at: datetime


def sampled_records(records: pa.Table) -> tuple[SampledRecord, ...]:
    """The sampled records of a table with the columns `offset`, `headers` and `broker_time`. A time is in UTC.

    A record with several headers `traceparent` has no trace.
    """
    headers = records["headers"].combine_chunks()
    entries = pc.list_flatten(headers)
    if not len(entries):
        return ()
    named = pc.equal(pc.struct_field(entries, "key"), trace.NAME)
    rows = pc.filter(pc.list_parent_indices(headers), named)
    values = pc.filter(pc.struct_field(entries, "value"), named)
    found = pc.filter(rows, pc.fill_null(pc.match_substring_regex(values, _SAMPLED), fill_value=False))
    all_rows, counts = np.unique(rows.to_numpy(zero_copy_only=False), return_counts=True)
    once = np.intersect1d(found.to_numpy(zero_copy_only=False), all_rows[counts == 1])[:MOST]
    return tuple(_records(records.take(pa.array(once))))


def end_archived(spans: Spans, topic: str, partition: int, records: Iterable[SampledRecord]) -> None:
    """Make a span of each record, from its time in the log until now, when the archive has it."""
    about = {"messaging.destination.name": topic, "messaging.destination.partition.id": str(partition)}
    for each in records:
        span = spans.begin(f"archive {topic}", each.traceparent, "CONSUMER", at=nanoseconds(each.logged_at))
        if span is not None:
            span.end({"messaging.system": "kafka", **about, "messaging.kafka.offset": each.offset})


def _records(found: pa.Table) -> Iterable[SampledRecord]:
    times = found["broker_time"].cast(pa.timestamp("us", "UTC"))
    for offset, headers, time in zip(
        found["offset"].to_pylist(), found["headers"].to_pylist(), times.to_pylist(), strict=True
    ):
        traceparent = trace.of_record([(header["key"], header["value"]) for header in headers])
        if traceparent is not None:
            yield SampledRecord(offset, traceparent, time.astimezone(UTC))
