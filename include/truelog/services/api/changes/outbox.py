"""What the API reads of outboxes: how far they are, the steps behind a place, and the rows at a place."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from psycopg import AsyncConnection, sql

from truelog.services.api.access import Asker
from truelog.services.api.changes.filter import Filter, Values
from truelog.services.api.changes.place import Place
from truelog.services.api.changes.step import Step, event
from truelog.services.api.rows.connections import Connections
from truelog.services.api.rows.waiting import Version

PORTION = 20_000  # rows that are read at once
PORTION_BYTES = 64 * 2**20  # of their keys and values

_HEADS = """
SELECT view, version, p.number, p.identity::text, p.oldest, coalesce(r.first_slot, 0), coalesce(r.end_slot, 0)
FROM truelog.published_place p
JOIN unnest(%(views)s::text[], %(versions)s::integer[]) AS followed(view, version) USING (view, version)
LEFT JOIN truelog.reader_version r USING (view, version)
WHERE view IN (SELECT d.view FROM truelog.deployed d WHERE d.visible)
    AND (view, version) NOT IN (SELECT view, version FROM truelog.held)
"""
_OF_READER = """
SELECT version FROM truelog.reader_version WHERE view = %(view)s AND %(slot)s >= first_slot AND %(slot)s < end_slot
"""
# One statement, so that a new beginning cannot come between the check and the rows.
_AFTER = """
WITH place AS (
    SELECT EXISTS (
        SELECT FROM truelog.published_change WHERE (view, version, number) = (%(view)s, %(version)s, %(number)s)
            AND last = number AND id::text = %(identity)s
    ) OR EXISTS (
        SELECT FROM truelog.published_place
        WHERE (view, version, first) = (%(view)s, %(version)s, %(number)s::bigint + 1)
            AND beginning::text = %(identity)s
    ) AS continues
)
SELECT p.continues, r.* FROM place p LEFT JOIN LATERAL (
    SELECT number, key, value, last, id::text, positions::text, made_at FROM (
        SELECT *, sum(octet_length(key) + coalesce(octet_length(value), 0)) OVER (ORDER BY number) AS bytes
        FROM truelog.published_change WHERE view = %(view)s AND version = %(version)s
            AND number > %(number)s AND number <= %(number)s::bigint + %(portion)s
    ) AS following WHERE bytes <= %(most)s
) r ON p.continues ORDER BY r.number
"""
_ROWS = """
SELECT s.version, s.layer, s.offsets::text, p.number, p.identity::text, r.rows, r.bytes
FROM truelog.served_version s JOIN truelog.published_place p ON (p.view, p.version) = (s.view, s.version)
CROSS JOIN LATERAL (
    SELECT array_agg(counted.row) FILTER (WHERE bytes <= %(most)s) AS rows, max(bytes)::bigint AS bytes FROM (
        SELECT page.row, sum(octet_length(page.row)) OVER (ROWS UNBOUNDED PRECEDING) AS bytes FROM (
            SELECT (SELECT row_to_json(_row)::text FROM (SELECT {columns}) AS _row) AS row
            FROM {relation} AS r{where} LIMIT {limit}
        ) AS page
    ) AS counted
) r WHERE s.view = %(view)s AND s.version = %(version)s AND (%(slot)s::integer IS NULL OR EXISTS (
    SELECT FROM truelog.reader_version v WHERE (v.view, v.version) = (s.view, s.version)
        AND %(slot)s::integer >= v.first_slot AND %(slot)s::integer < v.end_slot
)) AND (s.view, s.version) NOT IN (SELECT view, version FROM truelog.held)
"""
# The status of a view with a window depends on the clock, so changes do not have it.
_HAS_STATUS = """
EXISTS (
    SELECT FROM pg_rewrite w
    JOIN pg_depend p ON (p.classid, p.objid, p.refclassid) = ('pg_rewrite'::regclass, w.oid, 'pg_class'::regclass)
    WHERE w.ev_class = to_regclass({relation}) AND p.refobjid = 'truelog.clock'::regclass
)
"""
_STATUS = "status"


@dataclass(frozen=True)
class Head:
    """How far an outbox is, and the number of the oldest place that it still has. An erasure moves that on.

    slots: of the readers that get this version (`truelog.serving.reader_slot`).
    """

    place: Place
    oldest: int
    slots: range


@dataclass(frozen=True)
class Prepared:
    """A filter whose values are as the outbox writes them, and the columns of the rows of a version.

    slot: of the reader, who follows the version only while it gets it. None if the reader has asked for the version.
    """

    filter: Filter
    version: int
    values: Values
    columns: tuple[str, ...]
    slot: int | None = None


@dataclass(frozen=True)
class Snapshot:
    """The rows at a place, as JSON. If they have more bytes than were asked for, `rows` has only some of them."""

    place: Place
    layer: str
    positions: str
    rows: list[str]
    size: int

    def message(self, view: str, key: tuple[str, ...]) -> bytes:
        """The event that tells the rows. They replace all rows that the subscriber has."""
        about = {
            "view": view,
            "version": self.place.version,
            "number": self.place.number,
            "positions": msgspec.Raw(self.positions.encode()),
            "key": key,
        }
        rows = ",".join(self.rows)
        return event("rows", self.place, msgspec.json.encode(about)[:-1] + f',"rows":[{rows}]}}'.encode())


class OutboxReader:
    """Reads outboxes as the role of the API.

    Every method raises the errors of psycopg.
    """

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    async def heads(self, versions: Collection[Version]) -> dict[Version, Head]:
        """The heads of these versions, without versions that do not publish."""
        wanted = {"views": [view for view, _ in versions], "versions": [version for _, version in versions]}
        return {
            (view, version): Head(Place(version, number, identity), oldest, range(first, end))
            for view, version, number, identity, oldest, first, end in await self._all(_HEADS, wanted)
        }

    async def version_of(self, view: str, slot: int) -> int | None:
        """The version that a reader with this slot gets. None if there is no such view."""
        return next((version for (version,) in await self._all(_OF_READER, {"view": view, "slot": slot})), None)

    async def steps_after(self, view: str, place: Place) -> list[Step] | None:
        """The next whole steps behind a place. None if the outbox does not continue there, or a step is too large."""
        wanted = {"view": view, **vars(place), "portion": PORTION, "most": PORTION_BYTES}
        rows = await self._all(_AFTER, wanted)
        found = [row[1:] for row in rows if row[0] and row[1] is not None]
        if not rows[0][0] or (found and found[0][0] != place.number + 1):
            return None
        steps, begin = list[Step](), 0
        for end, (number, _, _, last, identity, positions, made_at) in enumerate(found, 1):
            if number == last:
                changes = tuple((key, value) for _, key, value, *_ in found[begin:end])
                steps.append(Step(Place(place.version, last, identity), positions, made_at, changes))
                begin = end
        return None if found and not steps else steps

    async def prepare(self, wanted: Filter, version: int, slot: int | None) -> Prepared:
        """Let PostgreSQL write the values of a filter, and find the columns of the rows. The filter is of a version."""
        name = sql.Literal(f'views."{wanted.relation.name}"')
        row = wanted.row() if wanted.conditions else sql.SQL("'{}'")
        statement = sql.SQL("SELECT {}, {}").format(row, sql.SQL(_HAS_STATUS).format(relation=name))
        [(text, has_status)] = await self._all(statement, wanted.values)
        values = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        columns = tuple(each for each in wanted.relation.types if not (has_status and each == _STATUS))
        return Prepared(wanted, version, tuple(bytes(values[each]) for each in wanted.columns), columns, slot)

    async def rows(self, view: str, prepared: Prepared, asker: Asker, most: int, most_bytes: int) -> Snapshot | None:
        """The rows of a filter with their place, of one snapshot of the database, for a sender.

        None if the version does not publish, or the reader gets another one. There may be one row more than `most`.
        Rows beyond `most_bytes` are counted, but not read.
        """
        statement = sql.SQL(_ROWS).format(
            columns=sql.SQL(", ").join(sql.SQL("r.{}").format(sql.Identifier(each)) for each in prepared.columns),
            relation=sql.Identifier("views", prepared.filter.relation.name),
            where=prepared.filter.where(),
            limit=sql.Literal(most + 1),
        )
        of = {"view": view, "version": prepared.version, "slot": prepared.slot, "most": most_bytes}
        async with self._connections.for_rows(asker) as connection:
            found = await _all(connection, statement, of | prepared.filter.values)
        for version, layer, positions, number, identity, rows, size in found:
            return Snapshot(Place(version, number, identity), layer, positions, rows or [], size or 0)
        return None

    async def _all(self, statement: Any, values: Mapping[str, Any]) -> list[Any]:
        async with self._connections.short.connection() as connection:
            return await _all(connection, statement, values)


async def _all(connection: AsyncConnection, statement: Any, values: Mapping[str, Any]) -> list[Any]:
    return await (await connection.execute(statement, values)).fetchall()
