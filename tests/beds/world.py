"""A platform on which a scene starts, kills and suspends applications, and what the scene asks about views."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from psycopg import sql

from tests.scenes.applications import Application, start
from tests.scenes.traffic import Traffic, count_valid, in_the_log, page_views
from truelog.archive import log_day
from truelog.archive.table import archived_positions
from truelog.lag import history as lag_history
from truelog.lag import poll as lag_poll
from truelog.log import topics
from truelog.log.positions import Positions
from truelog.schema.loading.events import load_events
from truelog.storage.database import connect
from truelog.support.settings import ENVIRONMENT_FILE, Settings

EACH_EVENT = "each_event"


@dataclass
class World:
    """A scene's queries about view positions and rows."""

    settings: Settings
    traffic: Traffic

    def ask(self, query: str | sql.Composed, *parameters: object) -> list[tuple[Any, ...]]:
        """The query's rows, read on a new connection because scenes kill databases."""
        with connect(self.settings, autocommit=True) as connection:
            return connection.execute(query, parameters).fetchall()

    def positions(self, view: str) -> Positions:
        rows = self.ask("SELECT topic, partition, next_offset FROM truelog.position WHERE view = %s", view)
        offsets: dict[str, dict[int, int]] = {}
        for topic, partition, offset in rows:
            offsets.setdefault(topic, {})[partition] = offset
        return Positions(offsets)

    def caught_up(self, view: str, reads: Iterable[str] = ("page_view",)) -> bool:
        return self.positions(view).covers(topics.end_offsets(self.settings, reads))

    def catch_up(
        self, stream: Application, view: str = "page_views", reads: Iterable[str] = ("page_view",), seconds: float = 90
    ) -> None:
        """Wait until the view reaches the log end as of the stream's start, whatever arrives later."""
        ends: Positions | None = None

        def reached() -> bool:
            nonlocal ends
            if not self.ask("SELECT FROM truelog.lease WHERE pid = %s", stream.process.pid):
                return False
            ends = ends or topics.end_offsets(self.settings, reads)
            return self.positions(view).covers(ends)

        stream.wait(reached, seconds, f"{view} at the end of the log")

    def read_all(self, archive: Application, stream: Application, view: str) -> None:
        """Wait until the view and the archive reach the log end as of now."""
        ends = topics.end_offsets(self.settings, ["page_view"])
        self.catch_up(stream, view)
        archive.wait(
            lambda: archived_positions(self.settings, ["page_view"]).covers(ends), 60, "the archive to catch up"
        )

    def newest_log_day(self, topic: str = "page_view") -> datetime:
        """The newest log day in the archive. At midnight, the present day may have no records."""
        [(day,)] = self.ask("SELECT max(day) FROM truelog.log_day WHERE topic = %s", topic)
        return log_day.as_datetime(day)

    def counted(self, view: str) -> int:
        query = sql.SQL("SELECT coalesce(sum(views), 0)::bigint FROM {}").format(sql.Identifier("views", view))
        return int(self.ask(query)[0][0])

    def miscounted(self, view: str = EACH_EVENT) -> tuple[Counter[str], Counter[str]]:
        """The event ids that a view keyed by event id lacks, and the event ids that it has counted too often."""
        values = in_the_log(self.settings)
        assert len(values) >= self.traffic.acknowledged
        # PostgreSQL cannot store U+0000, so the decoder replaces it.
        sent = Counter(event.event_id.replace("\0", "\u2400") for event in page_views(values))
        query = sql.SQL("SELECT event_id, views FROM {}").format(sql.Identifier("views", view))
        found = Counter({event_id: int(views) for event_id, views in self.ask(query)})
        return sent - found, found - sent

    def require_each_counted_once(self, view: str = EACH_EVENT) -> None:
        lost, doubled = self.miscounted(view)
        assert not lost, f"{len(lost)} events are lost: {lost.most_common(3)}"
        assert not doubled, f"{len(doubled)} events are counted too often: {doubled.most_common(3)}"

    def require_total(self, view: str) -> None:
        """The sum of a view's counts is right. A lost event and a doubled event cancel out here."""
        assert self.counted(view) == count_valid(in_the_log(self.settings))

    def poll_archive(self) -> None:
        """Sample the archive's lag, which tells how far a batch answer goes."""
        broker = topics.client(self.settings)
        _, readings = lag_poll.poll_once(self.settings, broker, load_events(), lag_poll.polled_archive)
        with connect(self.settings) as connection:
            lag_history.append(connection, readings, 3600)

    def cut_off(self, application: str) -> None:
        """Take the lease from its holder, as a network failure would."""
        cut = self.ask(
            "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' "
            "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
            "AND (classid::bigint << 32) | objid::bigint = hashtextextended(%s, 0)",
            application,
        )
        assert cut == [(True,)]

    def overtaken(
        self, application: str, points: Sequence[str], suspended: Callable[[str], Application]
    ) -> Application:
        """Suspend an application at each point. It wakes up and ends once its successor is suspended at the next point.

        Returns the last application, suspended at the last point.
        """
        zombie = suspended(points[0])
        for point in points[1:]:
            self.cut_off(application)
            successor = suspended(point)
            zombie.resume()
            zombie.require_refused()
            zombie = successor
        return zombie

    def overtake(self, zombie: Application, view: str, application: str) -> None:
        """Let a successor finish while the application is suspended in the middle of a merge. Then wake the zombie."""
        zombie.wait_fault()
        self.cut_off(application)
        self.traffic.send(300)
        successor = start(self.settings, "stream.py", "--application", application)
        self.catch_up(successor, view)
        assert successor.end() == 0
        zombie.resume()


@contextmanager
def known(settings: Settings, **more: object) -> Iterator[Settings]:
    """Add settings that every process of this home reads, until the block ends."""
    file = settings.home / ENVIRONMENT_FILE
    before = file.read_text()
    lines = {name: json.dumps(value) if isinstance(value, dict) else value for name, value in more.items()}
    file.write_text(before + "".join(f"TRUELOG_{name.upper()}={value}\n" for name, value in lines.items()))
    yield settings.model_copy(update=more)
    file.write_text(before)
