"""The first duty of the monitor: polls the lag of the views and of the archive, stores it and publishes it.

The views and the archive are polled separately, so that a hung store does not stop the polling of the views. Each poll
is stored in the history and published as consumer groups.
"""

import logging
import time
from functools import partial
from threading import Lock

import psycopg
from confluent_kafka.admin import AdminClient

from truelog.archive.table import ArchivePosition
from truelog.control import event_registry
from truelog.lag import groups as lag_groups
from truelog.lag import history as lag_history
from truelog.lag import poll as lag_poll
from truelog.lag.limits import POLLS
from truelog.lag.poll import ListReaders
from truelog.lag.window import LagWindow
from truelog.storage.database import Connection
from truelog.storage.kept_sessions import kept
from truelog.support.background import Background
from truelog.support.errors import TruelogError
from truelog.support.settings import Settings

log = logging.getLogger(__name__)


class LagPolls:
    """The polls, and when each last succeeded."""

    def __init__(self, settings: Settings, broker: AdminClient) -> None:
        self.settings = settings
        self._broker = broker
        polled_archive = partial(lag_poll.polled_archive, archive=ArchivePosition())
        self._readers: dict[str, ListReaders] = {"views": lag_poll.polled_views, "archive": polled_archive}
        self._polled_at = dict.fromkeys(self._readers, 0.0)
        self._window: LagWindow | None = None  # of all readers; the polls run in parallel, on different readers
        self._loading = Lock()

    def threads(self) -> list[Background]:
        pause = self.settings.lag_poll_seconds
        return [Background(name, partial(self._try_poll, name), pause) for name in self._readers]

    def are_current(self) -> dict[str, bool]:
        """Whether each poll has succeeded lately."""
        limit = time.monotonic() - POLLS * self.settings.lag_poll_seconds
        return {name: at > limit for name, at in self._polled_at.items()}

    def poll(self, name: str) -> None:
        """Poll (1), store the readings with their verdicts (2), and publish the positions (3)."""
        with kept(self.settings) as connection:
            registered = event_registry.newest_versions(connection)
        readers, readings = lag_poll.poll_once(self.settings, self._broker, registered, self._readers[name])  # 1
        with kept(self.settings) as connection, connection.transaction():
            window = self._load_window(connection)
            judged = [window.judged(each) for each in readings]
            lag_history.append(connection, judged, self.settings.lag_keep_seconds)  # 2
        self._polled_at[name] = time.monotonic()
        lag_groups.publish_groups(
            self.settings, self._broker, {name: reader.at for name, reader in readers.items()}
        )  # 3

    def _load_window(self, connection: Connection) -> LagWindow:
        """The window, which the first poll loads."""
        with self._loading:
            if self._window is None:
                self._window = LagWindow.loaded(connection, self.settings)
            return self._window

    def _try_poll(self, name: str) -> None:
        """Poll once. Log any failure: it leaves a gap in the history, and the verdict then reports the gap."""
        try:
            self.poll(name)
        except (TruelogError, psycopg.Error) as error:
            log.warning("The poll of the %s failed: %s", name, error)
        except Exception:  # a defect must not stop the polling
            log.exception("The poll of the %s failed", name)
