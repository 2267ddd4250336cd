"""Staging: executors load the rows of a large batch, so the driver collects none. It loads those of a small batch.

Every attempt loads its rows in one transaction under a unique id and reports (attempt, rows, hash). The merge
reads exactly the attempts that Spark accepted. It ignores the rows of a failed, repeated or suspended attempt, and it
checks the count and the hash to detect rows that a database crash lost. The names of staging's own columns begin with
"_", which no column of a view does.
"""

import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain

import adbc_driver_postgresql.dbapi as adbc
import numpy as np
import psycopg
import pyarrow as pa
from psycopg import errors, sql
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from truelog.storage.database import Connection, names
from truelog.storage.locks import Locks
from truelog.support.errors import StagingTorn
from truelog.support.settings import Settings
from truelog.tables.compiled_view import CompiledView
from truelog.tables.staging import adbc_sessions
from truelog.tables.staging.adbc_sessions import SCANS
from truelog.tables.staging.failed_group import FailedGroup
from truelog.tables.table import Table

CHANGES = "_changes"  # suffix of a table in which a kind notes rows that are about to change, beside staged rows
_REPORT = "attempt string, rows bigint, hash bigint"
_WRAP = 1 << 64
# The executors' role in this database: the set-up lets only this role use the schema.
_STAGERS = """
SELECT DISTINCT pg_get_userbyid(granted.grantee) FROM pg_namespace, aclexplode(nspacl) AS granted
WHERE nspname = 'stage' AND granted.privilege_type = 'USAGE' AND granted.grantee NOT IN (0, nspowner)
"""
_HOLD = f"SELECT {{}}({Locks.STAGED_ROWS.of('name')}) FROM unnest(%s::text[]) AS held (name)"  # noqa: S608  a constant
_SWEEP_WAITS = "2s"  # a merge that begins meanwhile waits behind the sweep
_ID_BYTES = 8  # of each part of an attempt's id, which every staged row has
_OWN = secrets.token_hex(_ID_BYTES)  # the first part of the ids of attempts for this process's batches
_PREFIX: ContextVar[str] = ContextVar("prefix", default="")  # `_OWN` in a thread that applies a batch


@dataclass(frozen=True)
class StagedRows:
    """Staged rows: the accepted attempts, the number of rows, and the sum of the row hashes modulo 2**64.

    `sides` has the staged rows of the view's side tables, by name. `failed` are the groups without rows.
    """

    attempts: tuple[str, ...]
    rows: int
    hash: int
    sides: Mapping[str, "StagedRows"] = field(default_factory=dict)
    failed: tuple[FailedGroup, ...] = ()

    def by_table(self, compiled: CompiledView) -> Iterator[tuple[Table, "StagedRows"]]:
        """Each of the view's tables with its staged rows."""
        yield compiled.own, self
        for each in compiled.sides:
            yield each, self.sides.get(each.side, NO_ROWS)


NO_ROWS = StagedRows((), 0, 0)


def stage_tables(compiled: CompiledView, states: Callable[[Table], DataFrame], settings: Settings) -> StagedRows:
    """Load the states of each of the view's tables into its staging table."""
    sides = stage_each(compiled.sides, states, settings)
    return replace(stage_rows(states(compiled.own), compiled.own, settings), sides=sides)


def stage_each(
    sides: Iterable[Table], states: Callable[[Table], DataFrame], settings: Settings
) -> dict[str, StagedRows]:
    """Load the states of each of these side tables into its staging table."""
    return {each.side: stage_rows(states(each), each, settings) for each in sides}


def stage_rows(states: DataFrame, target: Table, settings: Settings) -> StagedRows:
    """Load states into the staging table of one table, from the executors.

    Each task attempt loads its rows and reports them. Spark returns the reports of accepted attempts.
    """
    loader = _loader(target.name, settings.staging_uri(), _PREFIX.get())
    found = target.hashed(states).mapInArrow(loader, _REPORT).collect()
    return StagedRows(
        attempts=tuple(each.attempt for each in found),
        rows=sum(each.rows for each in found),
        hash=sum(each.hash for each in found) % _WRAP,
    )


def load_here(batches: Iterable[pa.RecordBatch], target: Table, settings: Settings) -> StagedRows:
    """Load states into the staging table of one table, from this process, which has them already."""
    attempt = _load(target.name, partial(adbc_sessions.kept, settings.staging_uri()), _PREFIX.get(), batches)
    return NO_ROWS if attempt is None else StagedRows((attempt.name,), attempt.rows, attempt.hash % _WRAP)


