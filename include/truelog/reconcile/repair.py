"""Repair: replaces differing rows with the rebuild's rows, at the view's current positions.

A comparison finds differences at positions V, but the stream moves on. Writing the values from V would undo the effect
of all records after V. Therefore a repair does the following:

1. Wait until the archive reaches the view's positions, and rebuild the differing keys at these positions.
2. Read from the log what the stream has added to these keys since then.
3. Lock the view against merges until the repair is done.
4. Repeat step 2 up to the view's final positions.
5. Replace the rows, and store each row as it was before and after the repair.

The stream waits only from step 3 on. It waits for the few records since step 2, not for the archive or its history.
"""

from psycopg import sql
from pyspark.sql import DataFrame
from pyspark.sql.types import StructField, StructType

from truelog.archive import archive_reader
from truelog.batch.rebuild import Rebuilder
from truelog.kernel import clock, merge
from truelog.kernel.stage import StagedRows
from truelog.log.positions import Positions
from truelog.reconcile import row_diff
from truelog.storage.database import Connection, names
from truelog.views.compiled_view import CompiledView, RowFilter


def repair(rebuilder: Rebuilder) -> int:
    """Replace the rows of all keys in `recon.<table>_diff`, and return the number of rows that changed.

    Raises:
        ArchiveBehind: the archive did not reach the view's positions in time. No row was changed.
    """
    connection, compiled = rebuilder.connection, rebuilder.compiled
    settings, keys = rebuilder.context.settings, compiled.with_keys(_keys(rebuilder))
    positions = merge.positions(connection, compiled)
    archive_reader.wait_for(settings, positions, seconds=settings.archive_wait_seconds)
    staged = [rebuilder.stage_rows(positions, keys)]  # 1
    positions = _catch_up(rebuilder, positions, keys, staged)  # 2
    with connection.transaction():
        # Spark is working between two statements here, but a hung repair must not lock the view forever.
        connection.execute("SET LOCAL idle_in_transaction_session_timeout = '5min'")
        merge.lock(connection, compiled)  # 3
        rebuilder.require_reading()
        positions = _catch_up(rebuilder, positions, keys, staged)  # 4
        return _replace(rebuilder, positions, staged)  # 5


def _catch_up(rebuilder: Rebuilder, begin: Positions, keys: RowFilter, staged: list[StagedRows]) -> Positions:
    """Stage what the stream has added to the keys since `begin`, and return the view's current positions."""
    positions = merge.positions(rebuilder.connection, rebuilder.compiled)
    if begin.ranges_to(positions):
        staged.append(rebuilder.stage_since(begin, positions, keys))
    return positions


def _replace(rebuilder: Rebuilder, positions: Positions, staged: list[StagedRows]) -> int:
    connection, compiled = rebuilder.connection, rebuilder.compiled
    _record_before(connection, compiled, positions)
    connection.execute(
        sql.SQL("DELETE FROM {} AS t USING {} AS d WHERE {} = d.key_json").format(
            _table(compiled), row_diff.diff_table(compiled), row_diff.key_json(compiled, "t.")
        )
    )
    for each in staged:
        rebuilder.merge_staged("state", each)
    clock.drop_expired_rows(connection, compiled, "state", positions)
    return _record_after(connection, compiled)


def _keys(rebuilder: Rebuilder) -> DataFrame:
    compiled = rebuilder.compiled
    query = sql.SQL("SELECT {} FROM {}").format(names(compiled.key_columns), row_diff.diff_table(compiled))
    rows = rebuilder.connection.execute(query).fetchall()
    schema = StructType([StructField(key, compiled.dtypes[key]) for key in compiled.view.key])
    return rebuilder.context.spark.createDataFrame(rows, schema)


def _record_before(connection: Connection, compiled: CompiledView, positions: Positions) -> None:
    """Store each key's row as it is before the repair."""
    connection.execute(
        sql.SQL(
            "INSERT INTO truelog.repair (view, version, positions, key, before) "
            "SELECT %s, %s, %s, d.key_json, to_jsonb(t) FROM {} AS d LEFT JOIN {} AS t ON {} = d.key_json"
        ).format(row_diff.diff_table(compiled), _table(compiled), row_diff.key_json(compiled, "t.")),
        (compiled.name, compiled.view.version, positions.as_json()),
    )


def _record_after(connection: Connection, compiled: CompiledView) -> int:
    """Store each key's row as it is after the repair, and return the number of keys whose row changed."""
    connection.execute(
        sql.SQL(
            "UPDATE truelog.repair AS r SET after = to_jsonb(t) FROM {} AS t "
            "WHERE r.view = %s AND r.version = %s AND r.repaired_at = now() AND {} = r.key"
        ).format(_table(compiled), row_diff.key_json(compiled, "t.")),
        (compiled.name, compiled.view.version),
    )
    row = connection.execute(
        "SELECT count(*) FROM truelog.repair WHERE view = %s AND version = %s AND repaired_at = now() "
        "AND before IS DISTINCT FROM after",
        (compiled.name, compiled.view.version),
    ).fetchone()
    assert row is not None  # noqa: S101
    return int(str(row[0]))


def _table(compiled: CompiledView) -> sql.Identifier:
    return sql.Identifier("state", compiled.table)
