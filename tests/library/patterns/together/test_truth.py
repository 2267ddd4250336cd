"""What a condition may be, for many events at once, is what the evaluator finds for each of them."""

import json
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.library.patterns.together.drawn import ALONE, OF_EARLIER, OF_MATCH, SOURCES, as_table, draw_events
from truelog.patterns import expression
from truelog.patterns.evaluate import evaluator
from truelog.patterns.expression import BOOLEAN, Expression, Scope
from truelog.patterns.together.events import Events, read_values
from truelog.patterns.together.truth import Rows, Truths

SCOPE = Scope("b", {"a": "event", "b": "event"}, {name: each.columns for name, each in SOURCES.items()})
CONDITIONS = (*ALONE, *OF_EARLIER)
VAGUE = ("kind <> prev(kind)", "coalesce(value, limit) = 2", "value * 9007199254740991 > limit")


def parsed(condition: str) -> Expression:
    return expression.parse(condition, SCOPE, BOOLEAN)


def events_of(seed: int, *, is_strange: bool = False) -> Events:
    groups = draw_events(Random(seed), 4, 8, is_strange=is_strange)
    listed = [each for of_group in groups for each in of_group]
    return Events.of(as_table(listed), np.repeat(np.arange(len(groups)), [len(each) for each in groups]))


@given(st.integers(0, 2**32), st.sampled_from(CONDITIONS), st.sampled_from(CONDITIONS), st.sampled_from(("and", "or")))
@settings(max_examples=400, deadline=None)
def test_a_condition_may_be_what_it_is(seed: int, one: str, other: str, connected: str) -> None:
    events, condition = events_of(seed, is_strange=seed % 2 == 0), parsed(f"({one}) {connected} not ({other})")
    chosen = np.flatnonzero([Random(seed + n).random() < 0.8 for n in range(len(events))])
    rows = Rows(events, chosen)
    truth, judge = Truths(events).of(condition, rows), evaluator(condition, ())
    for group in rows.groups.tolist():
        of_group = rows.rows_of(group)
        values = [events.values[number] for number in chosen[of_group].tolist()]
        found = [judge(values, number, ()) for number in range(len(values))]
        may_be_true, may_be_false = (each[of_group].tolist() for each in truth)
        assert all(may for may, is_found in zip(may_be_true, found, strict=True) if is_found is True)
        assert all(may for may, is_found in zip(may_be_false, found, strict=True) if is_found is False)


@pytest.mark.parametrize("condition", [each for each in CONDITIONS if each not in VAGUE])
def test_ordinary_values_have_an_exact_answer(condition: str) -> None:
    events, judge = events_of(7), evaluator(parsed(condition), ())
    truth = Truths(events).of(parsed(condition), Rows(events, np.arange(len(events))))
    for chosen in events.ranges.values():
        values = events.values[chosen]
        found = [judge(values, number, ()) for number in range(len(values))]
        assert truth.may_be_true[chosen].tolist() == [each is True for each in found]
        assert truth.may_be_false[chosen].tolist() == [each is False for each in found]


@pytest.mark.parametrize("condition", OF_MATCH)
def test_a_condition_on_other_events_of_the_match_may_be_true(condition: str) -> None:
    events = events_of(1)
    truth = Truths(events).of(parsed(condition), Rows(events, np.arange(len(events))))
    fits = evaluator(parsed(condition), (("a", False), ("a", True)))
    for chosen in events.ranges.values():
        values = events.values[chosen]
        for number, may in enumerate(truth.may_be_true[chosen].tolist()):
            is_true = any(fits(values, number, (mark, mark)) is True for mark in range(number))
            assert may or not is_true


@pytest.mark.parametrize("text", ['{"a": 1}', ' {"a": 1} ', "[1, 2]", '"x"', "NaN"])
def test_json_is_read_as_json_loads_reads_it(text: str) -> None:
    assert repr(read_values(text)) == repr(json.loads(text))


@pytest.mark.parametrize("text", ['{"a": 1} x', "", "{", "1,2"])
def test_what_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(json.JSONDecodeError):
        read_values(text)
