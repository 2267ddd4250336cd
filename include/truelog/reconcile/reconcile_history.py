"""The reconciliation history: verdicts over time, and each reconciliation's differing rows and repairs."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import datetime, timedelta
from typing import Any

from psycopg import sql

from truelog.control.view_tables import diff_tables
from truelog.storage.database import Connection
from truelog.support.errors import BadInput

_FETCH_ROWS = 1_000


@dataclass(frozen=True)
class Reconciliation:
    """A row of `truelog.reconciliation`. `judged` says whether its validation passed, and is None if there was none."""

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
    validation: int | None  # id of the validation and its Data Docs
    base: str | None = None  # the certificate from which an incremental comparison began


@dataclass(frozen=True)
class Repair:
    """A row that a repair replaced."""

    repaired_at: datetime
    key: Any
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    side: str = ""  # the name of the side table; "" for the view's own


@dataclass(frozen=True)
class DifferingRow:
    """A differing row, as the stream has it and as the rebuild has it. A missing row is None."""

    streamed: dict[str, Any] | None
    rebuilt: dict[str, Any] | None
    cause: str | None = None  # earlier releases stored no cause
    side: str = ""  # the name of the side table; "" for the view's own


@dataclass(frozen=True)
class ViewStep:
    """What comparisons found of a view in one interval: its newest rows and bytes, and whether it was ever DIFFERENT.

    The verdict is UNKNOWN only if no comparison had an answer.
    """

    begins: datetime
    rows: int | None
    bytes: int | None
    verdict: str


@dataclass(frozen=True)
class ReconciliationDetail:
    """A reconciliation with its first differing rows, their causes, its repairs, and any certificate."""

    reconciliation: Reconciliation
    certificate: str | None
    columns: Sequence[str]
    positions: dict[str, dict[str, int]]
    causes: Sequence[dict[str, Any]]
    sample: Sequence[DifferingRow]
    repairs: Sequence[Repair]


_COLUMNS = sql.SQL(", ").join(sql.Identifier(each.name) for each in fields(Reconciliation))
_ALL = sql.SQL(
    "SELECT {} FROM (SELECT r.*, v.success AS judged, v.failed, v.id AS validation FROM truelog.reconciliation r "
    "LEFT JOIN LATERAL (SELECT id, success, failed FROM truelog.validation WHERE reconciliation = r.id "
    "ORDER BY id DESC LIMIT 1) v ON true) r "
).format(_COLUMNS)


@dataclass(frozen=True)
class HistoryQuery:
    """Which reconciliations to list; a condition that is None selects all. `order` is one of SORTABLE."""

    view: str | None = None
    runs: Collection[str] | None = None  # Airflow runs
    verdict: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    text: str | None = None  # in the view's name, the run or the reason
    order: str = "id"
    descending: bool = True
    limit: int = 200
    skip: int = 0


SORTABLE = ("id", "view", "verdict", "row_count", "missing", "extra", "different", "repaired")
_WHERE = sql.SQL(
    "WHERE (%(view)s::text IS NULL OR view = %(view)s) AND (%(runs)s::text[] IS NULL OR run = ANY(%(runs)s)) "
    "AND (%(verdict)s::text IS NULL OR verdict = %(verdict)s) "
    "AND (%(since)s::timestamptz IS NULL OR finished_at >= %(since)s) "
    "AND (%(until)s::timestamptz IS NULL OR finished_at < %(until)s) AND (%(text)s::text IS NULL "
    "OR position(lower(%(text)s) IN lower(concat_ws(' ', view, run, reason))) > 0) "
)


def list_reconciliations(connection: Connection, query: HistoryQuery) -> list[Reconciliation]:
    """The reconciliations that meet all conditions. Equal values of `order` are ordered by time."""
    direction = sql.SQL("DESC" if query.descending else "ASC")
    order = sql.SQL("ORDER BY {} {}, id DESC LIMIT %(limit)s OFFSET %(skip)s").format(_sortable(query.order), direction)
    rows: list[tuple[Any, ...]] = connection.execute(_ALL + _WHERE + order, _parameters(query)).fetchall()
    return [Reconciliation(*row) for row in rows]


def count_reconciliations(connection: Connection, query: HistoryQuery) -> int:
    """How many reconciliations meet all conditions."""
    counted = sql.SQL("SELECT count(*) FROM truelog.reconciliation ") + _WHERE
    [(number,)] = connection.execute(counted, _parameters(query)).fetchall()
    return int(str(number))


def _parameters(query: HistoryQuery) -> dict[str, Any]:
    return asdict(query) | {"runs": None if query.runs is None else list(query.runs)}


def _sortable(name: str) -> sql.Identifier:
    if name not in SORTABLE:
        raise BadInput(f"reconciliations cannot be sorted by {name!r}; choose from {', '.join(SORTABLE)}")
    return sql.Identifier(name)


def latest_verdicts(connection: Connection, views: Sequence[str]) -> dict[str, str]:
    """The latest verdict on each view's deployed version, EQUAL or DIFFERENT. A later UNKNOWN verdict is ignored."""
    rows = connection.execute(
        "SELECT DISTINCT ON (view) view, verdict "
        "FROM (SELECT view, version FROM truelog.deployed WHERE view = ANY(%s)) newest "
        "JOIN truelog.reconciliation USING (view, version) WHERE verdict <> 'UNKNOWN' ORDER BY view, id DESC",
        (list(views),),
    ).fetchall()
    return {str(view): str(verdict) for view, verdict in rows}


