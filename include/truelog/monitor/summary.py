"""Vital signs: what is wrong now, and the three numbers that matter, each of the view where it is worst.

* freshness: age of the oldest record that a view has still to count
* lag: records that a view has still to count
* proof: age of the newest certificate of a view

`All good` takes evidence: whatever is not known makes a problem of its own.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from urllib.parse import urlencode

from truelog.alerts import alert_store, alert_watch
from truelog.alerts.alert import Alert
from truelog.alerts.alert_kind import Severity
from truelog.control import application, view_status
from truelog.control.application import ARCHIVE, Status
from truelog.lag import lag_report
from truelog.lag.lag_report import LagRow, by_reader, freshness, lag_events
from truelog.lag.lag_verdict import LagVerdict
from truelog.monitor import health, view_report
from truelog.monitor.view_report import ViewEntry
from truelog.reconcile import reconcile_history, verification_status
from truelog.storage import db_snapshot
from truelog.support.settings import Settings

_STREAMS, _ALERTS, _LAG = "truelog-streams", "truelog-alerts", "truelog-lag"


class State(StrEnum):
    """The worst last. What is not known may be worse than a warning."""

    ALL_GOOD = "All good"
    WARNING = "Warning"
    UNKNOWN = "Unknown"
    CRITICAL = "Critical"


@dataclass(frozen=True)
class Problem:
    """Something that is wrong now; `page` is where one acts on it, below Airflow's `plugin/`."""

    state: State
    text: str
    page: str


@dataclass(frozen=True)
class Facts:
    """What is known of the platform at one moment."""

    alerts: Sequence[Alert]  # open
    unwatched: Sequence[str]  # sources of alerts that have not checked of late, or could not
    applications: Mapping[str, str]  # the state of each
    views: Sequence[ViewEntry]  # all of the catalogue
    answers: Mapping[str, str]  # the last verdict on each view, EQUAL or DIFFERENT
    lag: Mapping[str, LagRow]  # the worst partition of each reader


@dataclass(frozen=True)
class OpenAlerts:
    """`worst` is what the worst alert means; None where no alert is open."""

    count: int
    severity: Severity | None
    worst: str | None


@dataclass(frozen=True)
class Sign:
    """`value` is None where it is not known, of the view that is named; of no view where there is none."""

    view: str | None
    value: float | None


@dataclass(frozen=True)
class Vitals:
    state: State
    alerts: OpenAlerts
    problems: Sequence[Problem]
    views: int
    unmade: int  # views that have no table yet
    freshness: Sign
    lag: Sign
    proof: Sign


_OF_SEVERITY = {Severity.CRITICAL: State.CRITICAL, Severity.WARNING: State.WARNING}
_RUNS = "RUNNING"
_OF_APPLICATION = {
    "DOWN": (State.CRITICAL, "is down"),
    "HUNG": (State.CRITICAL, "makes no batches: it has hung, or has nothing to read"),
    "STOPPED": (State.WARNING, "is stopped on request"),
    "STOP": (State.WARNING, "runs, though it should be stopped"),
    "STARTING": (State.WARNING, "is starting"),
    "RESTART_PENDING": (State.WARNING, "is about to restart"),
    "CHANGED": (State.WARNING, "runs old code"),
}
_IDLE = ("DOWN", "HUNG", "STOPPED")  # then its readers are late as well
_OF_LAG = {
    LagVerdict.OK: State.ALL_GOOD,
    LagVerdict.WARN: State.WARNING,
    LagVerdict.UNDERPROVISIONED: State.WARNING,
    LagVerdict.UNKNOWN: State.UNKNOWN,
}
_LOSS = (LagVerdict.REWIND, LagVerdict.FALLING_OFF)


def now(settings: Settings) -> Vitals:
    """As of now; numbers are of the views that have a table.

    Raises:
        ServiceDown: PostgreSQL does not answer.
    """
    views = view_report.view_entries(settings)
    names, made = [each.view for each in views], [each.view for each in views if each.table]
    with db_snapshot.read_snapshot(settings) as connection:
        rows = by_reader(lag_report.rows(settings, connection, [ARCHIVE, *names]))
        statuses = [application.status(connection, name) for name in application.application_names(settings)]
        unwatched = [*alert_watch.overdue_sources(connection), *alert_watch.blind_sources(connection)]
        opened, answers = alert_store.open_alerts(connection), reconcile_history.latest_verdicts(connection, names)
        proved = {
            view: each.certified_age
            for view, each in verification_status.verification_statuses(connection, made).items()
        }
    states = {each.application: _state(settings, each) for each in statuses}
    worst = {reader: lag_report.worst(of) for reader, of in rows.items()}
    facts = Facts(opened, list(dict.fromkeys(unwatched)), states, views, answers, worst)
    seen = {view: rows[view] for view in made}
    return Vitals(
        card_state(facts),
        open_alerts(opened),
        problems(facts),
        len(names),
        len(names) - len(made),
        _worst(_by(seen, freshness)),
        _worst(_by(seen, lag_events)),
        _worst(proved),
    )


