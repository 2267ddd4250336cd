"""What readers see of a view: relations under the view's name, and under the name of each version.

`views.<view>` shows one version, and `views.<view>_v<version>` shows a version for as long as it has tables. The
statements that let readers see a version are kept with it, so readers move without the version's code.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from psycopg import sql

from truelog.storage.database import Connection, names, read_value
from truelog.support.errors import BadDeclaration
from truelog.tables.compiled_view import CompiledView
from truelog.tables.shown import meanings
from truelog.tables.side_tables import relation_names
from truelog.tables.table import Table
from truelog.views.catalogue import table_name
from truelog.views.placeholders import filled

# The relations that read a table of the view, of any version. What the view presents depends on these relations.
_RELATIONS = """
SELECT DISTINCT shown.relname::text, stored.relname::text
FROM truelog.view v CROSS JOIN LATERAL unnest(ARRAY[''] || v.sides) AS side
JOIN pg_class stored ON stored.relnamespace = 'state'::regnamespace
    AND stored.relname = v.view || '_v' || v.version || CASE WHEN side = '' THEN '' ELSE '_' || side END
JOIN pg_depend d ON (d.refclassid, d.refobjid, d.classid) = ('pg_class'::regclass, stored.oid, 'pg_rewrite'::regclass)
JOIN pg_rewrite w ON w.oid = d.objid
JOIN pg_class shown ON shown.oid = w.ev_class AND shown.relnamespace = 'views'::regnamespace
WHERE v.view = %s ORDER BY 1
"""
# The view that readers already see under one of these names, its own or that of a version.
_TAKEN = """
WITH shown AS (
    SELECT view, version, substring(each FROM '^CREATE VIEW "views"."([^"]+)"') AS name
    FROM truelog.view, unnest(definitions) AS each WHERE view <> %(view)s AND pinned IS NOT NULL
)
SELECT name, view FROM (
    SELECT name, view FROM shown
    UNION ALL SELECT view || '_v' || version || substr(name, 1 + length(view)), view FROM shown
) AS taken WHERE name = ANY(%(names)s) ORDER BY name, view LIMIT 1
"""


def relations_of(connection: Connection, view: str) -> list[str]:
    """What readers see of the tables of a view, of any version, without what the view presents of them."""
    return sorted({shown for shown, _ in _relations(connection, view)})


def describe(connection: Connection, compiled: CompiledView) -> None:
    """Keep the statements that show the version, and let readers see it under its own name.

    Its file was loaded, so the view is not removed. A removal that is under way changes nothing then.

    Raises:
        BadDeclaration: readers see a relation of another view under one of its names.
    """
    _require_free_names(connection, compiled)
    version = compiled.name, compiled.view.version
    connection.execute(
        "UPDATE truelog.view SET removed_at = NULL WHERE view = %s AND removed_at IS NOT NULL", (compiled.name,)
    )
    shown = [
        each.as_string(connection)
        for each in (*_definitions(connection, compiled, _by_view(compiled)), *_for_people(compiled))
    ]
    connection.execute(
        "UPDATE truelog.view SET definitions = %s WHERE (view, version) = (%s, %s) AND definitions IS DISTINCT FROM %s",
        (shown, *version, shown),
    )
    pinned = [each.as_string(connection) for each in _definitions(connection, compiled, _by_version(compiled))]
    digest = _digest(pinned)
    changed = connection.execute(
        "UPDATE truelog.view SET pinned = %s WHERE (view, version) = (%s, %s) AND pinned IS DISTINCT FROM %s",
        (digest, *version, digest),
    )
    if changed.rowcount:
        _run(connection, pinned)


def _require_free_names(connection: Connection, compiled: CompiledView) -> None:
    """Require that no other view has one of these names: `CREATE VIEW` would take its readers to other rows."""
    suffixes = ("", *relation_names(compiled.view))
    names = [name(each) for name in (_by_view(compiled), _by_version(compiled)) for each in suffixes]
    taken = connection.execute(_TAKEN, {"view": compiled.name, "names": names}).fetchone()
    if taken is not None:
        raise BadDeclaration(
            f"{compiled.name}: readers already see views.{taken[0]}, which the view {taken[1]} declares. Name one of "
            f"them differently."
        )


def lock(connection: Connection, view: str) -> None:
    """Lock all versions of the view, so that no other transaction moves its readers."""
    connection.execute("SELECT FROM truelog.view WHERE view = %s ORDER BY version FOR UPDATE", (view,))


def is_shown(connection: Connection, view: str, version: int) -> bool:
    """Whether readers see this version under the view's name, as it was described last."""
    found = connection.execute(
        "SELECT v.definitions, v.shown FROM truelog.view v JOIN truelog.deployed d USING (view, version) "
        "WHERE (v.view, v.version) = (%s, %s) AND v.deployed_at IS NOT NULL",
        (view, version),
    ).fetchone()
    return found is not None and _digest(found[0]) == found[1]


