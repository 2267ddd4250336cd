"""The trigger that waits until a notification for a receiver is in the outbox."""

import asyncio
from typing import Any

from database_trigger import POLL_SECONDS, AsyncConnection, DatabaseTrigger

from truelog.alerts.sources import outbox as alert_outbox
from truelog.support.settings import Settings


class AlertTrigger(DatabaseTrigger):
    """Polls every `POLL_SECONDS`."""

    def __init__(self, receiver: str) -> None:
        super().__init__(receiver)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return "alert_trigger.AlertTrigger", {"receiver": self.subject}

    async def watch(self, settings: Settings, connection: AsyncConnection) -> dict[str, str]:
        while await (await connection.execute(alert_outbox.WAITING, (self.subject,))).fetchone() is None:
            await asyncio.sleep(POLL_SECONDS)
        return {"receiver": self.subject}
