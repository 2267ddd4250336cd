"""Which version judges which events, and what late events do to matches."""

import json
from dataclasses import replace
from typing import Any

from tests.library.patterns.rules import SECOND, SOURCES, an_event
from truelog.patterns.matcher import Event
from truelog.patterns.outcomes import FOUND, LATE, RETRACTED, TOO_COSTLY, outcomes
from truelog.patterns.versions import Change, reader, versions

MINUTE = 60 * SECOND


def a_change(offset: int, begins: int = 0, logged_at: int = 0, **definition: Any) -> Change:
    """A record that sets the rule `r`, or retires it if there is no definition."""
    document = {"rule": "r", "by": "thing", "within": "10 seconds", "pattern": "a"} | definition
    verb, text = ("set", json.dumps(document)) if definition else ("retired", None)
    ends = json.dumps({"event": {"0": begins}})
    return Change("rule", 0, offset, logged_at * SECOND, "r", verb, text, ends)


def a_step(where: str) -> dict[str, Any]:
    return {"a": {"on": "event", "where": where}}


def found(changes: list[Change], events: list[Event]) -> list[tuple[int, str, list[int]]]:
    every = outcomes(versions(changes, reader(SOURCES)), "thing", events)
    return sorted((each.version, each.outcome, [int(event["offset"]) for event in each.events]) for each in every)


def test_each_version_judges_the_events_between_two_records() -> None:
    changes = [
        a_change(0, 1, steps=a_step("value = 1")),
        a_change(1, 3, steps=a_step("value = 2")),
        a_change(2, 4, steps=a_step("value = 'text'")),  # not valid: it changes nothing
        a_change(3, 5),
    ]
    events = [an_event(n, value) for n, value in enumerate((1, 1, 2, 2, 1, 2))]

    assert found(changes, events) == [(1, FOUND, [1]), (2, FOUND, [3])]
    assert found(changes[:1], events) == [(1, FOUND, [1]), (1, FOUND, [4])]


def test_a_rule_that_is_too_long_ends_the_version_before_it() -> None:
    sources = {"event": replace(SOURCES["event"], longest={"thing": "1 minute"})}
    short, long = (a_change(n, n, within=f"{n + 1} minutes", steps=a_step("true")) for n in range(2))
    assert [each.ended_at for each in versions([short], reader(sources))] == [None]
    [ended] = versions([short, long._replace(logged_at=7)], reader(sources))
    assert (ended.number, ended.ends, ended.ended_at) == (1, {"event": {"0": 1}}, 7)


def test_a_version_that_has_ended_sees_no_later_time() -> None:
    absent = {"on": "event", "where": "value = 2"}
    begun = a_change(0, steps=a_step("value = 1"), absent=absent)
    deadline = 10 + 60  # with `late_after`

    assert found([begun, a_change(1, 1, deadline + 1)], [an_event(0, 1)]) == [(1, FOUND, [0])]
    assert found([begun, a_change(1, 1, deadline)], [an_event(0, 1)]) == []


def test_an_event_after_the_end_of_a_version_still_undoes_its_match() -> None:
    absent = {"on": "event", "where": "value = 2"}
    changes = [a_change(0, steps=a_step("value = 1"), absent=absent), a_change(1, 1, 1_000)]

    assert found(changes, [an_event(0, 1), an_event(1, 2, 5)]) == []


def test_late_events_make_and_retract_matches() -> None:
    rule = a_change(0, pattern="a b", steps=a_step("value = 1") | {"b": {"on": "event", "where": "value = 2"}})
    in_time = [an_event(0, 1, 0), an_event(1, 2, 4)]
    late = an_event(2, 3, 2)._replace(logged_at=2 * SECOND + MINUTE + 1)

    assert found([rule], in_time) == [(1, FOUND, [0, 1])]
    assert found([rule], [*in_time, late]) == [(1, RETRACTED, [0, 1])]
    assert found([rule], [in_time[0], late._replace(values={"value": 2})]) == [(1, LATE, [0, 2])]


def test_a_search_that_is_too_costly_says_so() -> None:
    steps = {"a": {"on": "event"}, "c": {"on": "event", "where": "false"}}
    rule = a_change(0, pattern="((a+)+)+ c", within="1 day", steps=steps)

    assert found([rule], [an_event(n, 1) for n in range(400)]) == [(1, TOO_COSTLY, [])]
