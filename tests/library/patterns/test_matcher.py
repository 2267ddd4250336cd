"""The matcher finds what a naive matcher finds, in whatever order the events come."""

import random
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.library.patterns.naive_matcher import Fits, Naive
from tests.library.patterns.rules import SECOND, a_rule, an_event, taken
from truelog.patterns import grammar
from truelog.patterns.matcher import Budget, Event, TooCostly, find
from truelog.patterns.rule import Rule

# Each condition in SQL and in Python.
CONDITIONS: dict[str, Fits] = {
    "true": lambda event, before, last: True,
    "value > 1": lambda event, before, last: event.values["value"] > 1,
    "value = 0 or value = 2": lambda event, before, last: event.values["value"] in (0, 2),
    "value < prev(value)": lambda event, before, last: bool(before and event.values["value"] < before.values["value"]),
    "value = a.value": lambda event, before, last: _same(event, last.get("a")),
    "value <> b.value": lambda event, before, last: "b" in last and not _same(event, last["b"]),
}
_OF_ABSENCE = tuple(CONDITIONS)[:3]
DURATIONS = (None, 1, 3)


def _same(event: Any, other: Any) -> bool:
    return other is not None and event.values["value"] == other.values["value"]


def _patterns() -> st.SearchStrategy[str]:
    quantities = st.sampled_from(("", "", "*", "+", "?", "{2}", "{1,2}", "{,2}", "*?", "+?", "??", "{1,3}?"))
    steps = st.tuples(st.sampled_from("abc"), quantities).map("".join)

    def nested(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        joined = st.lists(inner, min_size=2, max_size=3)
        choice, sequence, skip = (joined.map(mark.join) for mark in (" | ", " ", " .. "))
        return st.tuples(st.one_of(choice, sequence, skip).map("({})".format), quantities).map("".join)

    return st.recursive(steps, nested, max_leaves=5)


@st.composite
def _searches(draw: st.DrawFn) -> tuple[Rule, Naive, list[Event], list[Event]]:
    """A rule, the same rule for the naive matcher, the events that may match, and the events that may undo a match."""
    pattern = draw(_patterns())
    of_step = {name: draw(st.sampled_from(sorted(CONDITIONS))) for name in "abc" if name in pattern}
    for name, where in of_step.items():  # no condition refers to a step that is not there, or to its own step
        other = next((each for each in "ab" if f"{each}.value" in where), None)
        of_step[name] = where if other is None or (other in of_step and other != name) else "true"
    within, gap, is_past_last = draw(st.sampled_from((2, 4, 20))), draw(st.sampled_from(DURATIONS)), draw(st.booleans())
    absent = draw(st.sampled_from((None, *_OF_ABSENCE, *(("value = a.value",) if "a" in of_step else ()))))
    undone_by = draw(st.sampled_from(("event", "undo")))
    until, gaps = draw(st.sampled_from(DURATIONS)), {} if gap is None else {max(of_step): gap}
    steps = {
        name: {"on": "event", "where": where} | ({"gap": f"{gaps[name]} seconds"} if name in gaps else {})
        for name, where in of_step.items()
    }
    fields: dict[str, Any] = {"within": f"{within} seconds", "after": "past_last" if is_past_last else "next"}
    if absent is not None:
        end = {} if until is None else {"until": f"{until} seconds"}
        fields["absent"] = {"on": undone_by, "where": absent} | end
    naive = Naive(
        grammar.parse(pattern),
        {name: CONDITIONS[where] for name, where in of_step.items()},
        within * SECOND,
        is_past_last,
        {name: length * SECOND for name, length in gaps.items()},
        None if absent is None else (CONDITIONS[absent], None if until is None else until * SECOND),
    )
    rows = _drawn_events(draw, 7)
    undoing = rows if undone_by == "event" else [each._replace(topic="undo") for each in _drawn_events(draw, 2)]
    return a_rule(pattern, {}, steps=steps, **fields), naive, rows, undoing


def _drawn_events(draw: st.DrawFn, most: int) -> list[Event]:
    drawn = draw(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=most))
    times = accumulate(step for _, step in drawn)
    return [an_event(n, value, time) for n, ((value, _), time) in enumerate(zip(drawn, times, strict=True))]