def show(connection: Connection, view: str, version: int) -> bool:
    """Let readers see this version under the view's name, unless they do. Return whether anything has changed.

    If readers move, a share of them that gets a version ends. Call this function in a transaction. The version must
    have been described.
    """
    statements: list[str] = read_value(
        connection, "SELECT definitions FROM truelog.view WHERE (view, version) = (%s, %s)", (view, version)
    )
    served = read_value(connection, "SELECT version FROM truelog.deployed WHERE view = %s", (view,))
    if served != version:
        end_share(connection, view)
    changed = connection.execute(
        "UPDATE truelog.view AS v SET shown = %(shown)s, deployed_at = CASE "
        "WHEN deployed_at IS NOT NULL AND version = d.served THEN deployed_at ELSE clock_timestamp() END "
        "FROM (SELECT version AS served FROM truelog.deployed WHERE view = %(view)s) AS d "
        "WHERE v.view = %(view)s AND version = %(version)s "
        "AND (shown IS DISTINCT FROM %(shown)s OR deployed_at IS NULL OR version <> d.served)",
        {"shown": _digest(statements), "view": view, "version": version},
    )
    if changed.rowcount:
        drop(connection, _under_the_name(connection, view))
        _run(connection, statements)
    return bool(changed.rowcount)


def shared(connection: Connection, view: str) -> tuple[int, int] | None:
    """The version that a share of the API's readers gets, and the percentage. None if there is no share."""
    return connection.execute("SELECT version, percent FROM truelog.version_share WHERE view = %s", (view,)).fetchone()


def end_share(connection: Connection, view: str) -> None:
    """Let all readers of the API get the version that other readers see."""
    connection.execute("DELETE FROM truelog.version_share WHERE view = %s", (view,))


def show_again(connection: Connection, view: str) -> None:
    """Let readers see the version that they saw before the view was removed, unless they do.

    Call this function in a transaction.
    """
    found = connection.execute(
        "SELECT version FROM truelog.deployed WHERE view = %s AND deployed_at IS NOT NULL AND NOT visible", (view,)
    ).fetchone()
    if found is not None:
        show(connection, view, found[0])


def drop(connection: Connection, relations: Iterable[str]) -> None:
    """Drop relations of readers, and what is made of them."""
    for each in relations:
        connection.execute(sql.SQL("DROP VIEW IF EXISTS {} CASCADE").format(sql.Identifier("views", each)))


def create_readable_copy(connection: Connection, compiled: CompiledView, schema: str, clock: datetime | None) -> None:
    """Create what readers see of the tables in `schema`, in the same schema: the view and its further relations."""
    time = sql.Literal(clock).as_string(connection)
    name = _by_view(compiled)
    for each in compiled.tables:
        rows = sql.SQL("{} WHERE {}").format(sql.Identifier(schema, each.name), sql.SQL(each.shown_if))
        connection.execute(_create_view(sql.Identifier(schema, name(each.side)), each.shown_at(time), rows))
    for statement in _presented(connection, compiled, schema, name, time):
        connection.execute(statement)


