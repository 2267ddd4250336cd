"""How fresh a view is meanwhile: marked events, from their acknowledgement to when the view shows them."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count

from tests.bench.beat import every
from tests.bench.freshness import Marks, at
from truelog.log.kafka_producer import make_producer
from truelog.storage.database import connect
from truelog.support.settings import Settings

VIEW = "page_views"
_LOOK_SECONDS = 0.05
_WITHIN_SECONDS = 600.0
_numbers = count()  # a mark is told by its host, which occurs once


@contextmanager
def marked(settings: Settings) -> Iterator[Marks]:
    """A mark with each look, for as long as the block runs; after it all of them have been seen."""
    marks, over = Marks(shown={VIEW: {}}), threading.Event()
    with ThreadPoolExecutor(1) as pool:
        looking = pool.submit(_look, settings, marks, over)
        try:
            yield marks
        finally:
            over.set()
        looking.result()


def p99(marks: Marks) -> float:
    """Seconds."""
    return at(0.99, marks.seconds(VIEW))


def _look(settings: Settings, marks: Marks, over: threading.Event) -> None:
    kafka = make_producer(settings)
    with connect(settings, autocommit=True) as connection:
        for _ in every(_LOOK_SECONDS, within=_WITHIN_SECONDS, what="freshness"):
            if not over.is_set():
                mark = marks.make(next(_numbers))
                kafka.produce(mark.topic, mark.value, mark.key, on_delivery=marks.acknowledge)
            kafka.poll(0)
            marks.look(connection, VIEW)
            if over.is_set() and not kafka.flush(1) and marks.all_shown:
                break
