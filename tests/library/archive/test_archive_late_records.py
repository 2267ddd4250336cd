"""Late records: which records count as late, and how many each topic has."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa

from truelog.archive import writer as archive_writer
from truelog.archive.schema import TIME
from truelog.storage.database import connect
from truelog.support.settings import Settings

ARRIVED = datetime(2026, 11, 21, 12, tzinfo=UTC)


def test_a_record_is_late_if_it_comes_too_long_after_its_event() -> None:
    """A record without a time is invalid, not late. Nor is an event late if a fast clock dates it in the future."""
    after = [timedelta(seconds=3600), timedelta(seconds=3601), timedelta(days=400), timedelta(minutes=-4)]
    times = [ARRIVED - each for each in after]
    rows = pa.table({"broker_time": pa.array([ARRIVED] * 5, TIME), "event_time": pa.array([*times, None], TIME)})
    assert archive_writer.count_late(rows, 3600) == 2
    assert archive_writer.count_late(rows.slice(4), 3600) == 0


def test_late_records_are_added_up_by_topic(postgresql: Settings) -> None:
    with connect(postgresql) as connection:
        archive_writer.add_late_counts(connection, [("made_up", 2), ("other", 0), ("made_up", 3)])
        archive_writer.add_late_counts(connection, [("made_up", 1)])
        found = connection.execute("SELECT topic, records FROM truelog.straggler WHERE topic IN ('made_up', 'other')")
        assert sorted(map(str, found.fetchall())) == ["('made_up', 6)", "('other', 0)"]
        connection.rollback()
