"""Reconcile: rebuild a view at the positions where the streamed one stands, and compare row for row.

1. copy the streamed table together with its positions, in one snapshot of the database
2. wait, within bounds, until the archive has reached those positions; else the verdict is UNKNOWN
3. rebuild at those positions
4. compare every row, NULL equal to NULL
5. keep the result; where it was asked for, repair what differs, and compare again
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from psycopg import sql
from pyspark.sql import SparkSession

from truelog import archive, difference, merge, table
from truelog.advance import Advancer
from truelog.compiled import Compiled
from truelog.database import Connection, connect
from truelog.errors import ArchiveBehind
from truelog.positions import Positions
from truelog.rebuild import Rebuilder
from truelog.repair import repair
from truelog.settings import Settings
from truelog.workshop import workshop

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


def reconcile(
    spark: SparkSession, advancer: Advancer, compiled: Compiled, *, from_raw: bool = False, mend: bool = False
) -> Result:
    """Compare a view with its rebuild; with `mend` repair what differs, and compare again. The stream goes on.

    A share of differing rows above `settings.repair_share` is not repaired: a person has to look first.
    """
    with connect(advancer.settings, autocommit=True) as connection:
        table.require_same_code(connection, compiled)
        _one_at_a_time(connection, compiled)
        rebuilder = Rebuilder(spark, connection, advancer, compiled, from_raw)
        result = compare(rebuilder)
        _keep(connection, result, from_raw)
        unequal = result.missing + result.extra + result.different
        if mend and 0 < unequal <= advancer.settings.repair_share * max(1, result.rows):
            repaired = repair(rebuilder)
            result = replace(compare(rebuilder), repaired=repaired)
            _keep(connection, result, from_raw)
    return result


def compare(rebuilder: Rebuilder) -> Result:
    """Steps 1 to 4."""
    connection, compiled, settings = rebuilder.connection, rebuilder.compiled, rebuilder.advancer.settings
    positions = snapshot(connection, compiled)  # 1
    result = Result(compiled.name, compiled.view.version, positions)
    try:
        archive.wait_for(settings, positions, seconds=settings.archive_wait_seconds)  # 2
    except ArchiveBehind as behind:
        return replace(result, reason=str(behind))
    rebuilder.rebuild(positions)  # 3
    counts = difference.find(connection, compiled)  # 4
    return replace(
        result,
        **asdict(counts),
        verdict="DIFFERENT" if counts.unequal else "EQUAL",
        sample=difference.sample(connection, compiled, _SAMPLE),
    )


def snapshot(connection: Connection, compiled: Compiled) -> Positions:
    """Copy the streamed table into `recon.<table>_streamed`; answer the positions of exactly that copy."""
    copy = difference.streamed(compiled)
    with connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(copy))
        connection.execute(
            sql.SQL("CREATE UNLOGGED TABLE {} AS TABLE {}").format(copy, sql.Identifier("state", compiled.table))
        )
        return merge.positions(connection, compiled)


def _one_at_a_time(connection: Connection, compiled: Compiled) -> None:
    """The copies have one name each; the lock is the connection's."""
    connection.execute("SELECT pg_advisory_lock(hashtextextended(%s, 1))", (f"reconcile {compiled.table}",))


def _keep(connection: Connection, result: Result, from_raw: bool) -> None:
    connection.execute(
        "INSERT INTO truelog.reconciliation "
        "(view, version, positions, from_raw, row_count, missing, extra, different, repaired, verdict, reason, sample) "
        "VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
        (
            result.view,
            result.version,
            result.positions.as_json(),
            from_raw,
            result.rows,
            result.missing,
            result.extra,
            result.different,
            result.repaired,
            result.verdict,
            result.reason,
            json.dumps(result.sample),
        ),
    )


def reconcile_all(settings: Settings, views: Sequence[str], *, from_raw: bool, mend: bool = False) -> list[Result]:
    """Reconcile the named views, or all of them, in a Spark session of its own."""
    with workshop(settings, "truelog reconcile", views) as (spark, advancer, compiled):
        return [reconcile(spark, advancer, each, from_raw=from_raw, mend=mend) for each in compiled]


def exit_code(results: Iterable[Result]) -> int:
    """0 all equal, 1 one differs, 3 nothing differs but one is unknown."""
    verdicts = {r.verdict for r in results}
    return 1 if "DIFFERENT" in verdicts else 3 if "UNKNOWN" in verdicts else 0
