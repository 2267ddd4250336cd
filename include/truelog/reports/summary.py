"""The summary on the home page: the current problems and three numbers. Each number is from the view that is worst off.

* freshness: the age of the oldest record that a view has not processed
* lag: the number of records that a view has not processed
* proof: the age of the newest certificate of a view

`All good` requires evidence, so any unknown fact is a separate problem. On the first start of a platform nothing is
known yet. For some minutes, that is the state `Starting` instead of a problem for each view.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from functools import partial
from urllib.parse import urlencode

from truelog.alerts import scheduler as alert_scheduler
from truelog.alerts import store as alert_store
from truelog.alerts.kind import Severity
from truelog.alerts.rules import Alert
from truelog.apps import launch_history
from truelog.control import application, view_status
from truelog.control.application import ARCHIVE
from truelog.lag import limits as lag_limits
from truelog.lag import report as lag_report
from truelog.lag.report import LagRow, by_reader, freshness, lag_events
from truelog.lag.verdict import LagVerdict
from truelog.reconcile import reconcile_history, verification_status
from truelog.reports import health
from truelog.reports import view as view_report
from truelog.reports.view import ViewEntry
from truelog.storage import db_snapshot
from truelog.storage.database import Connection
from truelog.support.settings import Settings

_ROUTE = "truelog/truelog"  # of the pages, relative to Airflow's `plugin/`
_STREAMS, _ALERTS, _LAG = f"{_ROUTE}/streams", f"{_ROUTE}/alerts", f"{_ROUTE}/lag"
_FIRST_START = timedelta(minutes=15)  # from the creation of the database to the first batches
_MOST_NAMES = 5  # views that a problem names


class PlatformState(StrEnum):
    """The states, ordered from good to bad. An unknown fact ranks above a warning because it may be worse."""

    ALL_GOOD = "All good"
    STARTING = "Starting"  # for the first time
    WARNING = "Warning"
    UNKNOWN = "Unknown"
    CRITICAL = "Critical"


@dataclass(frozen=True)
class Problem:
    """A current problem. `page` is the page for solving the problem, relative to Airflow's `plugin/`."""

    state: PlatformState
    text: str
    page: str


@dataclass(frozen=True)
class Facts:
    """The facts about the platform at one moment."""

    alerts: Sequence[Alert]  # open alerts
    unwatched: Sequence[str]  # alert sources whose last check failed or is too old
    applications: Mapping[str, str]  # the state of each application
    views: Sequence[ViewEntry]  # all views in the catalogue
    answers: Mapping[str, str]  # the latest verdict on each view, EQUAL or DIFFERENT
    lag: Mapping[str, LagRow]  # the row of each reader's worst partition
    first_start: bool = False  # the database is new, and views have no tables or an application is starting


@dataclass(frozen=True)
class OpenAlerts:
    """The number of open alerts. `worst` is the meaning of the worst alert, or None if no alert is open."""

    count: int
    severity: Severity | None
    worst: str | None


@dataclass(frozen=True)
class WorstValue:
    """A value and its view. `value` is None if the value is unknown.

    `view` is None if no view has a table, or if the value of each view is 0.
    """

    view: str | None
    value: float | None


@dataclass(frozen=True)
class PlatformSummary:
    state: PlatformState
    alerts: OpenAlerts
    problems: Sequence[Problem]
    views: int
    unmade: int  # views without a table
    freshness: WorstValue
    lag: WorstValue
    proof: WorstValue


_STATE_BY_SEVERITY = {Severity.CRITICAL: PlatformState.CRITICAL, Severity.WARNING: PlatformState.WARNING}
_RUNS = "RUNNING"
_STATE_BY_APPLICATION = {
    "DOWN": (PlatformState.CRITICAL, "is down"),
    "RESTING": (PlatformState.CRITICAL, "is down and rests after repeated failures"),
    "HUNG": (PlatformState.CRITICAL, "is finishing no batches: it has hung or has nothing to read"),
    "STOPPED": (PlatformState.WARNING, "is stopped on request"),
    "STOP": (PlatformState.WARNING, "is running, although it should be stopped"),
    "STARTING": (PlatformState.WARNING, "is starting"),
    "RESTART_PENDING": (PlatformState.WARNING, "is about to restart"),
    "CHANGED": (PlatformState.WARNING, "is running old code"),
}
# In these states, the application's readers are also late.
_IDLE = ("DOWN", "RESTING", "HUNG", "STOPPED", "STARTING")
_STATE_BY_VERDICT = {
    LagVerdict.OK: PlatformState.ALL_GOOD,
    LagVerdict.WARN: PlatformState.WARNING,
    LagVerdict.UNDERPROVISIONED: PlatformState.WARNING,
    LagVerdict.UNKNOWN: PlatformState.UNKNOWN,
}
_LOSS = (LagVerdict.REWIND, LagVerdict.FALLING_OFF)


