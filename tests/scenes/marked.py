"""Measures a view's freshness with marked events: the time from an event's acknowledgement until the view shows it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count

from tests.beat import every
from tests.meanwhile import meanwhile
from tests.scenes.marks import Marks, at
from truelog.log.kafka_producer import make_producer
from truelog.storage.database import connect
from truelog.support.settings import Settings

VIEW = "page_views"
_POLL_SECONDS = 0.05
_TIMEOUT_SECONDS = 600.0
_numbers = count()  # each mark has a unique host


@contextmanager
def marked(settings: Settings) -> Iterator[Marks]:
    """Send a mark at each poll while the block is running. At the block's end, wait until the view shows all marks."""
    marks = Marks(shown={VIEW: {}})
    with meanwhile(partial(_poll, settings, marks)):
        yield marks


def p99(marks: Marks) -> float:
    """The 99th percentile of the freshness, in seconds."""
    return at(0.99, marks.seconds(VIEW))


def _poll(settings: Settings, marks: Marks, ended: threading.Event) -> None:
    kafka = make_producer(settings)
    with connect(settings, autocommit=True) as connection:
        for _ in every(_POLL_SECONDS, within=_TIMEOUT_SECONDS, what="freshness"):
            if not ended.is_set():
                mark = marks.make(next(_numbers))
                kafka.produce(mark.topic, mark.value, mark.key, on_delivery=marks.acknowledge)
            kafka.poll(0)
            marks.look(connection, VIEW)
            if ended.is_set() and not kafka.flush(0.5) and marks.all_shown:
                break
