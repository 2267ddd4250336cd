"""A view's examples as data: a list of events in, rows out.

    @example([viewed("10:00:00"), viewed("10:00:30")])
    def test_views_of_a_minute_are_counted(rows: Rows) -> None:
        assert rows == [cell("10:00:00", views=2)]

The name of the test file selects the view. `rows` are the view's rows. `relations` has the rows of each relation that
the view presents, by its name. A test with an example runs once for each way to run the view.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from typing import Any

import pytest

from tests.laws.events import START
from truelog import View
from truelog.schema.names import TICKS
from truelog.support import timestamps

WAYS = ("batch", "stream", "shuffled")
_IN_ORDER = ("batch", "stream")
_ids = count()

Row = dict[str, Any]
Rows = list[Row]
Relations = Mapping[str | None, Rows]  # by relation; None is the view itself


@dataclass(frozen=True)
class Sent:
    """A record as a producer sends it: its topic and its bytes, and when the broker appends it."""

    topic: str
    value: bytes
    appended_at: datetime = START

    @property
    def second(self) -> int:
        """When the broker appends the record, from `START` on."""
        return round((self.appended_at - START).total_seconds())


def sent(topic: str, **fields: Any) -> Sent:
    """An event of the topic's type, with a default time and, if none is given, an id that no other event has."""
    defaults = {"event_id": f"id {next(_ids)}", "occurred_at": START}
    return Sent(topic, json.dumps(defaults | fields, default=timestamps.to_text).encode())


def ticked(time: str) -> Sent:
    """A tick at that time, which counts at the end of the events."""
    return Sent(TICKS, b"", at(time))


def at(time: str) -> datetime:
    """`at("10:00:05")`: that time in UTC, on the day of all examples."""
    return datetime.combine(START, datetime.strptime(time, "%H:%M:%S").time(), UTC)


@dataclass(frozen=True, eq=False)
class Example:
    """Events in the order of their arrival. `view` is None for the view that the test file's name selects."""

    events: Sequence[Sent]
    view: View | None = None


def example(events: Sequence[Sent], *, in_order: bool = False, view: View | None = None) -> pytest.MarkDecorator:
    """The events of a test.

    `in_order` leaves out the shuffled stream, because the rows depend on the order of the events in the log. `view`
    replaces the view that the file's name selects.
    """
    given, ways = Example(events, view), _IN_ORDER if in_order else WAYS
    return pytest.mark.parametrize(("example", "way"), [pytest.param(given, way, id=way) for way in ways])


def examples(
    given: Mapping[str, tuple[Sequence[Sent], Any]], *, in_order: bool = False, view: View | None = None
) -> pytest.MarkDecorator:
    """Several examples of one test: for each name, the events, and what the test gets as `expected`."""
    cases = [
        pytest.param(one, way, expected, id=f"{name}-{way}")
        for name, (events, expected) in given.items()
        for one in [Example(events, view)]
        for way in (_IN_ORDER if in_order else WAYS)
    ]
    return pytest.mark.parametrize(("example", "way", "expected"), cases)
