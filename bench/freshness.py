"""Freshness: the time between Kafka's acknowledgement of an event and the event's appearance in a view.

Marked events are sent amid steady traffic. Their hosts and addresses occur nowhere else, so each marked event has its
own cell in each view. A poller looks for cells that it has not seen yet. The result includes the polling delay.
"""

import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime

from bench.corpus import good
from bench.row import OURS, Ran, Row
from tests.beat import every
from tests.scenes.marks import VIEWS, Marks, at
from truelog.log.kafka_producer import OutgoingRecord, make_producer
from truelog.storage.database import connect
from truelog.support.settings import Settings
from truelog.traffic import generator

LOOK_SECONDS = 0.02

_MARKS = 20  # per second
_BEAT_SECONDS = 0.01
_WARM_SECONDS = 30.0  # traffic before the first mark, because a real application has been warm for weeks
_PATIENCE_SECONDS = 120.0
_SEED = 11


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
