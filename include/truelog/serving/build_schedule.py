"""The builds of the batch-only views: once a day, at a time in the settings."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from truelog.storage.database import Connection
from truelog.support.settings import Settings

_BUILDS = """
    SELECT view, built_at, as_of, reason FROM truelog.batch_only JOIN truelog.answer USING (view, version)
    WHERE view = ANY(%s) ORDER BY view
"""


@dataclass(frozen=True)
class BuildStatus:
    """The last build of a batch-only view, and when the next build begins.

    The rows contain every record that reached the log before `as_of`, which is None until the first build.
    """

    view: str
    built_at: datetime | None
    as_of: datetime | None
    reason: str
    next_build: datetime

    @property
    def plan(self) -> str:
        """When the next build begins, for people."""
        return f"the next build begins at {self.next_build:%Y-%m-%d %H:%M} UTC"


def build_statuses(settings: Settings, connection: Connection, views: Iterable[str]) -> dict[str, BuildStatus]:
    """The status of each of these views that is batch-only and has a table."""
    rows = connection.execute(_BUILDS, (list(views),)).fetchall()
    following = next_build(settings, datetime.now(UTC))
    return {view: BuildStatus(view, built_at, as_of, reason, following) for view, built_at, as_of, reason in rows}


def cron(settings: Settings) -> str:
    """The schedule in the format of cron, in UTC."""
    at = settings.batch_views_at
    return f"{at.minute} {at.hour} * * *"


def next_build(settings: Settings, now: datetime) -> datetime:
    """The time at which the next scheduled build begins."""
    today = datetime.combine(now.astimezone(UTC), settings.batch_views_at, UTC)
    return today if today > now else today + timedelta(days=1)
