"""Questions about the past of views, as the API stores them."""

from datetime import timedelta

from psycopg import sql

from tests.builders.rows import before_now, insert
from truelog.storage.database import Connection


def a_question(connection: Connection, digest: str, view: str, ago: timedelta, *, answered: bool = False) -> None:
    """A question that was asked some time ago. An answered one was refused just now."""
    asked = {"digest": digest, "view": view, "version": 1, "at": sql.SQL("now()"), "asked": "{}", "asker": "a"}
    answer = {"answered_at": sql.SQL("now()"), "status": 409} if answered else {}
    insert(connection, "past_question", **asked, asked_at=before_now(ago), **answer)


def forget_questions(connection: Connection, view: str) -> None:
    connection.execute("DELETE FROM truelog.past_question WHERE view = %s", (view,))