def view_steps(connection: Connection, view: str, step: timedelta, steps: int) -> list[ViewStep]:
    """The last intervals of this length in which the view was compared, oldest first."""
    rows: list[tuple[Any, ...]] = connection.execute(
        "SELECT date_bin(%(step)s, finished_at, 'epoch') AS begins, "
        "(array_agg(row_count ORDER BY id DESC) FILTER (WHERE verdict <> 'UNKNOWN'))[1], "
        "(array_agg(bytes ORDER BY id DESC) FILTER (WHERE bytes IS NOT NULL))[1], "
        "CASE WHEN bool_or(verdict = 'DIFFERENT') THEN 'DIFFERENT' WHEN bool_or(verdict = 'EQUAL') THEN 'EQUAL' "
        "ELSE 'UNKNOWN' END FROM truelog.reconciliation "
        "WHERE view = %(view)s AND finished_at > now() - %(step)s * %(steps)s GROUP BY begins ORDER BY begins",
        {"view": view, "step": step, "steps": steps},
    ).fetchall()
    return [ViewStep(*row) for row in rows]


def reconciliation_detail(connection: Connection, number: int) -> ReconciliationDetail | None:
    """The details of a reconciliation, or None if the reconciliation does not exist."""
    row: tuple[Any, ...] | None = connection.execute(_ALL + sql.SQL("WHERE id = %s"), (number,)).fetchone()
    if row is None:
        return None
    reconciliation = Reconciliation(*row)
    more: tuple[Any, ...] | None = connection.execute(
        "SELECT positions, causes, sample, (SELECT max(id) FROM truelog.certificate WHERE reconciliation = r.id) "
        "FROM truelog.reconciliation r WHERE id = %s",
        (number,),
    ).fetchone()
    positions, causes, sample, certificate = more or ({}, [], [], None)
    rows = [DifferingRow(**each) for each in sample]
    return ReconciliationDetail(
        reconciliation=reconciliation,
        certificate=certificate,
        columns=_columns(connection, reconciliation, rows),
        positions=positions,
        causes=causes,
        sample=rows,
        repairs=_repairs(connection, reconciliation),
    )


def differing_rows(connection: Connection, detail: ReconciliationDetail) -> Iterator[DifferingRow]:
    """All differing rows if the diff table still contains them, otherwise only the sample."""
    compared = detail.reconciliation
    tables = {} if compared.version is None else diff_tables(connection, compared.view, compared.version)
    kept = {side: table for side, table in tables.items() if _holds(connection, table, compared.id)}
    if not kept:
        yield from detail.sample
    for side, table in kept.items():
        yield from _rows_of(connection, side, table)


def _rows_of(connection: Connection, side: str, table: str) -> Iterator[DifferingRow]:
    query = sql.SQL("SELECT _streamed, _rebuilt, _cause FROM {} ORDER BY _key_json").format(
        sql.Identifier("recon", table)
    )
    with connection.cursor("differing") as cursor:
        cursor.itersize = _FETCH_ROWS
        cursor.execute(query)
        for streamed, rebuilt, cause in cursor:
            yield DifferingRow(streamed, rebuilt, cause, side)


def _columns(connection: Connection, reconciliation: Reconciliation, rows: Sequence[DifferingRow]) -> list[str]:
    """The columns in table order, which JSON does not preserve, and then those of other tables, in JSON order."""
    columns = connection.execute(
        "SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(format('state.%%I', %s::text)) "
        "AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
        (f"{reconciliation.view}_v{reconciliation.version}",),
    ).fetchall()
    return list(
        dict.fromkeys([*(str(name) for (name,) in columns), *(n for r in rows for n in r.streamed or r.rebuilt or {})])
    )


def _holds(connection: Connection, table: str, number: int) -> bool:
    """Whether the diff table still contains this reconciliation's rows. A later reconciliation replaces them.

    The tables of earlier releases have other columns, and are not read.
    """
    if connection.execute("SELECT to_regclass(format('recon.%%I', %s::text))", (table,)).fetchone() == (None,):
        return False
    query = sql.SQL(
        "SELECT FROM {} AS _row WHERE to_jsonb(_row) -> '_reconciliation' = to_jsonb(%s::bigint) LIMIT 1"
    ).format(sql.Identifier("recon", table))
    return connection.execute(query, (number,)).fetchone() is not None


def _repairs(connection: Connection, reconciliation: Reconciliation) -> list[Repair]:
    """The repairs made between the previous comparison and this comparison, which checked them."""
    if not reconciliation.repaired:
        return []
    rows: list[tuple[Any, ...]] = connection.execute(
        "SELECT repaired_at, key, before, after, side FROM truelog.repair "
        "WHERE (view, version) = (%(view)s, %(version)s) AND before IS DISTINCT FROM after "
        "AND repaired_at <= %(at)s AND repaired_at >= coalesce((SELECT "
        "max(finished_at) FROM truelog.reconciliation WHERE (view, version) = (%(view)s, %(version)s) "
        "AND id < %(id)s), '-infinity') ORDER BY key LIMIT 1000",
        {
            "view": reconciliation.view,
            "version": reconciliation.version,
            "at": reconciliation.finished_at,
            "id": reconciliation.id,
        },
    ).fetchall()
    return [Repair(*row) for row in rows]
