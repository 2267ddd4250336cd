"""The watch over what a receiver is still to be told: it ends when there is something."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import psycopg
from airflow.triggers.base import BaseTrigger, TriggerEvent

from truelog import alert_outbox
from truelog.settings import Settings

_POLL_SECONDS = 1.0


class AlertTrigger(BaseTrigger):
    """Looks every second; a database that is away is waited for."""

    def __init__(self, receiver: str) -> None:
        super().__init__()
        self.receiver = receiver

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return "alert_trigger.AlertTrigger", {"receiver": self.receiver}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """One event."""
        settings = Settings()
        while True:
            try:
                await self._watch(settings)
            except psycopg.OperationalError as away:
                self.log.warning("%s: the database is away: %s", self.receiver, away)
                await asyncio.sleep(_POLL_SECONDS)
            else:
                yield TriggerEvent({"receiver": self.receiver})
                return

    async def _watch(self, settings: Settings) -> None:
        async with await psycopg.AsyncConnection.connect(**settings.database(), autocommit=True) as connection:
            while await (await connection.execute(alert_outbox.WAITS, (self.receiver,))).fetchone() is None:
                await asyncio.sleep(_POLL_SECONDS)
