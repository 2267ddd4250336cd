"""The rules of rate limits: a table of cases, and the laws that the count and the reset follow from the panes alone."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from truelog.limits.rate import (
    BLOCK,
    DEFAULT,
    PANE,
    POLICY,
    Block,
    Decision,
    Policy,
    Requests,
    Usage,
    canonical_address,
    decide,
)

START = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)
MINUTE = Policy(3, 60)  # three requests in a minute


def at(second: float) -> datetime:
    return START + timedelta(seconds=second)


def usage(panes: dict[int, int], block: Block | None = None, policy: Policy = MINUTE) -> Usage:
    """A usage with the number of requests in each pane, which begins at so many seconds."""
    return Usage(policy, block, tuple(Requests(at(pane), number) for pane, number in sorted(panes.items())))


CASES = [
    # rule 3: the window has room
    ("no requests", usage({}), 0, (True, POLICY, 0, 0)),
    ("one request fewer than allowed", usage({0: 1, 50: 1}), 55, (True, POLICY, 2, 55)),
    ("an ended block", usage({0: 1}, Block(at(30))), 30, (True, POLICY, 1, 30)),
    # rule 2: the window is full
    ("as many as allowed", usage({0: 1, 50: 2}), 55, (False, POLICY, 3, 70)),
    ("more than allowed, in one pane", usage({0: 9}), 5, (False, POLICY, 9, 70)),
    ("the newest panes alone are too many", usage({0: 5, 20: 1, 30: 2}), 35, (False, POLICY, 8, 90)),
    ("a window of one pane", usage({0: 3, 10: 3}, policy=Policy(3, 10)), 15, (False, POLICY, 6, 30)),
    # the edges of the window
    ("a pane at the edge counts as a whole", usage({0: 3}), 69.999, (False, POLICY, 3, 70)),
    ("until its last request has left", usage({0: 3}), 70, (True, POLICY, 0, 70)),
    ("a pane that begins now counts", usage({60: 3}), 60, (False, POLICY, 3, 130)),
    ("a later pane does not count", usage({60: 3}), 59.999, (True, POLICY, 0, 59.999)),
    # rule 1: a block, whatever the count
    ("blocked until a person ends it", usage({0: 1}, Block()), 5, (False, BLOCK, 1, None)),
    ("blocked until a time", usage({0: 1}, Block(at(300))), 5, (False, BLOCK, 1, 300)),
    ("the window is full longer than the block", usage({0: 3}, Block(at(30))), 5, (False, BLOCK, 3, 70)),
]


@pytest.mark.parametrize(("drawn", "second", "expected"), [case[1:] for case in CASES], ids=[c[0] for c in CASES])
def test_cases(drawn: Usage, second: float, expected: tuple[bool, str, int, float | None]) -> None:
    allowed, why, count, resets = expected
    resets_at = None if resets is None else at(resets)
    assert decide(drawn, at(second)) == Decision(allowed, why, count, drawn.policy, resets_at)


def test_the_default_is_a_hundred_requests_in_an_hour() -> None:
    assert (DEFAULT.max_requests, DEFAULT.window_seconds) == (100, 3_600)


policies = st.builds(Policy, st.integers(1, 12), st.integers(1, 6).map(lambda panes: 10 * panes))
blocks = st.none() | st.builds(Block, st.none() | st.integers(-20, 150).map(at))
panes = st.dictionaries(st.integers(-12, 12).map(lambda number: 10 * number), st.integers(1, 9), max_size=20)


@settings(max_examples=1_000)
@given(panes, blocks, policies, st.integers(-40, 40))
def test_the_answer_and_its_reset_are_those_of_a_brute_force_search(
    drawn: dict[int, int], block: Block | None, policy: Policy, asked: int
) -> None:
    """The time is searched second by second, with the requests that were known when the question was asked."""
    found = decide(usage(drawn, block, policy), at(asked))
    known = {pane: number for pane, number in drawn.items() if pane <= asked}

    def count(second: int) -> int:
        """Any request of a pane may have been made up to its last moment."""
        return sum(number for pane, number in known.items() if pane + PANE.seconds > second - policy.window_seconds)

    def is_allowed(second: int) -> bool:
        is_blocked = block is not None and (block.until is None or at(second) < block.until)
        return not is_blocked and count(second) < policy.max_requests

    assert (found.allowed, found.count) == (is_allowed(asked), count(asked))
    searched = (at(second) for second in range(asked, 400) if is_allowed(second))
    assert found.resets_at == next(searched, None)


@settings(max_examples=300)
@given(st.lists(st.integers(-1_000, 600).map(lambda tenth: at(tenth / 10)), max_size=20), policies, st.integers(0, 600))
def test_a_request_in_the_window_is_always_counted(times: list[datetime], policy: Policy, tenth: int) -> None:
    """Panes make the count at most too large, and only by requests that are less than a pane too old or too new."""
    asked, drawn = at(tenth / 10), dict[int, int]()
    for time in times:
        pane = (time - START) // PANE * 10
        drawn[pane] = drawn.get(pane, 0) + 1
    counted = decide(usage(drawn, policy=policy), asked).count
    assert sum(asked - policy.window < time <= asked for time in times) <= counted
    assert counted <= sum(asked - policy.window - PANE < time < asked + PANE for time in times)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("2001:DB8:0:0::1", "2001:db8::1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
    ],
)
def test_an_address_has_one_form(text: str, canonical: str) -> None:
    assert canonical_address(text) == canonical


@pytest.mark.parametrize("text", ["", "unknown", "192.0.2.1:80", "192.0.2.0/24", "all", "1"])
def test_other_text_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match="does not appear"):
        canonical_address(text)
