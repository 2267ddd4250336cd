"""The rows of a schema, and whether an upgrade has kept them."""

import json
from collections import Counter
from collections.abc import Mapping, Set

from psycopg import sql

from truelog.storage.database import Connection

Rows = Mapping[str, list[dict[str, object]]]


def rows_of(connection: Connection, schema: str = "truelog") -> Rows:
    """The rows of each table that has some, except the list of migrations."""
    tables = connection.execute(
        "SELECT tablename FROM pg_tables WHERE schemaname = %s AND tablename <> 'migration' ORDER BY 1", (schema,)
    ).fetchall()
    found = {}
    for (table,) in tables:
        query = sql.SQL("SELECT to_jsonb(t) FROM {} AS t ORDER BY ctid").format(sql.Identifier(schema, str(table)))
        if rows := [row for (row,) in connection.execute(query).fetchall()]:
            found[str(table)] = rows
    return found


def require_kept(before: Rows, after: Rows) -> None:
    """Require that every earlier row is still there, with the values of the columns that its table still has."""
    for table, earlier in before.items():
        assert table in after, f"{table} has no rows"
        columns = earlier[0].keys() & after[table][0].keys()
        lost = _counted(earlier, columns) - _counted(after[table], columns)
        assert not lost, (table, lost.most_common(3))


def _counted(rows: list[dict[str, object]], columns: Set[str]) -> Counter[str]:
    return Counter(json.dumps({name: row[name] for name in columns}, sort_keys=True) for row in rows)
