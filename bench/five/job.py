"""The job `five_views`: each engine runs the five views, one engine after the other, on the same events."""

from collections.abc import Iterator

from bench.five.engines import ENGINES
from bench.five.measuring import measured
from bench.row import Row
from truelog.support.settings import Settings


def run(settings: Settings, seconds: float) -> Iterator[Row]:
    """The rows of all engines. Each engine reads the traffic that is sent after it has shown its first results."""
    for start in ENGINES.values():
        with start(settings) as engine:
            yield from measured(settings, engine, seconds)
