"""The growth of a slot is measured between moments that are at least ten minutes apart, by any process."""

from datetime import UTC, datetime, timedelta

from truelog.capture.growth import measure
from truelog.storage.database import Connection

BEGAN = datetime(2026, 3, 10, tzinfo=UTC)


def test_the_growth_of_the_last_span_is_known_until_the_next_has_ended(connection: Connection) -> None:
    looks = [(0, 100), (5, 900), (10, 200), (12, 5_000), (40, 100)]  # minutes, and bytes that are retained
    found = [measure(connection, "customers", size, BEGAN + timedelta(minutes=after)) for after, size in looks]
    assert found == [None, None, 600, 600, -200]
