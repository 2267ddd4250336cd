"""The builds of the batch-only views: the first as soon as the archive contains events of the view, then once a day."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from truelog.control import application
from truelog.storage.database import Connection, connect
from truelog.support.errors import BadDeclaration
from truelog.support.settings import Settings
from truelog.views import catalogue

_BUILDS = """
    SELECT view, built_at, as_of, reason FROM truelog.batch_only JOIN truelog.answer USING (view, version)
    WHERE view = ANY(%s) ORDER BY view
"""
# The versions of batch-only views that were never built, unless they were refused with these files.
_UNBUILT = """
    SELECT view, version, reads FROM truelog.view v
    WHERE batch_only AND view = ANY(%s) AND removed_at IS NULL AND NOT EXISTS (
        SELECT FROM truelog.batch_answer a WHERE (a.view, a.version) = (v.view, v.version)
    ) AND NOT EXISTS (SELECT FROM truelog.batch_refusal f WHERE f.view = v.view AND f.files = %s)
    ORDER BY view, version
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


def first_builds_due(settings: Settings) -> list[str]:
    """The batch-only views whose declared version was never built, although the archive contains events that it reads.

    Raises:
        ServiceDown: the catalog or the object store does not answer.
    """
    known, files = catalogue.view_names(settings.views_folder), application.source_digest(settings)
    with connect(settings) as connection:
        unbuilt = connection.execute(_UNBUILT, (known, files)).fetchall()
    return [
        view for view, version, reads in unbuilt if _declares(settings, view, version) and _has_events(settings, reads)
    ]


def _declares(settings: Settings, view: str, version: int) -> bool:
    """Whether the view's file declares this version. Other versions are no longer built."""
    try:
        return catalogue.load_view(view, settings.views_folder).version == version
    except BadDeclaration:
        return False


def _has_events(settings: Settings, topics: Iterable[str]) -> bool:
    from truelog.archive.table import archived_positions  # rarely needed, and slow to import

    archived = archived_positions(settings, topics)
    return any(archived.at(topic, partition) for topic, partition in archived.partitions())


def cron(settings: Settings) -> str:
    """The schedule in the format of cron, in UTC."""
    at = settings.batch_views_at
    return f"{at.minute} {at.hour} * * *"


def next_build(settings: Settings, now: datetime) -> datetime:
    """The time at which the next scheduled build begins."""
    today = datetime.combine(now.astimezone(UTC), settings.batch_views_at, UTC)
    return today if today > now else today + timedelta(days=1)
