"""The view report: what each view's file declares, and the view's state in the database.

If a file cannot be loaded, the view is listed with the reason, so that no view disappears.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from truelog.apps import reader_positions
from truelog.control import application, view_status
from truelog.control.view_status import ViewStatus
from truelog.lag import freshness_series
from truelog.lag import report as lag_report
from truelog.lag.freshness_series import FreshnessTimeline
from truelog.lag.time_steps import TimeRange
from truelog.lag.verdict import LagVerdict
from truelog.reconcile import reconcile_history, verification_status
from truelog.reconcile.reconcile_history import ViewStep
from truelog.reports.declared_view import about_view, declared_view
from truelog.schema.event import EventType
from truelog.schema.loading.events import load_proposals
from truelog.serving import build_schedule, view_readers
from truelog.serving import status as serving_status
from truelog.serving.build_schedule import BuildStatus
from truelog.serving.status import ServingStatus
from truelog.serving.view_readers import SqlReader, ViewReader
from truelog.storage import db_snapshot
from truelog.storage.database import Connection
from truelog.support.settings import Settings
from truelog.tables.side_tables import relation_names
from truelog.views import catalogue
from truelog.views.view import View

_DAY = TimeRange(86_400)
_STEP, _STEPS = timedelta(hours=12), 60  # of the history: 30 days


@dataclass(frozen=True)
class ViewTable:
    """The table of one version of a view. A table that was never analyzed has no row estimate."""

    version: int
    made_at: datetime
    bytes: int | None
    rows: int | None
    excluded: int


@dataclass(frozen=True)
class LatestComparison:
    """The latest comparison of a view's deployed version, and when that version was last EQUAL and last certified."""

    id: int
    verdict: str
    at: datetime
    equal_at: datetime | None
    certified_at: datetime | None


@dataclass(frozen=True)
class ViewEntry:
    """A view in the catalogue. If the file cannot be loaded, `broken` says why and the declaration is unknown."""

    view: str
    about: str
    application: str  # "" for a batch-only view
    broken: str = ""
    batch_only: bool = False
    declared: int | None = None
    reads: Sequence[str] = ()
    relations: Sequence[str] = ()
    keep: str | None = None
    owner: str = ""
    state: str = view_status.STARTING
    reason: str = ""
    since: datetime | None = None
    table: ViewTable | None = None
    proof: LatestComparison | None = None
    answer: ServingStatus | None = None  # the layer that serves the view's readers


@dataclass(frozen=True)
class ViewColumn:
    """`role` is `key` or the name of the measure. Type and comment come from the database once the table exists."""

    name: str
    role: str
    type: str | None
    comment: str | None


@dataclass(frozen=True)
class SourceTopic:
    """An event type that a view reads, with the settings of its topic."""

    event: str
    about: str
    partitions: int
    retention: str


@dataclass(frozen=True)
class ViewWork:
    """How long the stream has worked on the deployed version: wall seconds for this many records.

    The steps of one view follow each other, so these seconds also contain what it waited for cores and for PostgreSQL.
    """

    preparing: float
    merging: float
    records: int


@dataclass(frozen=True)
class ViewDetail:
    """`freshness` has the last day. `seconds` is the freshness now.

    It and `events_per_second` are None without a current sample of all partitions. A batch-only view has no `work`.
    """

    entry: ViewEntry
    columns: Sequence[ViewColumn]
    checks: Sequence[str]
    sources: Sequence[SourceTopic]
    versions: Sequence[ViewTable]
    positions: dict[str, dict[int, int]]  # by topic and partition
    freshness: FreshnessTimeline
    seconds: float | None
    lag: LagVerdict | None
    events_per_second: float | None
    work: ViewWork | None
    readers: Sequence[ViewReader]
    sql_readers: Sequence[SqlReader]
    history: Sequence[ViewStep]  # of 30 days, in steps of 12 hours
    costs: str = ""  # what a backfill costs


def view_entries(settings: Settings) -> list[ViewEntry]:
    """All views in the catalogue, sorted by name.

    Raises:
        ServiceDown: PostgreSQL does not answer.
    """
    names = catalogue.view_names(settings.views_folder)
    with db_snapshot.read_snapshot(settings) as connection:
        return list(_entries(settings, connection, names))


def view_detail(settings: Settings, view: str) -> ViewDetail:
    """The details of a view in the catalogue."""
    with db_snapshot.read_snapshot(settings) as connection:
        [entry] = _entries(settings, connection, [view])
        existing = {str(each["name"]): each for each in db_snapshot.view_columns(connection, view)}
        versions = [table for _, table in _tables(connection, [view])]
        positions = reader_positions.view_positions(connection, [view])[view].positions.plain()
        freshness = freshness_series.freshness_timeline(connection, [view], _DAY, settings.lag_poll_seconds, [view])
        lag = lag_report.rows(settings, connection, [view])
        read = view_readers.readers(connection, view), view_readers.sql_readers(connection, settings.names, view)
        history = reconcile_history.view_steps(connection, view, _STEP, _STEPS)
        work = _work(connection, view)
    verdict = lag_report.worst(lag).verdict if lag else None
    rate = lag_report.total(each.rate_counted for each in lag)
    now = (freshness, lag_report.freshness(lag), verdict, rate, work, *read, history)
    if entry.broken:
        columns = [ViewColumn(n, "", c["type"], c["comment"]) for n, c in existing.items()]
        return ViewDetail(entry, columns, (), (), versions, positions, *now)
    declared, _ = declared_view(settings, view)
    assert declared is not None  # noqa: S101  the entry is not broken
    events, _ = load_proposals(settings.events_folder)
    return ViewDetail(
        entry,
        list(_columns(declared, existing)),
        declared.checks,
        [_source(events[name]) for name in declared.reads if name in events],
        versions,
        positions,
        *now,
        declared.backfill_cost,
    )


