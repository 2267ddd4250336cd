"""Stragglers: which records are, and that they are counted by topic."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa

from truelog.archive import late_records
from truelog.archive.archive_table import TIME
from truelog.storage.database import connect
from truelog.support.settings import Settings

CAME = datetime(2026, 11, 21, 12, tzinfo=UTC)


def test_a_straggler_came_later_after_its_event_than_is_allowed() -> None:
    """What has no time is no event; an event of the future, by a clock that runs ahead, is none either."""
    after = [timedelta(seconds=3600), timedelta(seconds=3601), timedelta(days=400), timedelta(minutes=-4)]
    times = [CAME - each for each in after]
    rows = pa.table({"broker_time": pa.array([CAME] * 5, TIME), "event_time": pa.array([*times, None], TIME)})
    assert late_records.late_counts(rows, 3600) == 2
    assert late_records.late_counts(rows.slice(4), 3600) == 0


def test_they_are_counted_by_topic_batch_after_batch(postgresql: Settings) -> None:
    with connect(postgresql) as connection:
        late_records.add_late_counts(connection, [("made_up", 2), ("other", 0), ("made_up", 3)])
        late_records.add_late_counts(connection, [("made_up", 1)])
        found = connection.execute("SELECT topic, records FROM truelog.straggler WHERE topic IN ('made_up', 'other')")
        assert sorted(map(str, found.fetchall())) == ["('made_up', 6)", "('other', 0)"]
        connection.rollback()
