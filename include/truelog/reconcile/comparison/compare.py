"""Comparison: rebuilds a view at the positions of the streamed view, and compares the two row for row.

The rows of a batch-only view are compared in the same way, at the positions of its last build.

1. Hash the streamed table and read its positions in one database snapshot.
2. Wait until the archive reaches these positions. After a timeout, the verdict is UNKNOWN.
3. Prove the exclusions that are not proved yet (`exclusions`). The rebuild counts the records of refuted ones, which
   partials may lack, so all partials are audited, unless an audit has compared them since.
4. Compare the view's clock with that of the archive's ticks, and replace wrong ticks (`clock_check`).
5. Rebuild the view at these positions and hash the rebuild. An incremental comparison begins from the rows that an
   earlier one has proved, and reads only the records since then (`hashed_rebuild`). If the hashes differ, it reads
   everything. A base therefore saves time but decides nothing.
6. If any buckets differ, copy their streamed rows together with the current positions, and rebuild these buckets at
   those positions. Compare every row, with NULL equal to NULL, and find out why the rows differ (`root_cause`).

If the tables are equal, the comparison uses only their hashes and does not copy or load any rows.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from psycopg import sql

from truelog.archive import reader as archive_reader
from truelog.batch import base
from truelog.batch.base import Rebuilt
from truelog.batch.rebuild import Rebuilder
from truelog.kernel import merge
from truelog.log.positions import Positions
from truelog.reconcile import root_cause, row_diff
from truelog.reconcile.comparison import hashed_rebuild
from truelog.reconcile.comparison.clock_check import mend_clock
from truelog.reconcile.partial_audit import audit_partials, oldest_proof
from truelog.reconcile.reconcile_result import SAMPLE, ReconcileResult
from truelog.reconcile.row_diff import NO_DIFFERENCES, DiffCounts
from truelog.storage.database import Connection
from truelog.support.errors import ArchiveBehind
from truelog.tables import table_hash
from truelog.tables.compiled_view import CompiledView
from truelog.tables.table import Table
from truelog.tables.table_hash import TableHash

Streamed = Mapping[str, TableHash]  # the hashes of the streamed tables, by the name of the side table


def compare(rebuilder: Rebuilder, *, incremental: bool = False) -> ReconcileResult:
    """Compare a view with its rebuild, while its stream is running."""
    connection, compiled = rebuilder.connection, rebuilder.compiled
    with _snapshot(connection):
        positions = merge.positions(connection, compiled)
        rebuilder.require_reading()
        streamed = {each.side: _hash_streamed(connection, each) for each in compiled.tables}  # 1
    result = ReconcileResult(compiled.name, compiled.view.version, positions)
    try:
        _wait_for_archive(rebuilder, positions)  # 2
        rebuilder.prove_exclusions(positions)  # 3
        if _partials_may_lack_records(rebuilder, positions):
            audit_partials(rebuilder, every=True)
        wrong_clock = mend_clock(rebuilder, positions)  # 4
        rebuilt, problem = _rebuilt(rebuilder, positions, streamed, incremental=incremental)  # 5
        reason = "; ".join(each for each in (wrong_clock, problem) if each)
        if unequal := _unequal(streamed, rebuilt):
            base.forget(connection, compiled)  # its rows may be as wrong as those of the stream
            return replace(_compare_rows(rebuilder, unequal), reason=wrong_clock)  # 6
        return _equal(rebuilder, replace(result, reason=reason), rebuilt)
    except ArchiveBehind as behind:
        return replace(result, reason=str(behind))


def _partials_may_lack_records(rebuilder: Rebuilder, positions: Positions) -> bool:
    """Whether an exclusion was refuted, and not all partials were compared with raw bytes since. An audit may fail."""
    refuted_at = rebuilder.exclusions(positions).last_refuted(positions)
    if refuted_at is None:
        return False
    proved_at = oldest_proof(replace(rebuilder, from_raw=False), positions)
    return proved_at is None or proved_at < refuted_at


def _rebuilt(
    rebuilder: Rebuilder, positions: Positions, streamed: Streamed, *, incremental: bool
) -> tuple[Rebuilt, str]:
    """The rebuild: from the view's base, if that gives the streamed rows; otherwise of everything.

    Also returns what is wrong with the base.
    """
    since, problem = hashed_rebuild.since_base(rebuilder, positions) if incremental else (None, "")
    if since is not None:
        if not _unequal(streamed, since):
            return since, ""
        since.cache.close()
    is_large = table_hash.count_rows(streamed[""]) >= rebuilder.context.settings.base_rows
    makes_base = incremental and is_large and not rebuilder.compiled.sides
    rebuilt = rebuilder.exclude_and_retry(
        positions,
        lambda: rebuilder.countable_events(Positions(), positions),
        lambda: hashed_rebuild.of_everything(rebuilder, positions, makes_base=makes_base),
    )
    return rebuilt, problem


def _hash_streamed(connection: Connection, table: Table) -> TableHash:
    return table_hash.hash_table(connection, table, sql.Identifier(table.schema, table.name))


def _unequal(streamed: Streamed, rebuilt: Rebuilt) -> dict[str, list[int]]:
    """The unequal buckets of each table that has some, by the name of the side table; "" for the view's own."""
    found = {side: table_hash.unequal_buckets(hashes, rebuilt.tables[side]) for side, hashes in streamed.items()}
    return {side: buckets for side, buckets in found.items() if buckets}


