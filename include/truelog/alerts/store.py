"""Alerts in PostgreSQL: open and resolved incidents, acknowledgements and silences.

All times are PostgreSQL times. The watch and people write different columns, so they never overwrite each other's
changes.
"""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from psycopg.rows import class_row

from truelog.alerts import effects
from truelog.alerts.rules import (
    SOURCE_DOWN,
    Alert,
    Evaluation,
    EvaluationContext,
    NotificationPolicy,
    Observation,
    Silence,
    Source,
    evaluate_all,
)
from truelog.alerts.sources import outbox
from truelog.storage import audit_trail
from truelog.storage.audit_trail import OperationKind
from truelog.storage.database import Connection, read_value
from truelog.storage.locks import Locks
from truelog.support.errors import BadInput

_ALERT = (
    "SELECT kind, subject, cause, found_at, opened_at, told_at, gone_at, acknowledged_at, acknowledged_by, "
    "resolved_at, id FROM truelog.alert "
)
_OF_SOURCE = "WHERE resolved_at IS NULL AND (kind = ANY(%s) OR kind = %s AND subject = %s) ORDER BY id"
_RECENT = "WHERE resolved_at IS NULL OR resolved_at > now() - %s ORDER BY found_at, id"
_OLD = (
    "SELECT id FROM truelog.alert a WHERE resolved_at < now() - %(age)s "
    "AND NOT EXISTS (SELECT FROM truelog.notification n WHERE n.alert = a.id AND done_at IS NULL)"
)
_SILENCE = "SELECT pattern, until, made_by AS by, why, id FROM truelog.silence WHERE until > now() ORDER BY until, id"


def open_alerts(connection: Connection) -> list[Alert]:
    """All open alerts, including acknowledged alerts, oldest first."""
    return _alerts(connection, "WHERE resolved_at IS NULL AND opened_at IS NOT NULL ORDER BY opened_at, id")


def resolved_alerts(connection: Connection, limit: int = 200) -> list[Alert]:
    """The most recently resolved alerts, latest first."""
    return _alerts(connection, "WHERE resolved_at IS NOT NULL ORDER BY resolved_at DESC, id DESC LIMIT %s", limit)


def causes(connection: Connection, application_of: Callable[[str], str]) -> dict[str, str]:
    """The cause of each folded alert, by key. `application_of` returns the application of a reader."""
    now = read_value(connection, "SELECT now()")
    known = _alerts(connection, _RECENT, effects.OUTLIVES)
    return effects.causes_of(known, now, application_of, active_silences(connection))


def open_incidents(connection: Connection, application_of: Callable[[str], str]) -> list[Alert]:
    """The open alerts that do not follow from another alert, oldest first."""
    folded = causes(connection, application_of)
    return [each for each in open_alerts(connection) if each.key not in folded]


def acknowledge(connection: Connection, key: str, by: str) -> Alert:
    """Stop the reminders for an open alert. Only the first acknowledgement counts.

    Raises:
        BadInput: no alert with this key is open.
    """
    condition = "kind || '/' || subject = %s AND resolved_at IS NULL AND opened_at IS NOT NULL"
    first = connection.execute(
        f"UPDATE truelog.alert SET acknowledged_at = now(), acknowledged_by = %s WHERE {condition} "  # noqa: S608
        "AND acknowledged_at IS NULL",
        (by, key),
    )
    if first.rowcount:
        audit_trail.record_operation(connection, OperationKind.ACKNOWLEDGE, key, by)
    for alert in _alerts(connection, f"WHERE {condition}", key):
        return alert
    raise BadInput(f"No alert {key} is open. `truelog alerts` lists the open alerts.")


def active_silences(connection: Connection) -> list[Silence]:
    """The active silences, in the order in which they end."""
    with connection.cursor(row_factory=class_row(Silence)) as cursor:
        return cursor.execute(_SILENCE).fetchall()


