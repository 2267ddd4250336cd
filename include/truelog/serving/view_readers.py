"""Who reads a view: the holders of API keys, with the number of answers that each got on each day, and SQL sessions.

PostgreSQL does not record what a session has read, so the sessions of analysts and BI tools are seen only while they
read.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from truelog.storage.database import Connection
from truelog.support.setting_groups.namespace import Names
from truelog.support.settings import API_ROLE, API_SERVICE_ROLE, CATALOG_ROLE, COLLECTOR_ROLE, STAGER

_DAYS = 7
# The roles of the platform's processes, besides the owner of the tables.
_OWN = (API_ROLE, API_SERVICE_ROLE, CATALOG_ROLE, COLLECTOR_ROLE, STAGER)
# A transaction holds a lock on each view that it has read until it ends.
_SESSIONS = """
    SELECT a.usename, count(DISTINCT a.pid)::int FROM pg_locks l JOIN pg_stat_activity a USING (pid)
    WHERE l.locktype = 'relation' AND l.relation = to_regclass(format('views.%%I', %s::text))
        AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
        AND a.usename <> current_user AND a.usename <> ALL(%s) GROUP BY a.usename ORDER BY 2 DESC, 1
"""


@dataclass(frozen=True)
class ViewReader:
    """The name of an API key, the answers that its holder got in the last seven days, and when the last one."""

    reader: str
    answers: int
    last_at: datetime


@dataclass(frozen=True)
class SqlReader:
    """A role whose sessions have read a view in a transaction that is still open, and the number of these sessions."""

    role: str
    sessions: int


def add(connection: Connection, answers: Mapping[tuple[str, str], int]) -> None:
    """Add the numbers of answers, by view and name of the API key."""
    with connection.cursor() as cursor:
        cursor.executemany(
            "INSERT INTO truelog.view_reader (view, reader, day, answers, last_at) "
            "VALUES (%s, %s, (now() AT TIME ZONE 'UTC')::date, %s, now()) ON CONFLICT (view, reader, day) "
            "DO UPDATE SET answers = view_reader.answers + excluded.answers, last_at = excluded.last_at",
            [(view, reader, count) for (view, reader), count in sorted(answers.items())],
        )


def views_of_readers(connection: Connection, most: int) -> dict[str, dict[str, int]]:
    """The answers that each reader got in the last seven days, by view: the busiest readers, at most so many."""
    rows = connection.execute(
        "SELECT reader, jsonb_object_agg(view, answers) FROM (SELECT reader, view, sum(answers)::bigint AS answers "
        "FROM truelog.view_reader WHERE last_at > now() - make_interval(days => %s) GROUP BY reader, view) AS of_view "
        "GROUP BY reader ORDER BY sum(answers) DESC, reader LIMIT %s",
        (_DAYS, most),
    ).fetchall()
    return {str(reader): views for reader, views in rows}


def readers(connection: Connection, view: str) -> list[ViewReader]:
    """The readers of the last seven days, those with the most answers first."""
    rows = connection.execute(
        "SELECT reader, sum(answers)::bigint, max(last_at) FROM truelog.view_reader "
        "WHERE view = %s AND last_at > now() - make_interval(days => %s) GROUP BY reader ORDER BY 2 DESC, 1",
        (view, _DAYS),
    ).fetchall()
    return [ViewReader(*row) for row in rows]


def sql_readers(connection: Connection, names: Names, view: str) -> list[SqlReader]:
    """Who reads the view, or a relation that it presents, by SQL at this moment: the roles with most sessions first."""
    own = [names.in_postgresql(role) for role in _OWN]
    return [SqlReader(*row) for row in connection.execute(_SESSIONS, (view, own)).fetchall()]
