"""What readers may ask for: the views that are deployed, their relations, and the columns, as PostgreSQL has them.

Everything comes from the database, so the API runs no code of views and needs no PySpark. Names and columns from a
request are looked up here. They never become SQL by themselves.
"""

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool

from truelog.support.errors import RequestRefused
from truelog.views.catalogue import table_name

_SECONDS = 2.0  # for which an answer about a view is kept; a changed version is noticed at once

# A relation belongs to a view if its name begins with the view's and it reads one of the view's tables. A relation that
# a view presents has no key. The key of a table is the unique index of its stored rows.
_RELATIONS = """
WITH deployed AS (
    SELECT view, version, view AS name FROM truelog.deployed WHERE view = %(view)s AND %(version)s::integer IS NULL
    UNION ALL SELECT view, version, view || '_v' || version FROM truelog.served_version
    WHERE (view, version) = (%(view)s, %(version)s)
),
shown AS (
    SELECT c.oid, c.relname::text AS name, t.oid AS stored
    FROM deployed d JOIN pg_class c ON c.relnamespace = 'views'::regnamespace AND c.relkind = 'v'
        AND (c.relname = d.name OR starts_with(c.relname, d.name || '_'))
    LEFT JOIN pg_class t ON t.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = 'state')
        AND t.relname = d.view || '_v' || d.version || substr(c.relname, length(d.name) + 1)
),
tables AS (SELECT * FROM shown WHERE stored IS NOT NULL),
presented AS (
    SELECT DISTINCT s.oid, s.name FROM shown s JOIN pg_rewrite w ON w.ev_class = s.oid
    JOIN pg_depend p ON (p.classid, p.objid, p.refclassid) = ('pg_rewrite'::regclass, w.oid, 'pg_class'::regclass)
    JOIN tables t ON t.oid = p.refobjid WHERE s.stored IS NULL
),
keys AS (
    SELECT t.oid, (
        SELECT array_agg(a.attname ORDER BY k.place) FROM pg_index i
        CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k(number, place)
        JOIN pg_attribute a ON (a.attrelid, a.attnum) = (i.indrelid, k.number)
        WHERE i.indrelid = t.stored AND i.indisunique
    ) AS key FROM tables t
)
SELECT r.name, d.version, coalesce(k.key, '{}')::text[] AS key, c.names, c.types, c.meanings, EXISTS (
    SELECT FROM pg_rewrite w JOIN pg_depend p ON (p.classid, p.objid) = ('pg_rewrite'::regclass, w.oid)
    JOIN pg_proc f ON (p.refclassid, p.refobjid) = ('pg_proc'::regclass, f.oid)
    WHERE w.ev_class = r.oid AND (f.pronamespace::regnamespace::text, f.proname) = ('truelog', 'word_vector')
) AS has_words, s.version AS shared, s.end_slot
FROM deployed d LEFT JOIN truelog.reader_version s ON s.view = d.view AND s.version <> d.version
CROSS JOIN (SELECT oid, name FROM tables UNION ALL SELECT oid, name FROM presented) r
LEFT JOIN keys k USING (oid) CROSS JOIN LATERAL (
    SELECT array_agg(attname ORDER BY attnum)::text[] AS names,
        array_agg(format_type(atttypid, atttypmod) ORDER BY attnum) AS types,
        array_agg(col_description(attrelid, attnum) ORDER BY attnum) AS meanings
    FROM pg_attribute WHERE attrelid = r.oid AND attnum > 0 AND NOT attisdropped
) c ORDER BY r.name
"""


_REMOVED = """
SELECT n.reason FROM truelog.answer n JOIN truelog.deployed d USING (view, version)
WHERE n.view = %s AND d.removed_at IS NOT NULL
"""


