"""Public examples of MATCH_RECOGNIZE: the expected matches of the events, in order and shuffled.

`tests/views/test_matches.py` runs all of them in batch, as a stream and shuffled.
"""

from random import Random

import pytest

from tests.library.patterns.example_events import events_of, rule_of
from tests.library.patterns.left_out import LEFT_OUT
from tests.library.patterns.public_examples import EXAMPLES, INEXPRESSIBLE, PublicExample
from truelog.patterns.matcher import Event, find
from truelog.patterns.rule import Rule
from truelog.support.settings import PROJECT


def matches(rule: Rule, events: list[Event]) -> str:
    return " | ".join(" ".join(f"{event.offset}{step}" for event, step in match.events) for match in find(rule, events))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_the_matches_are_those_of_the_source(example: PublicExample) -> None:
    rule, events = rule_of(example), events_of(example)

    assert matches(rule, events) == example.expected
    assert matches(rule, Random(1).sample(events, len(events))) == example.expected
    if example.shown:
        assert [dict(match.shown) for match in find(rule, events)] == list(example.shows)


def test_each_example_that_is_left_out_is_of_a_kind_with_a_reason() -> None:
    named = [name for of_source in LEFT_OUT.values() for of_kind in of_source.values() for name in of_kind]
    assert len(set(named)) == len(named)
    kinds = {kind for of_source in LEFT_OUT.values() for kind in of_source}
    assert kinds == INEXPRESSIBLE.keys() - {"PERMUTE and {,}"}  # written out, they are among the examples


def test_there_are_enough_examples_and_the_page_lists_what_is_left_out() -> None:
    page = (PROJECT / "docs" / "patterns.md").read_text()
    assert len({example.name for example in EXAMPLES}) == len(EXAMPLES) >= 80
    for what, reason in INEXPRESSIBLE.items():
        assert f"| {what} | {reason} |" in page
