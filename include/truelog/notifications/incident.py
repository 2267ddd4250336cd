"""Incident: the rows of one group that one notification tells of, from the first one on.

The id of a notification is a hash of the rule, the incident and the change that caused it, so it never changes. A
notification is held until the notifier has read all changes. An incident that ends before that was over before anyone
could hear of it, so nothing of it is sent.
"""

import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from truelog.notifications.rules.rule import NotificationRule
from truelog.storage import exact_json
from truelog.storage.database import Connection, read_value
from truelog.support.errors import BadInput

_MOST_BYTES = 2_000  # of a group's values, because an entry of an index has room for about 2,700
_NAMESPACE = uuid.UUID("b3b2bb0c-6a4d-4a8e-9a0e-3f5b3c0f7d11")


def join(connection: Connection, rule: NotificationRule, key: str, change: str, row: Mapping[str, Any]) -> uuid.UUID:
    """The open incident of the row's group. Without one, an incident begins, with a notification that is held.

    Raises:
        BadInput: the values of the group are too long.
    """
    grouped = exact_json.write([row.get(column) for column in rule.group_by] if rule.group_by else [key])
    if len(grouped.encode()) > _MOST_BYTES:
        raise BadInput(f"the values of {', '.join(rule.group_by) or 'the key'} have over {_MOST_BYTES:,} bytes")
    return _open(connection, rule, grouped) or _begin(connection, rule, grouped, change, row)


def end_if_empty(connection: Connection, rule: NotificationRule, incident: uuid.UUID, change: str) -> None:
    """End an incident to which no row belongs now, with a notification."""
    query = "SELECT count(*) FROM truelog.notification_row WHERE incident = %s AND NOT retracted"
    if not read_value(connection, query, (incident,)):
        end(connection, rule.name, incident, rule.last_says, change)


def end(connection: Connection, rule: str, incident: uuid.UUID, says: str, change: str) -> None:
    """End an incident, with a notification. If the first one is still held, neither is sent."""
    connection.execute("UPDATE truelog.notification_incident SET until = now() WHERE id = %s", (incident,))
    held = connection.execute(
        "UPDATE truelog.notification_delivery SET outcome = 'over', done_at = now() "
        "WHERE incident = %s AND done_at IS NULL AND next_at = 'infinity'",
        (incident,),
    )
    _notify(connection, incident, says, f"{rule} {incident} {says} {change}", "over" if held.rowcount else "due")


def release(connection: Connection, rules: Sequence[NotificationRule]) -> None:
    """Let the notifications of these rules that are held be sent."""
    connection.execute(
        "UPDATE truelog.notification_delivery d SET next_at = now() FROM truelog.notification_incident i "
        "WHERE i.id = d.incident AND i.notification = ANY(%s) AND d.done_at IS NULL AND d.next_at = 'infinity'",
        ([each.name for each in rules],),
    )


def _open(connection: Connection, rule: NotificationRule, grouped: str) -> uuid.UUID | None:
    found: uuid.UUID | None = read_value(
        connection,
        "SELECT id FROM truelog.notification_incident WHERE (notification, grouped, channel) = (%s, %s, %s) "
        "AND until > now() LIMIT 1",
        (rule.name, grouped, rule.channel),
    )
    return found


def _begin(
    connection: Connection, rule: NotificationRule, grouped: str, change: str, row: Mapping[str, Any]
) -> uuid.UUID:
    incident = uuid.uuid5(_NAMESPACE, f"{rule.name} {grouped} {change}")
    body = {
        "notification": rule.name,
        "kind": rule.kind,
        "subject": rule.subject,
        "group": {name: row.get(name) for name in rule.group_by},
        "text": rule.text(row),
        "row": row,
    }
    connection.execute(
        "INSERT INTO truelog.notification_incident (id, notification, channel, grouped, until, body) "
        "VALUES (%s, %s, %s, %s, now() + make_interval(secs => %s), %s)",
        (incident, rule.name, rule.channel, grouped, rule.incident_seconds, exact_json.write(body)),
    )
    _notify(connection, incident, "opened", f"{rule.name} {incident} opened {change}", "held")
    return incident


def _notify(
    connection: Connection, incident: uuid.UUID, says: str, about: str, state: Literal["due", "held", "over"]
) -> None:
    connection.execute(
        "INSERT INTO truelog.notification_delivery (id, incident, channel, says, next_at, outcome, done_at) "
        "SELECT %(id)s, id, channel, %(says)s, CASE %(state)s WHEN 'held' THEN 'infinity' ELSE now() END, "
        "CASE %(state)s WHEN 'over' THEN 'over' END, CASE %(state)s WHEN 'over' THEN now() END "
        "FROM truelog.notification_incident WHERE id = %(incident)s",
        {"id": uuid.uuid5(_NAMESPACE, about), "incident": incident, "says": says, "state": state},
    )
