"""Rows of tables whose texts may quote an event, as far as no other builder makes them."""

from psycopg import sql

from tests.builders.rows import NO_TIME, before_now, insert
from truelog.storage.database import Connection

_LAST_ALERT = sql.SQL("(SELECT max(id) FROM truelog.alert)")


def quotes(connection: Connection, view: str, text: str) -> None:
    """A row of each table, about this view, whose text quotes an event. There is an alert."""
    now = before_now(NO_TIME)
    checked = {"certificate": view, "answer": "UNKNOWN", "row_count": 0, "unequal_buckets": 0, "doer": "a person"}
    insert(connection, "certificate_check", reason=text, **checked)
    insert(connection, "invalid_change", event_type=view, key='["bob"]', place="1", reason=text)
    insert(connection, "notification", receiver="pager", alert=_LAST_ALERT, says="open", cause=text, done_at=now)
    insert(connection, "silence", pattern=view, until=now, made_by="a person", why=text)
    insert(connection, "standing", view=view, application="stream", version=1, state="STALLED", reason=text)
    insert(connection, "topic_status", topic=view, application="stream", reason=text)


def an_invalid_change(connection: Connection, event_type: str, key: str) -> None:
    """The last change of a row of a captured table is invalid."""
    insert(connection, "invalid_change", event_type=event_type, key=key, place="1", reason="not a number")
