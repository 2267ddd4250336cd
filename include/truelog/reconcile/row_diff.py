"""Difference: the rows of a streamed view and of its rebuild that have no equal on the other side.

A table `recon.<table>_diff` holds them by key, with both values as JSON and the cause (`offset_search`). Rows compare
as PostgreSQL compares them, column by column, NULL equal to NULL; EXCEPT ALL and GROUP BY hash, where a full join on IS
NOT DISTINCT FROM cannot.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from psycopg import sql

from truelog.reconcile import table_hash
from truelog.storage.database import Connection, definitions, names
from truelog.views.compiled_view import Compiled


@dataclass(frozen=True)
class DiffCounts:
    """Rows of the rebuild, and keys that are only in the rebuild, only in the stream, or in both with other values."""

    rows: int
    missing: int
    extra: int
    different: int

    @property
    def unequal(self) -> int:
        return self.missing + self.extra + self.different


def find_differences(connection: Connection, compiled: Compiled) -> DiffCounts:
    """Fill `recon.<table>_diff` from `recon.<table>_streamed` and `recon.<table>`."""
    connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(diff_table(compiled)))
    connection.execute(
        sql.SQL(
            "CREATE UNLOGGED TABLE {diff} AS "
            "WITH only_streamed AS (SELECT {all} FROM {streamed} EXCEPT ALL SELECT {all} FROM {rebuilt}), "
            "only_rebuilt AS (SELECT {all} FROM {rebuilt} EXCEPT ALL SELECT {all} FROM {streamed}), "
            "unequal AS (SELECT {key}, to_jsonb(o) AS streamed, NULL::jsonb AS rebuilt FROM only_streamed AS o "
            "UNION ALL SELECT {key}, NULL, to_jsonb(o) FROM only_rebuilt AS o) "
            "SELECT {key}, {key_json} AS key_json, "
            "jsonb_agg(streamed) FILTER (WHERE streamed IS NOT NULL) -> 0 AS streamed, "
            "jsonb_agg(rebuilt) FILTER (WHERE rebuilt IS NOT NULL) -> 0 AS rebuilt, "
            "NULL::bigint AS reconciliation, NULL::text AS cause FROM unequal GROUP BY {key}"
        ).format(
            diff=diff_table(compiled),
            key=names(compiled.key_columns),
            key_json=key_json(compiled),
            all=names(compiled.stored_columns),
            streamed=streamed_table(compiled),
            rebuilt=rebuilt_table(compiled),
        )
    )
    return _count(connection, compiled)


def drop_copies(connection: Connection, table: str) -> None:
    """Keep other comparisons of the table waiting, as long as the connection lasts: the copies have one name each."""
    connection.execute("SELECT pg_advisory_lock(hashtextextended(%s, 1))", (f"reconcile {table}",))


def no_differences(connection: Connection, compiled: Compiled) -> None:
    """Leave an empty `recon.<table>_diff`: nothing differs."""
    columns = {**compiled.key_columns, "key_json": "jsonb", "streamed": "jsonb", "rebuilt": "jsonb"}
    columns |= {"reconciliation": "bigint", "cause": "text"}
    connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(diff_table(compiled)))
    connection.execute(sql.SQL("CREATE UNLOGGED TABLE {} ({})").format(diff_table(compiled), definitions(columns)))


def mark_causes(connection: Connection, compiled: Compiled, reconciliation: int) -> None:
    """Say of which reconciliation the differences are: the next one replaces them."""
    connection.execute(sql.SQL("UPDATE {} SET reconciliation = %s").format(diff_table(compiled)), (reconciliation,))


def sample_rows(connection: Connection, compiled: Compiled, rows: int) -> tuple[dict[str, Any], ...]:
    """The first differing rows, with both values and the cause."""
    query = sql.SQL("SELECT streamed, rebuilt, cause FROM {} ORDER BY key_json LIMIT %s").format(diff_table(compiled))
    found = connection.execute(query, (rows,)).fetchall()
    return tuple({"streamed": s, "rebuilt": r, "cause": cause} for s, r, cause in found)


def explain_rows(connection: Connection, compiled: Compiled, causes: Mapping[str, str]) -> None:
    """Keep with the rows why they differ, by the hash of their key (`digest.key_sql`)."""
    connection.execute(
        sql.SQL(
            "UPDATE {} SET cause = c.cause FROM unnest(%s::text[], %s::text[]) AS c(key, cause) WHERE {} = c.key"
        ).format(diff_table(compiled), table_hash.key_sql(compiled)),
        (list(causes), list(causes.values())),
    )


def streamed_table(compiled: Compiled) -> sql.Identifier:
    return sql.Identifier("recon", f"{compiled.table}_streamed")


def rebuilt_table(compiled: Compiled) -> sql.Identifier:
    return sql.Identifier("recon", compiled.table)


def diff_table(compiled: Compiled) -> sql.Identifier:
    return sql.Identifier("recon", f"{compiled.table}_diff")


def key_json(compiled: Compiled, prefix: str = "") -> sql.Composed:
    """A row's key as one JSON array: NULL equals NULL in it, and it can be hashed."""
    return sql.SQL("jsonb_build_array({})").format(names(compiled.key_columns, prefix))


def _count(connection: Connection, compiled: Compiled) -> DiffCounts:
    query = sql.SQL(
        "SELECT (SELECT count(*) FROM {rebuilt}), count(*) FILTER (WHERE streamed IS NULL), "
        "count(*) FILTER (WHERE rebuilt IS NULL), "
        "count(*) FILTER (WHERE streamed IS NOT NULL AND rebuilt IS NOT NULL) FROM {diff}"
    )
    counted = connection.execute(query.format(rebuilt=rebuilt_table(compiled), diff=diff_table(compiled))).fetchone()
    assert counted is not None  # noqa: S101
    return DiffCounts(*(int(str(n)) for n in counted))
