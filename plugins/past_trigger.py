"""The trigger that waits until an application has asked about the past of a view."""

import asyncio
from typing import Any

from database_trigger import POLL_SECONDS, AsyncConnection, DatabaseTrigger

from truelog.history.past_question import WAITING
from truelog.support.settings import Settings


class PastTrigger(DatabaseTrigger):
    """Polls every `POLL_SECONDS`."""

    def __init__(self) -> None:
        super().__init__("past")

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return "past_trigger.PastTrigger", {}

    async def watch(self, settings: Settings, connection: AsyncConnection) -> dict[str, str]:
        while await (await connection.execute(WAITING)).fetchone() is None:
            await asyncio.sleep(POLL_SECONDS)
        return {}
