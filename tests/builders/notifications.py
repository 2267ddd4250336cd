"""Notification rules as the states of commands have them, and the tables of notifications."""

import json
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from tests.builders.rows import NO_TIME, before_now, insert
from truelog.notifications.rules.found import KINDS
from truelog.storage.database import Connection, read_value

EVENT = "notification_rule"


def no_notifications(connection: Connection) -> None:
    """No notification rule was ever in force."""
    connection.execute(
        "TRUNCATE truelog.notifier, truelog.notification_place, truelog.notification_row, "
        "truelog.notification_incident, truelog.notification_delivery"
    )
    connection.execute("DELETE FROM truelog.merge_tally WHERE view IN ('matches', 'search_hits', 'cart')")
    connection.execute("DELETE FROM truelog.command_key WHERE event = %s", (EVENT,))
    connection.execute("DELETE FROM truelog.command_position WHERE event = %s", (EVENT,))
    connection.execute("DELETE FROM truelog.command_fold WHERE event = %s", (EVENT,))
    insert(connection, "command_fold", event=EVENT, code="c", topic_id="t")
    insert(connection, "command_position", event=EVENT, partition=0, next_offset=0)


def notifier_is_at(connection: Connection, view: str, version: int, number: int) -> None:
    """The notifier follows the version, and has read its changes up to this one."""
    forget_place(connection, view)
    insert(connection, "notification_place", view=view, version=version, beginning=uuid.uuid4(), number=number)


def forget_place(connection: Connection, view: str) -> None:
    connection.execute("DELETE FROM truelog.notification_place WHERE view = %s", (view,))


def told_of(connection: Connection, view: str, key: str, *, ago: timedelta = NO_TIME) -> None:
    """A notification of a row with this key, which has not changed for some time, was delivered."""
    number, place = uuid.uuid4(), {"view": view, "key": key, "notification": "tell"}
    until = datetime.now(UTC)
    insert(
        connection,
        "notification_incident",
        id=number,
        notification="tell",
        channel="ops",
        grouped=key,
        until=until,
        body="{}",
    )
    changed = {"change": "c", "changed_at": before_now(ago)}
    insert(connection, "notification_row", **place, **changed, number=1, value="{}", incident=number)
    insert(connection, "notification_delivery", id=uuid.uuid4(), incident=number, channel="ops", says="opened")


def a_row_that_waits(connection: Connection, view: str, key: str, *, ago: timedelta) -> None:
    """A row that a rule of matches has fitted for some time. It settles tomorrow, by the log's clock."""
    row = {"notification": "tell", "view": view, "key": key, "number": 1, "change": "c", "value": "{}"}
    settles = datetime.now(UTC) + timedelta(days=1)
    insert(connection, "notification_row", **row, settled_after=settles, changed_at=before_now(ago))


def set_rule(
    connection: Connection,
    name: str,
    kind: str,
    subject: str,
    *,
    channel: str = "ops",
    group_by: str | None = None,
    template: str | None = None,
    window_seconds: int = 3600,
) -> None:
    """A rule is in force, as after its record was folded. It replaces a rule of the same name."""
    state: dict[str, object] = {"kind": kind, "subject": subject, "channel": channel, "group_by": group_by}
    state |= {"template": template or KINDS[kind].template, "window_seconds": window_seconds}
    _fold(connection, name, state)


def set_row_rule(
    connection: Connection,
    name: str,
    condition: str,
    *,
    until: str | None = None,
    for_seconds: int | None = None,
    group_by: str | None = None,
    template: str = "$cart_id $quantity",
    view: str = "cart",
) -> None:
    """A rule about the rows of a view is in force. It replaces a rule of the same name."""
    state: dict[str, object] = {"kind": "row", "subject": view, "channel": "ops", "group_by": group_by}
    state |= {"condition": condition, "until": until, "for_seconds": for_seconds, "template": template}
    _fold(connection, name, state)


def pass_time(connection: Connection, passed: timedelta) -> None:
    """Time passes for the changes of views and for the rows that notification rules fit."""
    connection.execute("UPDATE truelog.output_step SET made_at = made_at - %s", (passed,))
    connection.execute("UPDATE truelog.notification_row SET settled_after = settled_after - %s", (passed,))


def retire_rule(connection: Connection, name: str) -> None:
    connection.execute(
        "UPDATE truelog.command_key SET state = '{}', events = events + 1 WHERE (event, key) = (%s, %s)", (EVENT, name)
    )
    _advance(connection)


def make_rules_again(connection: Connection) -> None:
    """The states of the rules are being made again from the log, from its beginning."""
    connection.execute("DELETE FROM truelog.command_key WHERE event = %s", (EVENT,))
    connection.execute("UPDATE truelog.command_position SET next_offset = 0 WHERE event = %s", (EVENT,))


def older_incidents(connection: Connection, ago: timedelta) -> None:
    connection.execute(
        "UPDATE truelog.notification_incident SET until = until - %(ago)s, opened_at = opened_at - %(ago)s",
        {"ago": ago},
    )


def older_notifications(connection: Connection, ago: timedelta) -> None:
    connection.execute("UPDATE truelog.notification_delivery SET made_at = made_at - %s", (ago,))


