"""The relay service in a thread of the test."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

from truelog.services.relay import service
from truelog.support.settings import Settings


@contextmanager
def relayed(settings: Settings) -> Iterator[None]:
    """The relay service runs until the block ends."""
    stopped = Event()
    running = Thread(target=service.run, args=(settings, stopped))
    running.start()
    try:
        yield
    finally:
        stopped.set()
        running.join()
