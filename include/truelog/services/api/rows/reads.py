"""Reads rows as a database role that may only read what readers see."""

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg_pool import AsyncConnectionPool

from truelog.log.positions import Positions
from truelog.services.api.access import Asker
from truelog.services.api.problem import Problem
from truelog.services.api.rows import waiting
from truelog.services.api.rows.answer import Freshness, Source
from truelog.services.api.rows.catalogue import Catalogue, KnownView
from truelog.services.api.rows.connections import Connections
from truelog.services.api.rows.waiting import PositionWatch, Reached
from truelog.serving.reader_slot import reader_slot
from truelog.support.errors import RequestRefused

_FRESH_SECONDS = 1.0  # for which the freshness of the views is kept; it is measured every ten seconds
_AHEAD_SECONDS = 0.5  # before it is too old, it is read again while requests go on with what is known
FRESHNESS = """
    SELECT true, view, version, layer, as_of, reason FROM truelog.answer
    UNION ALL SELECT false, view, version, layer, as_of, reason FROM truelog.shared_answer
"""
SOURCES = """
    SELECT r.first_slot, r.end_slot, s.view, s.version, s.layer, s.clock, s.offsets::text, s.ids::text, s.state
    FROM truelog.reader_version r JOIN truelog.served_version s USING (view, version)
    WHERE %(view)s::text IS NULL OR view = %(view)s ORDER BY s.view
"""
_READS = "SELECT reads FROM truelog.served_version WHERE (view, version) = (%s, %s)"
_HELD = """
    SELECT reason FROM truelog.held WHERE view = %(view)s AND version = coalesce(
        %(version)s::integer, (SELECT version FROM truelog.deployed WHERE view = %(view)s)
    )
"""
HELD_SECONDS = 30  # after which a client may ask again
_CHANGED = (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn)

Statement = tuple[bytes, dict[str, str | None]]


@dataclass(frozen=True)
class Found:
    """Rows as JSON, the place of each in the order, and what they were made of, all of one snapshot.

    number: how many rows the statement found. `rows` has fewer if the others would have too many bytes.
    """

    source: Source
    rows: list[str]
    places: list[str]
    number: int

    def page(self, limit: int, *, goes_on: bool) -> tuple[list[str], bool]:
        """The rows of an answer, and whether there are more.

        goes_on: a cursor can lead to the next rows.

        Raises:
            RequestRefused: 422, they have too many bytes, and no cursor leads to the others.
        """
        fitting = len(self.rows)
        if fitting < min(self.number, limit) and not goes_on:
            reason = f"limit: the first {fitting} rows fill an answer, and it has no cursor; ask for {fitting} at most"
            raise RequestRefused(422, reason)
        return self.rows[:limit], self.number > min(fitting, limit)


