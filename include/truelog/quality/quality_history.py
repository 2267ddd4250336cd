"""Data quality history: each event type's log days with their validation results and metrics."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from psycopg.rows import class_row

from truelog.schema.quality import QualityMetric
from truelog.storage.database import Connection, read_value

_COLUMNS = "id, event, day, success, failed, run, finished_at"


@dataclass(frozen=True)
class ValidatedDay:
    """The last validation of an event type's log day; `success` is None if no metric could be checked."""

    id: int
    event: str
    day: datetime
    success: bool | None
    failed: Sequence[str]
    run: str
    finished_at: datetime


@dataclass(frozen=True)
class Validated:
    """What a validation is about: a reconciliation of a view, or a log day of an event type."""

    reconciliation: int | None
    view: str | None
    event: str | None


@dataclass(frozen=True)
class QualityDay:
    """A validated log day with its metrics."""

    judged: ValidatedDay
    figures: Sequence[QualityMetric]


def newest_days(connection: Connection) -> list[ValidatedDay]:
    """The newest validated day of each event type."""
    return _query(
        connection,
        f"SELECT DISTINCT ON (event) {_COLUMNS} FROM truelog.validation WHERE event IS NOT NULL "  # noqa: S608  ours
        "ORDER BY event, day DESC, id DESC",
    )


def results_by_day(connection: Connection, limit: int) -> list[ValidatedDay]:
    """The last validation of each event type on each of the newest `limit` days that were validated."""
    return _query(
        connection,
        f"SELECT DISTINCT ON (event, day) {_COLUMNS} FROM truelog.validation WHERE event IS NOT NULL AND day IN "  # noqa: S608  ours
        "(SELECT DISTINCT day FROM truelog.validation WHERE event IS NOT NULL ORDER BY day DESC LIMIT %s) "
        "ORDER BY event, day, id DESC",
        limit,
    )


def ended_days(connection: Connection, limit: int) -> list[datetime]:
    """The newest log days that a later day follows, newest first."""
    rows = connection.execute(
        "SELECT to_timestamp(day) FROM (SELECT DISTINCT day FROM truelog.log_day) AS begun "
        "ORDER BY day DESC OFFSET 1 LIMIT %s",
        (limit,),
    )
    return [day for (day,) in rows]


def why_unchecked(connection: Connection, validated: ValidatedDay) -> str:
    """Why the metrics of a day were not checked; empty if some were."""
    reasons = {each.unjudged for each in day_metrics(connection, validated.event, validated.day)}
    return "; ".join(sorted(reasons)) if "" not in reasons else ""


def days(connection: Connection, event: str, limit: int) -> list[QualityDay]:
    """The validated days of an event type, newest first."""
    validated = _query(
        connection,
        f"SELECT DISTINCT ON (day) {_COLUMNS} FROM truelog.validation WHERE event = %s "  # noqa: S608  ours
        "ORDER BY day DESC, id DESC LIMIT %s",
        event,
        limit,
    )
    return [QualityDay(each, day_metrics(connection, event, each.day)) for each in validated]


def days_of_run(connection: Connection, run: str, event: str) -> list[ValidatedDay]:
    """The run's last validation of each log day, oldest first."""
    return _query(
        connection,
        f"SELECT DISTINCT ON (day) {_COLUMNS} FROM truelog.validation WHERE (event, run) = (%s, %s) "  # noqa: S608  ours
        "ORDER BY day, id DESC",
        event,
        run,
    )


def day_metrics(connection: Connection, event: str, day: datetime) -> list[QualityMetric]:
    """The metrics of one log day."""
    with connection.cursor(row_factory=class_row(QualityMetric)) as cursor:
        cursor.execute(
            "SELECT name, value, usual, least, most, unjudged FROM truelog.figure WHERE (event, day) = (%s, %s) "
            "ORDER BY name",
            (event, day),
        )
        return cursor.fetchall()


def latest_validation(connection: Connection, run: str, subject: str) -> int | None:
    """The id of the run's newest validation of a view or an event type."""
    found: int | None = read_value(
        connection,
        "SELECT max(v.id) FROM truelog.validation v LEFT JOIN truelog.reconciliation r ON r.id = v.reconciliation "
        "WHERE (v.run, v.event) = (%(run)s, %(subject)s) OR (r.run, r.view) = (%(run)s, %(subject)s)",
        {"run": run, "subject": subject},
    )
    return found


def validated(connection: Connection, number: int) -> Validated | None:
    """What this validation is about; None if it does not exist."""
    with connection.cursor(row_factory=class_row(Validated)) as cursor:
        cursor.execute(
            "SELECT v.reconciliation, r.view, v.event FROM truelog.validation v "
            "LEFT JOIN truelog.reconciliation r ON r.id = v.reconciliation WHERE v.id = %s",
            (number,),
        )
        return cursor.fetchone()


def _query(connection: Connection, query: str, *parameters: object) -> list[ValidatedDay]:
    with connection.cursor(row_factory=class_row(ValidatedDay)) as cursor:
        cursor.execute(query.encode(), parameters)
        return cursor.fetchall()
