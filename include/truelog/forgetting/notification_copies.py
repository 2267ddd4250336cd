"""The notifier: what it keeps of the rows of erased views, and the notifications about a person that wait.

*Matches and hits.* What is deleted before a repair removes its row is not retracted, because the notifier no longer
knows it. A row that the erasure changes causes a notification again, if it still fits.

*Row rules.* A row that the erasure changes stays in its incident with its present values, and the notifier judges the
change as any other. The incident loses its text and row. An incident that names the person, or that no row is left of,
has `ended`, and says so without a text or a row. So none stays open at its receiver.
"""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from psycopg import sql

from truelog.erasure.erasure import Erasures
from truelog.maintenance.notifier_place import place_of_notifier
from truelog.notifications import incident
from truelog.storage.database import Connection
from truelog.tables.compiled_view import CompiledView
from truelog.tables.output import changes

_Incidents = Iterable[tuple[Any, ...]]  # rows of a query, each with the number of an incident

_INCIDENTS = "SELECT id, concat(grouped, ' ', body) FROM truelog.notification_incident"
_ROWS = "SELECT ctid::text, concat(key, ' ', value) FROM truelog.notification_row WHERE view = ANY(%s)"
_FORGET_VALUES = (
    "UPDATE truelog.notification_row SET value = '{}' "
    "WHERE view = %s AND key = ANY(%s) AND declared IS NOT NULL AND incident IS NOT NULL"
)
_FORGET_TEXTS = """
    UPDATE truelog.notification_incident i
    SET body = body || jsonb_build_object('text', notification || ': erased', 'row', '{}'::jsonb)
    WHERE id IN (
        SELECT incident FROM truelog.notification_row WHERE view = %s AND key = ANY(%s) AND declared IS NOT NULL
    ) AND NOT EXISTS (
        SELECT FROM truelog.notification_row r WHERE r.incident = i.id AND r.value::jsonb = i.body -> 'row'
    )
"""  # a text of the present values stays
_OF_OTHERS = (
    "DELETE FROM truelog.notification_row r WHERE view = %s AND key = ANY(%s) AND declared IS NULL AND NOT EXISTS ("
    "SELECT FROM unnest(%s::text[], %s::text[]) AS p (key, value) "
    "WHERE p.key = r.key AND p.value::jsonb = r.value::jsonb) RETURNING incident"
)
_WITHOUT_ROWS = """
    SELECT i.id FROM truelog.notification_incident i WHERE i.id = ANY(%s) AND i.body ->> 'kind' = 'row' AND NOT EXISTS (
        SELECT FROM truelog.notification_row r
        WHERE r.incident = i.id AND NOT r.retracted AND r.value::jsonb @> (i.body -> 'group')
    )
"""  # a changed row may have other values than its group
_TO_BE_ENDED = """
    SELECT i.notification, i.id FROM truelog.notification_incident i
    WHERE i.id = ANY(%s) AND i.body ->> 'kind' = 'row' AND i.until > now() AND NOT EXISTS (
        SELECT FROM truelog.notification_delivery d
        WHERE d.incident = i.id AND d.says = 'opened' AND (d.next_at = 'infinity' OR d.outcome = 'refused')
    ) ORDER BY i.id
"""  # the channel has accepted the beginning, or may have
_ENDING = """
    SELECT DISTINCT d.incident FROM truelog.notification_delivery d
    JOIN truelog.notification_incident i ON i.id = d.incident
    WHERE i.id = ANY(%s) AND i.body ->> 'kind' = 'row' AND d.says <> 'opened' AND d.done_at IS NULL
"""
_FORGET_INCIDENTS = (
    "DELETE FROM truelog.notification_row WHERE incident = ANY(%(all)s)",
    "DELETE FROM truelog.notification_delivery WHERE incident = ANY(%(all)s) "
    "AND (incident <> ALL(%(ending)s) OR says = 'opened' OR done_at IS NOT NULL)",
    "DELETE FROM truelog.notification_incident WHERE id = ANY(%(all)s) AND id <> ALL(%(ending)s)",
    "UPDATE truelog.notification_incident SET grouped = 'erased', body = body || jsonb_build_object("
    "'text', notification || ': erased', 'row', '{}'::jsonb, 'group', '{}'::jsonb) WHERE id = ANY(%(ending)s)",
)


def forget_notifications(connection: Connection, erasures: Erasures, views: Sequence[str]) -> None:
    """Forget the rows of these views and the incidents that name a subject, also as a number. It may be repeated.

    An incident about several rows goes with all of them.
    """
    with connection.transaction():
        _hold(connection, views)
        told = connection.execute(_INCIDENTS).fetchall()
        _forget_incidents(connection, [number for number, text in told if erasures.has_subject(text)])
        rows = connection.execute(_ROWS, (list(views),)).fetchall()
        left = connection.execute(
            "DELETE FROM truelog.notification_row WHERE ctid = ANY(%s::tid[]) "
            "OR (view = ANY(%s) AND declared IS NOT NULL AND retracted AND value = '{}') RETURNING incident",
            ([place for place, text in rows if erasures.has_subject(text)], list(views)),
        ).fetchall()  # the second ones are of a repair after which the command was killed
        _forget_without_rows(connection, left)