def require_complete(connection: Connection, compiled: CompiledView, staged: StagedRows) -> None:
    """Require that the staged rows are the rows that the executors reported.

    Raises:
        StagingTorn: rows are missing or altered. Repeat the batch; the log still has its records.
    """
    for each, rows in staged.by_table(compiled):
        if rows.attempts:
            _require_complete(connection, each, rows)


def _require_complete(connection: Connection, target: Table, staged: StagedRows) -> None:
    query = sql.SQL("SELECT count(*), coalesce(sum(_row_hash), 0) FROM {} WHERE _attempt = ANY(%s)").format(
        table(target)
    )
    row = connection.execute(query, (list(staged.attempts),)).fetchone()
    assert row is not None  # noqa: S101
    rows, total = int(str(row[0])), int(str(row[1])) % _WRAP
    if (rows, total) != (staged.rows, staged.hash):
        raise StagingTorn(
            f"{target.owner}: {staged.rows} rows were loaded, but the staging table has {rows}"
            f"{' with different content' if rows == staged.rows else ''}. Did the database crash? Repeat the batch."
        )


def add(connection: Connection, target: Table, schema: str, staged: StagedRows) -> None:
    """Merge the staged rows of one table into the table in `schema`."""
    if not staged.attempts:
        return
    columns = target.stored_columns
    updates = [sql.SQL("{} = {}").format(sql.Identifier(c), sql.SQL(e)) for c, e in target.merged.items()]
    connection.execute(
        sql.SQL(
            "INSERT INTO {target} AS t ({columns}) SELECT {columns} FROM {stage} WHERE _attempt = ANY(%s) "
            "ON CONFLICT ({key}) DO UPDATE SET {updates}"
        ).format(
            target=sql.Identifier(schema, target.name),
            columns=names(columns),
            stage=table(target),
            key=names(target.key_columns),
            updates=sql.SQL(", ").join(updates),
        ),
        (list(staged.attempts),),
    )


def clear(connection: Connection, compiled: CompiledView, staged: StagedRows) -> None:
    """Delete staged rows that were merged or are no longer needed."""
    for each, rows in staged.by_table(compiled):
        if rows.attempts:
            clear_table(connection, each, rows)


def clear_table(connection: Connection, target: Table, staged: StagedRows) -> None:
    """Delete staged rows of one table."""
    query = sql.SQL("DELETE FROM {} WHERE _attempt = ANY(%s)").format(table(target))
    connection.execute(query, (list(staged.attempts),))


@contextmanager
def cleared_after_failure(connection: Connection, compiled: CompiledView) -> Iterator[None]:
    """If the block fails, delete all that this process has staged for the view: its retries must not fill the disk.

    Spark does not return the reports of a job that fails, and tasks of that job may load rows after the failure. So the
    ids of all attempts of this process's batches begin alike, and the next failure deletes those rows too.
    """
    token = _PREFIX.set(_OWN)
    try:
        yield
    except Exception:
        with suppress(psycopg.Error):
            clear_own(connection, compiled)
        raise
    finally:
        _PREFIX.reset(token)


def clear_own(connection: Connection, compiled: CompiledView) -> None:
    """Delete the rows of all attempts for this process's batches of the view, also of attempts without a report."""
    for each in compiled.tables:  # ids are hexadecimal, so they sort alike in every collation
        query = sql.SQL("DELETE FROM {} WHERE _attempt BETWEEN %s AND %s").format(table(each))
        connection.execute(query, (_OWN, f"{_OWN}g"))


def load(spark: SparkSession, settings: Settings, queries: Sequence[str], schema: StructType) -> DataFrame:
    """The rows that these queries select, each loaded by a task of its own. The queries look rows up by index."""
    read = _reader(settings.staging_uri(), queries, to_arrow_schema(schema))
    return spark.range(0, len(queries), 1, len(queries)).mapInArrow(read, schema)


def grant(connection: Connection, target: Table) -> None:
    """Let the executors' role load rows of a table, if the database has this role."""
    state = sql.Identifier("state", target.name)
    for (role,) in connection.execute(_STAGERS).fetchall():
        statement = sql.SQL("GRANT SELECT ON {}, {} TO {}")
        connection.execute(statement.format(state, table(target), sql.Identifier(role)))


@contextmanager
def by_index(connection: Connection) -> Iterator[None]:
    """Look rows up by index within the block, which is a part of a transaction."""
    query = "SELECT set_config(name, %s, true) FROM unnest(%s::text[]) AS name"
    connection.execute(query, ("off", list(SCANS)))
    yield
    connection.execute(query, ("on", list(SCANS)))


