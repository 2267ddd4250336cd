"""The question whether an address may make another request, as `truelog limit check` asks it (docs/rate-limits.md)."""

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import Query
from psycopg_pool import ConnectionPool
from pydantic import BaseModel, ConfigDict, Field
from starlette.concurrency import run_in_threadpool

from truelog.limits import rate, rate_answer
from truelog.services.api.rows.answer import Freshness, Source, head
from truelog.services.api.rows.reads import FRESHNESS, SOURCES, arguments
from truelog.support import timestamps
from truelog.support.errors import BadInput, NotSetUp, RequestRefused
from truelog.support.settings import Settings

_MOST_CONNECTIONS = 2
_SECONDS = 2.0


class RateParameters(BaseModel):
    """The time of the question. An unknown parameter is refused."""

    model_config = ConfigDict(extra="forbid")

    at: Annotated[str, Field(max_length=40, description="A time such as 2026-01-01T00:00:00Z; now by default.")] = ""


At = Annotated[RateParameters, Query()]


class RateLimits:
    """Answers with a few connections of its own, because the limits are also asked where nothing is asynchronous."""

    def __init__(self, settings: Settings) -> None:
        self._pool = ConnectionPool(
            kwargs=arguments(settings), min_size=0, max_size=_MOST_CONNECTIONS, timeout=_SECONDS, open=False
        )

    def open(self) -> None:
        self._pool.open()

    def close(self) -> None:
        self._pool.close()

    async def answer(self, address: str, asked: RateParameters) -> dict[str, Any]:
        """The decision, and what the rows of the two views were made of from which it follows.

        Raises:
            BadInput: the address or the time cannot be read.
            RequestRefused: 404, the views do not exist yet.
        """
        try:
            canonical = rate.canonical_address(address)
            at = timestamps.parse_timestamp(asked.at) if asked.at else datetime.now(UTC)
        except ValueError as error:
            raise BadInput(str(error)) from error
        try:
            return await run_in_threadpool(self._ask, canonical, at)
        except NotSetUp as error:
            raise RequestRefused(404, str(error)) from error
        except OverflowError as error:
            raise BadInput("before this time, there was no window") from error

    def _ask(self, address: str, at: datetime) -> dict[str, Any]:
        with self._pool.connection() as connection, connection.transaction():
            connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
            decided = rate_answer.answer(connection, address, at).as_dict()
            sources = [Source(*row) for row in connection.execute(SOURCES)]
            fresh = {view: Freshness(*row) for view, *row in connection.execute(FRESHNESS)}
        del decided["positions"], decided["age"]  # each view says its own
        decided |= {name: decided[name] and timestamps.to_text(decided[name]) for name in ("at", "resets_at")}
        return decided | {"views": [head(each, fresh[each.view]) for each in sources if each.view in rate_answer.VIEWS]}
