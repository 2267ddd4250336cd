"""A view's tables, created once from the declaration, and shown to readers if no other version serves them."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product

import psycopg
import pyspark
from psycopg import sql

from truelog.storage.database import Connection, definitions, names
from truelog.support.errors import NotMade
from truelog.tables import kinds
from truelog.tables.compiled_view import CompiledView
from truelog.tables.output import outbox
from truelog.tables.shown import readable
from truelog.tables.table import Table
from truelog.views.placeholders import filled

# A row for the current minute is updated again and again until the minute ends, so leave room in the page.
_STORAGE = "WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05)"

# Sketches. Compression takes longer than the merge and hardly makes them smaller.
_UNCOMPRESSED = ("integer[]", "bigint[]")

_LOCK_TIMEOUT = "500ms"

_PREDECESSOR = "SELECT FROM truelog.predecessor WHERE (view, version) = (%s, %s)"
_OTHER_DEPLOYED = "SELECT FROM truelog.deployed WHERE view = %s AND version <> %s AND deployed_at IS NOT NULL"


def deploy_table(connection: Connection, compiled: CompiledView) -> bool:
    """Create the view's missing tables and refuse existing tables that other code made.

    Readers see the first version at once, and a later version under its own name until they move to it
    (`truelog.versions`). The readers of a batch-only view move when a version is built (`readable.show`).

    Return False if a long query holds what readers see. They see the version after `try_to_show` has succeeded.

    Raises:
        CodeChanged: the code's fingerprint differs from the table's fingerprint.
        BadDeclaration: readers see a relation of another view under one of its names.
    """
    with connection.transaction():  # a second caller waits here until the tables exist
        inserted = connection.execute(
            "INSERT INTO truelog.view (view, version, fingerprint, spark, reads, sides, batch_only, needs_order) "
            "VALUES (%s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING",
            (
                compiled.name,
                compiled.view.version,
                compiled.fingerprint,
                pyspark.__version__,
                list(compiled.view.reads),
                [each.side for each in compiled.sides],
                compiled.view.batch_only,
                compiled.needs_order,
            ),
        )
        require_same_code(connection, compiled)
        _correct(connection, compiled)
        if inserted.rowcount:
            for each in compiled.tables:
                create_table(connection, each, "state", each.name)
                create_table(connection, each, "batch", each.name)
                create_stage(connection, each)
            kinds.create(connection, compiled)
    return try_to_show(connection, compiled)


def _correct(connection: Connection, compiled: CompiledView) -> None:
    """Correct what an earlier release did not record, and what a change that the fingerprint allows leaves behind."""
    version = compiled.name, compiled.view.version
    connection.execute(
        "UPDATE truelog.view SET needs_order = %s WHERE (view, version) = (%s, %s) AND needs_order IS NULL",
        (compiled.needs_order, *version),
    )
    # If the view has stopped reading the clock, its positions in the ticks would stay behind for ever.
    connection.execute(
        "DELETE FROM truelog.position WHERE (view, version) = (%s, %s) AND topic <> ALL(%s)",
        (*version, list(compiled.view.topics)),
    )


def try_to_show(connection: Connection, compiled: CompiledView) -> bool:
    """Let readers see the version and its indexes, unless a lock is held for long. Return whether they do.

    Only this step waits for readers. New readers and the view's merges queue behind it, so it waits briefly.
    """
    try:
        with impatient(connection):
            readable.describe(connection, compiled)
            _show_if_live(connection, compiled)
            _create_indexes(connection, compiled)
        with impatient(connection):  # an output begins with the whole table, for which readers do not wait
            outbox.settle(connection, compiled)
    except psycopg.errors.LockNotAvailable:
        return False
    return True


def _show_if_live(connection: Connection, compiled: CompiledView) -> None:
    """Let readers see the version if they see no other one. A cut-over may be moving them at this moment.

    If the file of a removed view comes back with another version, readers see the version that they saw before.
    """
    version = compiled.name, compiled.view.version
    if not _goes_live(connection, compiled):
        readable.show_again(connection, compiled.name)
    elif not readable.is_shown(connection, *version):
        readable.lock(connection, compiled.name)
        if _goes_live(connection, compiled):
            readable.show(connection, *version)


@contextmanager
def impatient(connection: Connection) -> Iterator[None]:
    """A transaction that waits for no lock for long."""
    with connection.transaction():
        connection.execute(sql.SQL("SET LOCAL lock_timeout = {}").format(sql.Literal(_LOCK_TIMEOUT)))
        yield


def _goes_live(connection: Connection, compiled: CompiledView) -> bool:
    """Whether readers see this version already, or none that has rows."""
    query = _OTHER_DEPLOYED if compiled.view.batch_only else _PREDECESSOR
    return connection.execute(query, (compiled.name, compiled.view.version)).fetchone() is None


def _create_indexes(connection: Connection, compiled: CompiledView) -> None:
    """Create the declared indexes that are missing. They do not belong to the meaning of the rows."""
    for table, schema in product(compiled.tables, ("state", "batch")):
        for indexed in (_indexed(table, declared) for declared in table.view.indexes):
            digest = hashlib.sha256(indexed.as_string(connection).encode()).hexdigest()[:8]
            name = f"{table.name}_{digest}"
            # CREATE INDEX IF NOT EXISTS would lock the table even if the index exists.
            if connection.execute("SELECT to_regclass(%s)", (f'{schema}."{name}"',)).fetchone() == (None,):
                create = sql.SQL("CREATE INDEX {} ON {} USING {}")
                target = sql.Identifier(schema, table.name)
                connection.execute(create.format(sql.Identifier(name), target, indexed))


def _indexed(table: Table, declared: tuple[str, ...] | str) -> sql.Composed:
    if isinstance(declared, str):
        return sql.SQL("gin (({}))").format(sql.SQL(filled(declared, table.shown)))
    return sql.SQL("btree ({})").format(names(declared))


def require_same_code(connection: Connection, compiled: CompiledView) -> None:
    """Refuse a table that other code made, or that does not exist yet.

    Raises:
        CodeChanged, NotMade: the message says what to do.
    """
    row = connection.execute(
        "SELECT fingerprint FROM truelog.view WHERE view = %s AND version = %s",
        (compiled.name, compiled.view.version),
    ).fetchone()
    if row is None:
        version = compiled.view.version
        raise NotMade(f"no application has created version {version} of {compiled.name} yet: see `truelog status`")
    compiled.own.require_same_code(row[0], "its table was")


def create_table(connection: Connection, of: Table, schema: str, name: str) -> None:
    """Create a table that rows can be merged into: the key is unique, and NULL equals NULL."""
    columns = {n: f"{t} STORAGE EXTERNAL" if t in _UNCOMPRESSED else t for n, t in of.stored_columns.items()}
    connection.execute(
        sql.SQL("CREATE TABLE {table} ({columns}, UNIQUE NULLS NOT DISTINCT ({key})) {storage}").format(
            table=sql.Identifier(schema, name),
            columns=definitions(columns),
            key=names(of.key_columns),
            storage=sql.SQL(_STORAGE),
        )
    )


def create_stage(connection: Connection, of: Table) -> None:
    """Create the staging table of a table."""
    # Unlogged: a database crash empties the table. The merge then sees a wrong count and hash and refuses the batch.
    tags = {"_attempt": "text", "_row_hash": "bigint", "_loaded_at": "timestamptz DEFAULT now()"}
    columns = {**tags, **of.stored_columns}
    table = sql.Identifier("stage", of.name)
    connection.execute(sql.SQL("CREATE UNLOGGED TABLE {} ({})").format(table, definitions(columns)))
    index = sql.Identifier(f"{of.name}_attempt")
    connection.execute(sql.SQL("CREATE INDEX {} ON {} (_attempt)").format(index, table))
