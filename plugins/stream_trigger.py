"""The triggers that watch one application: one fires when something is wrong with it, the other after its rest."""

import asyncio
from datetime import UTC, datetime
from typing import Any

from database_trigger import POLL_SECONDS, AsyncConnection, DatabaseTrigger

from truelog.control import application
from truelog.control.application import ApplicationStatus, Diagnosis
from truelog.support.settings import Settings

_NO_INPUT_POLL_SECONDS = 5.0  # longer, because this check also queries Kafka


def diagnose(settings: Settings, status: ApplicationStatus) -> Diagnosis | None:
    from truelog.apps import liveness  # imported here, so that the import does not block the triggerer's loop

    return liveness.diagnose(settings, status, datetime.now(UTC))


class RestTrigger(DatabaseTrigger):
    """Fires when the rest of an application is over, or at once when someone has requested a start."""

    def __init__(self, name: str, due: str) -> None:
        super().__init__(name)
        self.due = due

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return "stream_trigger.RestTrigger", {"name": self.subject, "due": self.due}

    async def watch(self, settings: Settings, connection: AsyncConnection) -> dict[str, str]:
        due = datetime.fromisoformat(self.due)
        while datetime.now(UTC) < due:
            row = await (await connection.execute(application.SELECT_STATUS, (self.subject,))).fetchone()
            if row and ApplicationStatus(*row).wish:
                break
            await asyncio.sleep(POLL_SECONDS)
        return {"application": self.subject}


class StreamTrigger(DatabaseTrigger):
    """Reads the application's row in PostgreSQL every second."""

    def __init__(self, name: str) -> None:
        super().__init__(name)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        return "stream_trigger.StreamTrigger", {"name": self.subject}

    async def watch(self, settings: Settings, connection: AsyncConnection) -> dict[str, str]:
        allowed = application.silence_limits(settings, self.subject)
        while True:
            row = await (await connection.execute(application.SELECT_STATUS, (self.subject,))).fetchone()
            status = ApplicationStatus(*row) if row else ApplicationStatus(self.subject)
            found = application.diagnose_status(status, allowed, datetime.now(UTC))
            if found is Diagnosis.HUNG:
                found = await asyncio.to_thread(diagnose, settings, status)
            if found not in (None, Diagnosis.NO_INPUT):
                return {"application": self.subject, "found": str(found)}
            await asyncio.sleep(_NO_INPUT_POLL_SECONDS if found else POLL_SECONDS)