def _equal(rebuilder: Rebuilder, result: ReconcileResult, rebuilt: Rebuilt) -> ReconcileResult:
    for each in rebuilder.compiled.tables:
        row_diff.clear_differences(rebuilder.connection, each)
    began = None if rebuilt.base is None else rebuilt.base.certificate
    rows = table_hash.count_rows(rebuilt.own)
    return replace(result, rows=rows, verdict="EQUAL", rebuilt=rebuilt, base=began)


def _compare_rows(rebuilder: Rebuilder, unequal: Mapping[str, Sequence[int]]) -> ReconcileResult:
    connection, compiled = rebuilder.connection, rebuilder.compiled
    positions, rows = snapshot(connection, compiled, unequal)
    _wait_for_archive(rebuilder, positions)
    for each in compiled.tables:
        row_diff.clear_differences(connection, each)
    tables = [each for each in compiled.tables if each.side in unequal]
    counts = {each.side: _differences(rebuilder, each, positions, unequal[each.side]) for each in tables}
    different = [each for each in tables if counts[each.side].unequal]
    causes = [
        cause
        for each in different
        for cause in root_cause.find_root_causes(rebuilder, each, positions, counts[each.side].unequal)
    ]
    own = counts.get("", NO_DIFFERENCES)
    return ReconcileResult(
        compiled.name,
        compiled.view.version,
        positions,
        rows=rows + own.missing - own.extra,
        missing=sum(each.missing for each in counts.values()),
        extra=sum(each.extra for each in counts.values()),
        different=sum(each.different for each in counts.values()),
        verdict="DIFFERENT" if different else "EQUAL",
        sample=tuple(row for each in different for row in row_diff.sample_rows(connection, each, SAMPLE)),
        causes=tuple(each.as_dict() for each in causes),
    )


def _differences(rebuilder: Rebuilder, table: Table, positions: Positions, buckets: Sequence[int]) -> DiffCounts:
    rebuilder.of_table(table).rebuild(positions, table_hash.rows_in_buckets(table, buckets))
    return row_diff.find_differences(rebuilder.connection, table)


def _wait_for_archive(rebuilder: Rebuilder, positions: Positions) -> None:
    settings = rebuilder.context.settings
    archive_reader.wait_for(settings, positions, seconds=settings.archive_wait_seconds)


def snapshot(
    connection: Connection, compiled: CompiledView, buckets: Mapping[str, Sequence[int]]
) -> tuple[Positions, int]:
    """Copy these buckets of each streamed table to `recon.<table>_streamed`.

    Returns the exact positions of the copies and the number of rows in the view's own table at that moment.
    """
    with _snapshot(connection):
        for each in compiled.tables:
            if each.side in buckets:
                _copy(connection, each, buckets[each.side])
        own = sql.Identifier(compiled.own.schema, compiled.own.name)
        count = connection.execute(sql.SQL("SELECT count(*) FROM {}").format(own)).fetchone()
        assert count is not None  # noqa: S101
        return merge.positions(connection, compiled), int(str(count[0]))


def _copy(connection: Connection, table: Table, buckets: Sequence[int]) -> None:
    copy = row_diff.streamed_table(table)
    connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(copy))
    connection.execute(
        sql.SQL("CREATE UNLOGGED TABLE {} AS SELECT * FROM {} WHERE {} IN ({})").format(
            copy,
            sql.Identifier(table.schema, table.name),
            table_hash.bucket_sql(table),
            sql.SQL(", ").join(map(sql.Literal, buckets)),
        )
    )


@contextmanager
def _snapshot(connection: Connection) -> Iterator[None]:
    """Run all reads on one database snapshot."""
    with connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        yield
