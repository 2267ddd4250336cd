"""The table of a view: made once from the declaration, in the form that merges, with a readable view over it."""

import hashlib
from collections.abc import Iterator

import pyspark
from psycopg import sql

from truelog.storage.database import Connection, definitions, names
from truelog.support.errors import NotMade
from truelog.views.compiled_view import Compiled

# A minute's cells are rewritten again and again while the minute lasts: leave room for it in the page.
_STORAGE = "WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05)"


def deploy_table(connection: Connection, compiled: Compiled) -> None:
    """Make the view's tables where they are missing, and refuse code other than that which made them.

    Raises:
        CodeChanged: the fingerprint differs from the one that the table was made with.
    """
    with connection.transaction():  # whoever comes second waits for the tables
        made = connection.execute(
            "INSERT INTO truelog.view (view, version, fingerprint, spark, reads) VALUES (%s, %s, %s, %s, %s) "
            "ON CONFLICT DO NOTHING",
            (
                compiled.name,
                compiled.view.version,
                compiled.fingerprint,
                pyspark.__version__,
                list(compiled.view.reads),
            ),
        )
        require_same_code(connection, compiled)
        if made.rowcount:
            create_table(connection, compiled, "state", compiled.table)
            _create_stage(connection, compiled)
        _show(connection, compiled)


def require_same_code(connection: Connection, compiled: Compiled) -> None:
    """Refuse to look at a table that other code made, or nobody yet.

    Raises:
        CodeChanged, NotMade: each with its cure.
    """
    found = connection.execute(
        "SELECT fingerprint FROM truelog.view WHERE view = %s AND version = %s",
        (compiled.name, compiled.view.version),
    ).fetchone()
    if found is None:
        version = compiled.view.version
        raise NotMade(f"no application has made version {version} of {compiled.name} yet: see `truelog status`")
    compiled.require_same_code(found[0], "its table was")


def create_table(connection: Connection, compiled: Compiled, schema: str, table: str) -> None:
    """A table in the form that merges: the key unique, with NULL equal to NULL."""
    connection.execute(
        sql.SQL("CREATE TABLE {table} ({columns}, UNIQUE NULLS NOT DISTINCT ({key})) {storage}").format(
            table=sql.Identifier(schema, table),
            columns=definitions(compiled.stored_columns),
            key=names(compiled.key_columns),
            storage=sql.SQL(_STORAGE),
        )
    )


def _create_stage(connection: Connection, compiled: Compiled) -> None:
    # Unlogged: a crash of the database empties it, and the merge's count and hash then refuse the batch.
    tags = {"attempt": "text", "row_hash": "bigint", "loaded_at": "timestamptz DEFAULT now()"}
    columns = {**tags, **compiled.stored_columns}
    table = sql.Identifier("stage", compiled.table)
    connection.execute(sql.SQL("CREATE UNLOGGED TABLE {} ({})").format(table, definitions(columns)))
    index = sql.Identifier(f"{compiled.table}_attempt")
    connection.execute(sql.SQL("CREATE INDEX {} ON {} (attempt)").format(index, table))


def _show(connection: Connection, compiled: Compiled) -> None:
    """The view as readers see it, and the further relations that it presents; made anew where the file has changed.

    Beside it the table for answers of the batch layer, which views made by an earlier release lack.
    """
    statements = [statement.as_string(connection) for statement in _shown(connection, compiled)]
    digest = hashlib.sha256("\n".join(statements).encode()).hexdigest()
    changed = connection.execute(
        "UPDATE truelog.view SET shown = %s WHERE view = %s AND version = %s AND shown IS DISTINCT FROM %s",
        (digest, compiled.name, compiled.view.version, digest),
    )
    if changed.rowcount:
        if connection.execute("SELECT to_regclass(%s)", (f'batch."{compiled.table}"',)).fetchone() == (None,):
            create_table(connection, compiled, "batch", compiled.table)
        for statement in statements:
            connection.execute(statement.encode())


def _shown(connection: Connection, compiled: Compiled) -> Iterator[sql.Composed]:
    view = sql.Identifier("views", compiled.name)
    columns = [sql.SQL("{} AS {}").format(sql.SQL(e), sql.Identifier(c)) for c, e in compiled.shown.items()]
    yield sql.SQL("DROP VIEW IF EXISTS {} CASCADE").format(view)
    yield sql.SQL("CREATE VIEW {} AS SELECT {} FROM ({}) AS layers WHERE _by_batch = {}").format(
        view, sql.SQL(", ").join(columns), _layers(compiled), _by_batch(compiled)
    )
    for name, select in compiled.view.present.items():
        target = sql.Identifier("views", f"{compiled.name}_{name}")
        yield sql.SQL("CREATE VIEW {} AS {}").format(target, sql.SQL(select.format(view=view.as_string(connection))))
    for column, meaning in compiled.view.columns.items():
        place = sql.Identifier("views", compiled.name, column)
        yield sql.SQL("COMMENT ON COLUMN {} IS {}").format(place, sql.Literal(meaning))


def _layers(compiled: Compiled) -> sql.Composed:
    """Without a condition in its halves PostgreSQL goes on into their indexes, for an order and for a key."""
    return sql.SQL(
        "SELECT false AS _by_batch, {columns} FROM {stream} UNION ALL SELECT true, {columns} FROM {batch}"
    ).format(
        columns=names(compiled.stored_columns),
        stream=sql.Identifier("state", compiled.table),
        batch=sql.Identifier("batch", compiled.table),
    )


def _by_batch(compiled: Compiled) -> sql.Composed:
    """Whether the batch layer answers: nothing of a row is in it, so it is asked once, and one table is never read."""
    return sql.SQL("EXISTS (SELECT FROM truelog.batch_layer WHERE view = {} AND version = {})").format(
        sql.Literal(compiled.name), sql.Literal(compiled.view.version)
    )
