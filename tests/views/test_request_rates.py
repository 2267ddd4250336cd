"""Requests from an address, in ten-second panes and in every minute that begins with a pane."""

from collections import Counter
from datetime import datetime, timedelta

from tests.beds.lab import CASES, Lab
from tests.views.examples import Relations, Row, Rows, Sent, at, example, sent
from tests.views.generated import clock_at_the_end, logs_and_relations
from truelog import View

PANE, MINUTE, KEPT = timedelta(seconds=10), timedelta(minutes=1), timedelta(days=7)


def requested(time: str, ip: str | None = "192.0.2.1") -> Sent:
    return sent("page_view", occurred_at=at(time), visitor_id="ann", url="https://shop.example/", ip=ip)


def pane(time: str, requests: int, ip: str | None = "192.0.2.1") -> Row:
    return {"pane": at(time), "ip": ip, "requests": requests}


def minute(begin: datetime, requests: int, ip: str | None = "192.0.2.1") -> Row:
    return {"ip": ip, "window_start": begin, "window_end": begin + MINUTE, "requests": requests}


@example([requested("10:00:00"), requested("10:00:09"), requested("10:00:10")])
def test_requests_of_a_pane_are_counted(rows: Rows) -> None:
    assert rows == [pane("10:00:00", 2), pane("10:00:10", 1)]


@example(
    [
        requested("10:00:00"),
        requested("10:00:01", "2001:db8::1"),
        requested("10:00:02", None),
        requested("10:00:03", None),
    ]
)
def test_each_address_has_its_own_panes_and_so_has_the_unknown_address(rows: Rows) -> None:
    assert rows == [pane("10:00:00", 1), pane("10:00:00", 1, "2001:db8::1"), pane("10:00:00", 2, None)]


OLD = sent("page_view", occurred_at=at("00:00:00") - 2 * MINUTE, visitor_id="ann", url="/")


@example([OLD, requested("10:00:00")])
def test_a_pane_expires_after_seven_days_by_the_clock_of_the_log(rows: Rows) -> None:
    """The lab's clock is about a minute and a half short of seven days after midnight on this day."""
    assert rows == [pane("10:00:00", 1)]


@example([requested("10:00:05")])
def test_a_request_counts_in_six_minutes(relations: Relations) -> None:
    begins = [at("09:59:10") + n * PANE for n in range(6)]
    assert relations["per_minute"] == [minute(begin, 1) for begin in begins]


@example([requested(f"10:0{n // 6}:{n % 6}0") for n in range(7)])
def test_a_minute_has_six_panes(relations: Relations) -> None:
    assert [row["requests"] for row in relations["per_minute"]] == [1, 2, 3, 4, 5, 6, 6, 5, 4, 3, 2, 1]


@example([requested("10:00:00"), requested("10:02:00")])
def test_a_pause_has_no_minutes(relations: Relations) -> None:
    begins = [at(time) + n * PANE for time in ("09:59:10", "10:01:10") for n in range(6)]
    assert relations["per_minute"] == [minute(begin, 1) for begin in begins]


@example([requested("10:00:00"), requested("10:00:00", None), requested("10:00:01", None)])
def test_addresses_are_counted_separately(relations: Relations) -> None:
    assert [row for row in relations["per_minute"] if row["window_start"] == at("10:00:00")] == [
        minute(at("10:00:00"), 1),
        minute(at("10:00:00"), 2, None),
    ]


def test_generated_logs_give_the_rows_of_a_naive_counter(lab: Lab, name: str, view: View) -> None:
    cutoff, cells = clock_at_the_end(lab, view) - KEPT, 0
    for events, found in logs_and_relations(lab, name, view):
        unexpired = [(begin, event["ip"]) for event in events if (begin := pane_of(event)) >= cutoff]
        assert {(row["pane"], row["ip"]): row["requests"] for row in found[None]} == Counter(unexpired)
        minutes = Counter((begin - n * PANE, ip) for begin, ip in unexpired for n in range(6))
        assert {(row["window_start"], row["ip"]): row for row in found["per_minute"]} == {
            (begin, ip): minute(begin, requests, ip) for (begin, ip), requests in minutes.items()
        }
        cells += len(found[None])
    assert cells > CASES, "the logs hold too few events"


def pane_of(event: Row) -> datetime:
    time: datetime = event["event_time"]
    return time.replace(second=time.second // 10 * 10, microsecond=0)
