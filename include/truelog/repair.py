"""Repair: batch wins, at the positions where the table stands *now*.

A difference was found at positions V; since then the stream has moved on. Writing the values at V would erase what
came after it. So, in one transaction:

1. lock the view: no merge until the repair is done
2. read the positions V' where it stands now, and wait until the archive has reached them
3. rebuild only the differing keys, at V'
4. replace them, and keep the rows before and after
"""

from psycopg import sql
from pyspark.sql import DataFrame
from pyspark.sql.types import StructField, StructType

from truelog import archive, clock, difference, merge
from truelog.compiled import Compiled
from truelog.database import Connection, names
from truelog.positions import Positions
from truelog.rebuild import Rebuilder


def repair(rebuilder: Rebuilder) -> int:
    """Replace the rows of the keys in `recon.<table>_diff`; how many rows changed.

    Raises:
        ArchiveBehind: the archive did not reach the view in time; nothing was changed.
    """
    connection, compiled = rebuilder.connection, rebuilder.compiled
    settings = rebuilder.advancer.settings
    with connection.transaction():
        connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        merge.lock(connection, compiled)  # 1
        positions = merge.positions(connection, compiled)
        archive.wait_for(settings, positions, seconds=settings.archive_wait_seconds)  # 2
        staged = rebuilder.staged(positions, compiled.among(_keys(rebuilder)))  # 3
        _note(connection, compiled, positions)
        connection.execute(
            sql.SQL("DELETE FROM {} AS t USING {} AS d WHERE {} = d.key_json").format(
                _table(compiled), difference.diff(compiled), difference.key_json(compiled, "t.")
            )
        )
        rebuilder.add("state", staged)  # 4
        clock.drop_outlived(connection, compiled, "state", positions)
        return _note_after(connection, compiled, positions)


def _keys(rebuilder: Rebuilder) -> DataFrame:
    compiled = rebuilder.compiled
    query = sql.SQL("SELECT {} FROM {}").format(names(compiled.key_columns), difference.diff(compiled))
    rows = rebuilder.connection.execute(query).fetchall()
    shape = StructType([StructField(key, compiled.kinds[key]) for key in compiled.view.key])
    return rebuilder.spark.createDataFrame(rows, shape)


def _note(connection: Connection, compiled: Compiled, positions: Positions) -> None:
    """What stood under each key before."""
    connection.execute(
        sql.SQL(
            "INSERT INTO truelog.repair (view, version, positions, key, before) "
            "SELECT %s, %s, %s, d.key_json, to_jsonb(t) FROM {} AS d LEFT JOIN {} AS t ON {} = d.key_json"
        ).format(difference.diff(compiled), _table(compiled), difference.key_json(compiled, "t.")),
        (compiled.name, compiled.view.version, positions.as_json()),
    )


def _note_after(connection: Connection, compiled: Compiled, positions: Positions) -> int:
    """What stands there now; a key whose row was right by then is no repair."""
    connection.execute(
        sql.SQL(
            "UPDATE truelog.repair AS r SET after = to_jsonb(t) FROM {} AS t "
            "WHERE r.view = %s AND r.version = %s AND r.repaired_at = now() AND {} = r.key"
        ).format(_table(compiled), difference.key_json(compiled, "t.")),
        (compiled.name, compiled.view.version),
    )
    row = connection.execute(
        "SELECT count(*) FROM truelog.repair WHERE view = %s AND version = %s AND repaired_at = now() "
        "AND before IS DISTINCT FROM after",
        (compiled.name, compiled.view.version),
    ).fetchone()
    assert row is not None  # noqa: S101
    return int(str(row[0]))


def _table(compiled: Compiled) -> sql.Identifier:
    return sql.Identifier("state", compiled.table)
