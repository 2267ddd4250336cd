"""Rules and events for tests: an event type with a number and a text, and another whose events undo matches."""

from collections.abc import Sequence
from typing import Any

from truelog.patterns import rule as rules
from truelog.patterns.catalogue import EventSource, Sources
from truelog.patterns.matcher import Event, find
from truelog.patterns.rule import Rule

SECOND = 1_000_000  # microseconds
SOURCES: Sources = {
    "event": EventSource(
        entities={"thing": "thing_id"}, columns={"value": "number", "kind": "text", "is_on": "boolean"}
    ),
    "undo": EventSource(entities={"thing": "thing_id"}, columns={"value": "number"}),
}


def a_rule(pattern: str, conditions: dict[str, str], **fields: Any) -> Rule:
    """A rule with these conditions of its steps; a step without a condition fits every event."""
    steps = {name: {"on": "event", "where": where} for name, where in conditions.items()}
    document = {"rule": "r", "by": "thing", "pattern": pattern, "within": "1 day", "steps": steps} | fields
    return rules.check(rules.read(document), SOURCES)


def an_event(offset: int, value: Any = None, at: int | None = None, **fields: Any) -> Event:
    """An event that happened `at` this second, and reached the log at once."""
    time = (offset if at is None else at) * SECOND
    return Event(time, "event", 0, offset, time, {"value": value, **fields})


def taken(rule: Rule, events: Sequence[Event]) -> list[list[tuple[int, str]]]:
    """The matches: the offsets of their events, with the steps."""
    return [[(event.offset, step) for event, step in match.events] for match in find(rule, events)]
