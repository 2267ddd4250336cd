"""The question whether an address may make another request, as `truelog limit check` asks it (docs/rate-limits.md).

PostgreSQL decides, because a web server may ask before each of its requests. Its function and `truelog.limits.rate`
decide alike.
"""

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import Query
from psycopg.errors import UndefinedTable
from pydantic import BaseModel, ConfigDict, Field

from truelog.limits import rate, rate_answer
from truelog.services.api.rows.answer import Source, head
from truelog.services.api.rows.reads import Reads, pool_of
from truelog.support import timestamps
from truelog.support.errors import BadInput, RequestRefused
from truelog.support.settings import Settings

# One statement, so that the decision and what it was made of are of one snapshot.
_ASK = """
WITH decided AS MATERIALIZED (SELECT * FROM truelog.limit_check(%(address)s, %(at)s))
SELECT allowed, why, reason, count, max_requests, window_seconds, resets_at,
    s.view, s.version, s.layer, s.clock, s.offsets::text, s.ids::text, s.state
FROM decided LEFT JOIN truelog.served s ON s.view = ANY(%(views)s) ORDER BY s.view
"""
_MOST_CONNECTIONS = 4
_DECIDED = ("allowed", "why", "reason", "count", "limit", "window_seconds", "resets_at")


class RateParameters(BaseModel):
    """The time of the question. An unknown parameter is refused."""

    model_config = ConfigDict(extra="forbid")

    at: Annotated[str, Field(max_length=40, description="A time such as 2026-01-01T00:00:00Z; now by default.")] = ""


At = Annotated[RateParameters, Query()]


class RateLimits:
    """Asks with a few connections of its own, because a web server must not wait for long reads of rows."""

    def __init__(self, settings: Settings, reads: Reads) -> None:
        self._reads = reads
        self._pool = pool_of(settings, _MOST_CONNECTIONS)

    async def open(self) -> None:
        await self._pool.open()

    async def close(self) -> None:
        await self._pool.close()

    async def repair(self) -> None:
        """Replace the connections that PostgreSQL has ended."""
        await self._pool.check()

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
        wanted = {"address": canonical, "at": at, "views": list(rate_answer.VIEWS)}
        try:
            async with self._pool.connection() as connection:
                rows = await (await connection.execute(_ASK, wanted)).fetchall()
        except UndefinedTable as missing:
            raise RequestRefused(404, rate_answer.NOT_MADE) from missing
        decided = dict(zip(_DECIDED, rows[0], strict=False))
        decided["resets_at"] = decided["resets_at"] and timestamps.to_text(decided["resets_at"])
        sources = [Source(*row[len(_DECIDED) :]) for row in rows if row[len(_DECIDED)] is not None]
        heads = [head(each, await self._reads.freshness(each)) for each in sources]
        return {"address": canonical, "at": timestamps.to_text(at), **decided, "advisory": True, "views": heads}