def _work(connection: Connection, view: str) -> ViewWork | None:
    row: tuple[Any, ...] | None = connection.execute(
        "SELECT preparing, merging, records FROM truelog.merge_tally JOIN truelog.deployed USING (view, version) "
        "WHERE view = %s AND records > 0",
        (view,),
    ).fetchone()
    return None if row is None else ViewWork(*row)


def backfill_costs(settings: Settings, views: Sequence[str]) -> dict[str, str]:
    """What a backfill of each view costs. A view whose file cannot be loaded is left out."""
    declared = {name: declared_view(settings, name)[0] for name in views}
    return {name: view.backfill_cost for name, view in declared.items() if view is not None}


def view_relations(settings: Settings, view: str) -> list[str]:
    """The relations that readers may query: the view itself and the relations that the view presents."""
    if view not in catalogue.view_names(settings.views_folder):
        return []
    declared, broken = declared_view(settings, view)
    return [view] if broken or declared is None else _relations(view, declared)


def _entries(settings: Settings, connection: Connection, names: Sequence[str]) -> Iterator[ViewEntry]:
    states = {each.view: each for each in view_status.view_statuses(connection)}
    deployed = dict(_tables(connection, names))
    builds = build_schedule.build_statuses(settings, connection, names)
    proofs, answers = _proofs(connection, names), serving_status.serving_statuses(connection)
    for name in names:
        entry = _entry(settings, name, states.get(name), deployed.get(name))
        if name in builds:
            entry = _batch_only(entry, builds[name])
        yield replace(entry, proof=proofs.get(name), answer=answers.get(name))


def _batch_only(entry: ViewEntry, build: BuildStatus) -> ViewEntry:
    """The entry of a view that no application runs. If an application has refused its file, that is its state."""
    entry = replace(entry, application="", batch_only=True)
    if entry.state == view_status.STALLED:
        return entry
    return replace(entry, state=view_status.BATCH_ONLY, reason=build.plan, since=build.built_at)


def _entry(settings: Settings, name: str, status: ViewStatus | None, table: ViewTable | None) -> ViewEntry:
    declared, broken = declared_view(settings, name)
    known: dict[str, Any] = {}
    if declared is not None:
        known = {"declared": declared.version, "reads": declared.reads, "keep": declared.keep}
        known["owner"] = declared.owner
        known["relations"] = _relations(name, declared)
    if status is not None:
        known |= {"state": status.state, "reason": status.reason, "since": status.since}
    else:
        known["state"], known["reason"] = view_status.unreported(table.version if table else None)
    return ViewEntry(
        view=name,
        about=about_view(settings, name),
        application=application.application_of_view(settings, name),
        broken=broken,
        table=table,
        **known,
    )


def _relations(name: str, declared: View) -> list[str]:
    return [name, *(f"{name}_{relation}" for relation in relation_names(declared))]


def _columns(declared: View, existing: dict[str, dict[str, str | None]]) -> Iterator[ViewColumn]:
    roles = dict.fromkeys(declared.key, "key") | {n: type(m).__name__ for n, m in declared.measures.items()}
    for name in existing or roles:
        column = existing.get(name, {})
        comment = column.get("comment") or declared.columns.get(name)
        yield ViewColumn(name, roles.get(name, ""), column.get("type"), comment)


def _source(event: EventType) -> SourceTopic:
    about = (event.model.__doc__ or "").strip().splitlines()
    return SourceTopic(event.name, about[0] if about else "", event.topic.partitions, event.topic.retention)


def _tables(connection: Connection, names: Sequence[str]) -> list[tuple[str, ViewTable]]:
    """The tables of all versions, the deployed version last."""
    rows = connection.execute(
        "SELECT view, version, made_at, pg_total_relation_size(c.oid), nullif(c.reltuples, -1)::bigint, "
        "(SELECT count(*) FROM truelog.exclusion e WHERE (e.view, e.version) = (v.view, v.version)) "
        "FROM truelog.view v LEFT JOIN pg_class c ON c.oid = to_regclass("
        "format('%%I.%%I', CASE WHEN batch_only THEN 'batch' ELSE 'state' END, view || '_v' || version)) "
        "WHERE view = ANY(%s) ORDER BY view, deployed_at NULLS FIRST, version",
        (list(names),),
    ).fetchall()
    return [(name, ViewTable(*table)) for name, *table in rows]


def _proofs(connection: Connection, names: Sequence[str]) -> dict[str, LatestComparison]:
    rows = connection.execute(
        "SELECT DISTINCT ON (view) view, id, verdict, finished_at "
        "FROM (SELECT view, version FROM truelog.deployed WHERE view = ANY(%s)) newest "
        "JOIN truelog.reconciliation USING (view, version) ORDER BY view, id DESC",
        (list(names),),
    ).fetchall()
    known = verification_status.verification_statuses(connection, names)
    return {
        name: LatestComparison(*[*newest, known[name].equal_at, known[name].certified_at]) for name, *newest in rows
    }
