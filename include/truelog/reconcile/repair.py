"""Repair: replaces differing rows with the rebuild's rows, at the view's current positions.

A comparison finds differences at positions V, but the stream moves on. Writing the values from V would undo the effect
of all records after V. Therefore a repair does the following:

1. Read from the log what the stream has added to the differing keys since V.
2. Lock the view against merges until the repair is done.
3. Repeat step 1 up to the view's final positions.
4. Replace the rows by the rows that the comparison has rebuilt at V, add what was read since, and store each row as it
   was before and after the repair.

No step reads the history again. The stream waits only from step 2 on, for the few records since step 1.

A batch-only view is built again, from the whole history.
"""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial

from psycopg import sql
from pyspark.sql import SparkSession

from truelog.batch import answer
from truelog.batch.rebuild import Rebuilder
from truelog.kernel import merge
from truelog.log.positions import Positions
from truelog.reconcile import row_diff
from truelog.storage.database import Connection, allow_pauses, names
from truelog.support.errors import Stale
from truelog.support.settings import Settings
from truelog.tables import kinds, stage, table_hash
from truelog.tables.compiled_view import CompiledView
from truelog.tables.output import outbox
from truelog.tables.row_filter import RowFilter, all_rows
from truelog.tables.stage import StagedRows
from truelog.tables.table import Table


def repair(rebuilder: Rebuilder, compared: Positions) -> int:
    """Replace the rows of all keys in `recon.<table>_diff` of each table, and return the number of rows that changed.

    The comparison that filled these tables has rebuilt the rows in `recon.<table>` at the positions `compared`. Rows
    that follow from other tables are computed again from the repaired tables.

    Raises:
        ArchiveBehind: the log has dropped records since then that are not archived. No row was changed.
        Stale: the view has gone back behind `compared`. No row was changed.
    """
    connection, compiled = rebuilder.connection, rebuilder.compiled
    if compiled.view.batch_only:
        return _build_again(rebuilder, compared)
    different = [each for each in compiled.sources if row_diff.has_differences(connection, each)]
    repairs = [_TableRepair(table, _keys(table), compared, compared) for table in map(rebuilder.of_table, different)]
    for each in repairs:
        each.catch_up()  # 1
    kind = kinds.kind_of(compiled.own)
    of_view = _ViewRepair(rebuilder, {each.table.side: each for each in repairs})
    with _locked(rebuilder):  # 2
        for each in repairs:
            each.catch_up()  # 3
        changed = kind.repair(of_view)  # 4
    return changed + kind.repair_following(of_view)


def _build_again(rebuilder: Rebuilder, compared: Positions) -> int:
    """Build a batch-only view again, and store the rows that differed as they were and as they are."""
    connection, changed = rebuilder.connection, 0
    different = [each for each in rebuilder.compiled.tables if row_diff.has_differences(connection, each)]

    @contextmanager
    def recorded() -> Iterator[None]:
        nonlocal changed
        for each in different:
            _record_before(connection, each, compared)
        yield
        changed = sum(_record_after(connection, each) for each in different)

    answer.build_answer(rebuilder, partial(answer.is_at_or_past, rebuilder), recorded)
    return changed


@contextmanager
def _locked(rebuilder: Rebuilder) -> Iterator[None]:
    """A transaction that holds the view's merge lock."""
    connection, compiled = rebuilder.connection, rebuilder.compiled
    with connection.transaction():
        allow_pauses(connection)
        merge.lock(connection, compiled)
        rebuilder.require_reading()
        yield
        outbox.record_changes(connection, compiled)
        merge.record_repair(connection, compiled)


@dataclass
class _TableRepair:
    """The repair of one of the view's tables. `staged` contains what the stream added to the keys up to `reached`."""

    rebuilder: Rebuilder  # of the table alone
    keys: RowFilter
    compared: Positions
    reached: Positions
    staged: list[StagedRows] = field(default_factory=list)

    @property
    def table(self) -> Table:
        return self.rebuilder.compiled.own

    def catch_up(self) -> None:
        """Stage what the stream has added to the keys since then, up to the view's current positions."""
        positions = merge.positions(self.rebuilder.connection, self.rebuilder.compiled)
        positions.require_same_topics(self.reached)
        if not positions.covers(self.reached):
            raise Stale(f"{self.rebuilder.compiled.name} has gone back since its comparison. Compare it again.")
        if self.reached.ranges_to(positions):
            self.staged.append(self.rebuilder.stage_since(self.reached, positions, self.keys, self.compared))
        self.reached = positions

    def replace(self) -> int:
        connection, table = self.rebuilder.connection, self.table
        if kinds.kind_of(table).is_chained():
            self._add_later_rows()
        _record_before(connection, table, self.reached)
        connection.execute(
            sql.SQL("DELETE FROM {} AS t USING {} AS d WHERE {} = d._key_json").format(
                _table(table), row_diff.diff_table(table), row_diff.key_json(table, "t.")
            )
        )
        connection.execute(
            sql.SQL(
                "INSERT INTO {} ({columns}) SELECT {columns} FROM {} WHERE {} IN (SELECT _key_json FROM {})"
            ).format(
                _table(table),
                row_diff.rebuilt_table(table),
                row_diff.key_json(table),
                row_diff.diff_table(table),
                columns=names(table.stored_columns),
            )
        )
        for each in self.staged:
            self.rebuilder.merge_staged("state", each)
        compiled = self.rebuilder.compiled
        merge.drop_expired(
            connection, compiled, "state", self.reached, merge.stored_clock(connection, compiled, self.reached)
        )
        return _record_after(connection, table)

    def _add_later_rows(self) -> None:
        """Also replace the rows that the stream has added since, if the differing rows before them made them wrong."""
        connection, table = self.rebuilder.connection, self.table
        unequal = sql.SQL(
            "SELECT {} FROM {} AS s WHERE _attempt = ANY({}) AND NOT EXISTS (SELECT FROM {} AS t WHERE ({}) = ({}))"
        ).format(
            names(table.key_columns),
            stage.table(table),
            sql.Literal([attempt for each in self.staged for attempt in each.attempts]),
            _table(table),
            names(table.stored_columns, "t."),
            names(table.stored_columns, "s."),
        )
        row_diff.add_keys(connection, table, unequal)


