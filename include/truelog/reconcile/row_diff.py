"""Rows that differ between a streamed view and its rebuild.

The `recon.<table>_diff` table contains these rows by key, with both values as JSON and the cause (`offset_search`). The
names of its own columns begin with `_`, which no column of a view does.
PostgreSQL compares the rows column by column, with NULL equal to NULL. EXCEPT ALL and GROUP BY can use hashing, but a
full join on IS NOT DISTINCT FROM cannot.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from psycopg import sql

from truelog.storage import exact_json
from truelog.storage.database import Connection, definitions, names
from truelog.storage.locks import Locks
from truelog.tables import table_hash
from truelog.tables.table import Table


@dataclass(frozen=True)
class DiffCounts:
    """The number of rows in the rebuild, and of keys that are missing, extra or different in the streamed table."""

    rows: int
    missing: int
    extra: int
    different: int

    @property
    def unequal(self) -> int:
        return self.missing + self.extra + self.different


NO_DIFFERENCES = DiffCounts(0, 0, 0, 0)


def find_differences(connection: Connection, table: Table) -> DiffCounts:
    """Fill `recon.<table>_diff` from `recon.<table>_streamed` and `recon.<table>`."""
    connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(diff_table(table)))
    connection.execute(
        sql.SQL(
            "CREATE UNLOGGED TABLE {diff} AS "
            "WITH only_streamed AS (SELECT {all} FROM {streamed} EXCEPT ALL SELECT {all} FROM {rebuilt}), "
            "only_rebuilt AS (SELECT {all} FROM {rebuilt} EXCEPT ALL SELECT {all} FROM {streamed}), "
            "unequal AS (SELECT {key}, to_jsonb(_row) AS _streamed, NULL::jsonb AS _rebuilt FROM only_streamed AS _row "
            "UNION ALL SELECT {key}, NULL, to_jsonb(_row) FROM only_rebuilt AS _row) "
            "SELECT {key}, {key_json} AS _key_json, "
            "jsonb_agg(_streamed) FILTER (WHERE _streamed IS NOT NULL) -> 0 AS _streamed, "
            "jsonb_agg(_rebuilt) FILTER (WHERE _rebuilt IS NOT NULL) -> 0 AS _rebuilt, "
            "NULL::bigint AS _reconciliation, NULL::text AS _cause FROM unequal GROUP BY {key}"
        ).format(
            diff=diff_table(table),
            key=names(table.key_columns),
            key_json=key_json(table),
            all=names(table.stored_columns),
            streamed=streamed_table(table),
            rebuilt=rebuilt_table(table),
        )
    )
    return _count(connection, table)


def lock_comparisons(connection: Connection, table: str) -> None:
    """Block other comparisons of the table until this connection closes, because its copies have fixed names."""
    connection.execute(f"SELECT pg_advisory_lock({Locks.COMPARISON})", (table,))


def clear_differences(connection: Connection, table: Table) -> None:
    """Replace `recon.<table>_diff` with an empty table."""
    columns = {**table.key_columns, "_key_json": "jsonb", "_streamed": "jsonb", "_rebuilt": "jsonb"}
    columns |= {"_reconciliation": "bigint", "_cause": "text"}
    connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(diff_table(table)))
    connection.execute(sql.SQL("CREATE UNLOGGED TABLE {} ({})").format(diff_table(table), definitions(columns)))


def has_differences(connection: Connection, table: Table) -> bool:
    """Whether the last comparison has found differing rows in this table."""
    query = sql.SQL("SELECT FROM {} LIMIT 1").format(diff_table(table))
    return connection.execute(query).fetchone() is not None


def add_keys(connection: Connection, table: Table, keys: sql.Composable) -> None:
    """Add keys to the table of differing rows, from a query of the key columns."""
    connection.execute(
        sql.SQL(
            "INSERT INTO {diff} ({key}, _key_json) SELECT DISTINCT {key}, {key_json} FROM ({keys}) AS added "
            "WHERE {key_json} NOT IN (SELECT _key_json FROM {diff})"
        ).format(diff=diff_table(table), key=names(table.key_columns), key_json=key_json(table), keys=keys)
    )


def set_reconciliation(connection: Connection, table: Table, reconciliation: int) -> None:
    """Write the reconciliation's id into the diff table. The next reconciliation replaces the table."""
    connection.execute(sql.SQL("UPDATE {} SET _reconciliation = %s").format(diff_table(table)), (reconciliation,))


def sample_rows(connection: Connection, table: Table, rows: int) -> tuple[dict[str, Any], ...]:
    """The first differing rows, with both values, the cause, and the name of the side table if it is one."""
    query = sql.SQL("SELECT _streamed::text, _rebuilt::text, _cause FROM {} ORDER BY _key_json LIMIT %s").format(
        diff_table(table)
    )
    sample = connection.execute(query, (rows,)).fetchall()
    side = {"side": table.side} if table.side else {}
    shown = ((*(each and exact_json.read(each) for each in both), cause) for *both, cause in sample)
    return tuple({"streamed": s, "rebuilt": r, "cause": cause} | side for s, r, cause in shown)


def save_causes(connection: Connection, table: Table, causes: Mapping[str, str]) -> None:
    """Store why each row differs. `causes` maps the hash of a row's key (`table_hash.key_sql`) to the cause."""
    connection.execute(
        sql.SQL(
            "UPDATE {} SET _cause = _why FROM unnest(%s::text[], %s::text[]) AS _found(_hash, _why) WHERE {} = _hash"
        ).format(diff_table(table), table_hash.key_sql(table)),
        (list(causes), list(causes.values())),
    )


def streamed_table(table: Table) -> sql.Identifier:
    return sql.Identifier("recon", f"{table.name}_streamed")


def rebuilt_table(table: Table) -> sql.Identifier:
    return sql.Identifier("recon", table.name)


def diff_table(table: Table) -> sql.Identifier:
    return sql.Identifier("recon", f"{table.name}_diff")


def key_json(table: Table, prefix: str = "") -> sql.Composed:
    """A row's key as a JSON array. Such an array can be hashed, and NULL equals NULL in it."""
    return sql.SQL("jsonb_build_array({})").format(names(table.key_columns, prefix))


def _count(connection: Connection, table: Table) -> DiffCounts:
    query = sql.SQL(
        "SELECT (SELECT count(*) FROM {rebuilt}), count(*) FILTER (WHERE _streamed IS NULL), "
        "count(*) FILTER (WHERE _rebuilt IS NULL), "
        "count(*) FILTER (WHERE _streamed IS NOT NULL AND _rebuilt IS NOT NULL) FROM {diff}"
    )
    counts = connection.execute(query.format(rebuilt=rebuilt_table(table), diff=diff_table(table))).fetchone()
    assert counts is not None  # noqa: S101
    return DiffCounts(*(int(str(n)) for n in counts))
