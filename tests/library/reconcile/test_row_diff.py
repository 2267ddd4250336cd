"""The rows that differ between two tables: each kind is counted, and NULL equals NULL."""

import uuid
from collections.abc import Mapping

import psycopg
import pytest
from psycopg import sql

from tests.library.kernel.zombie import counter
from truelog.reconcile import row_diff
from truelog.reconcile.row_diff import DiffCounts
from truelog.storage.database import Connection, connect
from truelog.support.settings import Settings
from truelog.tables import deploy as table
from truelog.tables import table_hash
from truelog.tables.table import Table
from truelog.tables.table_hash import BucketHash

Rows = Mapping[str | None, int | None]
REBUILT: Rows = {"same": 1, None: 2, "no count": None, "missing": 3, "different": 4, "NULL now": 5}
STREAMED: Rows = {"same": 1, None: 2, "no count": None, "extra": 6, "different": 7, "NULL now": None}


@pytest.fixture
def counted(connection: Connection) -> Table:
    made = counter(f"v{uuid.uuid4().hex[:8]}").own
    for name, rows in ((made.name, REBUILT), (f"{made.name}_streamed", STREAMED)):
        table.create_table(connection, made, "recon", name)
        insert = sql.SQL("INSERT INTO {} (event_id, n) VALUES (%s, %s)").format(sql.Identifier("recon", name))
        for row in rows.items():
            connection.execute(insert, row)
    return made


def test_each_kind_of_difference_is_counted_and_sampled(connection: Connection, counted: Table) -> None:
    for _ in range(2):  # a comparison replaces what the one before found
        found = row_diff.find_differences(connection, counted)
    assert (found, found.unequal) == (DiffCounts(rows=6, missing=1, extra=1, different=2), 4)

    row_diff.save_causes(connection, counted, {})
    assert row_diff.sample_rows(connection, counted, 9) == (
        {"streamed": {"event_id": "NULL now", "n": None}, "rebuilt": {"event_id": "NULL now", "n": 5}, "cause": None},
        {"streamed": {"event_id": "different", "n": 7}, "rebuilt": {"event_id": "different", "n": 4}, "cause": None},
        {"streamed": {"event_id": "extra", "n": 6}, "rebuilt": None, "cause": None},
        {"streamed": None, "rebuilt": {"event_id": "missing", "n": 3}, "cause": None},
    )
    assert len(row_diff.sample_rows(connection, counted, 2)) == 2


def test_a_cause_is_stored_with_its_own_row(connection: Connection, counted: Table) -> None:
    row_diff.find_differences(connection, counted)
    query = sql.SQL("SELECT {} FROM {} WHERE event_id = 'extra'")
    key = connection.execute(query.format(table_hash.key_sql(counted), row_diff.diff_table(counted))).fetchone()
    assert key is not None
    row_diff.save_causes(connection, counted, {str(key[0]): "duplicate", "no row": "lost"})
    row_diff.set_reconciliation(connection, counted, 17)
    stored = sql.SQL("SELECT event_id, _cause FROM {} WHERE _cause IS NOT NULL AND _reconciliation = 17")
    assert connection.execute(stored.format(row_diff.diff_table(counted))).fetchall() == [("extra", "duplicate")]

    row_diff.clear_differences(connection, counted)
    assert row_diff.sample_rows(connection, counted, 9) == ()


def test_only_one_comparison_of_a_table_runs_at_a_time(connection: Connection, postgresql: Settings) -> None:
    first, second = (f"v{uuid.uuid4().hex[:8]}" for _ in range(2))
    row_diff.lock_comparisons(connection, first)
    with connect(postgresql) as other:
        other.execute("SET lock_timeout = '100ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable), other.transaction():
            row_diff.lock_comparisons(other, first)
        row_diff.lock_comparisons(other, second)


def test_a_bucket_that_one_table_lacks_is_unequal() -> None:
    one, other = BucketHash(1, 2, 3), BucketHash(1, 2, 4)
    assert table_hash.unequal_buckets({1: one, 2: one, 5: one}, {2: one, 3: one, 5: other}) == [1, 3, 5]
