"""Measures one engine: the freshness of its views, and its CPU time for each event.

Freshness is the time from the broker's acknowledgement of a mark to the moment when a reader of the engine finds it. It
includes the interval at which the reader looks.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from bench.cpu import Meter, Recorder
from bench.five import traffic
from bench.five.marks import VIEWS, Marks, Reader
from bench.freshness import percentiles
from bench.row import Row
from tests.beat import TooSlow, every, first
from truelog.log.kafka_producer import make_producer
from truelog.support.settings import Settings

_LOOK_SECONDS = 0.05
_PROBE_SECONDS = 1.0
_START_SECONDS = 240.0
_LATE_SECONDS = 120.0  # after the traffic; a view that needs longer does not hold the rate


@dataclass(frozen=True)
class Engine:
    """A running engine, what a reader sees of it, and what its results are worth.

    `place` is where readers read, `note` says what the engine leaves out, and `views` adds to this for single views.
    """

    name: str
    reader: Reader
    meter: Meter
    place: str
    note: str
    guarantees: str
    require_running: Callable[[], None]
    notes: Mapping[str, str] = field(default_factory=dict)  # by view


def measured(settings: Settings, engine: Engine, seconds: float, warm: float = traffic.WARM_SECONDS) -> Iterator[Row]:
    """The rows of an engine: its cost, and the freshness of each view."""
    _await_first_marks(settings, engine)
    events, marks, sent = traffic.make_traffic(warm + seconds), Marks(f"mark-{prefix(engine.name)}"), traffic.Sent()
    recorder = Recorder(engine.meter)
    recorder.start()
    arguments = (settings, events, marks, warm, sent)
    sender = threading.Thread(target=traffic.send, args=arguments, name="traffic")
    try:
        sender.start()
        with suppress(TooSlow):  # the rows then say how many marks were not shown
            within = warm + seconds + _LATE_SECONDS
            for _ in every(_LOOK_SECONDS, within=within, what="all marks to be shown"):
                engine.require_running()
                marks.look(engine.reader, VIEWS)
                if not sender.is_alive() and marks.are_shown(VIEWS):
                    break
        ended = time.time()
    finally:
        sender.join()
        recorder.stop()
    if not sent.end:
        raise RuntimeError("the traffic was not sent; the error of its thread is above")
    yield from rows(engine, marks, sent, recorder, ended)


def rows(engine: Engine, marks: Marks, sent: traffic.Sent, recorder: Recorder, ended: float) -> Iterator[Row]:
    """The row of the CPU time from the warm-up until all marks are shown, and one for the freshness of each view."""
    named, rate = f"five views at {traffic.RATE:,} events/s", sent.events / (sent.end - sent.begin)
    cost, counted = recorder.between(sent.warm, ended), sent.events - sent.warm_events
    yield Row(
        f"{named}: all processes",
        engine.name,
        rate,
        "alone",
        engine.note,
        more={"events": counted, "seconds": cost.wall, "cores": sum(cost.seconds.values()) / cost.wall},
        guarantees=engine.guarantees,
        cpu_us_per_event=cost.per_event(counted),
        other_cores=cost.other_cores,
    )
    for view in VIEWS:
        delays, missing = marks.delays(view, ended)
        note = (
            f"acknowledged to readable {engine.place}, {len(delays)} marks, polled every {_LOOK_SECONDS * 1000:.0f} ms"
        )
        note += f"; {missing} of them did not appear and count until the end" if missing else ""
        note += f"; {engine.notes[view]}" if view in engine.notes else ""
        job, more = f"{named}: freshness of {view}", percentiles(delays)
        yield Row(job, engine.name, rate, "alone", note, more=more, other_cores=cost.other_cores)


def _await_first_marks(settings: Settings, engine: Engine) -> None:
    """Wait until each view has shown a mark, so that the engine reads the traffic from its first event on."""
    marks, kafka, due = Marks(f"probe-{prefix(engine.name)}"), make_producer(settings), 0.0

    def have_begun() -> bool:
        nonlocal due
        engine.require_running()
        if time.time() >= due:
            due = time.time() + _PROBE_SECONDS
            for view in missing_views(marks):
                traffic.send_mark(kafka, marks, view)
        kafka.poll(0)
        marks.look(engine.reader, missing_views(marks))
        return not missing_views(marks)

    first(_LOOK_SECONDS, have_begun, within=_START_SECONDS, what=f"the first rows of {engine.name}")


def prefix(engine: str) -> str:
    """The part of the names of marks that tells engines apart. It may be a part of a host."""
    return engine.replace(" ", "-")


def missing_views(marks: Marks) -> Sequence[str]:
    """The views that have shown no mark yet."""
    return [view for view in VIEWS if not marks.shown[view]]
