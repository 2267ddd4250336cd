"""The notification rules in force, as the states of commands say."""

from truelog.notifications import rule_change
from truelog.notifications.rules.declaration import check
from truelog.notifications.rules.rule import NotificationRule
from truelog.storage.database import Connection
from truelog.support.errors import BadInput

TOPIC = "notification_rule"
_LOOK = "2 seconds"  # between the times that the notifier tells that it has looked

_POSITION = """
    SELECT f.topic_id, p.next_offset, n.topic_id, n.next_offset
    FROM (SELECT) AS one
    LEFT JOIN (truelog.command_fold f JOIN truelog.command_position p USING (event)) ON event = %s
    LEFT JOIN truelog.notifier n ON true
"""


def in_force(connection: Connection) -> list[NotificationRule]:
    """The rules in force, by name. A rule that this release does not accept is left out."""
    query = "SELECT key, state FROM truelog.command_key WHERE event = %s AND state <> '{}' ORDER BY key"
    found = list[NotificationRule]()
    for name, state in connection.execute(query, (TOPIC,)).fetchall():
        try:
            found.append(check(state, str(name)))
        except (BadInput, KeyError, TypeError):
            continue
    return found


def read_on(connection: Connection) -> list[NotificationRule] | None:
    """The rules in force, and remember how far they were read. Rows that they know follow changed rules.

    None while they are made again from the log, and were read further before: some may be missing.
    """
    with connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        [(topic, end, known_topic, known_end)] = connection.execute(_POSITION, (TOPIC,)).fetchall()
        is_behind = known_end is not None and (end is None or (topic == known_topic and end < known_end))
        if is_behind:
            topic, end = known_topic, known_end
        rules = in_force(connection)
        if (topic, end) != (known_topic, known_end):
            rule_change.follow(connection, rules)
            connection.execute(
                "INSERT INTO truelog.notifier (looked_at, topic_id, next_offset) VALUES ('epoch', %s, %s) "
                "ON CONFLICT (one) DO UPDATE SET topic_id = excluded.topic_id, next_offset = excluded.next_offset",
                (topic, end),
            )
        return None if is_behind else rules


def record_look(connection: Connection) -> None:
    """The notifier has looked for changes. Its readiness follows from this time."""
    connection.execute(
        "INSERT INTO truelog.notifier (looked_at) SELECT now() WHERE NOT EXISTS ("
        "SELECT FROM truelog.notifier WHERE looked_at > now() - %s::interval"
        ") ON CONFLICT (one) DO UPDATE SET looked_at = excluded.looked_at",
        (_LOOK,),
    )
