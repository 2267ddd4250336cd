"""A view's table, created once from the declaration, and the readable SQL view over the table."""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from itertools import product

import psycopg
import pyspark
from psycopg import sql

from truelog.storage.database import Connection, definitions, names
from truelog.support.errors import NotMade
from truelog.tables import kinds
from truelog.tables.compiled_view import CompiledView
from truelog.tables.output import outbox
from truelog.tables.table import Table
from truelog.views.placeholders import filled

# A row for the current minute is updated again and again until the minute ends, so leave room in the page.
_STORAGE = "WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05)"

_LOCK_TIMEOUT = "500ms"


def deploy_table(connection: Connection, compiled: CompiledView) -> bool:
    """Create the view's missing tables and refuse existing tables that other code made. Readers then see this version.

    The readers of a batch-only view see a version when it is built (`show`), unless it is the first.

    Return False if a long query keeps readers from this version. They see it after `try_to_show` has succeeded.

    Raises:
        CodeChanged: the code's fingerprint differs from the table's fingerprint.
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
        connection.execute(  # an earlier release did not record it
            "UPDATE truelog.view SET needs_order = %s WHERE (view, version) = (%s, %s) AND needs_order IS NULL",
            (compiled.needs_order, compiled.name, compiled.view.version),
        )
        if inserted.rowcount:
            for each in compiled.tables:
                create_table(connection, each, "state", each.name)
                create_table(connection, each, "batch", each.name)
                _create_stage(connection, each)
            kinds.create(connection, compiled)
    return try_to_show(connection, compiled)


def try_to_show(connection: Connection, compiled: CompiledView) -> bool:
    """Let readers see the view and its indexes, unless a lock is held for long. Return whether they do.

    Only this step waits for readers. New readers and the view's merges queue behind it, so it waits briefly.
    """
    try:
        with _impatient(connection):
            if not compiled.view.batch_only or not _is_shown(connection, compiled):
                show(connection, compiled)
            _create_indexes(connection, compiled)
        with _impatient(connection):  # an output begins with the whole table, for which readers do not wait
            outbox.settle(connection, compiled)
    except psycopg.errors.LockNotAvailable:
        return False
    return True


@contextmanager
def _impatient(connection: Connection) -> Iterator[None]:
    """A transaction that waits for no lock for long."""
    with connection.transaction():
        connection.execute(sql.SQL("SET LOCAL lock_timeout = {}").format(sql.Literal(_LOCK_TIMEOUT)))
        yield


def _is_shown(connection: Connection, compiled: CompiledView) -> bool:
    """Whether readers see any version of the view."""
    query = "SELECT FROM truelog.view WHERE view = %s AND deployed_at IS NOT NULL"
    return connection.execute(query, (compiled.name,)).fetchone() is not None


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
    connection.execute(
        sql.SQL("CREATE TABLE {table} ({columns}, UNIQUE NULLS NOT DISTINCT ({key})) {storage}").format(
            table=sql.Identifier(schema, name),
            columns=definitions(of.stored_columns),
            key=names(of.key_columns),
            storage=sql.SQL(_STORAGE),
        )
    )


def _create_stage(connection: Connection, of: Table) -> None:
    # Unlogged: a database crash empties the table. The merge then sees a wrong count and hash and refuses the batch.
    tags = {"_attempt": "text", "_row_hash": "bigint", "_loaded_at": "timestamptz DEFAULT now()"}
    columns = {**tags, **of.stored_columns}
    table = sql.Identifier("stage", of.name)
    connection.execute(sql.SQL("CREATE UNLOGGED TABLE {} ({})").format(table, definitions(columns)))
    index = sql.Identifier(f"{of.name}_attempt")
    connection.execute(sql.SQL("CREATE INDEX {} ON {} (_attempt)").format(index, table))


def show(connection: Connection, compiled: CompiledView) -> None:
    """Create the view that readers see and the relations that it presents, unless they show exactly this version."""
    statements = [statement.as_string(connection) for statement in _definitions(connection, compiled)]
    digest = hashlib.sha256("\n".join(statements).encode()).hexdigest()
    changed = connection.execute(
        "UPDATE truelog.view SET shown = %(shown)s, deployed_at = clock_timestamp(), removed_at = NULL "
        "WHERE view = %(view)s AND version = %(version)s AND (shown IS DISTINCT FROM %(shown)s "
        "OR deployed_at IS NULL OR version <> (SELECT version FROM truelog.deployed WHERE view = %(view)s))",
        {"shown": digest, "view": compiled.name, "version": compiled.view.version},
    )
    if changed.rowcount:
        for statement in statements:
            connection.execute(statement.encode())


def create_readable_copy(connection: Connection, compiled: CompiledView, schema: str, clock: datetime | None) -> None:
    """Create what readers see of the tables in `schema`, in the same schema: the view and its further relations."""
    time = sql.Literal(clock).as_string(connection)
    for each in compiled.tables:
        rows = sql.SQL("{} WHERE {}").format(sql.Identifier(schema, each.name), sql.SQL(each.shown_if))
        connection.execute(_create_view(_readable(each, schema), each.shown_at(time), rows))
    for statement in _presented(connection, compiled, schema, time):
        connection.execute(statement)


def _definitions(connection: Connection, compiled: CompiledView) -> Iterator[sql.Composed]:
    for each in compiled.tables:
        yield from _definition(each)
    yield from _presented(connection, compiled, "views", compiled.own.clock)


def _presented(connection: Connection, compiled: CompiledView, schema: str, clock: str) -> Iterator[sql.Composed]:
    """The relations that the view presents, of the readable views in `schema`. `clock` is SQL for the log's clock."""
    named = {each.side or "view": _readable(each, schema).as_string(connection) for each in compiled.tables}
    named["clock"] = clock
    for name, select in compiled.view.present.items():
        target = sql.Identifier(schema, f"{compiled.name}_{name}")
        yield sql.SQL("CREATE VIEW {} AS {}").format(target, sql.SQL(filled(select, named)))


