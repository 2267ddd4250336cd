"""Source: the changed rows of a view, and how far the notifier has read them.

The notifier follows the version that readers see. If it cannot go on where it was, because readers see another version,
the output has begun again, or the rows are gone, it goes on behind the present rows. An output begins with old rows.
Open incidents of row rules then end, because it is not known whether their rows still fit. They also end if the version
that readers see no longer publishes its changes, or if the view was removed.
"""

import logging
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path

from truelog.notifications import rule_change
from truelog.schema import declaration_files
from truelog.storage.database import Connection
from truelog.support.durations import seconds
from truelog.support.settings import Settings
from truelog.views import catalogue

log = logging.getLogger("truelog.notifications")


@dataclass(frozen=True)
class Source:
    """The next changes: those behind `number`, up to `last`.

    now: the database's time, when the notifier has seen all changes up to `last`.
    clock: the log's clock at the positions of the view, with all changes up to `last`; None if the view has none yet.
    keep: how long rows stay, by the log's clock; None: they do not expire.
    """

    view: str
    version: int
    number: int
    last: int
    now: datetime
    clock: datetime | None
    keep: timedelta | None

    @property
    def expires_before(self) -> datetime | None:
        """The limit of age at `clock`. The merge has removed older rows."""
        return None if self.clock is None or self.keep is None else self.clock - self.keep


_HEAD = """
    SELECT p.version, p.beginning, p.number, (
        SELECT min(o.number) FROM truelog.outbox o WHERE (o.view, o.version) = (p.view, p.version)
    ), now(), t.clock
    FROM truelog.published_place p JOIN truelog.deployed USING (view, version) JOIN truelog.view v USING (view, version)
    LEFT JOIN truelog.merge_tally t USING (view, version)
    WHERE view = %s AND (v.removed_at IS NULL OR v.shown IS NOT NULL)
"""


def open_source(settings: Settings, connection: Connection, view: str) -> Source | None:
    """The view's place, which this transaction locks. None if the view publishes nothing, or was removed.

    Raises:
        BadDeclaration: the view's file is gone or cannot be loaded.
    """
    head = connection.execute(_HEAD, (view,)).fetchall()
    if not head:
        _close(connection, view)
        return None
    [(version, beginning, last, first, now, clock)] = head
    folder = settings.views_folder
    keep = _keep(view, folder, declaration_files.digest(folder / f"{view}.py"))
    place = connection.execute(
        "SELECT version, beginning, number FROM truelog.notification_place WHERE view = %s FOR UPDATE", (view,)
    ).fetchall()
    if place and place[0][:2] == (version, beginning):
        number = int(place[0][2])
        if number >= last or (first is not None and first <= number + 1):
            return Source(view, version, number, last, now, clock, keep)
    if place:
        log.warning("%s does not continue at %s: the notifier goes on behind row %s", view, place[0], last)
        rule_change.end_of_view(connection, view, f"{version} {beginning} {last}")
    connection.execute(
        "INSERT INTO truelog.notification_place (view, version, beginning, number) VALUES (%s, %s, %s, %s) "
        "ON CONFLICT (view) DO UPDATE SET version = excluded.version, beginning = excluded.beginning, "
        "number = excluded.number",
        (view, version, beginning, last),
    )
    return Source(view, version, last, last, now, clock, keep)


def close_others(connection: Connection, views: Collection[str]) -> None:
    """Forget the places of views that no rule is about, so that their outbox is not kept."""
    connection.execute("DELETE FROM truelog.notification_place WHERE view <> ALL(%s)", (list(views),))


def _close(connection: Connection, view: str) -> None:
    """Forget the place of a view that no longer has changes, and end the incidents of its row rules."""
    place = connection.execute(
        "DELETE FROM truelog.notification_place WHERE view = %s RETURNING version, beginning, number", (view,)
    ).fetchall()
    if place:
        log.warning("%s no longer publishes its changes: the notifier read them up to %s", view, place[0])
        rule_change.end_of_view(connection, view, "{} {} {} closed".format(*place[0]))


@cache
def _keep(view: str, folder: Path, _content: str) -> timedelta | None:
    """How long the view keeps rows. A load takes long, and the notifier outlives changes of the file."""
    keep = catalogue.load_view(view, folder).keep
    return None if keep is None else timedelta(seconds=seconds(keep))