def load_summary(settings: Settings) -> PlatformSummary:
    """The current summary. The numbers cover only views that have a table. A batch-only view has no lag.

    Raises:
        ServiceDown: PostgreSQL does not answer.
    """
    views = view_report.view_entries(settings)
    names, made = [each.view for each in views], [each.view for each in views if each.table]
    streamed = [each.view for each in views if not each.batch_only]
    with db_snapshot.read_snapshot(settings) as connection:
        rows = by_reader(lag_report.rows(settings, connection, [ARCHIVE, *streamed]))
        statuses = [application.load_status(connection, name) for name in application.application_names(settings)]
        launches = launch_history.launches(connection, [each.application for each in statuses])
        unwatched = [*alert_scheduler.overdue_sources(connection), *alert_scheduler.blind_sources(connection)]
        alerts = alert_store.open_incidents(connection, partial(lag_limits.application_of_reader, settings))
        young = _age(connection) < _FIRST_START
        verdicts = reconcile_history.latest_verdicts(connection, names)
        certified = {
            view: each.certified_age
            for view, each in verification_status.verification_statuses(connection, made).items()
        }
    states = {each.application: health.recorded_state(settings, each, launches[each.application]) for each in statuses}
    worst = {reader: lag_report.worst(partitions) for reader, partitions in rows.items()}
    first_start = young and (not made or "STARTING" in states.values())
    facts = Facts(alerts, list(dict.fromkeys(unwatched)), states, views, verdicts, worst, first_start)
    of_views = {view: rows[view] for view in made if view in rows}
    return PlatformSummary(
        card_state(facts),
        summarize_open_alerts(alerts),
        problems(facts),
        len(names),
        len(names) - len(made),
        worst_value(_by_view(of_views, freshness)),
        worst_value(_by_view(of_views, lag_events)),
        worst_value(certified),
    )


def _age(connection: Connection) -> timedelta:
    """The age of the platform's database."""
    row = connection.execute("SELECT now() - min(applied_at) FROM truelog.migration").fetchone()
    assert row  # noqa: S101  an aggregate has a row
    age: timedelta = row[0]
    return age


def card_state(facts: Facts) -> PlatformState:
    """The worst state among all alerts and problems."""
    found = [_STATE_BY_SEVERITY[each.definition.severity] for each in facts.alerts]
    return max([*found, *(each.state for each in problems(facts))], key=_rank, default=PlatformState.ALL_GOOD)


def summarize_open_alerts(alerts: Sequence[Alert]) -> OpenAlerts:
    """Count the open alerts and choose the worst: critical before warning, then unacknowledged, then oldest."""
    if not alerts:
        return OpenAlerts(0, None, None)
    worst = min(
        alerts, key=lambda each: (each.definition.severity != Severity.CRITICAL, each.acknowledged_at is not None)
    )
    return OpenAlerts(len(alerts), worst.definition.severity, worst.definition.meaning.format(subject=worst.subject))


def problems(facts: Facts) -> list[Problem]:
    """All problems except alerts, worst first.

    1. An alert source is making no checks, so the absence of alerts proves nothing.
    2. An application is not in its desired state.
    3. A view is broken, has no table, is stalled, or was DIFFERENT in its latest comparison.
    4. A reader is late, or its lag is unknown.
    """
    found = [*_alert_problems(facts), *_application_problems(facts), *_view_problems(facts), *_lag_problems(facts)]
    return sorted(found, key=lambda each: -_rank(each.state))


def _alert_problems(facts: Facts) -> Iterator[Problem]:
    """1. Alert sources."""
    if facts.unwatched and facts.first_start:
        yield Problem(PlatformState.STARTING, "alerts are not checked yet", _ALERTS)
    elif facts.unwatched:
        yield Problem(PlatformState.UNKNOWN, f"alerts are not checked: {', '.join(facts.unwatched)}", _ALERTS)


def _application_problems(facts: Facts) -> Iterator[Problem]:
    """2. Applications, including the archive."""
    for name, word in facts.applications.items():
        if word == "STARTING" and facts.first_start:
            yield Problem(PlatformState.STARTING, f"{name} is starting", _STREAMS)
        elif word != _RUNS:
            state, text = _STATE_BY_APPLICATION.get(word, (PlatformState.UNKNOWN, f"is {word}"))
            yield Problem(state, f"{name} {text}", _STREAMS)


