"""The question whether an address may make another request, as `truelog limit check` asks it (docs/rate-limits.md).

PostgreSQL decides, because a web server may ask before each of its requests. Its function and `truelog.limits.rate`
decide alike.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from operator import itemgetter
from typing import Annotated, Any

import psycopg
from fastapi import Query
from psycopg.errors import UndefinedTable
from psycopg_pool import AsyncConnectionPool
from pydantic import BaseModel, ConfigDict, Field

from truelog.limits import rate, rate_answer
from truelog.services.api.rows.answer import Source, head
from truelog.services.api.rows.reads import Reads
from truelog.support import timestamps
from truelog.support.errors import BadInput, RequestRefused

# One statement, so that decisions and what they were made of are of one snapshot. What they were made of is the same
# for all its questions.
_ASK = """
WITH decided AS MATERIALIZED (
    SELECT number, decision.* FROM unnest(%(addresses)s::text[], %(times)s::timestamptz[])
        WITH ORDINALITY AS asked (address, at, number)
    CROSS JOIN LATERAL truelog.limit_check(asked.address, asked.at) AS decision
),
made_of AS MATERIALIZED (
    SELECT view, version, layer, clock, offsets::text, ids::text, state FROM truelog.served WHERE view = ANY(%(views)s)
)
SELECT number, allowed, why, reason, count, max_requests, window_seconds, resets_at, made_of.*
FROM decided LEFT JOIN made_of ON true ORDER BY number, view
"""
_MOST_CONNECTIONS = 2  # further questions wait, and one statement then asks them all
_MOST_AT_ONCE = 100
_DECIDED = ("allowed", "why", "reason", "count", "limit", "window_seconds", "resets_at")

_Row = tuple[Any, ...]


class RateParameters(BaseModel):
    """The time of the question. An unknown parameter is refused."""

    model_config = ConfigDict(extra="forbid")

    at: Annotated[
        str,
        Field(
            max_length=40,
            description="A time such as 2026-01-01T00:00:00Z; now by default.",
            examples=["2026-01-01T00:00:00Z"],
        ),
    ] = ""


At = Annotated[RateParameters, Query()]


@dataclass(frozen=True)
class _Asked:
    """A question, and the rows that will answer it."""

    address: str
    at: datetime
    rows: asyncio.Future[list[_Row]]


class _Statements:
    """Asks all questions that wait, with one statement on each connection."""

    def __init__(self, pool: AsyncConnectionPool) -> None:
        self._pool = pool
        self._waiting: list[_Asked] = []
        self._working = 0
        self._tasks: set[asyncio.Task[None]] = set()  # the event loop alone would not keep them

    async def ask(self, address: str, at: datetime) -> list[_Row]:
        """The rows about one address."""
        asked = _Asked(address, at, asyncio.get_running_loop().create_future())
        self._waiting.append(asked)
        if self._working < _MOST_CONNECTIONS:
            self._working += 1
            task = asyncio.create_task(self._work())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await asked.rows

    async def _work(self) -> None:
        try:
            while self._waiting:
                asked, self._waiting = self._waiting[:_MOST_AT_ONCE], self._waiting[_MOST_AT_ONCE:]
                await self._answer(asked)
        finally:
            self._working -= 1  # at once: a question that came before the task counts as done would wait for the next

    async def _answer(self, asked: Sequence[_Asked]) -> None:
        """Answer these questions. If PostgreSQL refuses a value, only the question with this value fails."""
        try:
            found = await self._read(asked)
        except Exception as error:
            if isinstance(error, psycopg.DataError) and len(asked) > 1:
                for each in asked:
                    await self._answer([each])
                return
            for each in asked:
                if not each.rows.done():
                    each.rows.set_exception(error)
            return
        for each, rows in zip(asked, found, strict=True):
            if not each.rows.done():  # the sender may have left
                each.rows.set_result(rows)

    async def _read(self, asked: Sequence[_Asked]) -> list[list[_Row]]:
        wanted = {"addresses": [each.address for each in asked], "times": [each.at for each in asked]}
        async with self._pool.connection() as connection:
            cursor = await connection.execute(_ASK, wanted | {"views": list(rate_answer.VIEWS)})
            rows = await cursor.fetchall()
        return [[row[1:] for row in of_one] for _, of_one in groupby(rows, itemgetter(0))]


class RateLimits:
    """Asks over the connections for short questions, because a web server must not wait for long reads of rows."""

    def __init__(self, pool: AsyncConnectionPool, reads: Reads) -> None:
        self._reads = reads
        self._statements = _Statements(pool)

    async def decide(self, address: str, asked: RateParameters) -> dict[str, Any]:
        """The decision, and what the rows of the two views were made of from which it follows.

        Raises:
            BadInput: the address or the time cannot be read.
            RequestRefused: 404, the views do not exist yet.
            psycopg.Error: PostgreSQL refuses a value, needs too long, or does not answer.
        """
        try:
            canonical = rate.canonical_address(address)
            at = timestamps.parse_timestamp(asked.at) if asked.at else datetime.now(UTC)
        except ValueError as error:
            raise BadInput(str(error)) from error
        try:
            rows = await self._statements.ask(canonical, at)
        except UndefinedTable as missing:
            raise RequestRefused(404, rate_answer.NOT_MADE) from missing
        decided = dict(zip(_DECIDED, rows[0], strict=False))
        decided["resets_at"] = decided["resets_at"] and timestamps.to_text(decided["resets_at"])
        sources = [Source(*row[len(_DECIDED) :]) for row in rows if row[len(_DECIDED)] is not None]
        heads = [head(each, await self._reads.freshness(each)) for each in sources]
        return {"address": canonical, "at": timestamps.to_text(at), **decided, "advisory": True, "views": heads}
