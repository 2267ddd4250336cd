"""Stragglers: records that came to the log long after their event, as a telephone's that was offline for a day.

Both times, the event's and the broker's, are the record's own: whoever asks, and whenever, finds the same. A straggler
counts as any other event does; that it came late is counted beside, by the archive, which reads every topic.
"""

from collections import Counter
from collections.abc import Iterable
from datetime import timedelta

import pyarrow as pa
import pyarrow.compute as pc

from truelog.storage.database import Connection


def late_counts(rows: pa.Table, seconds: float) -> int:
    """How many of an archive's rows came more than so many seconds after their event; what is no event did not."""
    came = pc.subtract(rows["broker_time"], rows["event_time"])
    late: int | None = pc.sum(pc.greater(came, pa.scalar(timedelta(seconds=seconds)))).as_py()
    return late or 0


def add_late_counts(connection: Connection, committed: Iterable[tuple[str, int]]) -> None:
    """Add those of each file, by topic. An archive that dies before it gets here leaves one batch uncounted."""
    found: Counter[str] = Counter()
    for topic, records in committed:
        found[topic] += records
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO truelog.straggler AS s (topic, records) VALUES (%s, %s) "
            "ON CONFLICT (topic) DO UPDATE SET records = s.records + excluded.records",
            list(found.items()),
        )
