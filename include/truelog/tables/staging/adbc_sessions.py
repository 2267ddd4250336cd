"""Sessions of ADBC, in which rows are loaded into PostgreSQL and looked up there."""

from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import cache

import adbc_driver_postgresql.dbapi as adbc
import pyarrow as pa

# Settings of PostgreSQL, off where changed keys are looked up: the tables may be large and the changes few, but a
# staging table has no statistics that say so.
SCANS = ("enable_seqscan", "enable_hashjoin", "enable_mergejoin")
_OFF = "SELECT " + ", ".join(f"set_config('{each}', 'off', false)" for each in SCANS)

_MOST_IDLE = 4  # sessions; more are needed only while many views catch up
_idle: defaultdict[str, deque[adbc.Connection]] = defaultdict(deque)  # kept sessions of this process, by address


@contextmanager
def new(uri: str) -> Iterator[adbc.Connection]:
    """A session for the block."""
    with closing(_database(uri).adbc_clone()) as session:
        yield session


@contextmanager
def kept(uri: str) -> Iterator[adbc.Connection]:
    """A session that stays open after the block, because a new one costs more than a small load.

    If the block fails, no session stays open: the database may have been restarted.
    """
    idle = _idle[uri]
    try:
        session = idle.pop()
    except IndexError:
        session = _database(uri).adbc_clone()
    try:
        yield session
        session.commit()
    except BaseException:
        _close(session)
        with suppress(IndexError):
            while True:
                _close(idle.pop())  # one by one, because other threads take sessions meanwhile
        raise
    if len(idle) < _MOST_IDLE:
        idle.append(session)
    else:
        _close(session)


def _close(session: adbc.Connection) -> None:
    """A broken session may fail in many ways, and the error that broke it says more."""
    with suppress(Exception):
        session.close()


def select(session: adbc.Connection, query: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows that a query looks up by index."""
    with closing(session.cursor()) as cursor:
        cursor.execute(_OFF)
        cursor.fetchall()
        cursor.execute(query)
        for batch in cursor.fetch_record_batch():
            yield from pa.Table.from_batches([batch]).cast(schema).to_batches()


def select_each(uri: str, queries: Sequence[str], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows that these queries look up, in a kept session."""
    with kept(uri) as session:
        for query in queries:
            yield from select(session, query, schema)


@cache
def _database(uri: str) -> adbc.Connection:
    """A session to clone. It has already queried the database types, which takes longer than a small load."""
    return adbc.connect(uri, autocommit=True)  # never idle in a transaction