def _definition(table: Table) -> Iterator[sql.Composed]:
    """What readers see of one of the view's tables."""
    relation = _readable(table, "views")
    yield sql.SQL("DROP VIEW IF EXISTS {} CASCADE").format(relation)
    rows = sql.SQL("({}) AS layers WHERE _by_batch = {} AND {}").format(
        _layers(table), _by_batch(table), sql.SQL(table.shown_if)
    )
    yield _create_view(relation, table.shown, rows)
    for column, meaning in table.view.columns.items():
        target = sql.SQL("{}.{}").format(relation, sql.Identifier(column))
        yield sql.SQL("COMMENT ON COLUMN {} IS {}").format(target, sql.Literal(meaning))


def _create_view(relation: sql.Identifier, shown: Mapping[str, str], rows: sql.Composed) -> sql.Composed:
    columns = (sql.SQL("{} AS {}").format(sql.SQL(e), sql.Identifier(c)) for c, e in shown.items())
    return sql.SQL("CREATE VIEW {} AS SELECT {} FROM {}").format(relation, sql.SQL(", ").join(columns), rows)


def _readable(table: Table, schema: str) -> sql.Identifier:
    return sql.Identifier(schema, table.relation)


def _layers(table: Table) -> sql.Composed:
    """The rows of both layers. Neither half has a WHERE clause, so PostgreSQL can sort and search with the indexes."""
    return sql.SQL(
        "SELECT false AS _by_batch, {columns} FROM {stream} UNION ALL SELECT true, {columns} FROM {batch}"
    ).format(
        columns=names(table.stored_columns),
        stream=sql.Identifier("state", table.name),
        batch=sql.Identifier("batch", table.name),
    )


def _by_batch(table: Table) -> sql.Composed:
    """Whether readers get the batch layer. The condition depends on no row: PostgreSQL evaluates it only once."""
    return sql.SQL("EXISTS (SELECT FROM truelog.batch_layer WHERE view = {} AND version = {})").format(
        sql.Literal(table.owner), sql.Literal(table.view.version)
    )
