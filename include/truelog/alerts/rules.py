"""Alerts: the problems that sources find, the incident life cycle, and the rules for notifying receivers.

A source observes the platform and reports findings. `evaluate` applies numbered rules to each key and is a pure
function of the current alert, the observation, and the time. An alert represents one incident: it opens once, is
resolved once, and never changes its key.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from fnmatch import fnmatchcase

from truelog.alerts.kind import KINDS, Kind
from truelog.storage.database import storable
from truelog.support.settings import Settings

_MAX_CAUSE = 1000  # characters
SOURCE_DOWN = "alert_source_down"  # the kind that a blind source reports about itself


@dataclass(frozen=True)
class Finding:
    """A problem that a source has found, and the evidence for the problem."""

    kind: str
    subject: str
    cause: str

    @property
    def key(self) -> str:
        return f"{self.kind}/{self.subject}"


@dataclass(frozen=True)
class Observation:
    """The findings of a source at one time.

    For the keys in `unseen`, the source cannot tell whether the problem exists. A blind source cannot tell for any key.
    """

    findings: tuple[Finding, ...] = ()
    unseen: frozenset[str] = frozenset()
    blind: bool = False

    def sees(self, key: str) -> bool:
        return not self.blind and key not in self.unseen


@dataclass(frozen=True)
class Source:
    """Looks for problems of certain kinds every `interval` seconds."""

    name: str
    kinds: tuple[str, ...]
    interval: float
    observe: Callable[[Settings], Observation]


@dataclass(frozen=True)
class Alert:
    """One incident. An alert is pending until it opens. An open alert may still wait for its first notification."""

    kind: str
    subject: str
    cause: str  # latest cause
    found_at: datetime
    opened_at: datetime | None = None
    told_at: datetime | None = None  # time of the last notification
    gone_at: datetime | None = None  # time since which the problem has been absent
    acknowledged_at: datetime | None = None
    acknowledged_by: str | None = None
    resolved_at: datetime | None = None
    id: int | None = None  # None until the alert has a row

    @property
    def key(self) -> str:
        return f"{self.kind}/{self.subject}"

    @property
    def definition(self) -> Kind:
        return KINDS[self.kind]


@dataclass(frozen=True)
class Silence:
    """Holds back new notifications for keys that match a pattern, such as `application_down/*` or `*/page_views`."""

    pattern: str
    until: datetime
    by: str = ""
    why: str = ""
    id: int | None = None

    def covers(self, key: str, now: datetime) -> bool:
        return now < self.until and fnmatchcase(key, self.pattern)


class Transition(StrEnum):
    """The reason for a notification: the incident opened, is still open, or is resolved."""

    OPEN = "open"
    REMINDER = "again"
    RESOLVED = "resolved"


@dataclass(frozen=True)
class Evaluation:
    """An alert after an observation, and the notification that is due. `forget` deletes an alert that never opened."""

    alert: Alert
    notify: Transition | None = None
    forget: bool = False


@dataclass(frozen=True)
class NotificationPolicy:
    """Who is notified, how often reminders are sent, and which application each reader belongs to."""

    receivers: Sequence[str]
    repeat: timedelta
    application_of: Callable[[str], str]


def _folds_none(alerts: Sequence[Alert]) -> Container[str]:
    return ()


@dataclass(frozen=True)
class EvaluationContext:
    """The time, the active silences, and the interval between reminders of an alert that is not acknowledged.

    `fold` takes the alerts of the source and returns the keys of the alerts that follow from another alert.
    """

    now: datetime
    repeat: timedelta
    silences: tuple[Silence, ...] = ()
    fold: Callable[[Sequence[Alert]], Container[str]] = _folds_none


def evaluate_all(known: Iterable[Alert], observation: Observation, context: EvaluationContext) -> Iterator[Evaluation]:
    """Evaluate every unresolved alert of a source and every new finding."""
    alerts = {alert.key: alert for alert in known}
    findings = {finding.key: finding for finding in observation.findings}
    keys = dict.fromkeys((*alerts, *findings))
    changed = [_change(alerts.get(key), findings.get(key), observation, context.now) for key in keys]
    folded = context.fold([each.alert for each in changed if not each.forget])
    for each in changed:
        yield each if each.forget else _notified(each.alert, context, folded)


def _change(before: Alert | None, finding: Finding | None, observation: Observation, now: datetime) -> Evaluation:
    """The alert after an observation, without a notification.

    1. The problem was found: the alert begins, or continues with the latest cause.
    2. The source could not tell: the alert is not resolved, and any absence ends.
    3. The problem was not found: the absence begins or continues. A pending alert is forgotten.
    4. The problem has been absent for `resolve_after`: the alert is resolved.
    5. The problem has lasted for `open_after`: the alert opens.
    """
    if finding is not None:
        begun = before or Alert(finding.kind, finding.subject, "", now)
        alert = replace(begun, cause=storable(finding.cause, _MAX_CAUSE), gone_at=None)  # 1
    elif before is None:
        raise AssertionError("neither an alert nor a finding")
    elif not observation.sees(before.key):
        alert = replace(before, gone_at=None)  # 2
    elif before.opened_at is None:
        return Evaluation(before, forget=True)  # 3
    else:
        alert = replace(before, gone_at=before.gone_at or now)  # 3
    kind = alert.definition
    if alert.gone_at is not None and now - alert.gone_at >= kind.resolve_after:
        return Evaluation(replace(alert, resolved_at=now))  # 4
    if finding is not None and alert.opened_at is None and now - alert.found_at >= kind.open_after:
        alert = replace(alert, opened_at=now)  # 5
    return Evaluation(alert)


def _notified(alert: Alert, context: EvaluationContext, folded: Container[str]) -> Evaluation:
    """Add any notification that is due.

    1. A resolution is always sent to receivers that know the incident, even during a silence, because it ends a page.
    2. An alert that is pending, acknowledged, absent, silenced or folded causes no notification.
    3. The first notification of an open alert is due as soon as the alert is neither silenced nor folded.
    4. A reminder is due every `repeat`.
    """
    if alert.resolved_at is not None:
        return Evaluation(alert, Transition.RESOLVED if alert.told_at else None)  # 1
    silenced = any(silence.covers(alert.key, context.now) for silence in context.silences)
    if alert.opened_at is None or alert.acknowledged_at or alert.gone_at or silenced or alert.key in folded:
        return Evaluation(alert)  # 2
    if alert.told_at is None:
        return Evaluation(replace(alert, told_at=context.now), Transition.OPEN)  # 3
    if context.now - alert.told_at >= context.repeat:
        return Evaluation(replace(alert, told_at=context.now), Transition.REMINDER)  # 4
    return Evaluation(alert)
