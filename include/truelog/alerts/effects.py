"""What follows from what: a table of causes and effects, and a pure function that folds effects into their causes.

An outage has consequences that have alerts of their own. A folded alert is open and visible under its cause, but
receivers are not notified of it. An alert that a receiver knows already is never folded.
"""

import itertools
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import Enum

from truelog.alerts.rules import Alert, Silence
from truelog.control.application import ARCHIVE

OUTLIVES = timedelta(minutes=5)  # an effect that lasts longer than this after its cause has ended is not folded
# Readers of an application that have a problem of such a kind within this time have one cause.
TOGETHER, BEGAN_TOGETHER = frozenset({"stalled"}), timedelta(seconds=30)
# These alerts mean that records are lost or that readers see wrong rows, so they always notify.
NEVER_FOLDED = frozenset(
    {"retention_risk", "positions_rewound", "archive_corrupt", "view_different", "topic_suspended", "alert_source_down"}
)


class Reach(Enum):
    """Which subjects of the effect a cause reaches."""

    SAME = "the cause's own subject"
    READERS = "the readers of the cause's application"
    ALL = "all subjects"


@dataclass(frozen=True)
class Rule:
    """One row of the table. `subject` limits the rule to causes with this subject."""

    cause: str
    effect: str
    reach: Reach
    subject: str | None = None


_COMPARISONS = ("reconcile_inconclusive", "certificate_stale")
RULES = (
    Rule("clock_jumped", "no_input", Reach.ALL),
    *(Rule("no_input", effect, Reach.ALL) for effect in ("application_down", "application_restarting")),
    *(Rule("no_input", effect, Reach.ALL) for effect in ("stalled", "lagging", "lag_unknown")),
    *(Rule("no_input", effect, Reach.ALL) for effect in (*_COMPARISONS, "archive_unaudited", "quality_anomaly")),
    Rule("no_input", "commands_behind", Reach.ALL),
    *(Rule("application_down", effect, Reach.SAME) for effect in ("application_restarting", "lagging")),
    *(Rule("application_down", effect, Reach.READERS) for effect in ("stalled", *_COMPARISONS)),
    # A comparison and a quality check read the archive.
    *(Rule("application_down", effect, Reach.ALL, ARCHIVE) for effect in (*_COMPARISONS, "quality_anomaly")),
    *(Rule("stalled", effect, Reach.ALL, ARCHIVE) for effect in (*_COMPARISONS, "quality_anomaly")),
    *(Rule("lagging", effect, Reach.ALL, ARCHIVE) for effect in _COMPARISONS),
    Rule("stalled", "lagging", Reach.ALL, ARCHIVE),
    Rule("view_different", "certificate_stale", Reach.SAME),
    Rule("view_different", "reconcile_inconclusive", Reach.SAME),
)


def causes_of(
    alerts: Iterable[Alert],
    now: datetime,
    application_of: Callable[[str], str],
    silences: Collection[Silence] = (),
) -> dict[str, str]:
    """The cause of each folded alert, by key. A cause is never folded itself, so chains lead to the first cause.

    1. `alerts` contains all unresolved alerts, and all alerts that were resolved within OUTLIVES.
    2. A cause is open, or has been absent for less than OUTLIVES.
    3. An effect is unresolved, and no receiver knows it.
    4. A silenced alert does not fold the alerts that began together with it. They would cause no notification.
    """
    known = list(alerts)
    causes = [each for each in known if each.opened_at and (each.gone_at is None or now - each.gone_at < OUTLIVES)]  # 2
    effects = [each for each in known if each.resolved_at is None and each.told_at is None]  # 3
    audible = [each for each in causes if not any(silence.covers(each.key, now) for silence in silences)]  # 4

    def cause_of(effect: Alert) -> Alert | None:
        direct = (each for each in causes if _leads_to(each, effect, application_of))
        together = (each for each in audible if _begins(each, effect, application_of))
        return next(itertools.chain(direct, together), None)

    nearest = {effect.key: cause.key for effect in effects if (cause := cause_of(effect))}
    return {effect: _first(cause, nearest) for effect, cause in nearest.items()}


def _leads_to(cause: Alert, effect: Alert, application_of: Callable[[str], str]) -> bool:
    return any(
        (rule.cause, rule.effect) == (cause.kind, effect.kind)
        and rule.subject in (None, cause.subject)
        and cause.key != effect.key
        and _reaches(rule.reach, cause.subject, effect.subject, application_of)
        for rule in RULES
    )


def _reaches(reach: Reach, cause: str, effect: str, application_of: Callable[[str], str]) -> bool:
    if reach is Reach.SAME:
        return cause == effect
    return reach is Reach.ALL or application_of(effect) == cause


def _begins(cause: Alert, effect: Alert, application_of: Callable[[str], str]) -> bool:
    """Whether the effect is of the same incident, which began with the cause.

    Of alerts that began at once, the first key is the cause.
    """
    first = (cause.found_at, cause.key) < (effect.found_at, effect.key)
    return (
        cause.kind == effect.kind in TOGETHER
        and first
        and effect.found_at - cause.found_at <= BEGAN_TOGETHER
        and application_of(cause.subject) == application_of(effect.subject)
    )


def _first(cause: str, nearest: dict[str, str]) -> str:
    """The first cause of a chain. Chains end: the table has no cycle, and a cause of the same kind is older."""
    while cause in nearest:
        cause = nearest[cause]
    return cause