_Naming = Callable[[str], str]  # the name of a relation, by the name of the side table or of what the view presents


def _by_view(compiled: CompiledView) -> _Naming:
    return lambda side: f"{compiled.name}_{side}" if side else compiled.name


def _by_version(compiled: CompiledView) -> _Naming:
    return lambda side: table_name(compiled.name, compiled.view.version, side)


def _relations(connection: Connection, view: str) -> list[tuple[str, str]]:
    """The relations of readers that read a table of the view, each with the table."""
    return [(shown, stored) for shown, stored in connection.execute(_RELATIONS, (view,)).fetchall()]


def _under_the_name(connection: Connection, view: str) -> list[str]:
    """The relations under the view's own name. Those of a version have the name of the table that they read."""
    return [shown for shown, stored in _relations(connection, view) if shown != stored]


def _run(connection: Connection, statements: Sequence[str]) -> None:
    for each in statements:
        connection.execute(each.encode())


def _digest(statements: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(statements).encode()).hexdigest()


def _definitions(connection: Connection, compiled: CompiledView, name: _Naming) -> Iterator[sql.Composed]:
    for each in compiled.tables:
        yield from _definition(each, sql.Identifier("views", name(each.side)))
        yield from meanings.comments(compiled, each.side, sql.Identifier("views", name(each.side)))
    yield from _presented(connection, compiled, "views", name, compiled.own.clock)
    for relation in compiled.view.present:
        yield from meanings.comments(compiled, relation, sql.Identifier("views", name(relation)))


def _for_people(compiled: CompiledView) -> Iterator[sql.Composed]:
    """The statements that show the view and what it presents in the schema `presented`, without the side tables."""
    for relation in ("", *compiled.view.present):
        shown = sql.Identifier("views", _by_view(compiled)(relation))
        yield sql.SQL("SELECT truelog.present({})").format(sql.Literal(shown.as_string(None)))


def _presented(
    connection: Connection, compiled: CompiledView, schema: str, name: _Naming, clock: str
) -> Iterator[sql.Composed]:
    """The relations that the view presents, of the readable views in `schema`. `clock` is SQL for the log's clock."""
    named = {
        each.side or "view": sql.Identifier(schema, name(each.side)).as_string(connection) for each in compiled.tables
    }
    named["clock"] = clock
    for relation, select in compiled.view.present.items():
        target = sql.Identifier(schema, name(relation))
        yield sql.SQL("CREATE VIEW {} AS {}").format(target, sql.SQL(filled(select, named)))


def _definition(table: Table, relation: sql.Identifier) -> Iterator[sql.Composed]:
    """What readers see of one of the view's tables."""
    yield sql.SQL("DROP VIEW IF EXISTS {} CASCADE").format(relation)
    rows = sql.SQL("({}) AS layers WHERE _by_batch = {} AND {} AND {}").format(
        _layers(table), _by_batch(table), _not_held(table), sql.SQL(table.shown_if)
    )
    yield _create_view(relation, table.shown, rows)


def _create_view(relation: sql.Identifier, shown: Mapping[str, str], rows: sql.Composed) -> sql.Composed:
    columns = (sql.SQL("{} AS {}").format(sql.SQL(e), sql.Identifier(c)) for c, e in shown.items())
    return sql.SQL("CREATE VIEW {} AS SELECT {} FROM {}").format(relation, sql.SQL(", ").join(columns), rows)


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


def _not_held(table: Table) -> sql.Composed:
    """True, or an error with the reason while the version is held back after a restore. It depends on no row either."""
    return sql.SQL(
        "coalesce((SELECT truelog.refuse(reason) FROM truelog.held WHERE view = {} AND version = {}), true)"
    ).format(sql.Literal(table.owner), sql.Literal(table.view.version))
