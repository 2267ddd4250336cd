"""Marked events, to measure freshness: their hosts occur nowhere else, so each has its own cell in each view."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from confluent_kafka import KafkaError, KafkaException, Message

from truelog.log.kafka_producer import OutgoingRecord
from truelog.storage.database import Connection
from truelog.support import timestamps

# These conditions use the first two columns of each view's key, so PostgreSQL can use the table's index.
_SHOWN = {
    "page_views": "SELECT host FROM views.page_views WHERE minute = ANY(%s) AND host = ANY(%s)",
    "page_audience": "SELECT host FROM views.page_audience WHERE minute = ANY(%s) AND host = ANY(%s)",
    "request_rates": "SELECT ip FROM views.request_rates WHERE pane = ANY(%s) AND ip = ANY(%s)",
}
VIEWS = tuple(_SHOWN)


@dataclass
class Marks:
    """The times when each marked event was acknowledged and when each view first showed it, by the event's host."""

    happened: dict[str, datetime] = field(default_factory=dict)
    acknowledged: dict[str, float] = field(default_factory=dict)
    shown: Mapping[str, dict[str, float]] = field(default_factory=lambda: {view: {} for view in VIEWS})
    sent: float = 0.0  # when the traffic ended

    def make(self, number: int) -> OutgoingRecord:
        host, now = f"m{number}.example", datetime.now(UTC)
        self.happened[host] = now
        event = {
            "event_id": host,
            "occurred_at": timestamps.to_text(now),
            "visitor_id": host,
            "url": f"https://{host}/",
            "ip": host,
            "response_ms": 1,
        }
        return OutgoingRecord("page_view", host, json.dumps(event).encode())

    def acknowledge(self, error: KafkaError | None, message: Message) -> None:
        """Handle the broker's acceptance or refusal of a mark. The producer calls this method."""
        if error is not None:
            raise KafkaException(error)
        self.acknowledged[(message.key() or b"").decode()] = time.time()

    def look(self, connection: Connection, view: str) -> None:
        """Record the marks that have newly appeared in the view."""
        missing = [host for host in list(self.acknowledged) if host not in self.shown[view]]
        if missing:
            cells = list({cell for host in missing for cell in _cells(self.happened[host])})
            found = connection.execute(_SHOWN[view], (cells, missing)).fetchall()
            now = time.time()
            self.shown[view].update({str(host): now for (host,) in found})

    def seconds(self, view: str) -> list[float]:
        """The delays of all marks, shortest first."""
        return sorted(seen - self.acknowledged[host] for host, seen in self.shown[view].items())

    @property
    def all_shown(self) -> bool:
        return all(len(shown) == len(self.acknowledged) for shown in self.shown.values())


def at(share: float, ordered: list[float]) -> float:
    """The percentile for this share: the smallest value that at least this share of the values does not exceed."""
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)]


def _cells(happened: datetime) -> tuple[datetime, datetime]:
    """The start of the minute that contains the event, and the start of its ten-second pane."""
    minute = happened.replace(second=0, microsecond=0)
    return minute, minute + timedelta(seconds=happened.second // 10 * 10)