@given(_searches(), st.integers(0, 99))
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_the_matches_are_those_of_a_naive_matcher_in_any_order(
    search: tuple[Rule, Naive, list[Event], list[Event]], seed: int
) -> None:
    rule, naive, rows, undoing = search
    expected = [list(path) for path in naive.find(rows, undoing)]
    events = [*rows, *(each for each in undoing if each.topic == "undo")]

    assert taken(rule, events) == expected
    assert taken(rule, random.Random(seed).sample(events, len(events))) == expected


@pytest.mark.parametrize(
    ("pattern", "rows", "undone_at", "matches"),
    [
        ("a .. b .. c?", "a0 b1 b3 c7 b11", 9, [[(0, "a"), (4, "b")]]),
        ("a b*? .. c?", "a0 b10", 5, [[(0, "a"), (1, "b")]]),
    ],
)
def test_a_path_that_an_event_undoes_hides_no_path_with_a_later_last_event(
    pattern: str, rows: str, undone_at: int, matches: list[list[tuple[int, str]]]
) -> None:
    rule = a_rule(pattern, {name: f"kind = '{name}'" for name in "abc" if name in pattern}, absent={"on": "undo"})
    events = [an_event(n, at=int(each[1:]), kind=each[0]) for n, each in enumerate(rows.split())]

    assert taken(rule, [*events, an_event(0, at=undone_at)._replace(topic="undo")]) == matches


def test_a_deadline_is_past_only_after_it() -> None:
    rule = a_rule("a", {"a": "value = 1"}, within="10 seconds", absent={"on": "event", "where": "value = 2"})

    assert taken(rule, [an_event(0, 1, 0), an_event(1, 2, 10)]) == []
    assert taken(rule, [an_event(0, 1, 0), an_event(1, 2, 11)]) == [[(0, "a")]]


@pytest.mark.parametrize(
    ("fields", "settled"),
    [
        ({}, None),
        ({"final": True}, 0 + 10 + 60),
        ({"absent": {"on": "event", "where": "value = 2"}}, 0 + 10 + 60),
        ({"absent": {"on": "event", "where": "value = 2", "until": "3 seconds"}}, 4 + 3 + 60),
        ({"final": True, "late_after": "5 seconds"}, 0 + 10 + 5),
    ],
)
def test_a_match_is_shown_when_no_event_in_time_can_change_it(fields: dict[str, Any], settled: int | None) -> None:
    rule = a_rule("a b", {"a": "value = 1", "b": "value = 3"}, within="10 seconds", **fields)
    [match] = find(rule, [an_event(0, 1, 0), an_event(1, 3, 4)])

    assert match.settled_after == (None if settled is None else settled * SECOND)


def test_absence_skip_and_time_out_work_together() -> None:
    """Three defects that users of another engine reported: see `docs/decisions/084-pattern-rules.md`."""
    absent = {"on": "event", "where": "value = 9"}
    events = [an_event(0, 1, 0), an_event(1, 1, 1), an_event(2, 9, 12)]

    skipping = a_rule("a+", {"a": "value = 1"}, within="10 seconds", absent=absent)
    assert taken(skipping, events) == [[(0, "a"), (1, "a")]]
    each = a_rule("a", {"a": "value = 1"}, within="10 seconds", absent=absent, after="next")
    assert taken(each, [*events[:2], an_event(2, 9, 11)]) == [[(0, "a")]]
    within_the_pattern = a_rule("a b b", {"a": "value = 1", "b": "value = 2"}, within="5 seconds")
    assert taken(within_the_pattern, [an_event(0, 1, 0), an_event(1, 2, 5), an_event(2, 2, 6)]) == []


def test_a_hostile_pattern_stops_at_its_budget() -> None:
    rule = a_rule("(a* b*)* c", {"a": "value = b.value", "b": "value = a.value or true", "c": "false"})
    events = [an_event(number, number % 2) for number in range(400)]

    with pytest.raises(TooCostly):
        find(rule, events, Budget(20_000))


def test_nested_repeats_cost_no_more_than_their_places() -> None:
    rule = a_rule("((a+)+)+ c", {"a": "true", "c": "false"})

    assert find(rule, [an_event(number, 1) for number in range(60)]) == []
