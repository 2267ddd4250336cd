"""A trigger that polls PostgreSQL and tries to reconnect until the database answers."""

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
    """Watches one subject and fires once."""

    def __init__(self, subject: str) -> None:
        super().__init__()
        self.subject = subject

    @abstractmethod
    async def watch(self, settings: Settings, connection: AsyncConnection) -> dict[str, str]:
        """Poll every `POLL_SECONDS` until there is something to report, then return the event payload."""

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield one event."""
        settings = Settings()
        while True:
            try:
                async with await psycopg.AsyncConnection.connect(**settings.database(), autocommit=True) as connection:
                    payload = await self.watch(settings, connection)
            except psycopg.OperationalError as error:
                self.log.warning("%s: the database is not answering: %s", self.subject, error)
                await asyncio.sleep(POLL_SECONDS)
            else:
                yield TriggerEvent(payload)
                return
