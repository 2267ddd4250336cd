"""Kinds of alerts: how bad each is, what it means, what to do first, and how long it must last to be one.

Each has its page in `docs/runbooks/`, under its own name.
"""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

_NOT_LONG = timedelta(seconds=20)


class Severity(StrEnum):
    """Whether somebody is to be woken."""

    CRITICAL = "critical"
    WARNING = "warning"


@dataclass(frozen=True)
class Kind:
    """`hold` is how long it must be found before it opens, `linger` how long it must be gone before it is resolved."""

    severity: Severity
    means: str  # of {subject}
    first: str
    page: str = "plugin/truelog-alerts"  # of Airflow, for {subject}
    hold: timedelta = timedelta()
    linger: timedelta = _NOT_LONG


KINDS = {
    "application_down": Kind(
        Severity.CRITICAL,
        "the application {subject} does not run, or has hung",
        "`truelog status`; then the log of the last task of its DAG: Airflow starts it again unless it keeps dying.",
        "dags/stream_{subject}",
    ),
    "no_input": Kind(
        Severity.CRITICAL,
        "the {subject} gives nothing to read: no ticks come, or Kafka is away",
        "`truelog status`: are `kafka` and `ticks` READY?",
        "plugin/truelog-streams",
    ),
    "application_restarting": Kind(
        Severity.WARNING,
        "the application {subject} dies or hangs again and again",
        "The log of the last task of its DAG ends with the application's own.",
        "dags/stream_{subject}",
    ),
    "retention_risk": Kind(
        Severity.CRITICAL,
        "retention is about to overtake {subject}, or has",
        "Raise the topic's retention now, then see why the reader is behind.",
        "plugin/truelog-lag",
    ),
    "positions_rewound": Kind(
        Severity.CRITICAL,
        "{subject} stands before a position that it has had, or past the end of the log",
        "Ask who restored a database or a broker; `truelog reconcile` says whether the view still holds.",
        "plugin/truelog-reconciliations",
    ),
    "stalled": Kind(
        Severity.CRITICAL,
        "{subject} stands still, though there is something to read",
        "`truelog positions` says why a view stands still.",
        "plugin/truelog-views",
    ),
    "lagging": Kind(
        Severity.WARNING,
        "the application {subject} is behind the log, or falls behind",
        "`truelog lag` says by how much, and when it will have caught up.",
        "plugin/truelog-lag",
    ),
    "lag_unknown": Kind(
        Severity.WARNING,
        "nobody knows how far behind the readers of the {subject} are",
        "`truelog lag` says why; then the log of the service, logs/lag.log in the home.",
        "plugin/truelog-lag",
        hold=timedelta(minutes=3),
    ),
    "view_different": Kind(
        Severity.CRITICAL,
        "{subject} differs from its rebuild, and was not repaired",
        "The last run of the DAG reconcile names what differs.",
        "plugin/truelog-reconciliations",
        hold=timedelta(minutes=5),  # in which a repair proves that it mended it
    ),
    "reconcile_inconclusive": Kind(
        Severity.WARNING,
        "nobody can tell whether {subject} equals its rebuild",
        "The reason is that of the last comparison: is the archive behind, or the view's file broken?",
        "plugin/truelog-reconciliations",
    ),
    "certificate_stale": Kind(
        Severity.WARNING,
        "{subject} has no certificate, or an old one: nobody proved of late that it equals its rebuild",
        "See whether the DAG reconcile is paused, and its last runs.",
        "plugin/truelog-reconciliations",
    ),
    "archive_corrupt": Kind(
        Severity.CRITICAL,
        "the {subject} does not hold what the log held",
        "`truelog archive audit --deep` says what the broker still has: act before its retention takes it.",
        "dags/archive_upkeep",
    ),
    "archive_unaudited": Kind(
        Severity.WARNING,
        "the {subject} was not audited for too long",
        "See whether the DAG archive_upkeep is paused, and its last runs.",
        "dags/archive_upkeep",
    ),
    "quality_anomaly": Kind(
        Severity.WARNING,
        "the newest log day of {subject} is not as it should be",
        "The page *Quality* shows each figure beside what it usually is: has a producer stopped, or changed?",
        "plugin/truelog-quality",
    ),
    "dead_letters": Kind(
        Severity.WARNING,
        "more events than usual are no good and go to the topic {subject}",
        'What is wrong with them: truelog sql "SELECT * FROM dead_letter ORDER BY broker_time DESC LIMIT 20".',
        linger=timedelta(minutes=5),
    ),
    "disk_low": Kind(
        Severity.CRITICAL,
        "the disk under {subject} is nearly full",
        "Find what grows in it, and make room before Kafka and PostgreSQL stop.",
        linger=timedelta(minutes=1),
    ),
    "alert_source_down": Kind(
        Severity.CRITICAL,
        "nobody sees whether anything is wrong with: {subject}",
        "The cause says what did not answer; the log of the service is logs/lag.log in the home.",
        hold=timedelta(minutes=1),
    ),
}

# Former and present names. Commands, requests and receivers' incidents may use a former name for one release, 0.2;
# `storage/sql/alert_kinds.sql` holds the same pairs for what a database keeps.
RENAMED = {
    "down": "application_down",
    "starved": "no_input",
    "restarting": "application_restarting",
    "falling_off": "retention_risk",
    "rewound": "positions_rewound",
    "stands": "stalled",
    "behind": "lagging",
    "blind": "lag_unknown",
    "different": "view_different",
    "undecided": "reconcile_inconclusive",
    "unproved": "certificate_stale",
    "unsound": "archive_corrupt",
    "unaudited": "archive_unaudited",
    "unusual": "quality_anomaly",
    "disk": "disk_low",
    "unwatched": "alert_source_down",
}
_FORMER = {kind: former for former, kind in RENAMED.items()}


def former_kind(kind: str) -> str | None:
    """The name of a kind before 0.2. None for a kind that was not renamed."""
    return _FORMER.get(kind)


def with_current_kind(key: str) -> str:
    """A key, or a pattern of keys, with the present name of its kind in place of a former one."""
    kind, slash, subject = key.partition("/")
    return f"{RENAMED.get(kind, kind)}{slash}{subject}"
