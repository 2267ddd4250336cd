"""Which versions of a view run beside the version that its file declares, and the code of every such version.

The file declares one version. Readers may see another one, until they move to the declared version, and after they have
moved back. The version that they saw before stays fresh for a time, for the way back, and so does a version that a
share of the readers gets. The streams of these versions go
on with the file as it was when they were deployed, which the database keeps.
"""

import hashlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from truelog.storage.database import Connection
from truelog.support.settings import Settings
from truelog.views.catalogue import table_name

_BESIDE = """
    SELECT view, version FROM truelog.deployed WHERE view = ANY(%(views)s) AND deployed_at IS NOT NULL
    UNION SELECT view, version FROM truelog.former
    WHERE view = ANY(%(views)s) AND left_at > now() - make_interval(secs => %(seconds)s)
    UNION SELECT view, version FROM truelog.version_share WHERE view = ANY(%(views)s)
    ORDER BY 1, 2
"""
_STREAMED = """
    SELECT view, version, source FROM truelog.view v JOIN unnest(%s::text[], %s::integer[]) AS n(view, version)
    USING (view, version) WHERE NOT batch_only ORDER BY 1, 2
"""
# A version that readers will move to is built from the archive before its stream begins.
_UNBUILT = """
    SELECT v.view, v.version FROM truelog.predecessor v JOIN truelog.view w USING (view, version)
    WHERE NOT w.batch_only AND NOT EXISTS (
        SELECT FROM truelog.position p WHERE (p.view, p.version) = (v.view, v.version)
    )
"""


@dataclass(frozen=True)
class StoredVersion:
    """A version of a view, and the content of the file that declared it; None if an earlier release deployed it."""

    view: str
    version: int
    source: str | None

    @property
    def table(self) -> str:
        return table_name(self.view, self.version)

    def write(self, settings: Settings) -> Path:
        """Write the file into a folder of its own, and return the folder."""
        assert self.source is not None  # noqa: S101
        digest = hashlib.sha256(self.source.encode()).hexdigest()[:16]
        folder = settings.home / "scratch" / "versions" / f"{self.table}-{digest}"
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{self.view}.py"
        if not file.exists():
            part = folder / f".{self.view}.{id(self)}"
            part.write_text(self.source)
            part.replace(file)  # another process may write the same file
        return folder


def is_made(connection: Connection, view: str, version: int) -> bool:
    """Whether an application has created this version."""
    query = "SELECT FROM truelog.view WHERE (view, version) = (%s, %s)"
    return connection.execute(query, (view, version)).fetchone() is not None


def record_source(connection: Connection, view: str, version: int, source: str) -> bool:
    """Keep the content of the file that declares this version, which has just been deployed. True if it is new."""
    updated = connection.execute(
        "UPDATE truelog.view SET source = %s WHERE (view, version) = (%s, %s) AND source IS DISTINCT FROM %s",
        (source, view, version, source),
    )
    return updated.rowcount > 0


def beside(settings: Settings, connection: Connection, views: Collection[str]) -> set[tuple[str, int]]:
    """The versions of these views that stay fresh, whatever their files declare."""
    found = connection.execute(_BESIDE, {"views": list(views), "seconds": settings.former_keep_seconds})
    return {(view, version) for view, version in found.fetchall()}


def stored(connection: Connection, versions: Iterable[tuple[str, int]]) -> list[StoredVersion]:
    """The streamed versions among these, with their code."""
    wanted = sorted(versions)
    rows = connection.execute(_STREAMED, ([view for view, _ in wanted], [version for _, version in wanted]))
    return [StoredVersion(*row) for row in rows.fetchall()]


def unbuilt(connection: Connection) -> set[tuple[str, int]]:
    """The versions whose streams wait until they are built from the archive."""
    return {(view, version) for view, version in connection.execute(_UNBUILT).fetchall()}


def served_beside(connection: Connection, views: Collection[str]) -> set[tuple[str, int]]:
    """The versions that readers of these views see while the files declare other ones."""
    found = connection.execute(
        "SELECT d.view, d.version FROM truelog.deployed d JOIN truelog.standing s ON s.view = d.view "
        "WHERE d.view = ANY(%s) AND s.declared AND s.version <> d.version",
        (list(views),),
    )
    return {(view, version) for view, version in found.fetchall()}
