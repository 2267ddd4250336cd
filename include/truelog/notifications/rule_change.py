"""Rule change: what a changed or retired rule means for the rows that it has known.

A row that waits is forgotten if its rule is no longer about its view. The rows of a row rule are judged again by its
new conditions: a row that still fits stays in its incident. Without such a rule, the incidents of the rows end.
"""

import uuid
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from psycopg import sql
from psycopg.rows import class_row

from truelog.notifications import incident
from truelog.notifications.rules.rule import NotificationRule, apart
from truelog.storage import exact_json
from truelog.storage.database import Connection

_FORGET_RETIRED = """
    DELETE FROM truelog.notification_row r WHERE incident IS NULL AND NOT EXISTS (
        SELECT FROM unnest(%s::text[], %s::text[]) AS f (name, of_view) WHERE (name, of_view) = (r.notification, r.view)
    )
"""


class _Judged(NamedTuple):
    """A row that was judged by a declaration that is no longer in force."""

    notification: str
    view: str
    key: str
    value: str
    incident: uuid.UUID | None
    retracted: bool
    now: datetime


def follow(connection: Connection, rules: Sequence[NotificationRule]) -> None:
    """Apply the rules in force to the known rows."""
    connection.execute(_FORGET_RETIRED, ([each.name for each in rules], [each.view for each in rules]))
    declared = [each.declared for each in rules if each.declared]
    by_place = {(each.name, each.view): each for each in rules if each.declared}
    with connection.cursor(row_factory=class_row(_Judged)) as cursor:
        changed = cursor.execute(
            "SELECT notification, view, key, value, incident, retracted, now() FROM truelog.notification_row "
            "WHERE declared IS NOT NULL AND declared <> ALL(%s) ORDER BY number",
            (declared,),
        ).fetchall()
    for row in changed:
        if rule := by_place.get((row.notification, row.view)):
            with apart(rule):
                _judge(connection, rule, row)
    _end(connection, sql.SQL("declared IS NOT NULL AND declared <> ALL(%s)"), declared, "the rule is gone")


def end_of_view(connection: Connection, view: str, place: str) -> None:
    """The changes of a view do not continue, so it is not known whether its rows still fit row rules."""
    _end(connection, sql.SQL("declared IS NOT NULL AND view = %s"), view, place)


def _judge(connection: Connection, rule: NotificationRule, row: _Judged) -> None:
    """Judge a row by the new conditions of its rule. A row that waits begins to wait again."""
    value, place = exact_json.read(row.value), (row.notification, row.view, row.key)
    if row.incident is None and not rule.fits(value):
        connection.execute("DELETE FROM truelog.notification_row WHERE (notification, view, key) = (%s, %s, %s)", place)
        return
    leaves = row.incident is not None and (row.retracted or rule.leaves(value))
    connection.execute(
        "UPDATE truelog.notification_row SET declared = %s, settled_after = %s, retracted = %s "
        "WHERE (notification, view, key) = (%s, %s, %s)",
        (rule.declared, rule.settled_after(value, row.now), leaves, *place),
    )
    if row.incident and leaves and not row.retracted:
        incident.end_if_empty(connection, rule, row.incident, f"{rule.declared} {row.key}")


def _end(connection: Connection, which: sql.SQL, given: object, change: str) -> None:
    """Forget rows of row rules, and end their open incidents."""
    forget = sql.SQL("DELETE FROM truelog.notification_row WHERE {} RETURNING incident").format(which)
    incidents = {incident for (incident,) in connection.execute(forget, (given,)).fetchall()}
    ended = connection.execute(
        "SELECT notification, id FROM truelog.notification_incident WHERE id = ANY(%s) AND until > now() ORDER BY 2",
        (list(incidents - {None}),),
    ).fetchall()
    for name, each in ended:
        incident.end(connection, name, each, "ended", change)