def _state(settings: Settings, status: Status) -> str:
    """By its row alone: asking Kafka why an application is silent could keep the card waiting."""
    allowed = application.silence_limits(settings, status.application)
    return health.state_name(status, application.diagnose_status(status, allowed, datetime.now(UTC)))


def card_state(facts: Facts) -> State:
    """The worst of all alerts and problems."""
    found = [_OF_SEVERITY[each.definition.severity] for each in facts.alerts]
    return max([*found, *(each.state for each in problems(facts))], key=_rank, default=State.ALL_GOOD)


def open_alerts(opened: Sequence[Alert]) -> OpenAlerts:
    """The worst is a critical one if there is any, an unacknowledged one if there is any, and the oldest of these."""
    if not opened:
        return OpenAlerts(0, None, None)
    worst = min(
        opened, key=lambda each: (each.definition.severity != Severity.CRITICAL, each.acknowledged_at is not None)
    )
    return OpenAlerts(len(opened), worst.definition.severity, worst.definition.meaning.format(subject=worst.subject))


def problems(facts: Facts) -> list[Problem]:
    """The worst first. Alerts are counted apart.

    1. A source of alerts does not check: that no alert is open says nothing then.
    2. An application is not as it should be.
    3. A view is broken, has no table, is stalled, or its last comparison found it DIFFERENT.
    4. A reader is late, or its lag is not known.
    """
    found = [*_of_alerts(facts), *_of_applications(facts), *_of_views(facts), *_of_lag(facts)]
    return sorted(found, key=lambda each: -_rank(each.state))


def _of_alerts(facts: Facts) -> Iterator[Problem]:
    """1. Sources."""
    if facts.unwatched:
        yield Problem(State.UNKNOWN, f"alerts are not checked: {', '.join(facts.unwatched)}", _ALERTS)


def _of_applications(facts: Facts) -> Iterator[Problem]:
    """2. Applications, the archive among them."""
    for name, word in facts.applications.items():
        if word != _RUNS:
            state, text = _OF_APPLICATION.get(word, (State.UNKNOWN, f"is {word}"))
            yield Problem(state, f"{name} {text}", _STREAMS)


def _of_views(facts: Facts) -> Iterator[Problem]:
    """3. Views."""
    if not facts.views:
        yield Problem(State.UNKNOWN, "the catalogue has no view", "truelog-views")
    for view in facts.views:
        if found := _of_view(view, facts):
            state, text = found
            yield Problem(state, f"{view.view} {text}", _page("views", "view", name=view.view))
        if facts.answers.get(view.view) == "DIFFERENT":
            page = _page("reconciliations", "reconciliations", view=view.view)
            yield Problem(State.CRITICAL, f"{view.view} was last found DIFFERENT from its rebuild", page)


def _of_view(view: ViewEntry, facts: Facts) -> tuple[State, str] | None:
    if view.broken:
        return State.CRITICAL, "cannot be loaded"
    if view.state == view_status.STALLED:
        return State.CRITICAL, "is stalled"
    if view.table is None:
        return State.WARNING, "has no table yet"
    if view.declared != view.table.version:
        return State.WARNING, f"declares version {view.declared}, and its readers see version {view.table.version}"
    if view.state == view_status.UP_TO_DATE or facts.applications.get(view.application) in _IDLE:
        return None
    return State.UNKNOWN, f"may not be up to date: {view.reason}"


def _of_lag(facts: Facts) -> Iterator[Problem]:
    """4. Lag; where the application does nothing, only of records that are lost."""
    unknown = list[str]()
    for reader in (ARCHIVE, *(view.view for view in facts.views if view.table)):
        row = facts.lag.get(reader)
        verdict = row.verdict if row else LagVerdict.UNKNOWN
        idle = row is not None and facts.applications.get(row.application) in _IDLE
        state = _OF_LAG.get(verdict, State.CRITICAL)
        if state is State.ALL_GOOD or (idle and verdict not in _LOSS):
            continue
        if row is None or state is State.UNKNOWN:
            unknown.append(reader)
        else:
            yield Problem(state, f"{reader}: {row.reason}", _page("lag", "lag", reader=reader))
    if unknown:
        yield Problem(State.UNKNOWN, f"lag is not known: {', '.join(unknown)}", _LAG)


def _page(route: str, page: str, **parameters: str) -> str:
    return f"truelog-{route}/truelog/{page}?{urlencode(parameters)}"


def _rank(state: State) -> int:
    return list(State).index(state)


def _by(seen: dict[str, list[LagRow]], measure: Callable[[list[LagRow]], float | None]) -> dict[str, float | None]:
    return {reader: measure(rows) for reader, rows in seen.items()}


def _worst(values: dict[str, float | None]) -> Sign:
    """What is not known may be worse than anything that is."""
    if not values:
        return Sign(None, None)
    return max((Sign(view, value) for view, value in values.items()), key=lambda s: (s.value is None, s.value or 0))
