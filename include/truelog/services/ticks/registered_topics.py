"""The topics whose ends a tick has: every registered topic that exists.

A view takes its topics from the registry too. Its positions would cover a tick that lacks one of them, and its windows
would end with records unread. So no tick is written while the registry does not answer, and a deleted event file
changes nothing.
"""

import psycopg

from truelog.control import event_registry
from truelog.schema.names import TICKS
from truelog.storage.kept_sessions import kept
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings


class RegisteredTopics:
    """The names of the registered topics, read again for each tick."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def names(self) -> set[str]:
        """Every registered topic except `ticks`.

        Raises:
            ServiceDown: PostgreSQL does not answer.
        """
        try:
            with kept(self._settings) as connection:
                return event_registry.newest_versions(connection).keys() - {TICKS}
        except psycopg.Error as error:
            raise ServiceDown(f"the registered topics are unknown: {error}") from error
