"""Alert kinds: severity, meaning, first step, and how long a problem must last before its alert opens.

Each kind has a page of the same name in `docs/runbooks/`.
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
    """A kind of alert. `meaning`, `page` and `dag` are templates with a `{subject}` field."""

    severity: Severity
    meaning: str
    first_step: str
    page: str = "plugin/truelog/truelog/alerts"  # relative to Airflow's address
    dag: str = ""  # the id of the DAG whose runs explain the alert
    open_after: timedelta = timedelta()  # how long a problem must last before its alert opens
    resolve_after: timedelta = _RESOLVE_AFTER  # how long a problem must be absent before its alert is resolved


KINDS = {
    "application_down": Kind(
        Severity.CRITICAL,
        "the {subject} application is down or hung",
        "Open *Streams*, which shows the last error and the time of the next try. Remove the cause, then restart it. "
        "On the command line: `truelog status`.",
        "plugin/truelog/truelog/streams?application={subject}",
        "stream_{subject}",
    ),
    "no_input": Kind(
        Severity.CRITICAL,
        "no input arrives from the {subject}: ticks have stopped, or Kafka is unreachable",
        "Open *Streams*: does any application have input? Then run `truelog status`: are `kafka` and `ticks` READY?",
        "plugin/truelog/truelog/streams",
        "streams",
    ),
    "application_restarting": Kind(
        Severity.WARNING,
        "the {subject} application keeps dying or hanging",
        "Open *Task log* below: it ends with the application's log.",
        "plugin/truelog/truelog/streams?application={subject}",
        "stream_{subject}",
    ),
    "retention_risk": Kind(
        Severity.CRITICAL,
        "retention is about to delete records that {subject} has not read, or has already deleted some",
        "Raise the topic's retention now. Then open *Lag* to see why the reader is behind.",
        "plugin/truelog/truelog/lag?reader={subject}",
    ),
    "positions_rewound": Kind(
        Severity.CRITICAL,
        "the position of {subject} moved back, or is past the end of the log",
        "Open *Timeline*: who restored a database or a broker? Then trigger the `reconcile` DAG, or run "
        "`truelog reconcile`, to check whether the view is correct.",
        "plugin/truelog/truelog/reconciliations?view={subject}",
        "reconcile",
    ),
    "stalled": Kind(
        Severity.CRITICAL,
        "{subject} is not advancing, although the log contains records for it",
        "Read the cause below, then open *Lag* to see which partitions wait. On the command line: `truelog positions`.",
        "plugin/truelog/truelog/lag?reader={subject}",
    ),
    "lagging": Kind(
        Severity.WARNING,
        "the {subject} application is behind the log, or is falling behind",
        "Open *Streams*, then the lag of the latest view: it shows when the view will catch up. On the command line: "
        "`truelog lag`.",
        "plugin/truelog/truelog/streams?application={subject}",
        "stream_{subject}",
    ),
    "lag_unknown": Kind(
        Severity.WARNING,
        "the lag of at least one reader of the {subject} is unknown",
        "Open *Lag* to see the reason. Then read the log of the `lag` service: logs/lag.log in the home.",
        "plugin/truelog/truelog/lag",
        open_after=timedelta(minutes=3),
    ),
    "view_different": Kind(
        Severity.CRITICAL,
        "{subject} differs from its rebuild and was not repaired",
        "Open the view's last comparison. It lists the differing rows and their causes.",
        "plugin/truelog/truelog/view?name={subject}",
        "reconcile",
        open_after=timedelta(minutes=5),  # enough time for a repair and the comparison that confirms it
    ),
    "reconcile_inconclusive": Kind(
        Severity.WARNING,
        "recent comparisons could not tell whether {subject} equals its rebuild",
        "Read the cause, which comes from the last comparison. Is the archive behind, or is the view's file broken?",
        "plugin/truelog/truelog/reconciliations?view={subject}",
        "reconcile",
    ),
    "certificate_stale": Kind(
        Severity.WARNING,
        "{subject} has no certificate, or only an old certificate",
        "Open the `reconcile` DAG: is it paused, or are its newest runs red?",
        "plugin/truelog/truelog/reconciliations?view={subject}",
        "reconcile",
    ),
    "build_overdue": Kind(
        Severity.WARNING,
        "the batch-only view {subject} was not built for too long, so its readers see old rows",
        "Open the most recent runs of the `batch_views` DAG. Is it paused? The log of a failed `build` task says why.",
        "dags/batch_views",
        "batch_views",
    ),
    "version_waiting": Kind(
        Severity.WARNING,
        "readers of {subject} do not see the version that its file declares",
        "Read the cause below, then run `truelog versions list`. Are runs of the `cut_over` DAG red?",
        "plugin/truelog/truelog/view?name={subject}",
        "cut_over",
        open_after=timedelta(hours=6),
    ),
    "erasure_unfinished": Kind(
        Severity.WARNING,
        "the erasure {subject} is not finished, so a person who is to be forgotten may still be seen",
        "Open the last run of the `forget` DAG: its log says what the erasure waits for. On the command line: `truelog "
        "erasures resume`.",
        "dags/forget",
        "forget",
        open_after=timedelta(hours=6),
    ),
    "archive_corrupt": Kind(
        Severity.CRITICAL,
        "the last audit of the {subject} found faults, so records of the log may be lost",
        "Open the last run of the `archive_upkeep` DAG, then run `truelog archive audit --deep` to see what the broker "
        "still has. Act before retention deletes records.",
        "dags/archive_upkeep",
        "archive_upkeep",
    ),
    "archive_unaudited": Kind(
        Severity.WARNING,
        "the last audit of the {subject} was too long ago",
        "Open the `archive_upkeep` DAG: is it paused, or are its newest runs red?",
        "dags/archive_upkeep",
        "archive_upkeep",
    ),
    "quality_anomaly": Kind(
        Severity.WARNING,
        "a figure for the newest log day of {subject} is out of bounds",
        "Open the *Quality* page, which shows each figure beside its usual value. Has a producer stopped or changed?",
        "plugin/truelog/truelog/quality?of={subject}",
        "quality",
    ),
    "capture_stopped": Kind(
        Severity.CRITICAL,
        "changes of the captured table {subject} do not arrive, so its view is out of date",
        "Read the cause below. Run `truelog status`: is `connect` READY? Its log is logs/connect.log in the home.",
        open_after=timedelta(minutes=2),  # a restart of Connect takes about 20 seconds
    ),
    "capture_behind": Kind(
        Severity.WARNING,
        "the replication slot of {subject} retains much of the captured database's log, which may fill its disk",
        "Is Kafka slow, or is a long transaction open in the captured database? Free disk space there.",
    ),
    "capture_invalid": Kind(
        Severity.WARNING,
        "the last change of rows of the captured table {subject} is invalid, so its view has them as they were before",
        "`truelog capture status --json` names rows. Correct the value in the captured database, or the event type.",
    ),
    "capture_differs": Kind(
        Severity.WARNING,
        "the view of the captured table {subject} is not known to equal the table",
        "Run `truelog reconcile TABLE --source`, which says what differs and what makes the view equal.",
        "dags/compare_captures",
        "compare_captures",
    ),
    "dead_letters": Kind(
        Severity.WARNING,
        "more events than usual are invalid and go to the {subject} topic",
        "Open *Dead letters*: which event types and which reasons are the most frequent?",
        "plugin/truelog/truelog/dead-letters?hours=1",
        "quality",
        resolve_after=timedelta(minutes=5),
    ),
    "late_events_dropped": Kind(
        Severity.WARNING,
        "{subject} drops many events, because they reach the log later than the view allows",
        "Open the view and choose its `dropped` relation, which shows the hours. Which producer is late?",
        "plugin/truelog/truelog/view?name={subject}",
        resolve_after=timedelta(minutes=5),
    ),
    "groups_oversized": Kind(
        Severity.WARNING,
        "{subject} has groups with more events than the view allows, and does not count all of them",
        "Read in `truelog.oversized_group` which groups these are. Is a key misused, such as one id for all visitors?",
        "plugin/truelog/truelog/view?name={subject}",
    ),
    "groups_failed": Kind(
        Severity.WARNING,
        "{subject} has groups on which its fold fails, and shows no rows for them",
        "Read in `truelog.failed_group` which these are. Do their events have other values than before, or is the "
        "fold not total?",
        "plugin/truelog/truelog/view?name={subject}",
    ),
    "records_excluded": Kind(
        Severity.WARNING,
        "{subject} leaves out records on which its transform fails",
        "Open the record on *Records*. Does its producer send other values than before, or is the transform not total?",
        "plugin/truelog/truelog/view?name={subject}",
    ),
    "topic_suspended": Kind(
        Severity.CRITICAL,
        "the {subject} topic cannot be read safely and is suspended",
        "Open *Streams* to see the reason, or run `truelog status`. The applications still read the other topics.",
        "plugin/truelog/truelog/streams",
    ),
    "event_file_broken": Kind(
        Severity.WARNING,
        "the file of the event type {subject} cannot be used",
        "Open *Streams* to see the reason, and correct the file. The last registered version remains in force.",
        "plugin/truelog/truelog/streams",
    ),
    "clock_jumped": Kind(
        Severity.CRITICAL,
        "the clock of the {subject} waits, because the machine's clock has jumped by more than a day",
        "Is the machine's clock right? Then run `truelog clock confirm`. Otherwise correct the machine's clock.",
        "plugin/truelog/truelog/streams",
    ),
    "relay_down": Kind(
        Severity.CRITICAL,
        "the {subject} is down, so no output topic gets the changes of its view",
        "Run `truelog status`: is `relay` READY? Then read its log: logs/relay.log in the home.",
        open_after=timedelta(seconds=30),  # enough time for the supervisor to start it again
    ),
    "output_behind": Kind(
        Severity.WARNING,
        "the output topic of {subject} is behind the view",
        "Run `truelog output list`, which shows how many rows wait, and why.",
    ),
    "output_resync": Kind(
        Severity.CRITICAL,
        "the output topic of {subject} does not continue, because the database has another history than the topic",
        "Was the database restored from a backup? Then run `truelog output resync VIEW`.",
    ),
    "notifier_down": Kind(
        Severity.CRITICAL,
        "the {subject} is down, so matches, hits and thresholds cause no notifications",
        "Run `truelog status`: is `notifier` READY? Then read its log: logs/notifier.log in the home.",
        open_after=timedelta(seconds=30),  # enough time for the supervisor to start it again
    ),
    "notifier_behind": Kind(
        Severity.WARNING,
        "the notifier is behind the changes of {subject}",
        "Read its log, logs/notifier.log in the home.",
    ),
    "notifications_waiting": Kind(
        Severity.WARNING,
        "the channel {subject} does not accept notifications",
        "Run `truelog notifications deliveries --waiting`, which shows the reason.",
    ),
    "notifications_lost": Kind(
        Severity.WARNING,
        "notifications to the channel {subject} never arrived and are not tried again",
        "Run `truelog notifications deliveries --lost`, which shows them with the reasons.",
    ),
    "commands_behind": Kind(
        Severity.CRITICAL,
        "the states on which commands are decided lack records of {subject}",
        "Run `truelog status`: is `commands` READY? Then read its log, logs/commands.log in the home.",
        open_after=timedelta(minutes=1),
    ),
    "commands_waiting": Kind(
        Severity.CRITICAL,
        "events of accepted {subject} wait for the log. Collectors refuse all commands if too many wait",
        "Run `truelog status`: are `kafka` and `commands` READY? Then read logs/commands.log in the home.",
    ),
    "disk_low": Kind(
        Severity.CRITICAL,
        "the disk of the {subject} is nearly full",
        "Find out which files are growing, and free up space before Kafka and PostgreSQL stop.",
        resolve_after=timedelta(minutes=1),
    ),
    "alert_source_down": Kind(
        Severity.CRITICAL,
        "this alert source cannot check anything: {subject}",
        "Read the cause to see what did not answer. The log of the `lag` service is logs/lag.log in the home.",
        open_after=timedelta(minutes=1),
    ),
}
