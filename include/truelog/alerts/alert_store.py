"""Alerts as PostgreSQL keeps them: those that are open, those that were, and what people do about them.

The clock of all of it is PostgreSQL's. Whoever looks and whoever acknowledges write different columns, so that neither
undoes what the other did.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from psycopg.rows import class_row

from truelog.alerts import alert_outbox
from truelog.alerts.alert import (
    SOURCE_DOWN,
    Alert,
    Evaluation,
    EvaluationContext,
    Observation,
    Silence,
    Source,
    evaluate_all,
)
from truelog.alerts.alert_kind import with_current_kind
from truelog.storage import audit_trail
from truelog.storage.audit_trail import OperationKind
from truelog.storage.database import Connection
from truelog.support.errors import BadInput

_ALERT = (
    "SELECT kind, subject, cause, found_at, opened_at, told_at, gone_at, acknowledged_at, acknowledged_by, "
    "resolved_at, id, opened_as FROM truelog.alert "
)
_OF_SOURCE = "WHERE resolved_at IS NULL AND (kind = ANY(%s) OR kind = %s AND subject = %s) ORDER BY id"
_OLD = (
    "SELECT id FROM truelog.alert a WHERE resolved_at < now() - %(age)s "
    "AND NOT EXISTS (SELECT FROM truelog.notification n WHERE n.alert = a.id AND done_at IS NULL)"
)
_SILENCE = "SELECT pattern, until, made_by AS by, why, id FROM truelog.silence WHERE until > now() ORDER BY until, id"


def open_alerts(connection: Connection) -> list[Alert]:
    """Those that are open now, acknowledged or not, the oldest first."""
    return _alerts(connection, "WHERE resolved_at IS NULL AND opened_at IS NOT NULL ORDER BY opened_at, id")


def resolved_alerts(connection: Connection, limit: int = 200) -> list[Alert]:
    """Those that were resolved, the latest first."""
    return _alerts(connection, "WHERE resolved_at IS NOT NULL ORDER BY resolved_at DESC, id DESC LIMIT %s", limit)


def acknowledge(connection: Connection, key: str, by: str) -> Alert:
    """Somebody works on it, and nobody is told again; the first to say so is remembered. Accepts a former kind.

    Raises:
        BadInput: no alert with this key is open.
    """
    key = with_current_kind(key)
    of = "kind || '/' || subject = %s AND resolved_at IS NULL AND opened_at IS NOT NULL"
    connection.execute(
        f"UPDATE truelog.alert SET acknowledged_at = now(), acknowledged_by = %s WHERE {of} "  # noqa: S608
        "AND acknowledged_at IS NULL",
        (by, key),
    )
    for alert in _alerts(connection, f"WHERE {of}", key):
        return alert
    raise BadInput(f"no alert {key} is open; `truelog alerts` lists those that are.")


def active_silences(connection: Connection) -> list[Silence]:
    """Those that hold now, the first to end first."""
    with connection.cursor(row_factory=class_row(Silence)) as cursor:
        return cursor.execute(_SILENCE).fetchall()


def add_silence(connection: Connection, pattern: str, lasts: timedelta, *, by: str, why: str) -> Silence:
    """Nothing new is told of keys like this for so long: `application_down/*`, `*/page_views`, one key, or `*`."""
    pattern = with_current_kind(pattern)
    if not pattern or lasts <= timedelta():
        raise BadInput(
            "A silence needs a pattern of keys and a duration: `truelog alerts silence 'application_down/*' --for 2h`."
        )
    with connection.cursor(row_factory=class_row(Silence)) as cursor:
        made = cursor.execute(
            "INSERT INTO truelog.silence (pattern, until, made_by, why) VALUES (%s, now() + %s, %s, %s) "
            "RETURNING pattern, until, made_by AS by, why, id",
            (pattern, lasts, by, why),
        ).fetchone()
    assert made is not None  # noqa: S101
    audit_trail.record_operation(
        connection, OperationKind.SILENCE, pattern, by, f"until {made.until:%Y-%m-%d %H:%M} UTC: {why}"
    )
    return made


def end_silence(connection: Connection, id_: int, by: str) -> None:
    """Break it off.

    Raises:
        BadInput: no such silence holds.
    """
    ended = connection.execute(
        "UPDATE truelog.silence SET until = now() WHERE id = %s AND until > now() RETURNING pattern", (id_,)
    ).fetchone()
    connection.execute("UPDATE truelog.silence SET until = now() WHERE extends = %s AND until > now()", (id_,))
    if ended is None:
        raise BadInput(f"no silence {id_} holds; `truelog alerts` lists those that do.")
    audit_trail.record_operation(connection, OperationKind.UNSILENCE, str(ended[0]), by)


def record_observation(
    connection: Connection, source: Source, sight: Observation, receivers: Iterable[str], repeat: timedelta
) -> None:
    """Keep what one look of a source comes to, and what receivers are to be told, within one transaction."""
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(hashtext('truelog.alert'))")  # one look after the other
        row: Any = connection.execute("SELECT now()").fetchone()
        now: datetime = row[0]
        known = _alerts(connection, _OF_SOURCE, list(source.kinds), SOURCE_DOWN, source.name)
        for each in evaluate_all(known, sight, EvaluationContext(now, repeat, tuple(active_silences(connection)))):
            id_ = _keep(connection, each)
            if each.says:
                alert_outbox.enqueue(connection, receivers, id_, each.says, each.alert.cause)


def delete_old(connection: Connection, age: timedelta) -> int:
    """Forget alerts that were resolved so long ago, with all that was told of them, and silences; how many alerts.

    One whose end somebody is still to be told is kept, and so is every one that is open.
    """
    limit = {"age": age}
    with connection.transaction():
        connection.execute("DELETE FROM truelog.silence WHERE until < now() - %(age)s", limit)
        connection.execute(f"DELETE FROM truelog.notification WHERE alert IN ({_OLD})", limit)  # noqa: S608
        return connection.execute(f"DELETE FROM truelog.alert WHERE id IN ({_OLD})", limit).rowcount  # noqa: S608


def _alerts(connection: Connection, which: str, *given: object) -> list[Alert]:
    with connection.cursor(row_factory=class_row(Alert)) as cursor:
        return cursor.execute((_ALERT + which).encode(), given).fetchall()


def _keep(connection: Connection, step: Evaluation) -> int:
    """What people write, acknowledgements, stays as it is."""
    alert = step.alert
    if step.forget:
        connection.execute("DELETE FROM truelog.alert WHERE id = %s", (alert.id,))
        return alert.id or 0
    values = (alert.cause, alert.opened_at, alert.told_at, alert.gone_at, alert.resolved_at)
    if alert.id is not None:
        connection.execute(
            "UPDATE truelog.alert SET cause = %s, opened_at = %s, told_at = %s, gone_at = %s, resolved_at = %s "
            "WHERE id = %s",
            (*values, alert.id),
        )
        return alert.id
    row = connection.execute(
        "INSERT INTO truelog.alert (cause, opened_at, told_at, gone_at, resolved_at, kind, subject, found_at) "
        "VALUES (%s, %s, %s, %s, %s, %s, %s, %s) RETURNING id",
        (*values, alert.kind, alert.subject, alert.found_at),
    ).fetchone()
    assert row is not None  # noqa: S101
    return int(str(row[0]))
