"""An explanation of a view's row: the events behind it, and the row after each of them."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from truelog.archive.reader import ScanCost
from truelog.log.positions import Positions
from truelog.schema.names import COORDINATES

ORDER = ("broker_time", *COORDINATES)


class Verdict(StrEnum):
    """Whether the events add up to the row. UNKNOWN: the archive lacks some of them."""

    EQUAL = "EQUAL"
    DIFFERENT = "DIFFERENT"
    UNKNOWN = "UNKNOWN"


@dataclass(frozen=True)
class Addition:
    """The row that an event alone would make in one of the view's tables; None if it deletes the row."""

    table: str
    key: Mapping[str, Any]
    row: Mapping[str, Any] | None


@dataclass(frozen=True)
class ExplainedEvent:
    """An event, what it adds, and the explained rows after it: at most one, or the rows of a group.

    `refused` says why the event changes nothing; it is empty for other events.
    """

    number: int
    topic: str
    partition: int
    offset: int
    event_time: datetime
    broker_time: datetime
    adds: Sequence[Addition]
    rows: Sequence[Mapping[str, Any]]
    refused: str = ""

    @property
    def coordinates(self) -> str:
        return f"{self.topic}:{self.partition}:{self.offset}"


@dataclass(frozen=True)
class Explanation:
    """A page of the events behind a row.

    streamed, rebuilt: the rows as they are in the stream's table, and as they follow from all events up to `positions`.
    key: the values as they were given.
    missing: records below the view's positions that are not archived yet.
    total: the number of events on all pages.
    refused: how many of them change nothing, because the thing belongs to another person; or how many events of this
        page were refused by a Group of steps.
    """

    view: str
    version: int
    key: Mapping[str, Any]
    positions: Positions
    missing: int
    verdict: Verdict
    reason: str
    streamed: Sequence[Mapping[str, Any]]
    rebuilt: Sequence[Mapping[str, Any]]
    total: int
    events: Sequence[ExplainedEvent]
    cost: ScanCost
    seconds: float
    refused: int = 0

    @property
    def earlier(self) -> str | None:
        """Where the page before this one ends; None if this is the first page."""
        return self.events[0].coordinates if self.events and self.events[0].number > 1 else None

    def as_dict(self) -> dict[str, Any]:
        """The stable format for scripts and pages."""
        return {
            "view": self.view,
            "version": self.version,
            "key": dict(self.key),
            "positions": self.positions.plain(),
            "missing": self.missing,
            "verdict": self.verdict,
            "reason": self.reason,
            "streamed": list(self.streamed),
            "rebuilt": list(self.rebuilt),
            "order": ORDER,
            "total": self.total,
            "refused": self.refused,
            "earlier": self.earlier,
            "events": [asdict(each) for each in self.events],
            "cost": {**asdict(self.cost), "seconds": round(self.seconds, 3)},
        }
