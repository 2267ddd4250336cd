"""Spans: each time is in one span, and rules and views that do not fit the spans are refused."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from truelog import EventSource, Patterns
from truelog.patterns import rule as rules
from truelog.patterns.span import EARLIEST, LATEST, Spans, spans_of
from truelog.support.errors import BadDeclaration, BadInput

SECOND = 1_000_000


def a_source(longest: Mapping[str, str]) -> EventSource:
    return EventSource(entities={"thing": "thing_id"}, columns={"value": "number"}, longest=longest)


def require(longest: str, **fields: Any) -> None:
    """Check a rule whose entity's rules last this long."""
    document = {"rule": "r", "by": "thing", "pattern": "a", "steps": {"a": {"on": "event"}}} | fields
    rules.check(rules.read(document), {"event": a_source({"thing": longest})})


@given(st.integers(EARLIEST, LATEST), st.integers(1, 366 * 86_400))
def test_each_time_is_in_the_span_that_ends_after_it(at: int, longest: int) -> None:
    spans = Spans(longest * SECOND)
    end = spans.end(at)
    assert end - spans.length <= at <= end <= LATEST
    assert end == LATEST or (end % spans.length == 0 and spans.end(end) == min(end + spans.length, LATEST))


def test_a_rule_that_lasts_longer_than_its_entity_allows_is_refused() -> None:
    absent = {"on": "event", "until": "1 second"}
    require("10 minutes", within="10 minutes", absent={"on": "event"})
    require("10 minutes", within="599 seconds", absent=absent)
    with pytest.raises(BadInput, match=r"^within: rules by thing last at most 10 minutes$"):
        require("10 minutes", within="601 seconds")
    with pytest.raises(BadInput, match=r"^within: rules by thing last at most 10 minutes, with absent\.until$"):
        require("10 minutes", within="10 minutes", absent=absent)


@pytest.mark.parametrize(
    ("one", "other", "message"),
    [
        ({"thing": "1 hour"}, {"thing": "2 hours"}, "two event types declare another longest time of a rule by thing"),
        ({"thing": "1 hour"}, {}, "one event type declares the longest time of a rule by thing, and another does not"),
        ({"thing": "soon"}, {"thing": "soon"}, "'soon' is not a duration"),
    ],
)
def test_event_types_that_disagree_about_an_entity_are_refused(
    one: dict[str, str], other: dict[str, str], message: str
) -> None:
    with pytest.raises(BadDeclaration, match=message):
        spans_of({"event": a_source(one), "other": a_source(other)})


def test_a_view_whose_events_expire_while_rules_may_need_them_is_refused() -> None:
    Patterns(sources={"event": a_source({"thing": "1 hour"})}, keep="2 hours")
    with pytest.raises(BadDeclaration, match="is shorter than twice the longest rule by thing"):
        Patterns(sources={"event": a_source({"thing": "1 hour"})}, keep="1 hour")
