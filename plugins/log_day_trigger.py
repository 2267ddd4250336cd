"""The watch for the end of log days: it ends when the archive has closed them, or when it has waited long enough."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from datetime import datetime
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from truelog.support.settings import Settings


def lagging(moment: datetime) -> list[str]:
    from truelog.batch import run_interval  # here: the triggerer's loop does not wait for the import

    return run_interval.archive_lagging(Settings(), moment)


class LogDayTrigger(BaseTrigger):
    """Asks every few seconds which topics have not come to `moment`; whatever is away meanwhile is waited for."""

    poll_seconds = 2.0
    lagging: Callable[[datetime], list[str]] = staticmethod(lagging)

    def __init__(self, moment: str, deadline: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.moment, self.deadline = moment, deadline

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return "log_day_trigger.LogDayTrigger", {"moment": self.moment, "deadline": self.deadline}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """One event, with the reason why the days are still open: empty where they are closed."""
        reason = "nothing is known yet"
        while reason and time.time() < self.deadline:
            reason = await self._reason()
            if reason:
                await asyncio.sleep(self.poll_seconds)
        yield TriggerEvent({"open": reason})  # type: ignore[no-untyped-call]

    async def _reason(self) -> str:
        try:
            behind = await asyncio.to_thread(self.lagging, datetime.fromisoformat(self.moment))
        except Exception as error:  # a database or a bucket that is away comes back
            self.log.warning("the archive cannot be asked: %s", error)
            return f"the archive cannot be asked: {error}"
        return f"the archive of {', '.join(behind)} has not come to {self.moment}" if behind else ""
