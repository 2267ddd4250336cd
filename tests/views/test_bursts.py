"""Bursts: the most requests of an address within a sliding window of five minutes, by day."""

from datetime import datetime, timedelta
from typing import Any

from tests.beds.lab import Lab
from tests.views.examples import Relations, Row, Rows, Sent, at, example, sent
from tests.views.generated import groups_of_windows, logs_and_rows
from truelog import View

WINDOW = timedelta(minutes=5)
TODAY, TOMORROW = at("00:00:00"), at("00:00:00") + timedelta(days=1)


def requested(time: str, ip: str | None = "192.0.2.1", days: int = 0) -> Sent:
    occurred_at = at(time) + timedelta(days=days)
    return sent("page_view", occurred_at=occurred_at, visitor_id="ann", url="/", ip=ip)


def burst(requests: int, began_at: datetime, day: datetime = TODAY, ip: str = "192.0.2.1") -> Row:
    return {"ip": ip, "day": day, "requests": requests, "began_at": began_at}


@example([requested("10:03:39"), requested("10:08:12")])
def test_requests_less_than_five_minutes_apart_share_a_window(rows: Rows) -> None:
    assert rows == [burst(2, at("10:03:39"))]


@example([requested("10:00:00"), requested("10:05:00")])
def test_requests_five_minutes_apart_do_not(rows: Rows) -> None:
    assert rows == [burst(1, at("10:00:00"))]


@example([requested(t) for t in ("08:00:00", "08:01:00", "10:00:00", "10:01:00", "10:04:59", "10:05:30")])
def test_the_largest_window_of_a_day_counts(rows: Rows) -> None:
    assert rows == [burst(3, at("10:00:00"))]


@example([requested("23:58:00"), requested("00:02:00", days=1), requested("00:06:00", days=1)])
def test_a_day_s_first_five_minutes_also_count_for_the_day_before(rows: Rows) -> None:
    assert rows == [
        burst(2, at("23:58:00")),
        burst(2, TOMORROW + timedelta(minutes=2), TOMORROW),
    ]


@example([requested("10:00:00"), requested("10:00:01", "192.0.2.2"), requested("10:00:02", None)])
def test_addresses_are_kept_apart_and_requests_without_an_address_do_not_count(rows: Rows) -> None:
    assert rows == [burst(1, at("10:00:00")), burst(1, at("10:00:01"), ip="192.0.2.2")]


@example([requested("10:00:00"), requested("10:01:00"), requested("10:00:00", "192.0.2.2")])
def test_the_largest_burst_of_each_day(relations: Relations) -> None:
    [day] = relations["per_day"]
    assert (day["day"], day["addresses"], day["largest"], day["requests_p99"]) == (TODAY, 2, 2, 2)


def test_generated_logs_give_the_bursts_of_a_naive_loop(lab: Lab, name: str, view: View) -> None:
    several = 0
    for events, found in logs_and_rows(lab, name, view):
        rows = {(row["ip"], row["day"]): (row["requests"], row["began_at"]) for row in found}
        assert rows == naive_bursts(events)
        several += any(requests > 1 for requests, _ in rows.values())
    assert several > 5, "the logs hold too few bursts"


def naive_bursts(events: list[Row]) -> dict[tuple[str, datetime], tuple[int, datetime]]:
    best: dict[Any, tuple[int, datetime]] = {}
    addressed = [event for event in events if event["ip"] is not None]
    for key, requested_events in groups_of_windows(addressed, "ip", WINDOW, day_of).items():
        times = sorted(event["event_time"] for event in requested_events)
        for first in (time for time in times if day_of(time) == key[1]):
            requests = sum(timedelta() <= each - first < WINDOW for each in times)
            if requests > best.get(key, (0, first))[0]:
                best[key] = requests, first
    return best


def day_of(time: datetime) -> datetime:
    return time.replace(hour=0, minute=0, second=0, microsecond=0)
