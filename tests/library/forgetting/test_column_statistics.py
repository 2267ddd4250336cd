"""An erasure leaves no statistics with values of rows that are gone, also about a table that is empty now."""

import uuid

import pytest

from tests.library.forgetting.byte_search import tables_with
from truelog.forgetting import column_statistics
from truelog.storage.database import Connection


@pytest.mark.parametrize("others", [0, 3], ids=["an empty table", "a table with other rows"])
def test_statistics_lose_the_values_of_rows_that_are_gone(connection: Connection, others: int) -> None:
    person = f"xanthippe-{uuid.uuid4().hex[:8]}"
    connection.execute("CREATE TABLE state.counted (visitor_id text)")
    try:
        connection.execute("CREATE INDEX ON state.counted (lower(visitor_id))")  # it has statistics too
        query = "INSERT INTO state.counted SELECT 'v' || mod(n, 3) FROM generate_series(1, %s) AS n"
        connection.execute(query, (2 * others,))
        connection.execute("INSERT INTO state.counted SELECT %s FROM generate_series(1, 9)", (person,))
        connection.execute("ANALYZE state.counted")
        connection.execute("DELETE FROM state.counted WHERE visitor_id = %s", (person,))
        assert [each for each in tables_with(connection, [person]) if "statistics" in each]
        column_statistics.renew(connection)
        assert tables_with(connection, [person]) == []
        known = connection.execute("SELECT FROM pg_stats WHERE tablename = 'counted'").fetchall()
        assert len(known) == bool(others)
    finally:
        connection.execute("DROP TABLE state.counted")
