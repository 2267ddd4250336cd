"""Which records of the `ticks` topic are ticks, without Spark. `tests/laws/test_clock.py` has more hostile texts."""

import pytest

from truelog.log.valid_tick import tick_ends
from truelog.schema.event import FUTURE_LIMIT

NOW = 1_772_366_400_000_000  # microseconds since 1970
LEAD = int(FUTURE_LIMIT.total_seconds()) * 1_000_000
GREATEST = 2**63 - 1
ENDS = '{"page_view":{"0":7}}'


@pytest.mark.parametrize(
    ("ends", "offsets"),
    [
        ("{}", {}),
        ('{"a.b_C-1":{}, "page_view":{"0":0,"12":7}}', {"a.b_C-1": {}, "page_view": {0: 0, 12: 7}}),
        (f'{{"page_view":{{"999999999":{GREATEST}}}}}', {"page_view": {999_999_999: GREATEST}}),
    ],
)
def test_the_ends_of_a_tick(ends: str, offsets: dict[str, dict[int, int]]) -> None:
    found = tick_ends(NOW, NOW, ends)
    assert found is not None
    assert found.offsets == offsets


@pytest.mark.parametrize(
    ("time", "broker_time", "counts"),
    [
        (-1, 0, False),
        (0, 0, True),
        (0, NOW, True),
        (NOW + LEAD, NOW, True),
        (NOW + LEAD + 1, NOW, False),
    ],
)
def test_the_time_of_a_tick(time: int, broker_time: int, counts: bool) -> None:
    assert (tick_ends(time, broker_time, ENDS) is not None) is counts


@pytest.mark.parametrize(
    "ends",
    [
        "no JSON",
        "[" * 50_000,
        "[]",
        "5",
        '{"page_view":5}',
        '{"page view":{"0":7}}',
        '{"page_view":{"00":7}}',
        '{"page_view":{"1234567890":7}}',
        '{"page_view":{"0":true}}',
        '{"page_view":{"0":7.0}}',
        '{"page_view":{"0":-1}}',
        f'{{"page_view":{{"0":{GREATEST + 1}}}}}',
        '{"page_view":{"0":7,"0":8}}',
        '{"page_view":{"0":7},"page_view":{"0":7}}',
        '{"page_view":{"0":7,"x":7}}',
        '{"page_view":{"0":7},"click":{"x":7}}',
    ],
    ids=lambda ends: ends[:40],
)
def test_any_other_ends_are_no_tick(ends: str) -> None:
    assert tick_ends(NOW, NOW, ends) is None
