"""Intake: reads the changed rows of a view in order, and turns them into notifications.

One transaction reads the next rows, stores what they say, and moves the place. So each change counts once, whenever
the notifier dies. The id of a notification is a hash of the rule and of the change that caused it.

1. A row that a rule fits is stored. It waits until all changes are read, and until the log's clock has passed its
   `settled_after`, if it has one.
2. A row that no longer fits and belongs to no incident is forgotten. So is a waiting row if the rule was changed and no
   longer fits it.
3. A settled row belongs to the incident of its group, if one is open. Otherwise it opens an incident, with one
   notification.
4. If all rows of an incident no longer fit, a notification says that it is retracted, unless the rule now has another
   subject.
"""

import json
import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

from truelog.notifications.rule import NotificationRule
from truelog.notifications.source import Source
from truelog.storage import exact_json
from truelog.storage.database import Connection, read_value
from truelog.support.faults import reach

_NAMESPACE = uuid.UUID("b3b2bb0c-6a4d-4a8e-9a0e-3f5b3c0f7d11")
_PORTION = 1_000  # changes in one transaction
_SETTLED = 200  # rows that one transaction tells of


class _Change(NamedTuple):
    """A changed row. `id` is stable: a database that was restored has the same numbers, but not the same ids."""

    number: int
    id: str
    key: str
    value: Mapping[str, Any] | None


@dataclass(frozen=True)
class _Known:
    """A row that a rule fits or has fitted. Without an incident, it has caused no notification yet.

    told_subject: the rule's subject when the incident began.
    """

    incident: uuid.UUID | None
    told_subject: str | None
    retracted: bool


def take_in(connection: Connection, source: Source, rules: Sequence[NotificationRule]) -> int:
    """Read the next changes of a view, and return how much there was to do. `connection` is in a transaction."""
    changes = _next_changes(connection, source)
    known = _known_rows(connection, source.view, [each.key for each in changes])
    for change in changes:
        for rule in rules:
            before = known[change.key].get(rule.name)
            if rule.fits(change.value):
                if before is None or before.incident is None or before.retracted:
                    _store(connection, source.view, rule, change)  # 1
                    known[change.key][rule.name] = _Known(None, None, retracted=False)
            elif before is not None and before.incident is None:
                _forget(connection, source.view, rule, change.key)  # 2
                del known[change.key][rule.name]
            elif before is not None and _is_undone(rule, change, before, source.expires_before):
                _retract(connection, source.view, rule, change, before.incident)  # 4
                known[change.key][rule.name] = replace(before, retracted=True)
    told = 0
    if source.last <= source.number + _PORTION:  # the clock counts for rows only with all changes up to `last`
        told = _tell_settled(connection, source, {each.name: each for each in rules})  # 3
    if changes:
        connection.execute(
            "UPDATE truelog.notification_place SET number = %s WHERE view = %s", (changes[-1].number, source.view)
        )
        reach("notifier.taken_in")
    return len(changes) + told


def _next_changes(connection: Connection, source: Source) -> list[_Change]:
    found = connection.execute(
        "SELECT number, id::text, key, value FROM truelog.published_change WHERE (view, version) = (%s, %s) "
        "AND number > %s AND number <= %s ORDER BY number",
        (source.view, source.version, source.number, min(source.last, source.number + _PORTION)),
    ).fetchall()
    return [
        _Change(number, f"{step}:{number}", key, None if value is None else exact_json.read(value))
        for number, step, key, value in found
    ]


def _known_rows(connection: Connection, view: str, keys: Sequence[str]) -> dict[str, dict[str, _Known]]:
    """The known rows by key and rule."""
    known = defaultdict[str, dict[str, _Known]](dict)
    found = connection.execute(
        "SELECT r.key, r.notification, r.incident, i.body ->> 'subject', r.retracted FROM truelog.notification_row r "
        "LEFT JOIN truelog.notification_incident i ON i.id = r.incident WHERE r.view = %s AND r.key = ANY(%s)",
        (view, list(keys)),
    ).fetchall()
    for key, rule, *row in found:
        known[key][rule] = _Known(*row)
    return known


def _store(connection: Connection, view: str, rule: NotificationRule, change: _Change) -> None:
    settled_after = (change.value or {}).get("settled_after")
    connection.execute(
        "INSERT INTO truelog.notification_row (notification, view, key, number, change, value, settled_after) "
        "VALUES (%s, %s, %s, %s, %s, %s, %s) ON CONFLICT (notification, view, key) DO UPDATE SET "
        "number = excluded.number, change = excluded.change, value = excluded.value, "
        "settled_after = excluded.settled_after, incident = NULL, retracted = false, changed_at = now()",
        (rule.name, view, change.key, change.number, change.id, exact_json.write(change.value), settled_after),
    )


