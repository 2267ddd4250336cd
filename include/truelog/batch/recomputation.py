"""The progress of a recompute: the state of each view and log day, in `truelog.recomputation`.

Each attempt has rows of its own. In Airflow, an attempt is one try of the task, so a repeated run keeps the states of
its earlier attempts.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import uuid4

from truelog.storage.database import Connection, connect
from truelog.support.settings import Settings


class DayState(StrEnum):
    """The state of one view and log day."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


States = Mapping[str, Sequence[DayState]]  # the states of the log days in order, by view


@dataclass(frozen=True)
class Recomputation:
    """One attempt at a recompute. `run` is the id of the Airflow run, or None on the command line."""

    settings: Settings
    attempt: str
    run: str | None = None

    @staticmethod
    def by_hand(settings: Settings) -> "Recomputation":
        """An attempt outside Airflow."""
        return Recomputation(settings, str(uuid4()))

    def plan(self, views: Iterable[str], days: Iterable[datetime]) -> None:
        """Record that all these views and days are waiting."""
        chosen = list(days)
        rows = [(self.attempt, view, day, self.run) for view in views for day in chosen]
        with connect(self.settings) as connection:
            connection.cursor().executemany(
                "INSERT INTO truelog.recomputation (attempt, view, day, run) VALUES (%s, %s, %s, %s)", rows
            )

    def refuse(self, view: str) -> None:
        """Record that all unfinished days of a view have failed."""
        with connect(self.settings) as connection:
            connection.execute(
                "UPDATE truelog.recomputation SET state = %s, changed_at = now() "
                "WHERE attempt = %s AND view = %s AND state <> %s",
                (DayState.FAILED, self.attempt, view, DayState.DONE),
            )

    def start(self, view: str, day: datetime) -> None:
        self._set(view, day, DayState.RUNNING, None)

    def finish(self, view: str, day: datetime, keys: int) -> None:
        """Record that the day has a new partial with this number of keys."""
        self._set(view, day, DayState.DONE, keys)

    def _set(self, view: str, day: datetime, state: DayState, keys: int | None) -> None:
        with connect(self.settings) as connection:
            connection.execute(
                "UPDATE truelog.recomputation SET state = %s, keys = %s, changed_at = now() "
                "WHERE attempt = %s AND view = %s AND day = %s",
                (state, keys, self.attempt, view, day),
            )


def states(connection: Connection, attempts: Collection[str]) -> dict[str, States]:
    """The states that these attempts have recorded."""
    rows = connection.execute(
        "SELECT attempt, view, state FROM truelog.recomputation WHERE attempt = ANY(%s) ORDER BY view, day",
        (list(attempts),),
    )
    found: dict[str, dict[str, list[DayState]]] = {}
    for attempt, view, state in rows:
        found.setdefault(str(attempt), {}).setdefault(str(view), []).append(DayState(str(state)))
    return dict(found)
