"""Staging: executors load their own rows, so that nothing is collected on the driver.

Every attempt of a task loads in one transaction, under an id of its own, and reports (attempt, rows, hash). The merge
takes exactly the attempts that Spark counts as the winners: the rows of a failed, repeated or suspended attempt are
never looked at, and rows that a database crash swept away are missed by count and hash.
"""

import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from itertools import chain

import adbc_driver_postgresql.dbapi as adbc
import numpy as np
import pyarrow as pa
from psycopg import sql
from pyspark.sql import DataFrame

from truelog.storage.database import Connection
from truelog.support.errors import StagingTorn
from truelog.support.settings import Settings
from truelog.views.compiled_view import Compiled

_REPORT = "attempt string, rows bigint, hash bigint"
_WRAP = 1 << 64


@dataclass(frozen=True)
class StagedRows:
    """Rows that wait in `stage`: the winning attempts, how many rows, and the sum of their hashes modulo 2**64."""

    attempts: tuple[str, ...]
    rows: int
    hash: int


NO_ROWS = StagedRows((), 0, 0)


def load(states: DataFrame, compiled: Compiled, settings: Settings) -> StagedRows:
    """Load states into the view's staging table from the executors."""
    reports = compiled.hashed(states).mapInArrow(_loader(compiled.table, settings), _REPORT).collect()
    return StagedRows(
        attempts=tuple(r.attempt for r in reports),
        rows=sum(r.rows for r in reports),
        hash=sum(r.hash for r in reports) % _WRAP,
    )


def require_complete(connection: Connection, compiled: Compiled, staged: StagedRows) -> None:
    """Refuse to merge rows other than those that the executors reported.

    Raises:
        StagingTorn: rows are missing or were altered; nothing is lost, the batch is to be repeated.
    """
    query = sql.SQL("SELECT count(*), coalesce(sum(row_hash), 0) FROM {} WHERE attempt = ANY(%s)").format(
        table(compiled)
    )
    found = connection.execute(query, (list(staged.attempts),)).fetchone()
    assert found is not None  # noqa: S101
    rows, total = int(str(found[0])), int(str(found[1])) % _WRAP
    if (rows, total) != (staged.rows, staged.hash):
        raise StagingTorn(
            f"{compiled.name}: {staged.rows} rows were loaded, {rows} are there"
            f"{', with other content' if rows == staged.rows else ''}. Did the database crash? Repeat the batch."
        )


def clear(connection: Connection, compiled: Compiled, staged: StagedRows) -> None:
    """Remove rows that have been merged."""
    query = sql.SQL("DELETE FROM {} WHERE attempt = ANY(%s)").format(table(compiled))
    connection.execute(query, (list(staged.attempts),))


def sweep(connection: Connection, compiled: Compiled) -> None:
    """Remove what attempts left behind that never reached a merge."""
    _sweep(connection, table(compiled))


def sweep_all(connection: Connection) -> None:
    """The same for every view and version that ever was."""
    for (name,) in connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'stage'").fetchall():
        _sweep(connection, sql.Identifier("stage", str(name)))


def _sweep(connection: Connection, staging: sql.Identifier) -> None:
    connection.execute(sql.SQL("DELETE FROM {} WHERE loaded_at < now() - interval '1 hour'").format(staging))


def table(compiled: Compiled) -> sql.Identifier:
    return sql.Identifier("stage", compiled.table)


def _loader(target: str, settings: Settings) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What runs in the executors' Python: Arrow batches in, one report out."""

    def load_attempt(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        filled = (batch for batch in batches if batch.num_rows)
        first = next(filled, None)
        if first is None:
            return
        attempt = _Attempt(str(uuid.uuid4()))
        tagged = map(attempt.tag, chain([first], filled))
        reader = pa.RecordBatchReader.from_batches(attempt.tag_schema(first.schema), tagged)
        known = _known(settings.database_uri())
        with closing(known.adbc_clone()) as connection, closing(connection.cursor()) as cursor:
            cursor.adbc_ingest(target, reader, mode="append", db_schema_name="stage")
            connection.commit()
        yield attempt.report()

    return load_attempt


@cache
def _known(uri: str) -> adbc.Connection:
    """A database to connect to, whose types have been asked for: that costs more than all else a small load does."""
    return adbc.connect(uri, autocommit=True)  # lies idle, and in no transaction


class _Attempt:
    """Tags the batches that pass with the attempt's id, and counts them."""

    def __init__(self, name: str) -> None:
        self.name, self.rows, self.hash = name, 0, 0

    def tag_schema(self, schema: pa.Schema) -> pa.Schema:
        return schema.insert(0, pa.field("attempt", pa.string()))

    def tag(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        hashes = batch.column("row_hash").to_numpy()
        self.rows += batch.num_rows
        self.hash += int(hashes.sum(dtype=np.int64))  # wraps; so does Python's sum, modulo 2**64
        names = pa.array([self.name]).take(pa.array(np.zeros(batch.num_rows, np.int64)))
        return pa.RecordBatch.from_arrays([names, *batch.columns], schema=self.tag_schema(batch.schema))

    def report(self) -> pa.RecordBatch:
        signed = (self.hash + _WRAP // 2) % _WRAP - _WRAP // 2
        return pa.RecordBatch.from_pydict({"attempt": [self.name], "rows": [self.rows], "hash": [signed]})
