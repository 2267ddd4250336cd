"""The notifier's round: the changes of all views that rules are about."""

import logging
from collections import defaultdict

from truelog.erasure import hold
from truelog.notifications import intake, rulebook, source
from truelog.notifications.rules.rule import NotificationRule
from truelog.storage.database import Connection
from truelog.support.errors import BadDeclaration
from truelog.support.settings import Settings

log = logging.getLogger("truelog.notifications")


def look(settings: Settings, connection: Connection) -> int:
    """Take in the next changes of each view, and return how much there was to do. Each view has its own transaction.

    The look is recorded if all views could be loaded.
    """
    rules = rulebook.read_on(connection)
    if rules is None:
        rulebook.record_look(connection)
        return 0
    by_view = defaultdict[str, list[NotificationRule]](list)
    for rule in rules:
        by_view[rule.view].append(rule)
    source.close_others(connection, by_view)
    held = hold.held_views(connection)
    found = [_look_at(settings, connection, *each) for each in sorted(by_view.items()) if each[0] not in held]
    if None not in found:
        rulebook.record_look(connection)
    return sum(filter(None, found))


def _look_at(settings: Settings, connection: Connection, view: str, rules: list[NotificationRule]) -> int | None:
    """Take in the next changes of a view. None if the view has no valid file: its changes wait."""
    try:
        with connection.transaction():
            opened = source.open_source(settings, connection, view)
            return intake.take_in(connection, opened, rules) if opened else 0
    except BadDeclaration as error:
        log.warning("%s has no notifications: %s", view, error)
        return None
