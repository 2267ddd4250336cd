"""Intake: reads the changed rows of a view in order, and turns them into notifications.

One transaction reads the next changes, stores what they say, and moves the place. So each change counts once, whenever
the notifier dies. The changes of one transaction of the view are a step. For each step:

1. Settled rows of row rules belong to incidents, as they were before the step.
2. A row that a rule fits is stored. It settles when the clock has passed its `settled_after`, at once if it has none.
3. Rows of row rules that settle at once belong to incidents, before other rows of the step leave theirs.
4. A row that no longer fits and belongs to no incident is forgotten. A row of an incident may leave it. The incident
   ends with its last row.

The clock of a row rule is the time of the view's transactions, so its steps have the same incidents in whatever
portions they are read. The clock of other rules is that of the log, which counts once all changes are read.

A settled row belongs to the open incident of its group. Without one, it opens an incident, with a notification, which
is held until all changes are read. A row that waits is forgotten if the rule was changed and no longer fits it. If a
rule of matches or hits gets another subject, the rows of its earlier incidents leave without a word.
"""

import uuid
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby
from typing import Any, NamedTuple

from truelog.notifications import incident
from truelog.notifications.rules.rule import NotificationRule, apart
from truelog.notifications.source import Source
from truelog.storage import exact_json
from truelog.storage.database import Connection
from truelog.support.faults import reach

_PORTION = 1_000  # changes in one transaction; a larger step is split
_SETTLED = 200  # rows that join incidents in one transaction


class _Change(NamedTuple):
    """A changed row. `id` is stable: a database that was restored has the same numbers, but not the same ids."""

    number: int
    id: str
    key: str
    value: Mapping[str, Any] | None
    step: int  # the number of the last change of the step
    made_at: datetime


@dataclass(frozen=True)
class _Known:
    """A row that a rule fits or has fitted. Without an incident, it has caused no notification yet.

    told_subject: the rule's subject when the incident began.
    """

    incident: uuid.UUID | None
    told_subject: str | None
    retracted: bool


_AllKnown = Mapping[str, Mapping[str, _Known]]  # by key and rule


def take_in(connection: Connection, source: Source, rules: Sequence[NotificationRule]) -> int:
    """Read the next changes of a view, and return how much there was to do. `connection` is in a transaction."""
    changes, row_rules = _next_changes(connection, source), [each for each in rules if each.declared]
    for _, grouped in groupby(changes, lambda each: each.step):
        step = list(grouped)
        _join_all(connection, source, row_rules, step[0].made_at)  # 1
        _arrive(connection, source, rules, step)  # 2
        _join_all(connection, source, row_rules, step[0].made_at)  # 3
        _leave(connection, source, rules, step)  # 4
    if not changes or changes[-1].number == source.last:
        joined = _join(connection, source, [each for each in rules if not each.declared], source.clock)
        joined += _join(connection, source, row_rules, source.now)
        incident.release(connection, rules)
    else:
        joined = _join(connection, source, row_rules, changes[-1].made_at)
    if changes:
        connection.execute(
            "UPDATE truelog.notification_place SET number = %s WHERE view = %s", (changes[-1].number, source.view)
        )
        reach("notifier.taken_in")
    return len(changes) + joined


def _next_changes(connection: Connection, source: Source) -> list[_Change]:
    """The next changes: whole steps, if a portion has a whole one."""
    found = connection.execute(
        "SELECT number, id::text, key, value, last, made_at FROM truelog.published_change "
        "WHERE (view, version) = (%s, %s) AND number > %s AND number <= %s ORDER BY number",
        (source.view, source.version, source.number, min(source.last, source.number + _PORTION)),
    ).fetchall()
    changes = [
        _Change(number, f"{step}:{number}", key, None if value is None else exact_json.read(value), last, made_at)
        for number, step, key, value, last, made_at in found
    ]
    whole = [each for each in changes if each.step <= changes[-1].number]
    return whole or changes


def _arrive(connection: Connection, source: Source, rules: Iterable[NotificationRule], step: Sequence[_Change]) -> None:
    """Store the rows that rules fit now."""
    known = _known_rows(connection, source.view, step)
    for change in step:
        for rule in rules:
            before = known[change.key].get(rule.name)
            with apart(rule):
                if change.value is None or not rule.fits(change.value):
                    continue
                if before is None or before.retracted or (before.incident is None and rule.declared is None):
                    _store(connection, source.view, rule, change, change.value)
                elif before.incident is None:
                    _renew(connection, source.view, rule, change)


