"""Freshness: the time between Kafka's acknowledgement of an event and the event's appearance in a view.

Marked events are sent amid steady traffic. Their hosts and addresses occur nowhere else, so each marked event has its
own cell in each view. A poller looks for cells that it has not seen yet. The result includes the polling delay.
"""

import json
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from confluent_kafka import KafkaError, KafkaException, Message

from tests.bench.beat import every
from tests.bench.corpus import good
from tests.bench.row import OURS, Ran, Row
from truelog.ingest import generator
from truelog.log.kafka_producer import OutgoingRecord, make_producer
from truelog.storage.database import Connection, connect
from truelog.support import timestamps
from truelog.support.settings import Settings

LOOK_SECONDS = 0.02

_MARKS = 20  # per second
_BEAT_SECONDS = 0.01
_WARM_SECONDS = 30.0  # traffic before the first mark, because a real application has been warm for weeks
_PATIENCE_SECONDS = 120.0
_SEED = 11

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


def run(settings: Settings, *, rate: int, seconds: float, ran: Ran) -> list[Row]:
    """Measure freshness and return one row for each view. A stream application must be running."""
    traffic = list(_traffic(rate, _WARM_SECONDS + seconds))
    marks = Marks()
    sender = threading.Thread(target=_send, args=(settings, traffic, rate, marks), name="traffic")
    began = time.time()
    sender.start()
    with connect(settings, autocommit=True) as connection:
        within = _WARM_SECONDS + seconds + _PATIENCE_SECONDS
        for _ in every(LOOK_SECONDS, within=within, what="freshness"):
            for view in VIEWS:
                marks.look(connection, view)
            if not sender.is_alive() and marks.all_shown:
                break
    reached = len(traffic) / (marks.sent - began)
    return [_row(view, marks.seconds(view), reached, ran) for view in VIEWS]


def at(share: float, ordered: list[float]) -> float:
    """The percentile for this share: the smallest value that at least this share of the values does not exceed."""
    return ordered[max(0, -int(-share * len(ordered) // 1) - 1)]


def percentiles(ordered: list[float]) -> dict[str, float]:
    """The percentiles and the maximum of delays in seconds, by their names in a row."""
    shares = {f"p{round(share * 100)}_seconds": at(share, ordered) for share in (0.5, 0.95, 0.99)}
    return {**shares, "max_seconds": ordered[-1]}


def _row(view: str, seconds: list[float], rate: float, ran: Ran) -> Row:
    return Row(
        f"freshness of {view}",
        OURS,
        rate,
        ran,
        f"acknowledged to readable, {len(seconds)} marked events, polled every {LOOK_SECONDS * 1000:.0f} ms",
        more=percentiles(seconds),
    )


def _traffic(rate: int, seconds: float) -> Iterator[OutgoingRecord]:
    return good(generator.generate(seed=_SEED, begin=datetime.now(UTC), rate=rate, seconds=seconds))


def _send(settings: Settings, traffic: list[OutgoingRecord], rate: int, marks: Marks) -> None:
    """Send traffic at the given rate, and marks after the warm-up."""
    kafka, begin = make_producer(settings), time.time()
    sent = marked = 0

    for now in every(_BEAT_SECONDS, within=len(traffic) / rate + _PATIENCE_SECONDS, what="sending"):
        due = int((now - begin) * rate)
        for record in traffic[sent:due]:
            kafka.produce(record.topic, record.value, record.key)
        sent = min(due, len(traffic))
        if now > begin + _WARM_SECONDS + marked / _MARKS:
            mark = marks.make(marked)
            kafka.produce(mark.topic, mark.value, mark.key, on_delivery=marks.acknowledge)
            marked += 1
        kafka.poll(0)
        if sent == len(traffic):
            break
    marks.sent = time.time()
    kafka.flush()


def _cells(happened: datetime) -> tuple[datetime, datetime]:
    """The start of the minute that contains the event, and the start of its ten-second pane."""
    minute = happened.replace(second=0, microsecond=0)
    return minute, minute + timedelta(seconds=happened.second // 10 * 10)
