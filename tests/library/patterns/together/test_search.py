"""The search of many groups together finds what the search of each group alone finds."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.library.patterns.example_events import events_of, rule_of
from tests.library.patterns.public_examples import EXAMPLES, PublicExample
from tests.library.patterns.rules import a_rule, an_event
from tests.library.patterns.together.drawn import Drawn, as_table, draw
from truelog.patterns import matcher
from truelog.patterns.matcher import Event
from truelog.patterns.outcomes import FOUND, TOO_COSTLY, Outcome, of_searches, outcomes
from truelog.patterns.rule import Rule
from truelog.patterns.together import search
from truelog.patterns.together.events import Events
from truelog.patterns.together.search import outcomes_of_groups
from truelog.patterns.versions import Change, Version

_Found = list[tuple[int, str]]  # of outcomes, which NaN would make unequal to themselves


def alone(drawn: Drawn) -> _Found:
    every = (
        (group, each)
        for group, events in enumerate(drawn.events)
        for each in outcomes(drawn.versions, "thing", _as_read(events))
    )
    return _written(every)


def together(drawn: Drawn, few: int = 0) -> _Found:
    return _written(outcomes_of_groups(drawn.versions, "thing", drawn.together(), few))


def _written(found: Any) -> _Found:
    return sorted((group, repr(each)) for group, each in found)


def _as_read(events: Sequence[Event]) -> list[Event]:
    return [each._replace(values=json.loads(json.dumps(each.values))) for each in events]


def a_version(rule: Rule) -> Version[Rule]:
    return Version(1, Change("rule", 0, 0, 0, rule.name, "set", None, "{}"), rule, {}, None, None)


def in_groups(events: Sequence[Sequence[Event]]) -> Events:
    listed = [each for of_group in events for each in of_group]
    return Events.of(as_table(listed), np.repeat(np.arange(len(events)), [len(each) for each in events]))


@given(st.integers(0, 2**32))
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_groups_together_have_the_outcomes_of_each_group_alone(seed: int) -> None:
    drawn = draw(seed)
    expected = alone(drawn)
    assert together(drawn) == expected
    assert together(drawn, search.FEW) == expected


@given(st.integers(0, 2**32))
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_they_are_too_costly_together_if_they_are_too_costly_alone(seed: int) -> None:
    drawn = draw(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matcher, "BUDGET", seed % 60)
        patch.setattr(matcher, "BUDGET_OF_EVENT", seed % 4)
        assert together(drawn) == alone(drawn)


def test_the_laws_have_all_outcomes() -> None:
    rows = [row for seed in range(300) for row in alone(draw(seed))]
    counts = Counter(outcome for outcome in ("found", "late", "retracted") for _, row in rows if f"'{outcome}'" in row)
    assert min(counts[each] for each in ("found", "late", "retracted")) >= 10


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_public_examples(example: PublicExample) -> None:
    version, events = a_version(rule_of(example)), events_of(example)
    groups = [events, events[:-1], events[1:]]
    expected = [(n, each) for n, of_group in enumerate(groups) for each in outcomes([version], "thing", of_group)]
    found = list(outcomes_of_groups([version], "thing", in_groups(groups), few=0))
    assert sorted(found, key=_id) == sorted(expected, key=_id)


def _id(found: tuple[int, Outcome]) -> tuple[int, str]:
    return found[0], found[1].match_id


def test_only_groups_are_searched_in_which_a_match_may_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = a_rule("a{2,} b", {"a": "value = 1", "b": "value = 2 and kind <> a.kind"}, within="10 seconds")
    values = ((1, 1, 2), (1, 2, 1, 2), (1, 1, 3, 2), (1, 1, 2))
    times = ((0, 1, 2), (0, 1, 2, 3), (0, 1, 2, 3), (0, 1, 12))
    groups = [
        [an_event(n, *each, kind="x") for n, each in enumerate(zip(*of_group, strict=True), 10 * place)]
        for place, of_group in enumerate(zip(values, times, strict=True))
    ]
    searched = list[int]()

    def counted(version: Version[Rule], every: Any, timely: Any) -> list[Outcome]:
        searched.append(sum(every.begins))
        return of_searches(version, every, timely)

    monkeypatch.setattr(search, "of_searches", counted)
    assert list(outcomes_of_groups([a_version(rule)], "thing", in_groups(groups), few=0)) == []
    assert searched == [1], "one row of the first group may begin a match, if its kinds differ"


def test_a_search_that_is_too_costly_says_so_although_no_match_may_begin() -> None:
    version = a_version(a_rule("((a+)+)+ c", {"a": "true", "c": "false"}))
    groups = [[an_event(n, 1) for n in range(400)], [an_event(n, 1) for n in range(400, 410)]]
    found = [(n, each.outcome) for n, each in outcomes_of_groups([version], "thing", in_groups(groups))]
    assert found == [(0, TOO_COSTLY)]


def test_long_and_wide_paths_are_left_to_the_search() -> None:
    long = a_version(a_rule("a .. b", {"a": "value = 1", "b": "value = 2"}))
    events = [an_event(n, 1 if n == 0 else 2 if n == 400 else 0) for n in range(401)]
    [(_, found)] = outcomes_of_groups([long], "thing", in_groups([events]), few=0)
    assert (found.outcome, [each["offset"] for each in found.events]) == (FOUND, [0, 400])
    wide = a_version(a_rule("a .. b .. (b|a){1,40} .. b", {"a": "true", "b": "value = 1"}))
    groups = [[an_event(n, n % 2) for n in range(60)]]
    expected = [(0, each) for each in outcomes([wide], "thing", groups[0])]
    assert list(outcomes_of_groups([wide], "thing", in_groups(groups), few=0)) == expected
