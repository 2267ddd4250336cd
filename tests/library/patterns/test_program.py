"""The program of a pattern: the fewest events of a match, below which nothing is searched."""

import pytest

from tests.library.patterns.rules import a_rule, an_event
from truelog.patterns import grammar
from truelog.patterns.matcher import Budget, find
from truelog.patterns.program import least_events


@pytest.mark.parametrize(
    ("pattern", "least"),
    [
        ("a", 1),
        ("a b c", 3),
        ("a{2,5} b", 3),
        ("a* b+ c?", 1),
        ("a .. b", 2),
        ("(a b | c) a{3}", 4),
        ("(a b){2,} | c{5}", 4),
    ],
)
def test_the_fewest_events_of_a_match(pattern: str, least: int) -> None:
    assert least_events(grammar.parse(pattern)) == least


def test_too_few_events_are_not_searched() -> None:
    rule, budget = a_rule("a{3,} b", {"a": "true", "b": "true"}), Budget(1_000)
    events = [an_event(number, 1, number) for number in range(3)]
    assert (find(rule, events, budget), budget.steps) == ([], 1_000)
    assert len(find(rule, [*events, an_event(3, 1, 3)], budget)) == 1
