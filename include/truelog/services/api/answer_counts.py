"""Counts the answers about each view by API key, and adds them to the database every few seconds."""

import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from truelog.serving import view_readers
from truelog.storage.kept_sessions import kept
from truelog.support.background import Background, running
from truelog.support.settings import Settings

_SECONDS = 10.0
_STOP_SECONDS = 5.0

log = logging.getLogger(__name__)


class AnswerCounts:
    """Counts in memory. A crash loses the counts of a few seconds, which nothing depends on."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._counted = Counter[tuple[str, str]]()

    def add(self, view: str, reader: str) -> None:
        """Count an answer about a view to the holder of an API key."""
        self._counted[view, reader] += 1

    def store(self) -> None:
        """Add the counts to the database. If it does not answer, they stay until the next time."""
        counted, self._counted = self._counted, Counter()
        if not counted:
            return
        try:
            with kept(self._settings) as connection, connection.transaction():
                view_readers.add(connection, counted)
        except psycopg.Error as error:
            log.warning("the numbers of answers were not stored: %s", error)
            self._counted.update(counted)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Store the counts again and again during the block, and at its end."""
        with running([Background("answers", self.store, _SECONDS)], _STOP_SECONDS):
            yield
        self.store()