def hold(connection: Connection, compiled: CompiledView) -> None:
    """Keep `sweep` away from the view's staged rows until this session ends.

    Call this function before staging: a rebuild may stage rows for hours before it merges them.
    """
    connection.execute(_HOLD.format("pg_advisory_lock_shared"), ([each.name for each in compiled.tables],))


@contextmanager
def held(connection: Connection, compiled: CompiledView) -> Iterator[None]:
    """Keep `sweep` away from the view's staged rows during the block."""
    hold(connection, compiled)
    try:
        yield
    finally:
        with suppress(psycopg.Error):  # a session that is lost holds nothing
            connection.execute(_HOLD.format("pg_advisory_unlock_shared"), ([each.name for each in compiled.tables],))


def sweep(connection: Connection, compiled: CompiledView) -> None:
    """Delete a view's staged rows that were never merged, unless a session is staging or merging rows of the view."""
    for each in compiled.tables:
        _sweep(connection, each.name)


def sweep_all(connection: Connection) -> None:
    """Delete the abandoned staged rows of all views and versions, including views that no longer exist."""
    for (name,) in connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'stage'").fetchall():
        _sweep(connection, str(name))


def _sweep(connection: Connection, name: str) -> None:
    """Delete between the batches of a busy stream. If a rebuild is staging, the next sweep finds the rows.

    The table may have been dropped since it was listed, and its rows with it.
    """
    staging, passed_over = sql.Identifier("stage", name), (errors.LockNotAvailable, errors.UndefinedTable)
    with suppress(*passed_over), connection.transaction():
        connection.execute("SELECT set_config('lock_timeout', %s, true)", (_SWEEP_WAITS,))
        connection.execute(f"SELECT pg_advisory_xact_lock({Locks.STAGED_ROWS})", (name,))
        connection.execute(sql.SQL("DELETE FROM {}").format(staging))


def table(target: Table) -> sql.Identifier:
    return sql.Identifier("stage", target.name)


def _loader(target: str, uri: str, prefix: str) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function that runs in the executors' Python: Arrow batches in, one report out."""

    def load_attempt(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        attempt = _load(target, partial(adbc_sessions.new, uri), prefix, batches)
        if attempt is not None:
            yield attempt.report()

    return load_attempt


def _load(
    target: str,
    session: Callable[[], AbstractContextManager[adbc.Connection]],
    prefix: str,
    batches: Iterable[pa.RecordBatch],
) -> "_Attempt | None":
    """Load batches in one transaction. None if they have no rows."""
    non_empty = (batch for batch in batches if batch.num_rows)
    first = next(non_empty, None)
    if first is None:
        return None
    attempt = _Attempt(prefix + secrets.token_hex(_ID_BYTES))
    tagged = map(attempt.tag, chain([first], non_empty))
    reader = pa.RecordBatchReader.from_batches(attempt.tag_schema(first.schema), tagged)
    with session() as opened, closing(opened.cursor()) as cursor:
        cursor.adbc_ingest(target, reader, mode="append", db_schema_name="stage")
        opened.commit()
    return attempt


def _reader(
    uri: str, queries: Sequence[str], schema: pa.Schema
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function that runs in the executors' Python: the numbers of queries in, their rows out."""

    def read(numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in (number for batch in numbers for number in batch["id"].to_pylist()):
            with adbc_sessions.new(uri) as session:
                yield from adbc_sessions.select(session, queries[number], schema)

    return read


class _Attempt:
    """Tags batches with the attempt id and sums up their rows and hashes."""

    def __init__(self, name: str) -> None:
        self.name, self.rows, self.hash = name, 0, 0

    def tag_schema(self, schema: pa.Schema) -> pa.Schema:
        return schema.insert(0, pa.field("_attempt", pa.string()))

    def tag(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        hashes = batch.column("_row_hash").to_numpy()
        self.rows += batch.num_rows
        self.hash += int(hashes.sum(dtype=np.int64))  # this sum wraps around; `report` wraps the total
        names = pa.array([self.name]).take(pa.array(np.zeros(batch.num_rows, np.int64)))
        return pa.RecordBatch.from_arrays([names, *batch.columns], schema=self.tag_schema(batch.schema))

    def report(self) -> pa.RecordBatch:
        signed = (self.hash + _WRAP // 2) % _WRAP - _WRAP // 2
        return pa.RecordBatch.from_pydict({"attempt": [self.name], "rows": [self.rows], "hash": [signed]})
