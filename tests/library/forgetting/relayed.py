"""The relay service in a thread of the test."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from tests.meanwhile import meanwhile
from truelog.services.relay import service
from truelog.support.settings import Settings


@contextmanager
def relayed(settings: Settings) -> Iterator[None]:
    """The relay service runs until the block ends."""
    with meanwhile(partial(service.run, settings)):
        yield