@dataclass(frozen=True)
class _ViewRepair:
    """The repair of a view, for its kind. `sources` are the differing tables to which events are added, by side."""

    rebuilder: Rebuilder
    sources: Mapping[str, _TableRepair]

    @property
    def connection(self) -> Connection:
        return self.rebuilder.connection

    @property
    def compiled(self) -> CompiledView:
        return self.rebuilder.compiled

    @property
    def spark(self) -> SparkSession:
        return self.rebuilder.context.spark

    @property
    def settings(self) -> Settings:
        return self.rebuilder.context.settings

    def keys(self, table: Table) -> sql.Composed:
        return sql.SQL("SELECT {} FROM {}").format(names(table.key_columns), row_diff.diff_table(table))

    def add_keys(self, table: Table, keys: sql.Composable) -> None:
        row_diff.add_keys(self.connection, table, keys)

    def differs(self, table: Table) -> bool:
        return table.side in self.sources

    def replace(self, table: Table) -> int:
        return self.sources[table.side].replace()

    def record_before(self, table: Table) -> None:
        _record_before(self.connection, table, merge.positions(self.connection, self.compiled))

    def record_after(self, table: Table) -> int:
        return _record_after(self.connection, table)

    def locked(self) -> AbstractContextManager[None]:
        return _locked(self.rebuilder)

    def merge(self, staged: StagedRows) -> None:
        self.rebuilder.merge_staged("state", staged)


def _keys(rebuilder: Rebuilder) -> RowFilter:
    """A filter for the rows whose keys differ. Later rows of a chained table may be wrong too."""
    table = rebuilder.compiled.own
    if kinds.kind_of(table).is_chained():
        return all_rows
    # Not the keys themselves: PostgreSQL has times that Python has not.
    query = sql.SQL("SELECT {} FROM {}").format(table_hash.key_sql(table), row_diff.diff_table(table))
    hashes = [str(row[0]) for row in rebuilder.connection.execute(query).fetchall()]
    return table_hash.rows_with_keys(rebuilder.context.spark, table, hashes)


def _record_before(connection: Connection, table: Table, positions: Positions) -> None:
    """Store each key's row as it is before the repair."""
    connection.execute(
        sql.SQL(
            "INSERT INTO truelog.repair (view, version, side, positions, key, before) "
            "SELECT %s, %s, %s, %s, _key_json, to_jsonb(_row) FROM {} AS d LEFT JOIN {} AS _row ON {} = _key_json"
        ).format(row_diff.diff_table(table), _table(table), row_diff.key_json(table, "_row.")),
        (table.owner, table.view.version, table.side, positions.as_json()),
    )


def _record_after(connection: Connection, table: Table) -> int:
    """Store each key's row as it is after the repair, and return the number of keys whose row changed."""
    connection.execute(
        sql.SQL(
            "UPDATE truelog.repair AS r SET after = to_jsonb(_row) FROM {} AS _row "
            "WHERE r.view = %s AND r.version = %s AND r.side = %s AND r.repaired_at = now() AND {} = r.key"
        ).format(_table(table), row_diff.key_json(table, "_row.")),
        (table.owner, table.view.version, table.side),
    )
    row = connection.execute(
        "SELECT count(*) FROM truelog.repair WHERE view = %s AND version = %s AND side = %s AND repaired_at = now() "
        "AND before IS DISTINCT FROM after",
        (table.owner, table.view.version, table.side),
    ).fetchone()
    assert row is not None  # noqa: S101
    return int(str(row[0]))


def _table(table: Table) -> sql.Identifier:
    return sql.Identifier(table.schema, table.name)