class Reads:
    """What is known about the views, and their rows."""

    def __init__(self, connections: Connections, most_bytes: int) -> None:
        """`most_bytes` limits the rows of an answer."""
        self._connections, self._short = connections, connections.short
        self._most_bytes = most_bytes
        self.catalogue = Catalogue(self._short)
        self._watch = PositionWatch(self._short)
        self._fresh: Mapping[tuple[str, int], Freshness] = {}  # of the versions that readers see, or a share of them
        self._served: Mapping[str, int] = {}
        self._fresh_until = 0.0
        self._renewal: asyncio.Task[None] | None = None

    async def close(self) -> None:
        if self._renewal is not None:
            self._renewal.cancel()
            await asyncio.gather(self._renewal, return_exceptions=True)

    async def require_ready(self) -> None:
        """Raise an error of psycopg unless PostgreSQL answers."""
        async with self._short.connection() as connection:
            await connection.execute("SELECT 1")

    async def sources(self, reader: str, view: str | None = None) -> list[Source]:
        """What the rows of every view, or of one view, were made of, in the versions that this reader gets."""
        async with self._short.connection() as connection:
            rows = await (await connection.execute(SOURCES, {"view": view})).fetchall()
        found = [(first, end, Source(*of)) for first, end, *of in rows]
        return [each for first, end, each in found if first <= reader_slot(each.view, reader) < end]

    async def source(self, view: str, reader: str) -> Source:
        """What the rows of a view were made of that this reader gets.

        Raises:
            Replaced: the view is being replaced.
        """
        found = await self.sources(reader, view)
        if not found:
            raise Replaced(view)
        return found[0]

    async def read(self, known: KnownView, statement: Statement, asker: Asker) -> Found:
        """The rows of a statement of `statement` about this version, for its sender.

        Raises:
            Replaced: the view is being replaced, or the reader gets another version now.
            Problem: 503, it is held back after a restore.
            psycopg.Error: PostgreSQL refuses a value, needs too long, or does not answer.
        """
        text, values = statement
        view, of = known.view, values | {"most": str(self._most_bytes)}
        with self.replaced(view):
            async with self._connections.for_rows(asker) as connection:
                row: Any = await (await connection.execute(text, of)).fetchone()
        if row is None:
            self.catalogue.forget(view)
            await require_not_held(self._short, view, known.version)
            raise Replaced(view)
        *source, rows, places, number = row
        found = Found(Source(view, *source), rows or [], places or [], number)
        self.require_version(found.source, known.version)
        return found

    def require_version(self, source: Source, version: int) -> None:
        """Raise Replaced if the rows are of another version than the view was known in."""
        if source.version != version:
            self.catalogue.forget(source.view)
            raise Replaced(source.view)

    @contextmanager
    def replaced(self, view: str) -> Iterator[None]:
        """Forget what is known about a view if the block shows that it has changed.

        Raises:
            Replaced: it has. Asked again, the question is about the view as it is now.
        """
        try:
            yield
        except (Replaced, *_CHANGED) as error:
            self.catalogue.forget(view)
            raise Replaced(view) from error

    async def wait(self, found: Source, wanted: Positions, seconds: float, began: float) -> bool:
        """Return when the view has reached the positions: False if the rows that were found have.

        seconds: the longest wait since `began`, a time of `time.monotonic`.

        Raises:
            Problem: it does not reach them in time, or never will.
        """
        async with self._short.connection() as connection:
            row: Any = await (await connection.execute(_READS, (found.view, found.version))).fetchone()
        reads = frozenset(row[0] or ()) if row else frozenset()
        lacking = waiting.behind(found.view, Reached(reads, found.positions), wanted)
        if not lacking:
            return False
        rest = max(0.0, began + seconds - time.monotonic())
        if lacking := await self._watch.wait((found.view, found.version), wanted, rest, lacking):
            raise waiting.late(found.view, lacking, seconds)
        return True

    async def freshness(self, source: Source, *, pinned: bool = False) -> Freshness:
        """How fresh rows are. It is kept for a second, and read again at once if the rows are of another layer.

        Steady requests do not wait for it: a request in the second half of this second lets it be read for later ones.

        pinned: the rows are of a version that was asked for.
        """
        left = self._fresh_until - time.monotonic()
        if left < 0 or self._known(source, pinned=pinned) is None:
            await asyncio.shield(self._renewing())
        elif left < _AHEAD_SECONDS:
            self._renewing()
        replaced = Freshness(source.version, source.layer, None, "the view is being replaced")
        return self._known(source, pinned=pinned) or replaced

    def _known(self, source: Source, *, pinned: bool) -> Freshness | None:
        found, served = self._fresh.get((source.view, source.version)), self._served.get(source.view)
        if found is None and pinned and served is not None:
            reason = f"these are the rows of version {source.version}, and readers see version {served}"
            return Freshness(source.version, source.layer, None, reason)
        return found if found is not None and found.layer == source.layer else None

    def _renewing(self) -> asyncio.Task[None]:
        """The next reading of the freshness. All who wait share it, and its error. After one, a request tries again."""
        if self._renewal is None or self._renewal.done():
            self._renewal = asyncio.create_task(self._refresh())
            self._renewal.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # none may wait
        return self._renewal

    async def _refresh(self) -> None:
        async with self._short.connection() as connection:
            rows = await (await connection.execute(FRESHNESS)).fetchall()
        self._fresh = {(view, version): Freshness(version, *fresh) for _, view, version, *fresh in rows}
        self._served = {view: version for is_served, view, version, *_ in rows if is_served}
        self._fresh_until = time.monotonic() + _FRESH_SECONDS


async def require_not_held(pool: AsyncConnectionPool, view: str, version: int | str | None = None) -> None:
    """Raise Problem, 503, if the view is held back, because a restored database may show people who were forgotten.

    version: None is the version that readers see.
    """
    async with pool.connection() as connection:
        held: Any = await (await connection.execute(_HELD, {"view": view, "version": version})).fetchone()
    if held is not None:
        raise Problem(503, f"{view} is held back: {held[0]}", retry_after=HELD_SECONDS)


class Replaced(Problem):
    """Readers moved to another version of the view between two steps of an answer, so it must be asked again."""

    def __init__(self, view: str) -> None:
        super().__init__(503, f"{view} is being replaced by another version; ask again", retry_after=1)
