"""The history of reconciliations: verdicts over time, and of each one the rows that differed and what was repaired."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from psycopg import sql

from truelog.storage.database import Connection

_PORTION = 1_000


@dataclass(frozen=True)
class Reconciliation:
    """A row of `truelog.reconciliation`; `judged` is what Great Expectations said, None where it was not asked."""

    id: int
    finished_at: datetime
    view: str
    version: int | None
    verdict: str
    reason: str
    row_count: int
    missing: int
    extra: int
    different: int
    repaired: int
    from_raw: bool
    run: str | None
    judged: bool | None
    failed: Sequence[str] | None
    validation: int | None  # the judgement's number, which is that of its Data Docs


@dataclass(frozen=True)
class Repair:
    """A row that was replaced."""

    repaired_at: datetime
    key: Any
    before: dict[str, Any] | None
    after: dict[str, Any] | None


@dataclass(frozen=True)
class Differing:
    """A row of the streamed table and of its rebuild; None on the side that does not have it."""

    streamed: dict[str, Any] | None
    rebuilt: dict[str, Any] | None
    cause: str | None = None  # unknown to comparisons of earlier releases


@dataclass(frozen=True)
class ReconciliationDetail:
    """The first differing rows, with these columns, and why they differ; what is equal has left a certificate."""

    reconciliation: Reconciliation
    certificate: str | None
    columns: Sequence[str]
    positions: dict[str, dict[str, int]]
    causes: Sequence[dict[str, Any]]
    sample: Sequence[Differing]
    repairs: Sequence[Repair]


_COLUMNS = sql.SQL(", ").join(sql.Identifier(each.name) for each in fields(Reconciliation))
_ALL = sql.SQL(
    "SELECT {} FROM (SELECT r.*, v.success AS judged, v.failed, v.id AS validation FROM truelog.reconciliation r "
    "LEFT JOIN LATERAL (SELECT id, success, failed FROM truelog.validation WHERE reconciliation = r.id "
    "ORDER BY id DESC LIMIT 1) v ON true) r "
).format(_COLUMNS)


def latest_reconciliations(
    connection: Connection, limit: int, view: str | None = None, runs: Collection[str] | None = None
) -> list[Reconciliation]:
    """The newest first; of one view, or of all; of some of Airflow's runs, or whoever asked for them."""
    where = sql.SQL(
        "WHERE (%(view)s::text IS NULL OR view = %(view)s) AND (%(runs)s::text[] IS NULL OR run = ANY(%(runs)s)) "
        "ORDER BY id DESC LIMIT %(limit)s"
    )
    given = {"view": view, "runs": None if runs is None else list(runs), "limit": limit}
    rows: list[tuple[Any, ...]] = connection.execute(_ALL + where, given).fetchall()
    return [Reconciliation(*row) for row in rows]


def answers(connection: Connection, views: Sequence[str]) -> dict[str, str]:
    """The last verdict on the newest version of each view, EQUAL or DIFFERENT; a later UNKNOWN changes nothing."""
    rows = connection.execute(
        "SELECT DISTINCT ON (view) view, verdict "
        "FROM (SELECT view, max(version) AS version FROM truelog.view WHERE view = ANY(%s) GROUP BY view) newest "
        "JOIN truelog.reconciliation USING (view, version) WHERE verdict <> 'UNKNOWN' ORDER BY view, id DESC",
        (list(views),),
    ).fetchall()
    return {str(view): str(verdict) for view, verdict in rows}


def reconciliation_detail(connection: Connection, number: int) -> ReconciliationDetail | None:
    """None where there is no such reconciliation."""
    row: tuple[Any, ...] | None = connection.execute(_ALL + sql.SQL("WHERE id = %s"), (number,)).fetchone()
    if row is None:
        return None
    found = Reconciliation(*row)
    more: tuple[Any, ...] | None = connection.execute(
        "SELECT positions, causes, sample, (SELECT max(id) FROM truelog.certificate WHERE reconciliation = r.id) "
        "FROM truelog.reconciliation r WHERE id = %s",
        (number,),
    ).fetchone()
    positions, causes, sample, certificate = more or ({}, [], [], None)
    rows = [Differing(**each) for each in sample]
    return ReconciliationDetail(
        reconciliation=found,
        certificate=certificate,
        columns=_columns(connection, found, rows),
        positions=positions,
        causes=causes,
        sample=rows,
        repairs=_repairs(connection, found),
    )


def differing_rows(connection: Connection, detail: ReconciliationDetail) -> Iterator[Differing]:
    """All rows that differed, where the table of differences still holds them; else those of the sample."""
    found = detail.reconciliation
    table = f"{found.view}_v{found.version}_diff"
    if not _holds(connection, table, found.id):
        yield from detail.sample
        return
    query = sql.SQL("SELECT streamed, rebuilt, to_jsonb(d) ->> 'cause' FROM {} d ORDER BY key_json").format(
        sql.Identifier("recon", table)
    )
    with connection.cursor("differing") as cursor:
        cursor.itersize = _PORTION
        cursor.execute(query)
        for streamed, rebuilt, cause in cursor:
            yield Differing(streamed, rebuilt, cause)  # type: ignore[arg-type]


def _columns(connection: Connection, found: Reconciliation, rows: Sequence[Differing]) -> list[str]:
    """In the order of the table: JSON has lost it. Of a table that is gone, as they come."""
    made = connection.execute(
        "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(format('state.%%I', %s::text)) "
        "AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
        (f"{found.view}_v{found.version}",),
    ).fetchall()
    return [str(name) for (name,) in made] or list(
        dict.fromkeys(n for r in rows for n in r.streamed or r.rebuilt or {})
    )


def _holds(connection: Connection, table: str, number: int) -> bool:
    """Whether the rows in it are this reconciliation's: the next one that finds any replaces them."""
    if connection.execute("SELECT to_regclass(format('recon.%%I', %s::text))", (table,)).fetchone() == (None,):
        return False
    query = sql.SQL("SELECT FROM {} WHERE reconciliation = %s LIMIT 1").format(sql.Identifier("recon", table))
    return connection.execute(query, (number,)).fetchone() is not None


def _repairs(connection: Connection, found: Reconciliation) -> list[Repair]:
    """What was repaired between the comparison before and this one, which checked the repair."""
    if not found.repaired:
        return []
    rows: list[tuple[Any, ...]] = connection.execute(
        "SELECT repaired_at, key, before, after FROM truelog.repair WHERE (view, version) = (%(view)s, %(version)s) "
        "AND before IS DISTINCT FROM after AND repaired_at <= %(at)s AND repaired_at >= coalesce((SELECT "
        "max(finished_at) FROM truelog.reconciliation WHERE (view, version) = (%(view)s, %(version)s) "
        "AND id < %(id)s), '-infinity') ORDER BY key LIMIT 1000",
        {"view": found.view, "version": found.version, "at": found.finished_at, "id": found.id},
    ).fetchall()
    return [Repair(*row) for row in rows]
