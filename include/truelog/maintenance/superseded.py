"""Superseded versions of views: drops their tables and partials after a time without use.

A version is superseded when an application runs another version of the view and all readers see another version.
Neither alone is enough. An application may report a version that it could not deploy, while readers still see the
version before. `truelog.deployed` names a version even if no application runs the view, so the code may still go back.
No application runs a batch-only view, so its former versions are superseded when the new version has been built.

The tables of a superseded version stay for `superseded_keep_seconds` after its last merge, so that going back needs no
rebuild. Later, going back to the version rebuilds it from the log and the archive.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import psycopg
from psycopg import sql

from truelog.archive.erasing.drop_table import drop_table
from truelog.batch import base, partials
from truelog.control.view_tables import tables_of
from truelog.reconcile import row_diff
from truelog.storage.database import Connection, connect, read_value
from truelog.support.settings import Settings
from truelog.tables import stage
from truelog.tables.output import outbox
from truelog.tables.shown import readable
from truelog.views.catalogue import table_name

_SUPERSEDED = """
    SELECT v.view, v.version FROM truelog.view v JOIN truelog.deployed d ON d.view = v.view AND d.version <> v.version
    LEFT JOIN truelog.standing s ON s.view = v.view AND s.declared AND s.version <> v.version
    LEFT JOIN truelog.batch_only b ON b.view = v.view AND b.built_at IS NOT NULL
    CROSS JOIN (SELECT now() - make_interval(secs => %(seconds)s) AS then) t
    WHERE v.made_at < t.then AND (s.view IS NOT NULL OR (b.view IS NOT NULL AND d.made_at < t.then)) AND NOT EXISTS (
        SELECT FROM truelog.standing r WHERE (r.view, r.version) = (v.view, v.version)
    ) AND NOT EXISTS (
        SELECT FROM truelog.version_share h WHERE (h.view, h.version) = (v.view, v.version)
    ) AND NOT EXISTS (
        SELECT FROM truelog.position p WHERE (p.view, p.version) = (v.view, v.version) AND p.advanced_at > t.then
    ) ORDER BY 1, 2
"""
_RUNS = """
    SELECT a.alive FROM truelog.standing s JOIN truelog.application_status a USING (application)
    WHERE (s.view, s.version) = (%s, %s)
"""
_STAGED = (("stage", ""), ("stage", stage.CHANGES))
_TABLES = (("state", ""), *_STAGED, ("batch", ""), ("recon", ""), ("recon", "_streamed"), ("recon", "_diff"))
# In the order of foreign keys.
_ROWS = (
    "batch_answer",
    "position",
    "exclusion",
    "oversized_group",
    "failed_group",
    "proof",
    "base",
    "merge_tally",
    "version_share",
    "view",
)

log = logging.getLogger("truelog.maintenance")


@dataclass(frozen=True)
class Version:
    """A version of a view."""

    view: str
    version: int

    @property
    def table(self) -> str:
        return table_name(self.view, self.version)


def drop_superseded(settings: Settings) -> list[Version]:
    """Drop the superseded versions that are past their retention, and return them."""
    with connect(settings, autocommit=True) as connection:
        found = _superseded(connection, settings.superseded_keep_seconds)
        return [each for each in found if drop_version(settings, connection, each)]


def _superseded(connection: Connection, keep_seconds: float) -> list[Version]:
    rows = connection.execute(_SUPERSEDED, {"seconds": keep_seconds}).fetchall()
    return [Version(view, version) for view, version in rows]


def drop_version(settings: Settings, connection: Connection, version: Version) -> bool:
    """Drop a version that no application runs. If it is in use, leave it, and return False.

    An application may have begun to run it since the caller has looked. If readers have moved to it, PostgreSQL refuses
    to drop the table of what they see.
    """
    row_diff.lock_comparisons(connection, version.table)
    if _runs_again(connection, version):
        return False
    tables = tables_of(connection, version.view, version.version)
    _drop_in_bucket(settings, connection, tables)
    try:
        with connection.transaction():
            connection.execute("SET LOCAL lock_timeout = '5s'")
            if _runs_again(connection, version):
                return False
            readable.drop(connection, tables)
            for table, (schema, suffix) in product(tables, _TABLES):
                name = sql.Identifier(schema, f"{table}{suffix}")
                connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(name))
            for relation in _ROWS:
                rows = sql.Identifier("truelog", relation)
                connection.execute(
                    sql.SQL("DELETE FROM {} WHERE (view, version) = (%s, %s)").format(rows),
                    (version.view, version.version),
                )
            outbox.end(connection, version.view, version.version)
    except (psycopg.errors.LockNotAvailable, psycopg.errors.DependentObjectsStillExist) as error:
        log.warning("%s cannot be dropped, because it is still in use: %s", version.table, error)
        return False
    return True


def _runs_again(connection: Connection, version: Version) -> bool:
    runs = bool(read_value(connection, _RUNS, (version.view, version.version)))
    if runs:
        log.warning("%s is not dropped, because an application runs it again", version.table)
    return runs


def _drop_in_bucket(settings: Settings, connection: Connection, tables: Sequence[str]) -> None:
    """Before the version's rows, so that a crash in between leaves a version that the next upkeep finds again."""
    for name in (f"{each}.{table}" for table in tables for each in (partials.NAMESPACE, base.NAMESPACE)):
        drop_table(settings, connection, name)
