"""The connections of one process to PostgreSQL, which the senders share.

Statements about rows may be slow, so each sender has a share of their connections, and its further statements wait in
their order. A browser holds a scoped token, so a visitor must not use up the share of its back end.
Short questions have a few connections of their own: whether PostgreSQL answers, how fresh the views are, what is new in
outboxes and whether an address may make another request. Slow statements about rows do not delay them.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from weakref import WeakValueDictionary

from psycopg import AsyncConnection
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from truelog.services.api.access import Asker
from truelog.support.settings import Settings

# Then the next request tries again. By default, a pool waits up to a minute between its own tries in a long outage.
RECONNECT_SECONDS = 2.0
_CONNECTION_SECONDS = 2.0  # the longest wait for a connection
_SHORT = 4  # connections; the questions about addresses use two of them at most


class _Turns:
    """Lets each holder have so many connections at once. Those who wait get theirs in the order in which they came."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._of = WeakValueDictionary[str, asyncio.Semaphore]()  # each while a statement holds or awaits it

    def of(self, holder: str) -> asyncio.Semaphore:
        return self._of.setdefault(holder, asyncio.Semaphore(self._most))


class Connections:
    """`short` is for short questions. `for_rows` gives a connection for a statement about rows."""

    def __init__(self, settings: Settings) -> None:
        self.short = _pool(settings, _SHORT)
        self._rows = _pool(settings, settings.api_connections)
        self._keys = _Turns(max(1, settings.api_connections // 2))
        self._tokens = _Turns(max(1, settings.api_connections // 4))

    async def open(self) -> None:
        await self.short.open()
        await self._rows.open()

    async def close(self) -> None:
        await self._rows.close()
        await self.short.close()

    async def repair(self) -> None:
        """Replace the connections that PostgreSQL has ended."""
        await self.short.check()
        await self._rows.check()

    @asynccontextmanager
    async def for_rows(self, asker: Asker) -> AsyncIterator[AsyncConnection]:
        """A connection for a statement of this sender.

        Raises:
            PoolTimeout: there was none in time.
        """
        until = time.monotonic() + _CONNECTION_SECONDS
        async with AsyncExitStack() as held:
            try:
                async with asyncio.timeout(_CONNECTION_SECONDS):
                    if asker.token is not None:
                        await held.enter_async_context(self._tokens.of(asker.token))
                    await held.enter_async_context(self._keys.of(asker.name))
            except TimeoutError:
                raise PoolTimeout(f"the statements of {asker.name} took too long") from None
            rest = max(0.0, until - time.monotonic())
            yield await held.enter_async_context(self._rows.connection(rest))


def _pool(settings: Settings, size: int) -> AsyncConnectionPool:
    return AsyncConnectionPool(
        kwargs=_arguments(settings),
        min_size=1,
        max_size=size,
        max_waiting=settings.api_requests,
        timeout=_CONNECTION_SECONDS,
        reconnect_timeout=RECONNECT_SECONDS,
        open=False,
    )


def _arguments(settings: Settings) -> dict[str, Any]:
    """The arguments of a connection. Each statement is a transaction of its own."""
    given = settings.api_database()
    limits = f"-c statement_timeout={int(settings.api_statement_seconds * 1000)}"
    return given | {"options": f"{given['options']} {limits}", "autocommit": True, "connect_timeout": 5}
