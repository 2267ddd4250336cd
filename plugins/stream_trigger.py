"""The watch over one application: it ends when something is wrong, and says what."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import psycopg
from airflow.triggers.base import BaseTrigger, TriggerEvent

from truelog import application
from truelog.application import Status, Verdict
from truelog.settings import Settings

_POLL_SECONDS = 1.0
_STARVED_SECONDS = 5.0  # Kafka is asked less often than the database


def diagnose(settings: Settings, status: Status) -> Verdict | None:
    from truelog import diagnosis  # here: the triggerer's loop does not wait for the import

    return diagnosis.diagnose(settings, status, datetime.now(UTC))


class StreamTrigger(BaseTrigger):  # type: ignore[misc]
    """Reads the application's row every second; a database that is away is waited for."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return "stream_trigger.StreamTrigger", {"name": self.name}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """One event, with what is wrong."""
        settings = Settings()
        while True:
            try:
                found = await self._watch(settings)
            except psycopg.OperationalError as away:
                self.log.warning("%s: the database is away: %s", self.name, away)
                await asyncio.sleep(_POLL_SECONDS)
            else:
                yield TriggerEvent({"application": self.name, "found": str(found)})
                return

    async def _watch(self, settings: Settings) -> Verdict:
        allowed = application.patience(settings, self.name)
        async with await psycopg.AsyncConnection.connect(**settings.database(), autocommit=True) as connection:
            while True:
                row = await (await connection.execute(application.ASK, (self.name,))).fetchone()
                status = Status(*row) if row else Status(self.name)
                found = application.verdict(status, allowed, datetime.now(UTC))
                if found is Verdict.HUNG:
                    found = await asyncio.to_thread(diagnose, settings, status)
                if found not in (None, Verdict.STARVED):
                    return found
                await asyncio.sleep(_STARVED_SECONDS if found else _POLL_SECONDS)
