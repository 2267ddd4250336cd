"""Spans: parts of an entity's time, which are searched one by one.

An entity that never rests, such as a stock, has more and more events. A search from the first of them would take longer
and longer. A declared entity therefore has spans, and its rules last at most `longest`. The search of a span reads the
events from `longest` before it to `longest` after it. The matches that begin in the span belong to it.

A span is a function of an event's time alone, so the stream and each rebuild search the same events.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from truelog.patterns.catalogue import Sources
from truelog.support.durations import seconds
from truelog.support.errors import BadDeclaration

EARLIEST, LATEST = -62_135_596_800_000_000, 253_402_300_799_999_999  # of the years 1 to 9999, in microseconds
NEVER = 253_370_764_800_000_000  # the year 9999, as the end of the time of an entity without spans
_MICROS = 1_000_000
_LENGTHS = 4  # of `longest` in a span. An event is therefore in at most two searches


@dataclass(frozen=True)
class Spans:
    """The spans of an entity. Times are in microseconds.

    longest: how long a rule of the entity may last.
    """

    longest: int

    @property
    def length(self) -> int:
        return _LENGTHS * self.longest

    def end(self, at: int) -> int:
        """The end of the span that contains a time."""
        return min(at - at % self.length + self.length, LATEST)


def spans_of(sources: Sources) -> Mapping[str, Spans]:
    """The spans by entity. An entity without spans is searched as a whole.

    Raises:
        BadDeclaration: event types disagree about an entity.
    """
    found: dict[str, Spans] = {}
    for source in sources.values():
        for entity in source.entities.keys() & source.longest.keys():
            spans = Spans(seconds(source.longest[entity]) * _MICROS)
            if found.setdefault(entity, spans) != spans:
                raise BadDeclaration(f"two event types declare another longest time of a rule by {entity}")
    missing = {e for source in sources.values() for e in source.entities.keys() - source.longest.keys()}
    if partly := sorted(missing & found.keys()):
        raise BadDeclaration(f"one event type declares the longest time of a rule by {partly[0]}, and another does not")
    return found
