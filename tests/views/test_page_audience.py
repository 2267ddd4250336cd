"""A host's audience: the number of visitors per minute, and how long the visitors waited."""

import math
from collections import defaultdict
from typing import Any

from tests.beds.lab import CASES, Lab
from tests.views.examples import Row, Rows, Sent, at, example, examples, sent
from tests.views.generated import PLACES, logs_and_rows, minute_of
from truelog import View


def viewed(visitor: str, time: str = "10:00:00", url: str = "https://shop.example/shoes", **fields: Any) -> Sent:
    return sent("page_view", occurred_at=at(time), visitor_id=visitor, url=url, **fields)


def audience(views: int, visitors: int, waits: tuple[int, int, int] | None = None, **columns: Any) -> Row:
    p50, p95, p99 = waits or (None, None, None)
    quantiles = {"response_ms_p50": p50, "response_ms_p95": p95, "response_ms_p99": p99}
    row = {"minute": at("10:00:00"), "host": "shop.example", "views": views, "visitors": visitors}
    return row | quantiles | columns


@example([viewed("ann"), viewed("ann", "10:00:59"), viewed("bob")])
def test_a_visitor_counts_once_per_minute(rows: Rows) -> None:
    assert rows == [audience(views=3, visitors=2)]


@example([viewed("ann"), viewed("ann", "10:01:00"), viewed("ann", url="https://blog.example/")])
def test_a_visitor_counts_again_in_another_minute_and_on_another_host(rows: Rows) -> None:
    assert rows == [
        audience(1, 1, host="blog.example"),
        audience(1, 1),
        audience(1, 1, minute=at("10:01:00")),
    ]


@example([viewed("ann", response_ms=ms) for ms in (30, 10, 20, 40, 60)])
def test_short_waits_are_exact(rows: Rows) -> None:
    assert rows == [audience(5, 1, waits=(30, 60, 60))]


@example([viewed("ann", response_ms=ms) for ms in (123_457, 10_000_019)])
def test_long_waits_are_within_one_percent(rows: Rows) -> None:
    [row] = rows
    assert math.isclose(row["response_ms_p50"], 123_457, rel_tol=0.01)
    assert math.isclose(row["response_ms_p99"], 10_000_019, rel_tol=0.01)


@examples(
    {
        "unknown": ([viewed("ann")], audience(1, 1)),
        "unknown and known": ([viewed("ann"), viewed("ann", response_ms=7)], audience(2, 1, waits=(7, 7, 7))),
    }
)
def test_an_unknown_wait_does_not_count(rows: Rows, expected: Row) -> None:
    assert rows == [expected]


def test_generated_logs_give_the_rows_of_a_naive_dictionary(lab: Lab, name: str, view: View) -> None:
    """Small numbers of visitors are counted exactly. A quantile is within one percent of the value at its rank."""
    cells = 0
    for events, found in logs_and_rows(lab, name, view):
        expected = naive_cells(events)
        assert {(row["minute"], row["host"]) for row in found} == set(expected)
        for row in found:
            visitors, waits = expected[row["minute"], row["host"]]
            assert (row["views"], row["visitors"]) == (len(visitors), len(set(visitors)))
            for percent in (50, 95, 99):
                assert_near(row[f"response_ms_p{percent}"], waits, percent)
        cells += len(found)
    assert cells > CASES, "the logs hold too few events"


def naive_cells(events: list[Row]) -> dict[tuple[Any, ...], tuple[list[str], list[int]]]:
    cells: dict[tuple[Any, ...], tuple[list[str], list[int]]] = defaultdict(lambda: ([], []))
    for event in events:
        visitors, waits = cells[minute_of(event), PLACES[event["url"]][0]]
        visitors.append(event["visitor_id"])
        waits += [] if event["response_ms"] is None else [event["response_ms"]]
    return cells


def assert_near(found: int | None, waits: list[int], percent: int) -> None:
    if not waits:
        assert found is None
    else:
        at_rank = sorted(waits)[math.ceil(len(waits) * percent / 100) - 1]
        assert found is not None
        assert math.isclose(found, at_rank, rel_tol=0.01)