def _leave(connection: Connection, source: Source, rules: Iterable[NotificationRule], step: Sequence[_Change]) -> None:
    """Forget the rows that no longer fit, and let the rows of incidents leave."""
    known = _known_rows(connection, source.view, step)
    for change in step:
        for rule in rules:
            before = known[change.key].get(rule.name)
            if before is None or before.retracted:
                continue
            with apart(rule):
                _may_leave(connection, source, rule, change, before)


def _may_leave(connection: Connection, source: Source, rule: NotificationRule, change: _Change, before: _Known) -> None:
    if before.incident is None:
        if not rule.fits(change.value):
            _forget(connection, source.view, rule, change.key)
    elif not rule.leaves(change.value):
        if rule.declared:
            _renew(connection, source.view, rule, change)
    elif before.told_subject == rule.subject and not rule.is_expired(change.key, source.expires_before):
        _retract(connection, source.view, rule, change)
        incident.end_if_empty(connection, rule, before.incident, change.id)


def _known_rows(connection: Connection, view: str, step: Sequence[_Change]) -> _AllKnown:
    known = defaultdict[str, dict[str, _Known]](dict)
    found = connection.execute(
        "SELECT r.key, r.notification, r.incident, i.body ->> 'subject', r.retracted FROM truelog.notification_row r "
        "LEFT JOIN truelog.notification_incident i ON i.id = r.incident WHERE r.view = %s AND r.key = ANY(%s)",
        (view, [each.key for each in step]),
    ).fetchall()
    for key, rule, *row in found:
        known[key][rule] = _Known(*row)
    return known


def _store(
    connection: Connection, view: str, rule: NotificationRule, change: _Change, value: Mapping[str, Any]
) -> None:
    settled_after = rule.settled_after(value, change.made_at)
    row = (rule.name, view, change.key, change.number, change.id, exact_json.write(value), settled_after, rule.declared)
    connection.execute(
        "INSERT INTO truelog.notification_row "
        "(notification, view, key, number, change, value, settled_after, declared) "
        "VALUES (%s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT (notification, view, key) DO UPDATE SET "
        "number = excluded.number, change = excluded.change, value = excluded.value, declared = excluded.declared, "
        "settled_after = excluded.settled_after, incident = NULL, retracted = false, changed_at = now()",
        row,
    )


def _renew(connection: Connection, view: str, rule: NotificationRule, change: _Change) -> None:
    """A row that a row rule knows has changed, and remains what it was to the rule."""
    connection.execute(
        "UPDATE truelog.notification_row SET value = %s, changed_at = now() "
        "WHERE (notification, view, key) = (%s, %s, %s)",
        (exact_json.write(change.value), rule.name, view, change.key),
    )


def _forget(connection: Connection, view: str, rule: NotificationRule, key: str) -> None:
    connection.execute(
        "DELETE FROM truelog.notification_row WHERE (notification, view, key) = (%s, %s, %s)", (rule.name, view, key)
    )


def _retract(connection: Connection, view: str, rule: NotificationRule, change: _Change) -> None:
    connection.execute(
        "UPDATE truelog.notification_row SET retracted = true, changed_at = now() "
        "WHERE (notification, view, key) = (%s, %s, %s)",
        (rule.name, view, change.key),
    )


def _join_all(connection: Connection, source: Source, rules: Sequence[NotificationRule], clock: datetime) -> None:
    while rules and _join(connection, source, rules, clock) == _SETTLED:
        pass


def _join(connection: Connection, source: Source, rules: Sequence[NotificationRule], clock: datetime | None) -> int:
    """Give incidents to rows that are settled and have none, and return how many there were."""
    named = {each.name: each for each in rules}
    found = connection.execute(
        "SELECT notification, key, change, value FROM truelog.notification_row WHERE view = %s "
        "AND notification = ANY(%s) AND incident IS NULL AND (settled_after IS NULL OR settled_after < %s) "
        "ORDER BY settled_after NULLS FIRST, number, notification LIMIT %s",
        (source.view, list(named), clock, _SETTLED),
    ).fetchall()
    for name, key, change, value in found:
        rule, row = named[name], exact_json.read(value)
        belongs_to: uuid.UUID | None = None
        with apart(rule):
            belongs_to = incident.join(connection, rule, key, change, row) if rule.fits(row) else None
        if belongs_to is None:
            _forget(connection, source.view, rule, key)
            continue
        connection.execute(
            "UPDATE truelog.notification_row SET incident = %s WHERE (notification, view, key) = (%s, %s, %s)",
            (belongs_to, name, source.view, key),
        )
    return len(found)