def _view_problems(facts: Facts) -> Iterator[Problem]:
    """3. Views."""
    if not facts.views:
        yield Problem(PlatformState.UNKNOWN, "the catalogue contains no views", f"{_ROUTE}/views")
    yield from _unmade_problems(facts)
    for view in facts.views:
        if found := _view_problem(view, facts):
            state, text = found
            yield Problem(state, f"{view.view} {text}", _page("view", name=view.view))
        if facts.answers.get(view.view) == "DIFFERENT":
            page = _page("reconciliations", view=view.view)
            yield Problem(PlatformState.CRITICAL, f"{view.view} was last found DIFFERENT from its rebuild", page)


def _unmade_problems(facts: Facts) -> Iterator[Problem]:
    """One problem for all views that wait for their tables, because a first start would otherwise be a wall of them."""
    unmade = [view.view for view in facts.views if view.table is None and not _is_broken(view)]
    if not unmade:
        return
    page = _page("view", name=unmade[0]) if len(unmade) == 1 else f"{_ROUTE}/views"
    if facts.first_start:
        said = "1 view is" if len(unmade) == 1 else f"{len(unmade)} views are"
        yield Problem(PlatformState.STARTING, f"{said} being created", page)
    elif len(unmade) == 1:
        yield Problem(PlatformState.WARNING, f"{unmade[0]} has no table yet", page)
    else:
        yield Problem(PlatformState.WARNING, f"{len(unmade)} views have no table yet: {_some(unmade)}", page)


def _is_broken(view: ViewEntry) -> bool:
    return bool(view.broken) or view.state == view_status.STALLED


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return ", ".join(names[:_MOST_NAMES]) + more


def _view_problem(view: ViewEntry, facts: Facts) -> tuple[PlatformState, str] | None:
    if view.broken:
        return PlatformState.CRITICAL, "cannot be loaded"
    if view.state == view_status.STALLED:
        return PlatformState.CRITICAL, "is stalled"
    if view.table is None:
        return None  # one problem covers all of these
    if view.declared != view.table.version:
        return (
            PlatformState.WARNING,
            f"declares version {view.declared}, but its readers see version {view.table.version}",
        )
    if (
        view.state in (view_status.UP_TO_DATE, view_status.BATCH_ONLY)
        or facts.applications.get(view.application) in _IDLE
    ):
        return None
    return PlatformState.UNKNOWN, f"may not be up to date: {view.reason}"


def _lag_problems(facts: Facts) -> Iterator[Problem]:
    """4. Lag. If the application is idle, only a rewind or the loss of records counts."""
    unknown = list[str]()
    for reader in (ARCHIVE, *(view.view for view in facts.views if view.table and not view.batch_only)):
        row = facts.lag.get(reader)
        verdict = row.verdict if row else LagVerdict.UNKNOWN
        idle = row is not None and facts.applications.get(row.application) in _IDLE
        state = _STATE_BY_VERDICT.get(verdict, PlatformState.CRITICAL)
        if state is PlatformState.ALL_GOOD or (idle and verdict not in _LOSS):
            continue
        if row is None or state is PlatformState.UNKNOWN:
            unknown.append(reader)
        else:
            yield Problem(state, f"{reader}: {row.reason}", _page("lag", reader=reader))
    if unknown and facts.first_start:
        yield Problem(PlatformState.STARTING, "lag is not measured yet", _LAG)
    elif unknown:
        yield Problem(PlatformState.UNKNOWN, f"lag is unknown: {_some(unknown)}", _LAG)


def _page(page: str, **parameters: str) -> str:
    return f"{_ROUTE}/{page}?{urlencode(parameters)}"


def _rank(state: PlatformState) -> int:
    return list(PlatformState).index(state)


def _by_view(rows: dict[str, list[LagRow]], measure: Callable[[list[LagRow]], float | None]) -> dict[str, float | None]:
    return {view: measure(partitions) for view, partitions in rows.items()}


def worst_value(values: Mapping[str, float | None]) -> WorstValue:
    """The view with the worst value. An unknown value counts as the worst value, and of zeros none is worse."""
    if not values:
        return WorstValue(None, None)
    worst = max(
        (WorstValue(view, value) for view, value in values.items()), key=lambda s: (s.value is None, s.value or 0)
    )
    return WorstValue(None, 0) if worst.value == 0 else worst
