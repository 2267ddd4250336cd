"""Topic status: the topics that an application has suspended, with the reason and the time.

An application leaves out a topic that it cannot read safely and continues with the others. It tries the topic again
regularly and removes the row once the topic is readable.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from psycopg.rows import class_row

from truelog.storage.database import Connection, storable


@dataclass(frozen=True)
class SuspendedTopic:
    """A topic that an application does not read at present."""

    topic: str
    application: str
    reason: str
    since: datetime


def record_suspended(connection: Connection, application: str, bad: Mapping[str, str]) -> None:
    """Record exactly these topics, each with its reason, as the topics that the application has suspended."""
    with connection.transaction(), connection.cursor() as cursor:
        cursor.execute(
            "DELETE FROM truelog.topic_status WHERE application = %s AND topic <> ALL(%s)", (application, list(bad))
        )
        cursor.executemany(
            "INSERT INTO truelog.topic_status (topic, application, reason) VALUES (%s, %s, %s) "
            "ON CONFLICT (topic, application) DO UPDATE SET reason = excluded.reason",
            [(topic, application, storable(reason)) for topic, reason in bad.items()],
        )


def suspended_topics(connection: Connection) -> list[SuspendedTopic]:
    """Every topic that an application has suspended, by topic and application."""
    with connection.cursor(row_factory=class_row(SuspendedTopic)) as cursor:
        return cursor.execute(
            "SELECT topic, application, reason, since FROM truelog.topic_status ORDER BY topic, application"
        ).fetchall()
