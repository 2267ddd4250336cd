"""Late records ("stragglers"): records that reach the log long after the event, such as those from a phone
that was offline for a day.

A record contains both the event time and the broker time, so the result never changes. Views count a late record
like any other event. The archive, which reads every topic, counts late records separately.
"""

from collections import Counter
from collections.abc import Iterable
from datetime import timedelta

import pyarrow as pa
import pyarrow.compute as pc

from truelog.storage.database import Connection


def count_late(rows: pa.Table, seconds: float) -> int:
    """The number of archive rows that came more than `seconds` after their event; invalid records do not count."""
    delays = pc.subtract(rows["broker_time"], rows["event_time"])
    late: int | None = pc.sum(pc.greater(delays, pa.scalar(timedelta(seconds=seconds)))).as_py()
    return late or 0


def add_late_counts(connection: Connection, committed: Iterable[tuple[str, int]]) -> None:
    """Add each file's late records to its topic's count. If the archive dies first, a batch stays uncounted."""
    counts: Counter[str] = Counter()
    for topic, records in committed:
        counts[topic] += records
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO truelog.straggler AS s (topic, records) VALUES (%s, %s) "
            "ON CONFLICT (topic) DO UPDATE SET records = s.records + excluded.records",
            list(counts.items()),
        )
