"""The stream application after a start: the time after `kill -9` until it merges, and the time to read a backlog.

Also the CPU time of an application that has nothing to read. Every job here starts with an application that has read
the whole log.
"""

import time
from collections.abc import Sequence

from bench import streaming
from bench.corpus import Corpus, send
from bench.cpu import Meter, used
from bench.ground import services
from bench.row import OURS, Row
from tests.beat import every, first
from tests.scenes.applications import Application
from truelog.storage.database import connect
from truelog.support.settings import Settings

SMALL, LARGE = 10_000, 1_000_000  # events

_LOOK_SECONDS = 0.1
_WITHIN_SECONDS = 300.0


def killed(
    settings: Settings, corpus: Corpus, application: Application, views: Sequence[str]
) -> tuple[Row, Application]:
    """Kill the application, send a few events, start it again, and wait until every view has merged."""
    application.die()
    began = time.time()
    send(settings, corpus, SMALL)
    begin = time.time()
    successor = streaming.launch(settings, views)
    ended, _ = _read_up(settings, successor, views)
    note = "from the start of the application; sent_seconds: the delay between the kill and the start"
    more = {"events": SMALL, "seconds": ended - begin, "sent_seconds": begin - began}
    row = Row("kill -9 to the first merge", OURS, SMALL / (ended - begin), "alone", note, more=more)
    return row, successor


def backlog(
    settings: Settings, corpus: Corpus, application: Application, views: Sequence[str]
) -> tuple[Row, Application]:
    """End the application, send a backlog, start the application, and wait until every view has read the backlog."""
    application.end()
    send(settings, corpus, LARGE)
    begin = time.time()
    successor = streaming.launch(settings, views)
    meter = Meter(services(settings), successor.process.pid)
    before = meter.read()
    _, ended = _read_up(settings, successor, views)
    cost = used(before, meter.read())
    row = Row(
        "backlog of one million after a start",
        OURS,
        LARGE / (ended - begin),
        "alone",
        "from the start of the application to the last merge; CPU time includes the start",
        more={"events": LARGE, "seconds": ended - begin},
        guarantees=streaming.EXACTLY_ONCE,
        cpu_us_per_event=cost.per_event(LARGE),
        other_cores=cost.other_cores,
    )
    return row, successor


def idle(settings: Settings, application: Application, count: int, seconds: float) -> Row:
    """Measure the cores in use while only ticks arrive."""
    meter = Meter(services(settings), application.process.pid)
    before = meter.read()
    first(1.0, lambda: time.time() >= before.at + seconds, within=seconds + _WITHIN_SECONDS, what="an idle stream")
    cost = used(before, meter.read())
    cores = {f"{name.replace(' ', '_')}_cores": value / cost.wall for name, value in cost.seconds.items()}
    return Row(
        f"idle, {count} views",
        OURS,
        0.0,
        "alone",
        "no events, one tick per second and partition",
        more={"seconds": cost.wall, "cores": sum(cost.seconds.values()) / cost.wall, **cores},
        other_cores=cost.other_cores,
    )


def _read_up(settings: Settings, application: Application, views: Sequence[str]) -> tuple[float, float]:
    """Wait until the views have read the whole log. Return the times of the first change and of the end."""
    events = streaming.expected(settings, views)
    with connect(settings, autocommit=True) as connection:
        begin = streaming.progress(connection)[1]
        changed = 0.0
        for now in every(_LOOK_SECONDS, within=_WITHIN_SECONDS, what="reading the new events"):
            streaming.require_running(application)
            read = streaming.progress(connection)[1]
            changed = changed or (now if read > begin else 0.0)
            if read >= events:
                return changed, now
    raise AssertionError("every() raises at its limit")
