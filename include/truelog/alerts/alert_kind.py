"""Kinds of alerts: severity, meaning, first step, and how long a problem must last before its alert opens.

Each kind has a page in `docs/runbooks/` under its own name.
"""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

_RESOLVE_AFTER = timedelta(seconds=20)


class Severity(StrEnum):
    """Whether an alert is worth waking a person for."""

    CRITICAL = "critical"
    WARNING = "warning"


@dataclass(frozen=True)
class Kind:
    """`meaning` and `page` are templates with the field `{subject}`."""

    severity: Severity
    meaning: str
    first_step: str
    page: str = "plugin/truelog-alerts"  # below Airflow's address
    open_after: timedelta = timedelta()  # a problem must last this long before its alert opens
    resolve_after: timedelta = _RESOLVE_AFTER  # and must be absent this long before its alert is resolved


KINDS = {
    "application_down": Kind(
        Severity.CRITICAL,
        "the application {subject} is down or hung",
        "Run `truelog status`. Airflow restarts the application unless it keeps dying: then read the log of the last "
        "task in its DAG.",
        "dags/stream_{subject}",
    ),
    "no_input": Kind(
        Severity.CRITICAL,
        "no input arrives from the {subject}: ticks have stopped, or Kafka is unreachable",
        "Run `truelog status`: are `kafka` and `ticks` READY?",
        "plugin/truelog-streams",
    ),
    "application_restarting": Kind(
        Severity.WARNING,
        "the application {subject} keeps dying or hanging",
        "Open the last failed run of its DAG: the task's log ends with the log of the application.",
        "dags/stream_{subject}",
    ),
    "retention_risk": Kind(
        Severity.CRITICAL,
        "retention is about to delete records that {subject} has not read, or has deleted some already",
        "Raise the topic's retention now. Then run `truelog lag` to see why the reader is behind.",
        "plugin/truelog-lag",
    ),
    "positions_rewound": Kind(
        Severity.CRITICAL,
        "the position of {subject} went back, or is past the end of the log",
        "Find out who restored a database or a broker. `truelog reconcile` checks whether the view is still right.",
        "plugin/truelog-reconciliations",
    ),
    "stalled": Kind(
        Severity.CRITICAL,
        "{subject} does not advance, although the log has records for it",
        "Run `truelog positions`: it shows why a view is stalled.",
        "plugin/truelog-views",
    ),
    "lagging": Kind(
        Severity.WARNING,
        "the application {subject} is behind the log, or is falling behind",
        "Run `truelog lag`: it shows how far behind each view is, and when it will have caught up.",
        "plugin/truelog-lag",
    ),
    "lag_unknown": Kind(
        Severity.WARNING,
        "the lag of at least one reader of the {subject} is unknown",
        "Run `truelog lag` for the reason. Then read the log of the service `lag`: logs/lag.log in the home.",
        "plugin/truelog-lag",
        open_after=timedelta(minutes=3),
    ),
    "view_different": Kind(
        Severity.CRITICAL,
        "{subject} differs from its rebuild, and was not repaired",
        "Open the last run of the DAG `reconcile`: it names the rows that differ.",
        "plugin/truelog-reconciliations",
        open_after=timedelta(minutes=5),  # enough for a repair and the comparison that confirms it
    ),
    "reconcile_inconclusive": Kind(
        Severity.WARNING,
        "recent comparisons could not tell whether {subject} equals its rebuild",
        "Read the cause, which is that of the last comparison: is the archive behind, or the view's file broken?",
        "plugin/truelog-reconciliations",
    ),
    "certificate_stale": Kind(
        Severity.WARNING,
        "{subject} has no certificate, or only an old one",
        "Check whether the DAG `reconcile` is paused, and open its last runs.",
        "plugin/truelog-reconciliations",
    ),
    "archive_corrupt": Kind(
        Severity.CRITICAL,
        "the last audit of the {subject} found faults: records of the log may be lost",
        "Run `truelog archive audit --deep`: it shows what the broker still has. Act before retention deletes it.",
        "dags/archive_upkeep",
    ),
    "archive_unaudited": Kind(
        Severity.WARNING,
        "the last audit of the {subject} was too long ago",
        "Check whether the DAG `archive_upkeep` is paused, and open its last runs.",
        "dags/archive_upkeep",
    ),
    "quality_anomaly": Kind(
        Severity.WARNING,
        "a figure of the newest log day of {subject} is out of its bounds",
        "Open the page *Quality*, which shows each figure beside its usual value: has a producer stopped or changed?",
        "plugin/truelog-quality",
    ),
    "dead_letters": Kind(
        Severity.WARNING,
        "more events than usual are invalid and go to the topic {subject}",
        'See what is wrong with them: `truelog sql "SELECT * FROM dead_letter ORDER BY broker_time DESC LIMIT 20"`.',
        resolve_after=timedelta(minutes=5),
    ),
    "disk_low": Kind(
        Severity.CRITICAL,
        "the disk of the {subject} is nearly full",
        "Find out what grows on it, and make room before Kafka and PostgreSQL stop.",
        resolve_after=timedelta(minutes=1),
    ),
    "alert_source_down": Kind(
        Severity.CRITICAL,
        "this source of alerts cannot check anything: {subject}",
        "Read the cause: it names what did not answer. The log of the service `lag` is logs/lag.log in the home.",
        open_after=timedelta(minutes=1),
    ),
}

# Names before 0.2 and present names. Commands and requests accept a former name for one release.
# `storage/sql/alert_kinds.sql` holds the same pairs and renames the kinds in a database.
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
    """The name of a kind before 0.2, or None for a kind that was not renamed."""
    return _FORMER.get(kind)


def with_current_kind(key: str) -> str:
    """Replace a former kind in a key, or in a pattern of keys, by its present name."""
    kind, slash, subject = key.partition("/")
    return f"{RENAMED.get(kind, kind)}{slash}{subject}"
