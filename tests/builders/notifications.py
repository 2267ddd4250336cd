"""Notification rules as the states of commands have them, and the tables of notifications."""

import json
from datetime import timedelta

from tests.builders.rows import insert
from truelog.notifications.rule import KINDS
from truelog.storage.database import Connection

EVENT = "notification_rule"


def no_notifications(connection: Connection) -> None:
    """No notification rule was ever in force."""
    connection.execute(
        "TRUNCATE truelog.notifier, truelog.notification_place, truelog.notification_row, "
        "truelog.notification_incident, truelog.notification_delivery"
    )
    connection.execute("DELETE FROM truelog.merge_tally WHERE view IN ('matches', 'search_hits')")
    connection.execute("DELETE FROM truelog.command_key WHERE event = %s", (EVENT,))
    connection.execute("DELETE FROM truelog.command_position WHERE event = %s", (EVENT,))
    connection.execute("DELETE FROM truelog.command_fold WHERE event = %s", (EVENT,))
    insert(connection, "command_fold", event=EVENT, code="c", topic_id="t")
    insert(connection, "command_position", event=EVENT, partition=0, next_offset=0)


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
    """A rule is in force, as after its record was folded."""
    state: dict[str, object] = {"kind": kind, "subject": subject, "channel": channel, "group_by": group_by}
    state |= {"template": template or KINDS[kind].template, "window_seconds": window_seconds}
    insert(connection, "command_key", event=EVENT, key=name, events=1, state=json.dumps(state))
    _advance(connection)


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


def _advance(connection: Connection) -> None:
    connection.execute("UPDATE truelog.command_position SET next_offset = next_offset + 1 WHERE event = %s", (EVENT,))
