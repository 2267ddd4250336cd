"""Reconcile: rebuild a view at the positions where the streamed one stands, and compare row for row.

1. copy the streamed table together with its positions, in one snapshot of the database
2. wait, within bounds, until the archive has reached those positions; else the verdict is UNKNOWN
3. rebuild at those positions
4. compare every row, NULL equal to NULL
5. keep the result
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from psycopg import sql
from pyspark.sql import SparkSession

from truelog import archive, catalogue, merge, rebuild, records, table
from truelog.advance import Advancer
from truelog.compiled import Compiled, compile_view
from truelog.database import Connection, connect, names
from truelog.errors import ArchiveBehind
from truelog.event import load_events
from truelog.positions import Positions
from truelog.session import session
from truelog.settings import Settings

_SAMPLE = 100  # differing rows kept with the result; the counts are of all


@dataclass(frozen=True)
class Result:
    """What a comparison found: counts of rows by key, and the first differing rows with both values."""

    view: str
    version: int
    positions: Positions
    rows: int = 0
    missing: int = 0
    extra: int = 0
    different: int = 0
    repaired: int = 0
    verdict: str = "UNKNOWN"
    reason: str = ""
    sample: tuple[dict[str, Any], ...] = ()

    @property
    def equal(self) -> bool:
        return self.verdict == "EQUAL"

    def as_dict(self) -> dict[str, Any]:
        """The stable form that scripts read."""
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        return plain | {"positions": json.loads(self.positions.as_json()), "equal": self.equal}


def reconcile(spark: SparkSession, advancer: Advancer, compiled: Compiled, *, from_raw: bool) -> Result:
    """Compare a view with its rebuild; the stream goes on meanwhile."""
    with connect(advancer.settings, autocommit=True) as connection:
        table.require_same_code(connection, compiled)
        _one_at_a_time(connection, compiled)
        positions = snapshot(connection, compiled)  # 1
        try:
            archive.wait_for(advancer.settings, positions)  # 2
        except ArchiveBehind as behind:
            result = Result(compiled.name, compiled.view.version, positions, reason=str(behind))
        else:
            rebuild.rebuild(spark, connection, advancer, compiled, positions, from_raw=from_raw)  # 3
            result = compare(connection, compiled, positions)  # 4
        _keep(connection, result, from_raw)  # 5
    return result


def snapshot(connection: Connection, compiled: Compiled) -> Positions:
    """Copy the streamed table into `recon.<table>_streamed`; answer the positions of exactly that copy."""
    with connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(_streamed(compiled)))
        connection.execute(
            sql.SQL("CREATE UNLOGGED TABLE {} AS TABLE {}").format(
                _streamed(compiled), sql.Identifier("state", compiled.table)
            )
        )
        return merge.positions(connection, compiled)


def compare(connection: Connection, compiled: Compiled, positions: Positions) -> Result:
    """Every row that is not in both tables, by key: in the rebuild only, in the stream only, or with other values."""
    diff = _differences(compiled)
    counted = connection.execute(
        sql.SQL(
            "SELECT (SELECT count(*) FROM {rebuilt}), count(*) FILTER (WHERE streamed IS NULL), "
            "count(*) FILTER (WHERE rebuilt IS NULL), "
            "count(*) FILTER (WHERE streamed IS NOT NULL AND rebuilt IS NOT NULL) FROM ({diff}) AS diff"
        ).format(rebuilt=sql.Identifier("recon", compiled.table), diff=diff)
    ).fetchone()
    assert counted is not None  # noqa: S101
    rows, missing, extra, different = (int(str(n)) for n in counted)
    sample = connection.execute(
        sql.SQL("SELECT streamed, rebuilt FROM ({}) AS diff LIMIT %s").format(diff), (_SAMPLE,)
    ).fetchall()
    return Result(
        compiled.name,
        compiled.view.version,
        positions,
        rows=rows,
        missing=missing,
        extra=extra,
        different=different,
        verdict="EQUAL" if missing == extra == different == 0 else "DIFFERENT",
        sample=tuple({"streamed": s, "rebuilt": r} for s, r in sample),
    )


def _differences(compiled: Compiled) -> sql.Composed:
    """SELECT key, streamed, rebuilt: the rows on either side that have no equal on the other.

    EXCEPT ALL and GROUP BY take NULL for equal to NULL, and hash; a full join on IS NOT DISTINCT FROM cannot.
    """
    return sql.SQL(
        "WITH only_streamed AS (SELECT {all} FROM {streamed} EXCEPT ALL SELECT {all} FROM {rebuilt}), "
        "only_rebuilt AS (SELECT {all} FROM {rebuilt} EXCEPT ALL SELECT {all} FROM {streamed}), "
        "unequal AS (SELECT {key}, to_jsonb(o) AS streamed, NULL::jsonb AS rebuilt FROM only_streamed AS o "
        "UNION ALL SELECT {key}, NULL, to_jsonb(o) FROM only_rebuilt AS o) "
        "SELECT {key}, jsonb_agg(streamed) FILTER (WHERE streamed IS NOT NULL) -> 0 AS streamed, "
        "jsonb_agg(rebuilt) FILTER (WHERE rebuilt IS NOT NULL) -> 0 AS rebuilt FROM unequal GROUP BY {key}"
    ).format(
        key=names(compiled.key_columns),
        all=names(compiled.stored_columns),
        streamed=_streamed(compiled),
        rebuilt=sql.Identifier("recon", compiled.table),
    )


def _streamed(compiled: Compiled) -> sql.Identifier:
    return sql.Identifier("recon", f"{compiled.table}_streamed")


def _one_at_a_time(connection: Connection, compiled: Compiled) -> None:
    """The copies have one name each; the lock is the connection's."""
    connection.execute("SELECT pg_advisory_lock(hashtextextended(%s, 1))", (f"reconcile {compiled.table}",))


def _keep(connection: Connection, result: Result, from_raw: bool) -> None:
    connection.execute(
        "INSERT INTO truelog.reconciliation "
        "(view, version, positions, from_raw, row_count, missing, extra, different, verdict, reason, sample) "
        "VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
        (
            result.view,
            result.version,
            result.positions.as_json(),
            from_raw,
            result.rows,
            result.missing,
            result.extra,
            result.different,
            result.verdict,
            result.reason,
            json.dumps(result.sample),
        ),
    )


def reconcile_all(settings: Settings, views: Sequence[str], *, from_raw: bool) -> list[Result]:
    """Reconcile the named views, or all of them, in a Spark session of its own."""
    spark, types = session(settings, "truelog reconcile"), load_events()
    schemas = {name: records.schema(each) for name, each in types.items()}
    declared = catalogue.load_all(settings.views_folder)
    for unknown in set(views) - set(declared):
        catalogue.load(unknown, settings.views_folder)
    try:
        compiled = [compile_view(spark, name, declared[name], schemas) for name in views or declared]
        return [reconcile(spark, Advancer(settings, types), each, from_raw=from_raw) for each in compiled]
    finally:
        spark.stop()


def exit_code(results: Iterable[Result]) -> int:
    """0 all equal, 1 one differs, 3 nothing differs but one is unknown."""
    verdicts = {r.verdict for r in results}
    return 1 if "DIFFERENT" in verdicts else 3 if "UNKNOWN" in verdicts else 0
