"""PostgreSQL's statistics of columns, which have values of the rows that ANALYZE has read last.

ANALYZE makes those of a table again, unless the table is empty. Then they are cleared, which PostgreSQL can do from
version 18 on.
"""

from contextlib import suppress

import psycopg
from psycopg import sql

from truelog.storage.database import Connection

_SCHEMAS = ["batch", "recon", "replay", "stage", "state", "truelog"]
_CAN_CLEAR = 18_00_00
_TABLES = """
    SELECT DISTINCT s.schemaname, s.tablename FROM pg_stats s
    JOIN pg_class c ON c.oid = to_regclass(format('%%I.%%I', s.schemaname, s.tablename))
    WHERE s.schemaname = ANY(%s) AND c.relkind IN ('r', 'p') ORDER BY 1, 2
"""
# An index of expressions has statistics too.
_CLEAR = """
    SELECT pg_clear_attribute_stats(s.schemaname, s.tablename, s.attname, s.inherited) FROM pg_stats s
    JOIN pg_class c ON c.oid = to_regclass(format('%%I.%%I', s.schemaname, s.tablename))
    LEFT JOIN pg_index i ON i.indexrelid = c.oid
    JOIN pg_class t ON t.oid = coalesce(i.indrelid, c.oid)
    WHERE s.schemaname = ANY(%s) AND t.reltuples = 0
"""


def renew(connection: Connection) -> None:
    """Let the statistics of the platform's tables have values of present rows only."""
    for schema, table in connection.execute(_TABLES, (_SCHEMAS,)).fetchall():
        with suppress(psycopg.errors.UndefinedTable):  # dropped meanwhile
            connection.execute(sql.SQL("ANALYZE {}").format(sql.Identifier(str(schema), str(table))))
    if connection.info.server_version >= _CAN_CLEAR:
        connection.execute(_CLEAR, (_SCHEMAS,))
