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
    "down": Kind(
        Severity.CRITICAL,
        "the application {subject} does not run, or has hung",
        "`truelog status`; then the log of the last task of its DAG: Airflow starts it again unless it keeps dying.",
        "dags/stream_{subject}",
    ),
    "starved": Kind(
        Severity.CRITICAL,
        "the {subject} gives nothing to read: no ticks come, or Kafka is away",
        "`truelog status`: are `kafka` and `ticks` READY?",
        "plugin/truelog-streams",
    ),
    "restarting": Kind(
        Severity.WARNING,
        "the application {subject} dies or hangs again and again",
        "The log of the last task of its DAG ends with the application's own.",
        "dags/stream_{subject}",
    ),
    "falling_off": Kind(
        Severity.CRITICAL,
        "retention is about to overtake {subject}, or has",
        "Raise the topic's retention now, then see why the reader is behind.",
        "plugin/truelog-lag",
    ),
    "rewound": Kind(
        Severity.CRITICAL,
        "{subject} stands before a position that it has had, or past the end of the log",
        "Ask who restored a database or a broker; `truelog reconcile` says whether the view still holds.",
        "plugin/truelog-reconciliations",
    ),
    "stands": Kind(
        Severity.CRITICAL,
        "{subject} stands still, though there is something to read",
        "`truelog positions` says why a view stands still.",
        "plugin/truelog-views",
    ),
    "behind": Kind(
        Severity.WARNING,
        "the application {subject} is behind the log, or falls behind",
        "`truelog lag` says by how much, and when it will have caught up.",
        "plugin/truelog-lag",
    ),
    "blind": Kind(
        Severity.WARNING,
        "nobody knows how far behind the readers of the {subject} are",
        "`truelog lag` says why; then the log of the service, logs/lag.log in the home.",
        "plugin/truelog-lag",
        hold=timedelta(minutes=3),
    ),
    "different": Kind(
        Severity.CRITICAL,
        "{subject} differs from its rebuild, and was not repaired",
        "The last run of the DAG reconcile names what differs.",
        "plugin/truelog-reconciliations",
        hold=timedelta(minutes=5),  # in which a repair proves that it mended it
    ),
    "undecided": Kind(
        Severity.WARNING,
        "nobody can tell whether {subject} equals its rebuild",
        "The reason is that of the last comparison: is the archive behind, or the view's file broken?",
        "plugin/truelog-reconciliations",
    ),
    "unproved": Kind(
        Severity.WARNING,
        "{subject} has no certificate, or an old one: nobody proved of late that it equals its rebuild",
        "See whether the DAG reconcile is paused, and its last runs.",
        "plugin/truelog-reconciliations",
    ),
    "unsound": Kind(
        Severity.CRITICAL,
        "the {subject} does not hold what the log held",
        "`truelog archive audit --deep` says what the broker still has: act before its retention takes it.",
        "dags/archive_upkeep",
    ),
    "unaudited": Kind(
        Severity.WARNING,
        "the {subject} was not audited for too long",
        "See whether the DAG archive_upkeep is paused, and its last runs.",
        "dags/archive_upkeep",
    ),
    "unusual": Kind(
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
    "disk": Kind(
        Severity.CRITICAL,
        "the disk under {subject} is nearly full",
        "Find what grows in it, and make room before Kafka and PostgreSQL stop.",
        linger=timedelta(minutes=1),
    ),
    "unwatched": Kind(
        Severity.CRITICAL,
        "nobody sees whether anything is wrong with: {subject}",
        "The cause says what did not answer; the log of the service is logs/lag.log in the home.",
        hold=timedelta(minutes=1),
    ),
}