def set_clock(connection: Connection, view: str, time: str) -> None:
    """The log's clock at the positions of the view."""
    connection.execute(
        "INSERT INTO truelog.merge_tally (view, version, merges, rows, preparing, merging, clock) "
        "VALUES (%s, 1, 0, 0, 0, 0, %s) "
        "ON CONFLICT (view, version) DO UPDATE SET clock = excluded.clock",
        (view, time),
    )


def _fold(connection: Connection, name: str, state: dict[str, object]) -> None:
    connection.execute("DELETE FROM truelog.command_key WHERE (event, key) = (%s, %s)", (EVENT, name))
    insert(connection, "command_key", event=EVENT, key=name, events=1, state=json.dumps(state))
    _advance(connection)


def _advance(connection: Connection) -> None:
    connection.execute("UPDATE truelog.command_position SET next_offset = next_offset + 1 WHERE event = %s", (EVENT,))


def the_notifier_looked(connection: Connection, ago: timedelta) -> None:
    connection.execute("DELETE FROM truelog.notifier")
    insert(connection, "notifier", looked_at=before_now(ago))


def the_notifier_has_read(connection: Connection, view: str, number: int) -> None:
    """The notifier has read the changes of a view up to this number."""
    connection.execute(
        "INSERT INTO truelog.notification_place (view, version, beginning, number) "
        "SELECT view, version, beginning, %s FROM truelog.output WHERE view = %s",
        (number, view),
    )


def a_waiting_notification(connection: Connection, channel: str, ago: timedelta, failed: str | None = None) -> None:
    """A notification of an incident, made some time ago."""
    incident, at = uuid.uuid4(), before_now(ago)
    insert(
        connection,
        "notification_incident",
        id=incident,
        notification="outage",
        channel=channel,
        grouped="[]",
        until=at,
        body="{}",
    )
    insert(
        connection,
        "notification_delivery",
        id=uuid.uuid4(),
        incident=incident,
        channel=channel,
        says="opened",
        made_at=at,
        failed=failed,
    )


def every_notification_is(connection: Connection, outcome: str, ago: timedelta) -> None:
    """No notification waits any longer: all of them came to this, some time ago."""
    connection.execute(
        "UPDATE truelog.notification_delivery SET outcome = %s, done_at = now() - %s WHERE done_at IS NULL",
        (outcome, ago),
    )


def waiting_notifications(connection: Connection, channel: str, count: int) -> None:
    """So many notifications that wait, each of an incident of its own."""
    connection.execute(
        "WITH made AS ("
        "INSERT INTO truelog.notification_incident (id, notification, channel, grouped, until, body) "
        "SELECT gen_random_uuid(), 'outage', %s, number::text, now(), '{}' FROM generate_series(1, %s) AS number "
        "RETURNING id, channel"
        ") INSERT INTO truelog.notification_delivery (id, incident, channel, says) "
        "SELECT gen_random_uuid(), id, channel, 'opened' FROM made",
        (channel, count),
    )
    connection.execute("ANALYZE truelog.notification_incident, truelog.notification_delivery")


def told_of_row(connection: Connection, view: str, key: str) -> None:
    """A channel has accepted a notification of a rule about rows. The row with this key still fits."""
    number, until = uuid.uuid4(), datetime.now(UTC) + timedelta(days=1)
    body = {"notification": "many", "kind": "row", "subject": view, "group": {}, "text": key, "row": {"key": key}}
    about = {"id": number, "notification": "many", "channel": "ops", "grouped": key, "until": until}
    insert(connection, "notification_incident", **about, body=json.dumps(body))
    row = {"notification": "many", "view": view, "key": key, "number": 1, "change": "c", "value": key}
    insert(connection, "notification_row", **row, incident=number, declared=uuid.uuid4())
    delivery = {"incident": number, "channel": "ops", "says": "opened", "outcome": "delivered"}
    insert(connection, "notification_delivery", id=uuid.uuid4(), **delivery, done_at=datetime.now(UTC))


def everything_is_delivered(connection: Connection) -> None:
    """Channels have accepted all notifications that are due."""
    connection.execute(
        "UPDATE truelog.notification_delivery SET outcome = 'delivered', done_at = now(), tries = 1 "
        "WHERE done_at IS NULL AND next_at <= now()"
    )


def notifier_is_at_the_end(connection: Connection, view: str) -> bool:
    """Whether the notifier has read everything that the output of the view has."""
    query = "SELECT (p.beginning, p.number) = (o.beginning, o.number) FROM truelog.notification_place p "
    query += "JOIN truelog.output o USING (view, version) WHERE view = %s"
    return bool(read_value(connection, query, (view,)))


@contextmanager
def without_its_file(connection: Connection, view: str) -> Iterator[None]:
    """The file of the view has been gone for a while, so readers no longer see the view."""
    query = "SELECT version, shown FROM truelog.view WHERE view = %s"
    before = connection.execute(query, (view,)).fetchall()
    connection.execute("UPDATE truelog.view SET removed_at = now(), shown = NULL WHERE view = %s", (view,))
    try:
        yield
    finally:
        for version, shown in before:
            query = "UPDATE truelog.view SET removed_at = NULL, shown = %s WHERE (view, version) = (%s, %s)"
            connection.execute(query, (shown, view, version))
