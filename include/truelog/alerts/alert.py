"""Alerts: what is found to be wrong, what becomes of it, and when somebody is told.

A source looks and says what it found. From that, `step` decides for each key by numbered rules: a pure function of the
alert as it stands, what was seen, and now. One alert is one incident: it opens once and is resolved once, and its key
stays the same from its first moment to its last.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from fnmatch import fnmatchcase

from truelog.alerts.alert_kind import KINDS, Kind
from truelog.support.settings import Settings

_CAUSE = 1000  # characters of it that are kept; PostgreSQL keeps no U+0000
SOURCE_DOWN = "alert_source_down"  # what a source that is blind has found, of itself


@dataclass(frozen=True)
class Finding:
    """What a source found to be wrong now, and why it says so."""

    kind: str
    subject: str
    cause: str

    @property
    def key(self) -> str:
        return f"{self.kind}/{self.subject}"


@dataclass(frozen=True)
class Observation:
    """What one look of a source found, and of which keys it cannot say whether they are wrong.

    Where it is blind it can say it of none.
    """

    findings: tuple[Finding, ...] = ()
    unseen: frozenset[str] = frozenset()
    blind: bool = False

    def sees(self, key: str) -> bool:
        return not self.blind and key not in self.unseen


@dataclass(frozen=True)
class Source:
    """Who looks for these kinds, and after how many seconds again."""

    name: str
    kinds: tuple[str, ...]
    every: float
    look: Callable[[Settings], Observation]


@dataclass(frozen=True)
class Alert:
    """One incident. It is pending until it is opened; what somebody was told of is open for whom it was told."""

    kind: str
    subject: str
    cause: str  # the newest
    found_at: datetime
    opened_at: datetime | None = None
    told_at: datetime | None = None  # the last time
    gone_at: datetime | None = None  # since when it was not found any more
    acknowledged_at: datetime | None = None
    acknowledged_by: str | None = None
    resolved_at: datetime | None = None
    id: int | None = None  # of its row
    opened_as: str | None = None  # former kind, by which receivers know the incident

    @property
    def key(self) -> str:
        return f"{self.kind}/{self.subject}"

    @property
    def means(self) -> Kind:
        return KINDS[self.kind]


@dataclass(frozen=True)
class Silence:
    """Nothing new is told of keys like this until then: `application_down/*`, `*/page_views`."""

    pattern: str
    until: datetime
    by: str = ""
    why: str = ""
    id: int | None = None

    def covers(self, key: str, now: datetime) -> bool:
        return now < self.until and fnmatchcase(key, self.pattern)


class Transition(StrEnum):
    """What receivers are told of an incident: once that it is open, once that it is resolved."""

    OPEN = "open"
    AGAIN = "again"
    RESOLVED = "resolved"


@dataclass(frozen=True)
class Evaluation:
    """An alert after a look, and what is to be told of it; one that never opened and is gone is to be forgotten."""

    alert: Alert
    says: Transition | None = None
    forget: bool = False


@dataclass(frozen=True)
class EvaluationContext:
    """When it is, who wants silence, and after how long an alert that nobody acknowledged is told again."""

    now: datetime
    repeat: timedelta
    silences: tuple[Silence, ...] = ()


def evaluate_all(known: Iterable[Alert], sight: Observation, moment: EvaluationContext) -> Iterator[Evaluation]:
    """What becomes of each alert of a source that is not resolved yet, and of what was found anew."""
    alerts = {alert.key: alert for alert in known}
    found = {finding.key: finding for finding in sight.findings}
    for key in dict.fromkeys((*alerts, *found)):
        yield evaluate(alerts.get(key), found.get(key), sight, moment)


def evaluate(before: Alert | None, found: Finding | None, sight: Observation, moment: EvaluationContext) -> Evaluation:
    """What becomes of one alert.

    1. Found: it begins, or goes on with the newest cause.
    2. Not seen: it stays as it was. That nobody saw it does not resolve it, nor begin its absence.
    3. Not found: it is absent from now on. One that had not opened is forgotten.
    4. Absent for as long as its kind lingers: it is resolved.
    5. Found for as long as its kind holds it back: it opens.
    """
    now = moment.now
    if found is not None:
        begun = before or Alert(found.kind, found.subject, "", now)
        alert = replace(begun, cause=found.cause.replace("\0", " ")[:_CAUSE], gone_at=None)  # 1
    elif before is None:
        raise AssertionError("neither known nor found")
    elif not sight.sees(before.key):
        alert = replace(before, gone_at=None)  # 2
    elif before.opened_at is None:
        return Evaluation(before, forget=True)  # 3
    else:
        alert = replace(before, gone_at=before.gone_at or now)  # 3
    kind = alert.means
    if alert.gone_at is not None and now - alert.gone_at >= kind.linger:
        return _told(replace(alert, resolved_at=now), moment)  # 4
    if found is not None and alert.opened_at is None and now - alert.found_at >= kind.hold:
        alert = replace(alert, opened_at=now)  # 5
    return _told(alert, moment)


def _told(alert: Alert, moment: EvaluationContext) -> Evaluation:
    """What is to be told of it now.

    1. Who was told of it is told that it is resolved, silence or not: that ends a page and begins none.
    2. Nothing is told of one that is pending, acknowledged, absent just now, or silenced.
    3. One that nobody was told of yet is told: at once, or when the silence over it ends.
    4. Else it is told again each time that `repeat` has passed.
    """
    if alert.resolved_at is not None:
        return Evaluation(alert, Transition.RESOLVED if alert.told_at else None)  # 1
    silenced = any(silence.covers(alert.key, moment.now) for silence in moment.silences)
    if alert.opened_at is None or alert.acknowledged_at or alert.gone_at or silenced:
        return Evaluation(alert)  # 2
    if alert.told_at is None:
        return Evaluation(replace(alert, told_at=moment.now), Transition.OPEN)  # 3
    if moment.now - alert.told_at >= moment.repeat:
        return Evaluation(replace(alert, told_at=moment.now), Transition.AGAIN)  # 4
    return Evaluation(alert)
