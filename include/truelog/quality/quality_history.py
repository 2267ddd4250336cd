"""The history of the events' quality: of each event type its log days, their verdicts and their figures."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg.rows import class_row

from truelog.schema.quality import Figure
from truelog.storage.database import Connection

_COLUMNS = "id, event, day, success, failed, run, finished_at"


@dataclass(frozen=True)
class JudgedDay:
    """What was said last of a log day of an event type; `success` is None where nothing could be judged."""

    id: int
    event: str
    day: datetime
    success: bool | None
    failed: Sequence[str]
    run: str
    finished_at: datetime


@dataclass(frozen=True)
class QualityDay:
    """A log day with its figures."""

    judged: JudgedDay
    figures: Sequence[Figure]


def newest_days(connection: Connection) -> list[JudgedDay]:
    """The newest day of each event type that was ever judged."""
    return _ask(
        connection,
        f"SELECT DISTINCT ON (event) {_COLUMNS} FROM truelog.validation WHERE event IS NOT NULL "  # noqa: S608  ours
        "ORDER BY event, day DESC, id DESC",
    )


def days(connection: Connection, event: str, limit: int) -> list[QualityDay]:
    """The newest first."""
    found = _ask(
        connection,
        f"SELECT DISTINCT ON (day) {_COLUMNS} FROM truelog.validation WHERE event = %s "  # noqa: S608  ours
        "ORDER BY day DESC, id DESC LIMIT %s",
        event,
        limit,
    )
    return [QualityDay(each, day_metrics(connection, event, each.day)) for each in found]


def days_of_run(connection: Connection, run: str, event: str) -> list[JudgedDay]:
    """What the run said last of each log day, the oldest first."""
    return _ask(
        connection,
        f"SELECT DISTINCT ON (day) {_COLUMNS} FROM truelog.validation WHERE (event, run) = (%s, %s) "  # noqa: S608  ours
        "ORDER BY day, id DESC",
        event,
        run,
    )


def day_metrics(connection: Connection, event: str, day: datetime) -> list[Figure]:
    """Of one log day."""
    with connection.cursor(row_factory=class_row(Figure)) as cursor:
        cursor.execute(
            "SELECT name, value, usual, least, most, unjudged FROM truelog.figure WHERE (event, day) = (%s, %s) "
            "ORDER BY name",
            (event, day),
        )
        return cursor.fetchall()


def judgement_of(connection: Connection, run: str, subject: str) -> int | None:
    """The number of the newest judgement that a run made of a view or of an event type."""
    row: Any = connection.execute(
        "SELECT max(v.id) FROM truelog.validation v LEFT JOIN truelog.reconciliation r ON r.id = v.reconciliation "
        "WHERE (v.run, v.event) = (%(run)s, %(of)s) OR (r.run, r.view) = (%(run)s, %(of)s)",
        {"run": run, "of": subject},
    ).fetchone()
    found: int | None = row[0]
    return found


def _ask(connection: Connection, query: str, *given: object) -> list[JudgedDay]:
    with connection.cursor(row_factory=class_row(JudgedDay)) as cursor:
        cursor.execute(query.encode(), given)
        return cursor.fetchall()
