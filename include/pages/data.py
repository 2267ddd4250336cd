"""Page data as JSON, with the time at which it was read."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Depends, HTTPException, Query
from pydantic import AfterValidator

from pages import task_logs
from pages.access import (
    Dag,
    SignedIn,
    is_readable,
    may_compare,
    may_cut_over,
    may_read,
    may_restart,
    may_stop,
    may_validate,
)
from pages.answer import Answer, parts
from truelog.alerts import store as alert_store
from truelog.control import view_tables
from truelog.control.application import ARCHIVE
from truelog.exports import browse
from truelog.exports.query import Operator
from truelog.lag import freshness_series
from truelog.lag import report as lag_report
from truelog.lag import series as lag_series
from truelog.lag.time_steps import TimeRange
from truelog.quality import quality_history
from truelog.reports import input as input_report
from truelog.reports import streams as stream_report
from truelog.reports import summary, timeline
from truelog.reports import view as view_report
from truelog.schema.loading import events
from truelog.storage import audit_trail, db_snapshot
from truelog.storage.database import Connection
from truelog.support.settings import Settings
from truelog.versions.version_state import VersionState, version_states
from truelog.views import catalogue

router = APIRouter(prefix="/data")
OF_STREAMS = [Depends(may_read(Dag.STREAMS))]
OF_VIEWS = [Depends(may_read(Dag.RECONCILE))]
Limit = Annotated[int, Query(ge=1, le=1000)]
_YEAR = 366 * 24.0  # hours
_MOST_QUALITY_DAYS = 30  # in the overview of results, and offered for a validation
Hours = Annotated[float, Query(gt=0, le=_YEAR)]
Readers = Annotated[Sequence[str], Query(max_length=freshness_series.MOST_READERS)]


def _in_utc(given: datetime) -> datetime:
    return given if given.tzinfo else given.replace(tzinfo=UTC)


Until = Annotated[datetime | None, AfterValidator(lambda given: given and _in_utc(given))]


def _span(until: Until = None, hours: Annotated[float, Query(gt=0, le=72)] = 1) -> TimeRange:
    return TimeRange(hours * 3600, until)


def _changes(connection: Connection, span: TimeRange) -> list[timeline.Occurrence]:
    """What may explain a bend in a chart of this time range."""
    return timeline.occurrences(connection, timedelta(seconds=span.seconds), span.until, timeline.CHANGES)


@router.get("/vitals", dependencies=OF_STREAMS)
def vitals() -> Answer:
    return Answer(**parts(summary.load_summary(Settings())))


@router.get("/streams", dependencies=OF_STREAMS)
def streams(user: SignedIn) -> Answer:
    """Every application, with the actions that this user may take, and the input that is not read."""
    settings = Settings()
    found = [
        parts(each) | {"may_restart": may_restart(user, each.status.application), "may_stop": may_stop(user)}
        for each in stream_report.application_reports(settings)
    ]
    logs = task_logs.task_logs(each["status"].application for each in found)
    return Answer(applications=found, logs=logs, **parts(input_report.input_report(settings)))


@router.get("/lag", dependencies=OF_STREAMS)
def lag(
    span: Annotated[TimeRange, Depends(_span)], reader: str = "", partitions: Annotated[bool, Query()] = False
) -> Answer:
    """One reader's lag over time (by default the reader with the worst freshness), and the list of readers.

    The course of each partition is many numbers, so it is sent only on request.
    """
    settings = Settings()
    with db_snapshot.read_snapshot(settings) as connection:
        seen = lag_report.by_reader(lag_report.rows(settings, connection))
        chosen = reader or lag_report.least_fresh(seen)
        require(chosen in seen, f"No reader {chosen!r}")
        course = lag_series.lag_timeline(connection, chosen, span, settings.lag_poll_seconds)
        changes = _changes(connection, span)
    if not partitions:
        course = replace(course, partitions=())
    return Answer(reader=chosen, readers=list(seen), course=course, rows=seen[chosen], changes=changes)


@router.get("/freshness", dependencies=OF_STREAMS)
def freshness(span: Annotated[TimeRange, Depends(_span)], reader: Readers = ()) -> Answer:
    """The freshness of these readers over time, by default of the readers that are the furthest behind."""
    settings = Settings()
    with db_snapshot.read_snapshot(settings) as connection:
        known = [*view_tables.streamed_views(settings, connection), ARCHIVE]
        least = settings.lag_poll_seconds
        found = freshness_series.freshness_timeline(connection, list(reader), span, least, known)
        changes = _changes(connection, span)
    return Answer(**parts(found), changes=changes, most=freshness_series.MOST_READERS)


@router.get("/operations", dependencies=OF_STREAMS)
def operations(kind: str = "", subject: str = "", hours: Hours = _YEAR, limit: Limit = 200) -> Answer:
    """The latest operations, of one kind, with this text in their target, and of these last hours."""
    with db_snapshot.read_snapshot(Settings()) as connection:
        found = audit_trail.latest_operations(connection, limit, kind or None, subject, timedelta(hours=hours))
    return Answer(operations=found, kinds=list(audit_trail.OperationKind))


@router.get("/timeline", dependencies=OF_STREAMS)
def on_call(until: Until = None, hours: Annotated[float, Query(gt=0, le=31 * 24)] = 24) -> Answer:
    """What happened to the platform in these hours, and whether the earliest entries are left out."""
    span = timedelta(hours=hours)
    with db_snapshot.read_snapshot(Settings()) as connection:
        found = timeline.occurrences(connection, span, until, limit=timeline.MOST + 1)
    ends, more = until or datetime.now(UTC), len(found) > timeline.MOST
    return Answer(occurrences=found[: timeline.MOST], more=more, begins=ends - span, ends=ends)


@router.get("/views", dependencies=OF_VIEWS)
def views() -> Answer:
    return Answer(views=view_report.view_entries(Settings()))


@router.get("/view", dependencies=OF_VIEWS)
def view(name: str, user: SignedIn) -> Answer:
    """One view, its open alerts if the user may see alerts, and what the user may do."""
    settings = Settings()
    require(name in catalogue.view_names(settings.views_folder), f"No view {name!r}")
    with db_snapshot.read_snapshot(settings) as connection:
        alerts = view_alerts(connection, name) if is_readable(user, Dag.STREAMS) else []
        stages = [_stage(settings, each) for each in version_states(settings, connection, [name])]
    may = may_compare(user)
    browsing = {"operators": list(Operator), "limit": browse.LIMIT, "may_export": may}
    versions = {"stages": stages, "may_cut_over": may_cut_over(user)}
    return Answer(
        **parts(view_report.view_detail(settings, name)), alerts=alerts, may_compare=may, **versions, **browsing
    )


def _stage(settings: Settings, state: VersionState) -> dict[str, Any]:
    """The state of a version, and why readers cannot move to it."""
    proof = settings.cut_over_proof_seconds
    obstacle = "" if state.serving or state.former else state.obstacle(proof)
    return state.as_dict(proof) | {"obstacle": obstacle}


def view_alerts(connection: Connection, view: str) -> list[dict[str, Any]]:
    found = [each for each in alert_store.open_alerts(connection) if each.subject == view]
    return [
        {"key": each.key, "severity": each.definition.severity, "cause": each.cause, "found_at": each.found_at}
        | {"title": each.definition.meaning.format(subject=view)}
        for each in found
    ]


@router.get("/quality", dependencies=OF_VIEWS)
def quality(user: SignedIn, of: str = "", limit: Limit = 60) -> Answer:
    """The newest log day of each event type, the days of one type (by default a type that failed), and all results.

    A type without a file has old results, and is never the default.
    """
    types = events.event_names(Settings().events_folder)
    with db_snapshot.read_snapshot(Settings()) as connection:
        newest = quality_history.newest_days(connection)
        ours = [each for each in newest if each.event in types]
        worst = next((each.event for each in ours if each.failed), ours[0].event if ours else types[0])
        require(of in ("", *types, *(each.event for each in newest)), f"No event type {of!r}")
        days = quality_history.days(connection, of or worst, limit)
        by_day = quality_history.results_by_day(connection, _MOST_QUALITY_DAYS)
        ended = quality_history.ended_days(connection, _MOST_QUALITY_DAYS)
        unchecked = {each.event: quality_history.why_unchecked(connection, each) for each in newest if not each.success}
    may = {"may_validate": may_validate(user), "types": types}
    return Answer(newest=newest, of=of or worst, days=days, by_day=by_day, ended=ended, unchecked=unchecked, **may)


def require(known: bool, message: str) -> None:
    """Refuse a request for something that does not exist."""
    if not known:
        raise HTTPException(404, message)
