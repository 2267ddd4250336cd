"""How late events reach the log. In these examples, every record reaches the log at `START`."""

import math
from collections import Counter
from datetime import timedelta
from typing import Any

from tests.beds.lab import CASES, Lab
from tests.laws.events import START
from tests.views.examples import Relations, Row, Rows, Sent, example, sent
from tests.views.generated import logs_and_rows
from truelog import View


def viewed(late: timedelta, **fields: Any) -> Sent:
    return sent("page_view", occurred_at=START - late, visitor_id="ann", url="https://shop.example/", **fields)


def searched(late: timedelta) -> Sent:
    return sent("search", occurred_at=START - late, visitor_id="ann", query="lamp", results=[])


def summary(rows: list[Row]) -> list[tuple[Any, ...]]:
    return [(r["event_type"], r["source"], r["events"], r["late"], r["latest_ms"], r["corrections"]) for r in rows]


@example([viewed(timedelta(minutes=1)), viewed(timedelta(minutes=2)), searched(timedelta(minutes=3))])
def test_lateness_is_counted_by_event_type(rows: Rows) -> None:
    assert sorted(summary(rows)) == [
        ("page_view", "kafka", 2, 0, 120_000, 0),
        ("search", "kafka", 1, 0, 180_000, 0),
    ]


@example([viewed(timedelta(), received_at=START)])
def test_an_event_of_the_collector_has_a_time_of_receipt(rows: Rows) -> None:
    [row] = rows
    assert (row["source"], row["lateness_ms_p50"]) == ("collector", 0)


@example([viewed(timedelta(days=1)), viewed(timedelta(days=1))])
def test_a_straggler_is_late_and_corrects_its_hour(rows: Rows) -> None:
    [row] = rows
    assert summary([row]) == [("page_view", "kafka", 2, 2, 86_400_000, 2)]
    assert math.isclose(row["lateness_ms_p50"], 86_400_000, rel_tol=0.01)


@example([viewed(timedelta(minutes=-1))])
def test_an_event_before_its_time_is_not_late(rows: Rows) -> None:
    """A device's clock may be fast by up to five minutes."""
    assert summary(rows) == [("page_view", "kafka", 1, 0, -60_000, 0)]


@example([viewed(timedelta(hours=1)), viewed(timedelta(hours=2)), searched(timedelta(hours=30))])
def test_the_latest_day_by_event_type(relations: Relations) -> None:
    latest = relations["latest_day"]
    assert [(r["event_type"], r["events"], r["late"], float(r["late_share"])) for r in latest] == [
        ("page_view", 2, 1, 0.5)
    ]


def test_generated_logs_give_the_rows_of_a_naive_counter(lab: Lab, name: str, view: View) -> None:
    rows = 0
    for events, found in logs_and_rows(lab, name, view):
        counted, late = Counter[Any](), Counter[Any]()
        for event in events:
            hour = event["event_time"].replace(minute=0, second=0, microsecond=0)
            key = hour, event["topic"], "collector" if event["received_at"] else "kafka"
            counted[key] += 1
            late[key] += START - event["event_time"] > timedelta(hours=1)
        keyed = {(row["hour"], row["event_type"], row["source"]): (row["events"], row["late"]) for row in found}
        assert keyed == {key: (counted[key], late[key]) for key in counted}
        rows += len(found)
    assert rows > CASES, "the logs hold too few events"