def _forget(connection: Connection, view: str, rule: NotificationRule, key: str) -> None:
    connection.execute(
        "DELETE FROM truelog.notification_row WHERE (notification, view, key) = (%s, %s, %s)", (rule.name, view, key)
    )


def _is_undone(rule: NotificationRule, change: _Change, before: _Known, limit: datetime | None) -> bool:
    """Whether a row of an incident no longer fits because the row has changed, and neither its age nor the rule."""
    return not before.retracted and before.told_subject == rule.subject and not _is_expired(rule, change, limit)


def _is_expired(rule: NotificationRule, change: _Change, limit: datetime | None) -> bool:
    """Whether a row has left the view because of its age."""
    if rule.about.aged is None or limit is None:
        return False
    return datetime.fromisoformat(json.loads(change.key)[rule.about.aged]) < limit


def _retract(
    connection: Connection, view: str, rule: NotificationRule, change: _Change, incident: uuid.UUID | None
) -> None:
    connection.execute(
        "UPDATE truelog.notification_row SET retracted = true, changed_at = now() "
        "WHERE (notification, view, key) = (%s, %s, %s)",
        (rule.name, view, change.key),
    )
    left = read_value(
        connection,
        "SELECT count(*) FROM truelog.notification_row WHERE incident = %s AND NOT retracted",
        (incident,),
    )
    if incident is not None and not left:
        connection.execute("UPDATE truelog.notification_incident SET until = now() WHERE id = %s", (incident,))
        _notify(connection, rule, incident, change.id, "retracted")


def _tell_settled(connection: Connection, source: Source, rules: Mapping[str, NotificationRule]) -> int:
    """Give incidents to rows that are settled and have none, and return how many there were.

    A rule that was changed may no longer fit a row that it has stored.
    """
    found = connection.execute(
        "SELECT notification, key, change, value FROM truelog.notification_row WHERE view = %s "
        "AND notification = ANY(%s) AND incident IS NULL AND (settled_after IS NULL OR settled_after < %s) "
        "ORDER BY number LIMIT %s",
        (source.view, list(rules), source.clock, _SETTLED),
    ).fetchall()
    for name, key, change, value in found:
        rule, row = rules[name], exact_json.read(value)
        if not rule.fits(row):
            _forget(connection, source.view, rule, key)  # 2
            continue
        grouped = exact_json.write([row[column] for column in rule.group_by] if rule.group_by else [key])
        incident = _open_incident(connection, rule, grouped) or _begin_incident(connection, rule, grouped, change, row)
        connection.execute(
            "UPDATE truelog.notification_row SET incident = %s WHERE (notification, view, key) = (%s, %s, %s)",
            (incident, name, source.view, key),
        )
    return len(found)


def _open_incident(connection: Connection, rule: NotificationRule, grouped: str) -> uuid.UUID | None:
    found: uuid.UUID | None = read_value(
        connection,
        "SELECT id FROM truelog.notification_incident WHERE (notification, grouped, channel) = (%s, %s, %s) "
        "AND until > now() LIMIT 1",
        (rule.name, grouped, rule.channel),
    )
    return found


def _begin_incident(
    connection: Connection, rule: NotificationRule, grouped: str, change: str, row: Mapping[str, Any]
) -> uuid.UUID:
    incident = uuid.uuid5(_NAMESPACE, f"{rule.name} {grouped} {change}")
    body = {
        "notification": rule.name,
        "kind": rule.kind,
        "subject": rule.subject,
        "group": {name: row[name] for name in rule.group_by},
        "text": rule.text(row),
        "row": row,
    }
    connection.execute(
        "INSERT INTO truelog.notification_incident (id, notification, channel, grouped, until, body) "
        "VALUES (%s, %s, %s, %s, now() + make_interval(secs => %s), %s)",
        (incident, rule.name, rule.channel, grouped, rule.window_seconds, exact_json.write(body)),
    )
    _notify(connection, rule, incident, change, "opened")
    return incident


def _notify(connection: Connection, rule: NotificationRule, incident: uuid.UUID, change: str, says: str) -> None:
    identity = uuid.uuid5(_NAMESPACE, f"{rule.name} {incident} {says} {change}")
    connection.execute(
        "INSERT INTO truelog.notification_delivery (id, incident, says) VALUES (%s, %s, %s)", (identity, incident, says)
    )