@dataclass(frozen=True)
class Relation:
    """A view, or a further relation of it, with the types and the meanings of its columns. It may have no key.

    has_words: whether `truelog.word_vector` makes one of its columns.
    """

    name: str
    key: tuple[str, ...]
    types: Mapping[str, str]
    meanings: Mapping[str, str | None]
    has_words: bool = False

    def as_dict(self) -> dict[str, Any]:
        """The stable format for clients."""
        columns = [{"name": name, "type": type_, "meaning": self.meanings[name]} for name, type_ in self.types.items()]
        return {"key": list(self.key), "columns": columns}


@dataclass(frozen=True)
class KnownView:
    """A version of a view, and its relations by the name behind the view's name; "" is the view itself.

    pinned: the relations are those under the version's own name, whatever version the view shows.
    shared: the version that readers whose slots are below this number get instead, or None.
    """

    view: str
    version: int
    relations: Mapping[str, Relation]
    pinned: bool = False
    shared: tuple[int, int] | None = None
    until: float = field(default=0.0, compare=False)

    def relation(self, name: str) -> Relation:
        """A relation of the view.

        Raises:
            RequestRefused: 404, there is no such relation.
        """
        if name not in self.relations:
            names = ", ".join(sorted(each for each in self.relations if each)) or "none"
            raise RequestRefused(404, f"{self.view} has no such relation; its relations are: {names}")
        return self.relations[name]

    def plain_name(self, relation: Relation) -> str:
        """The name of a relation without the number of the version: `sessions_runs` for `sessions_v2_runs`."""
        shown = table_name(self.view, self.version) if self.pinned else self.view
        return self.view + relation.name.removeprefix(shown)


class Catalogue:
    """The views that are deployed, each read again after two seconds, or when an answer shows that it has changed."""

    def __init__(self, pool: AsyncConnectionPool) -> None:
        self._pool = pool
        self._known: dict[tuple[str, int | None], KnownView] = {}

    async def view(self, name: str, version: int | None = None) -> KnownView:
        """A view that readers see, or a version of it.

        Raises:
            RequestRefused: 404, there is no such view or version.
        """
        known = self._known.get((name, version))
        if known is None or known.until < time.monotonic():
            known = await self._read(name, version)
            self._known[name, version] = known
        return known

    async def of_reader(self, name: str, slot: int) -> KnownView:
        """The version of a view that readers of this slot get (`truelog.serving.reader_slot`).

        Raises:
            RequestRefused: 404, there is no such view.
        """
        known = await self.view(name)
        if known.shared is None or slot >= known.shared[1]:
            return known
        with suppress(RequestRefused):
            return await self.view(name, known.shared[0])
        return await self.view(name)  # the share has ended with its version

    def forget(self, name: str) -> None:
        """Read the view again for the next question."""
        self._known = {known: each for known, each in self._known.items() if known[0] != name}

    async def _read(self, name: str, version: int | None) -> KnownView:
        async with self._pool.connection() as connection:
            cursor = await connection.execute(_RELATIONS, {"view": name.replace("\0", ""), "version": version})
            rows = await cursor.fetchall()
            removed = "" if rows else await _removed(connection, name)
        shown = name if version is None else table_name(name, version)
        if not any(row[0] == shown for row in rows):
            self.forget(name)
            raise RequestRefused(404, removed or "there is no such view, or no application has created its table yet")
        relations = {
            row[0][len(shown) + 1 :]: Relation(
                row[0],
                tuple(row[2]),
                dict(zip(row[3], row[4], strict=True)),
                dict(zip(row[3], row[5], strict=True)),
                row[6],
            )
            for row in rows
        }
        shared = (rows[0][7], rows[0][8]) if version is None and rows[0][7] is not None else None
        return KnownView(name, rows[0][1], relations, version is not None, shared, time.monotonic() + _SECONDS)


async def _removed(connection: AsyncConnection, name: str) -> str:
    """Since when the view's file is gone, or an empty string."""
    found = await (await connection.execute(_REMOVED, (name.replace("\0", ""),))).fetchone()
    return found[0] if found else ""
