"""Random rules, versions and events of many groups, as data: for the laws of the search of many groups."""

import json
from collections.abc import Sequence
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tests.library.patterns.rules import SECOND
from truelog.patterns.catalogue import EventSource, Sources
from truelog.patterns.matcher import Event
from truelog.patterns.together.events import Events
from truelog.patterns.versions import Change, Version, reader, versions

_COLUMNS = {"value": "number", "limit": "number", "kind": "text", "is_on": "boolean"}
SOURCES: Sources = {name: EventSource(entities={"thing": "thing_id"}, columns=_COLUMNS) for name in ("event", "other")}

ALONE = (
    "true",
    "null",
    "1 = 1",
    "value > 1",
    "not value > 1",
    "value = 0 or value = 2",
    "value between 1 and 2",
    "value in (1, 2)",
    "value is null",
    "value <> 2",
    "value > limit",
    "value + limit >= 3",
    "value * 9007199254740991 > limit",
    "value / (value - 1) > 1 and limit <> 0",
    "-abs(value) < -1",
    "coalesce(value, limit) = 2",
    "value % 2 = 1",
    "kind = 'x'",
    "kind <> 'x' or value < 1",
    "lower(kind) like 'x%'",
    "is_on",
    "not is_on",
)
OF_EARLIER = ("value < prev(value)", "value * 2 > prev(value, 2) + 1", "kind <> prev(kind)", "value > prev(value) / 2")
OF_MATCH = ("value = a.value", "value > first(a.value) or kind = 'x'", "value <> a.value and value > 0")
# A number may be a text, because Spark writes NaN as a text, and a custom transform may write anything.
_VALUES: tuple[Any, ...] = (
    0,
    1,
    2,
    2,
    3,
    3,
    None,
    1.5,
    -1,
    "NaN",
    float("nan"),
    True,
    False,
    2**53,
    2**53 + 1,
    2**60,
    -(2**62),
    1e300,
    [],
)
_ORDINARY = (0, 1, 2, 2, 3, None)
_KINDS = ("x", "X", "y", None)
_PATTERNS = (
    "a",
    "a b",
    "a .. b",
    "a b+ c",
    "a{2} b?",
    "(a b | b a)",
    "a{2,} b",
    "(a | b)* c",
    "((a+)+)+ c",
    "a*? b",
    "a .. b .. c",
    "(a? b?){1,3} c",
)


class Drawn(NamedTuple):
    """Versions of rules, the inputs of groups as a table with the number of each one's group, and the events."""

    versions: list[Version[Any]]
    inputs: pa.Table
    group: list[int]
    events: list[list[Event]]

    def together(self) -> Events:
        return Events.of(self.inputs, np.array(self.group, np.int64))


def draw_values(chosen: Random, *, is_strange: bool) -> dict[str, Any]:
    numbers = _VALUES if is_strange else _ORDINARY
    drawn = {"value": chosen.choice(numbers), "limit": chosen.choice(numbers), "kind": chosen.choice(_KINDS)}
    drawn["is_on"] = chosen.choice((True, False, None, *((0, "x") if is_strange else ())))
    return {name: each for name, each in drawn.items() if each is not None or chosen.random() < 0.5}


def draw_events(chosen: Random, groups: int, most: int, *, is_strange: bool) -> list[list[Event]]:
    """Events of groups: in two partitions of two topics, some at the same time, some late."""
    offsets = {(topic, partition): 0 for topic in SOURCES for partition in range(2)}
    found = list[list[Event]]()
    for _ in range(groups):
        events, at = list[Event](), chosen.randrange(5)
        for _ in range(chosen.randint(1, most)):
            topic, partition = chosen.choice(("event", "event", "event", "other")), chosen.randrange(2)
            at += chosen.choice((0, 1, 1, 2, 6))
            logged_at = at + chosen.choice((0, 0, 0, 0, 0, 1, 70))
            values = draw_values(chosen, is_strange=is_strange)
            events.append(Event(at * SECOND, topic, partition, offsets[topic, partition], logged_at * SECOND, values))
            offsets[topic, partition] += 1
        found.append(events)
    return found


def draw_document(chosen: Random, name: str) -> dict[str, Any]:
    pattern = chosen.choice(_PATTERNS)
    steps = {each: _step(chosen, each, pattern) for each in "abc" if each in pattern}
    document: dict[str, Any] = {
        "rule": name,
        "by": "thing",
        "pattern": pattern,
        "within": f"{chosen.choice((2, 5, 30))} seconds",
        "after": chosen.choice(("past_last", "next")),
        "steps": steps,
        "final": chosen.random() < 0.2,
        "late_after": f"{chosen.choice((1, 60, 600))} seconds",
    }
    if chosen.random() < 0.3:
        where = chosen.choice((*ALONE, *(OF_MATCH if "a" in steps else ())))
        document["absent"] = {"on": chosen.choice(("event", "other")), "where": where}
        document["absent"] |= {"until": "3 seconds"} if chosen.random() < 0.5 else {}
    return document


def _step(chosen: Random, name: str, pattern: str) -> dict[str, Any]:
    conditions = (*ALONE, *OF_EARLIER, *(OF_MATCH * 3 if name != "a" and "a" in pattern else ()))
    where = chosen.choice(conditions)
    if chosen.random() < 0.3:
        where = f"({where}) {chosen.choice(('and', 'or'))} not ({chosen.choice(conditions)})"
    step = {"on": chosen.choice(("event", "event", "event", "other")), "where": where}
    return step | ({"gap": f"{chosen.choice((1, 4))} seconds"} if chosen.random() < 0.2 else {})


def draw_changes(chosen: Random, rules: int, records: int, most: int) -> list[Change]:
    """Records that set, change and retire rules, each from other offsets on, which may also go back."""
    found = []
    for offset in range(records):
        name, verb = f"r{chosen.randrange(rules)}", chosen.choice(("set", "set", "set", "retired"))
        begins = {
            topic: {str(partition): chosen.choice((0, 0, chosen.randint(0, most))) for partition in range(2)}
            for topic in chosen.choice((("event", "other"), ("event",)))
        }
        definition = json.dumps(draw_document(chosen, name)) if verb == "set" else None
        logged_at = chosen.randint(0, 100) * SECOND
        found.append(Change("rule", 0, offset, logged_at, name, verb, definition, json.dumps(begins)))
    return found


def as_table(events: Sequence[Event]) -> pa.Table:
    rows = [
        {**{name: getattr(each, name) for name in Event._fields[:-1]}, "event": json.dumps(each.values)}
        for each in events
    ]
    names = ("topic", "partition", "offset", "at", "logged_at", "event")
    types = (pa.string(), pa.int32(), pa.int64(), pa.int64(), pa.int64(), pa.string())
    return pa.Table.from_pylist(rows, pa.schema(list(zip(names, types, strict=True))))


def draw(seed: int) -> Drawn:
    """A case. Each event has been written as JSON and read."""
    chosen = Random(seed)
    is_strange = chosen.random() < 0.3
    events = draw_events(chosen, chosen.randint(1, 6), chosen.choice((3, 8, 14)), is_strange=is_strange)
    listed = [(group, each) for group, of_group in enumerate(events) for each in of_group]
    most = 1 + max(each.offset for _, each in listed)
    known = versions(draw_changes(chosen, 3, chosen.randint(1, 5), most), reader(SOURCES))
    chosen.shuffle(listed)
    return Drawn(known, as_table([each for _, each in listed]), [group for group, _ in listed], events)
