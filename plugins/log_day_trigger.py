"""The trigger that waits until the archive has closed the log days or a deadline has passed."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from truelog.support.settings import Settings


def lagging(moment: datetime) -> list[str]:
    from truelog.batch import run_interval  # imported here, so that the import does not block the triggerer's loop

    return run_interval.topics_behind(Settings(), moment)


class LogDayTrigger(BaseTrigger):
    """Checks every few seconds which topics have not reached `moment`. Continues while a service is down."""

    poll_seconds = 2.0
    lagging: Callable[[datetime], list[str]] = staticmethod(lagging)

    def __init__(self, moment: str, deadline: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.moment, self.deadline = moment, deadline

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return "log_day_trigger.LogDayTrigger", {"moment": self.moment, "deadline": self.deadline}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield one event with the reason why days are still open; the reason is empty if all days are closed."""
        reason = "not checked yet"
        while reason and time.time() < self.deadline:
            reason = await self._reason()
            if reason:
                await asyncio.sleep(self.poll_seconds)
        yield TriggerEvent({"open": reason})  # type: ignore[no-untyped-call]

    async def _reason(self) -> str:
        try:
            behind = await asyncio.to_thread(self.lagging, datetime.fromisoformat(self.moment))
        except Exception as error:  # the database or the bucket may come back
            self.log.warning("cannot check the archive: %s", error)
            return f"cannot check the archive: {error}"
        return f"the archive of {', '.join(behind)} has not reached {self.moment}" if behind else ""
