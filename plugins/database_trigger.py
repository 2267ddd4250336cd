"""A watch over what the database knows: it waits for a database that is away, and looks again."""

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator
from typing import Any

import psycopg
from airflow.triggers.base import BaseTrigger, TriggerEvent

from truelog.support.settings import Settings

POLL_SECONDS = 1.0

AsyncConnection = psycopg.AsyncConnection[tuple[Any, ...]]


class DatabaseTrigger(BaseTrigger):  # type: ignore[misc]
    """Of one subject; ends with one event, when there is something to tell of it."""

    def __init__(self, subject: str) -> None:
        super().__init__()
        self.subject = subject

    @abstractmethod
    async def watch(self, settings: Settings, connection: AsyncConnection) -> dict[str, str]:
        """Look every `POLL_SECONDS`; what is to be told."""

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """One event."""
        settings = Settings()
        while True:
            try:
                async with await psycopg.AsyncConnection.connect(**settings.database(), autocommit=True) as connection:
                    found = await self.watch(settings, connection)
            except psycopg.OperationalError as away:
                self.log.warning("%s: the database is away: %s", self.subject, away)
                await asyncio.sleep(POLL_SECONDS)
            else:
                yield TriggerEvent(found)
                return