def add_silence(connection: Connection, pattern: str, duration: timedelta, *, by: str, why: str) -> Silence:
    """Hold back new notifications for matching keys, such as `application_down/*`, `*/page_views`, one key or `*`.

    Raises:
        BadInput: no key can match the pattern, or the duration is not positive.
    """
    if not pattern or duration <= timedelta():
        raise BadInput(
            "A silence needs a key pattern and a duration: `truelog alerts silence 'application_down/*' --for 2h`."
        )
    if not set(pattern) & set("/*?["):
        raise BadInput(
            f"No alert can match {pattern!r}, because a key is KIND/SUBJECT. Write '{pattern}/*' for a kind, "
            f"'*/{pattern}' for a subject, or a whole key. `truelog alerts` lists the keys of open alerts."
        )
    with connection.cursor(row_factory=class_row(Silence)) as cursor:
        [silence] = cursor.execute(
            "INSERT INTO truelog.silence (pattern, until, made_by, why) VALUES (%s, now() + %s, %s, %s) "
            "RETURNING pattern, until, made_by AS by, why, id",
            (pattern, duration, by, why),
        ).fetchall()
    audit_trail.record_operation(
        connection, OperationKind.SILENCE, pattern, by, f"until {silence.until:%Y-%m-%d %H:%M} UTC: {why}"
    )
    return silence


def end_silence(connection: Connection, id_: int, by: str) -> None:
    """End a silence early.

    Raises:
        BadInput: the silence is not active.
    """
    query = "UPDATE truelog.silence SET until = now() WHERE id = %s AND until > now() RETURNING pattern"
    pattern = read_value(connection, query, (id_,))
    if pattern is None:
        raise BadInput(f"No silence {id_} is active. `truelog alerts` lists the active silences.")
    audit_trail.record_operation(connection, OperationKind.UNSILENCE, pattern, by)


def record_observation(
    connection: Connection, source: Source, observation: Observation, policy: NotificationPolicy
) -> None:
    """Store the alerts that result from an observation and the notifications that are due, in one transaction."""
    with connection.transaction():
        connection.execute(f"SELECT pg_advisory_xact_lock({Locks.ALERTS})")  # one observation at a time
        now: datetime = read_value(connection, "SELECT now()")
        known = _alerts(connection, _OF_SOURCE, list(source.kinds), SOURCE_DOWN, source.name)
        own = {each.id for each in known}
        others = [each for each in _alerts(connection, _RECENT, effects.OUTLIVES) if each.id not in own]
        silences = tuple(active_silences(connection))

        def fold(own: Sequence[Alert]) -> dict[str, str]:
            return effects.causes_of([*others, *own], now, policy.application_of, silences)

        context = EvaluationContext(now, policy.repeat, silences, fold)
        for evaluation in evaluate_all(known, observation, context):
            id_ = _store(connection, evaluation)
            if evaluation.notify:
                outbox.enqueue(connection, policy.receivers, id_, evaluation.notify, evaluation.alert.cause)


def delete_old(connection: Connection, age: timedelta) -> int:
    """Delete alerts that were resolved and silences that ended longer than `age` ago, and return the number of alerts.

    The notifications of a deleted alert are also deleted. An alert that is open or has a waiting notification is kept.
    """
    limit = {"age": age}
    with connection.transaction():
        connection.execute("DELETE FROM truelog.silence WHERE until < now() - %(age)s", limit)
        connection.execute(f"DELETE FROM truelog.notification WHERE alert IN ({_OLD})", limit)  # noqa: S608
        return connection.execute(f"DELETE FROM truelog.alert WHERE id IN ({_OLD})", limit).rowcount  # noqa: S608


def _alerts(connection: Connection, condition: str, *parameters: object) -> list[Alert]:
    with connection.cursor(row_factory=class_row(Alert)) as cursor:
        return cursor.execute((_ALERT + condition).encode(), parameters).fetchall()


def _store(connection: Connection, evaluation: Evaluation) -> int:
    """Write all columns except the acknowledgement, which only people write, and return the row id."""
    alert = evaluation.alert
    if evaluation.forget:
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
    stored: int = read_value(
        connection,
        "INSERT INTO truelog.alert (cause, opened_at, told_at, gone_at, resolved_at, kind, subject, found_at) "
        "VALUES (%s, %s, %s, %s, %s, %s, %s, %s) RETURNING id",
        (*values, alert.kind, alert.subject, alert.found_at),
    )
    return stored
