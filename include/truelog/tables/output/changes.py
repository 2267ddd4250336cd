"""Changes: which rows of a table a transaction has changed or removed, whatever its statements and the table's kind.

Triggers of the table note each row that a statement removes, with weight -1, and each row that it adds, with weight +1.
An update does both. The weights of equal rows add up, so a row that is deleted and inserted again has not changed. Only
tables that are followed have these triggers.
"""

from collections.abc import Mapping

from psycopg import sql

from truelog.storage.database import Connection, read_value
from truelog.tables.stage import CHANGES
from truelog.tables.table import Table

WEIGHT = "_weight"
_TRANSITIONS = {
    "INSERT": "NEW TABLE AS added",
    "UPDATE": "OLD TABLE AS removed NEW TABLE AS added",
    "DELETE": "OLD TABLE AS removed",
}


def is_followed(connection: Connection, table: Table) -> bool:
    """Whether the changes of a table are noted."""
    return read_value(connection, "SELECT to_regclass(%s)", (f'stage."{table.name}{CHANGES}"',)) is not None


def follow(connection: Connection, table: Table) -> None:
    """Begin to note the changes of a table."""
    state, notes = sql.Identifier("state", table.name), _notes(table)
    columns = sql.SQL("LIKE {}, {} integer NOT NULL").format(state, sql.Identifier(WEIGHT))
    connection.execute(sql.SQL("CREATE UNLOGGED TABLE {} ({})").format(notes, columns))
    for event, transition in _TRANSITIONS.items():
        create = sql.SQL(
            "CREATE TRIGGER {} AFTER {} ON {} REFERENCING {} FOR EACH STATEMENT "
            "EXECUTE FUNCTION truelog.note_changes({})"
        )
        texts = sql.SQL(event), sql.SQL(transition)
        name, target = sql.Identifier(_trigger(event)), sql.Literal(f"{table.name}{CHANGES}")
        connection.execute(create.format(name, texts[0], state, texts[1], target))


def unfollow(connection: Connection, table: Table) -> None:
    """Stop noting the changes of a table."""
    state = sql.Identifier("state", table.name)
    for event in _TRANSITIONS:
        drop = sql.SQL("DROP TRIGGER IF EXISTS {} ON {}").format(sql.Identifier(_trigger(event)), state)
        connection.execute(drop)
    connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(_notes(table)))


def changed_rows(table: Table) -> sql.Composed:
    """The query of the rows that readers see and that have changed: key and value. A removed row has no value."""
    return sql.SQL(
        "SELECT key, max(value) FILTER (WHERE weight > 0) AS value FROM ("
        "SELECT {shown}, sum({weight}) AS weight FROM {notes} AS noted WHERE {exists} GROUP BY 1, 2 "
        "HAVING sum({weight}) <> 0) AS shown GROUP BY key"
    ).format(shown=_shown(table), weight=sql.Identifier(WEIGHT), notes=_notes(table), exists=sql.SQL(table.shown_if))


def all_rows(table: Table) -> sql.Composed:
    """The query of all rows that readers see: key and value."""
    state = sql.Identifier("state", table.name)
    return sql.SQL("SELECT {} FROM {} AS noted WHERE ({})").format(_shown(table), state, sql.SQL(table.shown_if))


def shown_keys(connection: Connection, table: Table, condition: sql.Composable) -> list[str]:
    """The keys, as an output has them, of the rows that readers see and that fit a condition on `noted`."""
    rows = sql.SQL("SELECT key FROM ({} AND {}) AS shown").format(all_rows(table), condition)
    return [str(key) for (key,) in connection.execute(rows).fetchall()]


def forget(connection: Connection, table: Table) -> None:
    """Delete what is noted."""
    connection.execute(sql.SQL("DELETE FROM {}").format(_notes(table)))


def _shown(table: Table) -> sql.Composed:
    """The key and the value of a row, as JSON objects. PostgreSQL writes numbers with all their digits."""
    shown = table.shown_values
    return sql.SQL("{} AS key, {} AS value").format(_json({name: shown[name] for name in table.view.key}), _json(shown))


def _json(columns: Mapping[str, str]) -> sql.Composed:
    listed = (sql.SQL("{} AS {}").format(sql.SQL(e), sql.Identifier(c)) for c, e in columns.items())
    return sql.SQL("(SELECT row_to_json(_row)::text FROM (SELECT {}) AS _row)").format(sql.SQL(", ").join(listed))


def _notes(table: Table) -> sql.Identifier:
    return sql.Identifier("stage", f"{table.name}{CHANGES}")


def _trigger(event: str) -> str:
    return f"note_{event.lower()}"