def forget_rows(connection: Connection, compiled: CompiledView, keys: Sequence[str]) -> None:
    """Before a repair, forget the matches or hits with these keys, and their incidents with all other rows.

    Rows of row rules and their incidents lose their values and texts, if the notifier follows this version of the view.
    It may be repeated.
    """
    if not keys:
        return
    with connection.transaction():
        _hold(connection, [compiled.name])
        _forget_found(connection, compiled.name, keys, {})
        if _is_followed(connection, compiled):
            connection.execute(_FORGET_VALUES, (compiled.name, list(keys)))
            connection.execute(_FORGET_TEXTS, (compiled.name, list(keys)))


def renew_rows(connection: Connection, compiled: CompiledView, keys: Sequence[str]) -> None:
    """After a repair, forget what the notifier has read of the rows with these keys, except what they are now.

    Rows of row rules get their present values, if the notifier follows this version of the view.
    """
    if not keys:
        return
    with connection.transaction():
        _hold(connection, [compiled.name])
        query = "SELECT DISTINCT key FROM truelog.notification_row WHERE view = %s AND key = ANY(%s)"
        known = [str(key) for (key,) in connection.execute(query, (compiled.name, list(keys))).fetchall()]
        if not known:
            return
        present = _present_rows(connection, compiled, known)
        _forget_found(connection, compiled.name, known, present)
        if _is_followed(connection, compiled):
            _renew_declared(connection, compiled.name, known, present)


def _is_followed(connection: Connection, compiled: CompiledView) -> bool:
    return place_of_notifier(connection, compiled.name, compiled.view.version) is not None


def _hold(connection: Connection, views: Sequence[str]) -> None:
    """Make the notifier wait until this transaction ends."""
    connection.execute("SELECT FROM truelog.notification_place WHERE view = ANY(%s) FOR UPDATE", (list(views),))


def _present_rows(connection: Connection, compiled: CompiledView, keys: Sequence[str]) -> dict[str, str]:
    """The rows with these keys that readers see, by key, as an output has them."""
    rows = sql.SQL("SELECT key, value FROM ({}) AS shown WHERE key = ANY({})")
    query = rows.format(changes.all_rows(compiled.own), sql.Literal(list(keys)))
    return {str(key): str(value) for key, value in connection.execute(query).fetchall()}


def _forget_found(connection: Connection, view: str, keys: Sequence[str], present: Mapping[str, str]) -> None:
    """Forget matches or hits with these keys that are not known as they are at present, and their incidents."""
    given = (view, list(keys), list(present), list(present.values()))
    _forget_incidents(connection, _numbers(connection.execute(_OF_OTHERS, given).fetchall()))


def _renew_declared(connection: Connection, view: str, keys: Sequence[str], present: Mapping[str, str]) -> None:
    """Give rows of row rules their present values. Rows that are gone are forgotten, and incidents that lose all."""
    touched = connection.execute(
        "SELECT incident FROM truelog.notification_row WHERE view = %s AND key = ANY(%s) AND declared IS NOT NULL",
        (view, list(keys)),
    ).fetchall()
    connection.execute(
        "UPDATE truelog.notification_row r SET value = p.value, changed_at = now() "
        "FROM unnest(%s::text[], %s::text[]) AS p (key, value) "
        "WHERE r.view = %s AND r.key = p.key AND r.declared IS NOT NULL",
        (list(present), list(present.values()), view),
    )
    connection.execute(_FORGET_TEXTS, (view, list(keys)))
    connection.execute(
        "DELETE FROM truelog.notification_row WHERE view = %s AND key = ANY(%s) AND declared IS NOT NULL",
        (view, sorted({*keys} - {*present})),
    )
    _forget_without_rows(connection, touched)


def _forget_without_rows(connection: Connection, incidents: _Incidents) -> None:
    """Forget the incidents of row rules, of these, that no row is left of."""
    left = connection.execute(_WITHOUT_ROWS, (_numbers(incidents),)).fetchall()
    _forget_incidents(connection, _numbers(left))


def _numbers(incidents: _Incidents) -> list[uuid.UUID]:
    """The incidents of rows, each once. Rows that wait have none."""
    return sorted({number for (number,) in incidents if number is not None})


def _forget_incidents(connection: Connection, incidents: Sequence[uuid.UUID]) -> None:
    """Forget incidents with their rows. An incident that is open at its receiver keeps its id and its end."""
    every = list(incidents)
    for rule, each in connection.execute(_TO_BE_ENDED, (every,)).fetchall():
        incident.end(connection, rule, each, "ended", "erased")
    ending = [each for (each,) in connection.execute(_ENDING, (every,)).fetchall()]
    for statement in _FORGET_INCIDENTS:
        connection.execute(statement.encode(), {"all": every, "ending": ending})
