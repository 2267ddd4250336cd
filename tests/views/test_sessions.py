"""Sessions: visits with gaps of at most 30 minutes, however late and in whichever order their requests arrive."""

from collections import defaultdict
from datetime import datetime, timedelta
from typing import Any

from tests.beds.lab import Lab
from tests.views.examples import Relations, Row, Rows, Sent, at, example, examples, sent
from tests.views.generated import PLACES, logs_and_rows
from truelog import View

GAP = timedelta(minutes=30)


def _at(time: str | datetime) -> datetime:
    return time if isinstance(time, datetime) else at(time)


def _day(time: datetime) -> datetime:
    return time.replace(hour=0, minute=0, second=0, microsecond=0)


def viewed(time: str | datetime, page: str = "/", visitor: str = "ann") -> Sent:
    return sent("page_view", occurred_at=_at(time), visitor_id=visitor, url=f"https://shop.example{page}")


def session(begin: str | datetime, end: str | datetime, *pages: str, visitor: str = "ann") -> Row:
    times = {"started_at": _at(begin), "ended_at": _at(end)}
    return {
        "visitor_id": visitor,
        "day": _day(_at(begin)),
        **times,
        "pages": len(pages),
        "entry": pages[0],
        "exit": pages[-1],
    }


@example([viewed("10:00:00", "/a"), viewed("10:30:00", "/b"), viewed("11:00:01", "/c")])
def test_a_gap_of_more_than_thirty_minutes_begins_a_session(rows: Rows) -> None:
    assert rows == [
        session("10:00:00", "10:30:00", "/a", "/b"),
        session("11:00:01", "11:00:01", "/c"),
    ]


APART = [viewed("10:00:00", "/a"), viewed("10:50:00", "/c")]


@examples(
    {
        "apart": (APART, [session("10:00:00", "10:00:00", "/a"), session("10:50:00", "10:50:00", "/c")]),
        "connected": ([*APART, viewed("10:25:00", "/b")], [session("10:00:00", "10:50:00", "/a", "/b", "/c")]),
    }
)
def test_a_late_request_connects_two_sessions(rows: Rows, expected: Rows) -> None:
    assert rows == expected


@example([viewed("10:20:00", "/b"), viewed("10:00:00", "/a")])
def test_a_late_request_begins_a_session_earlier(rows: Rows) -> None:
    assert rows == [session("10:00:00", "10:20:00", "/a", "/b")]


AFTER_MIDNIGHT = at("23:59:59") + timedelta(seconds=2)


@example([viewed("23:59:00", "/a"), viewed("23:59:59", "/b"), viewed(AFTER_MIDNIGHT, "/c")])
def test_midnight_begins_a_session(rows: Rows) -> None:
    assert rows == [session("23:59:00", "23:59:59", "/a", "/b"), session(AFTER_MIDNIGHT, AFTER_MIDNIGHT, "/c")]


@example([viewed("10:00:00"), viewed("10:01:00", visitor="bob")])
def test_visitors_are_kept_apart(rows: Rows) -> None:
    assert rows == [
        session("10:00:00", "10:00:00", "/"),
        session("10:01:00", "10:01:00", "/", visitor="bob"),
    ]


@example([viewed("10:05:00", "/b"), viewed("10:00:00", "/a"), viewed("12:00:00", "/c")])
def test_the_pages_of_a_session_are_in_order(relations: Relations) -> None:
    assert [(each["started_at"], each["step"], each["page"]) for each in relations["steps"]] == [
        (at("10:00:00"), 1, "/a"),
        (at("10:00:00"), 2, "/b"),
        (at("12:00:00"), 1, "/c"),
    ]


@example([viewed("10:50:00"), viewed("11:10:00"), viewed("10:10:00", visitor="bob")])
def test_a_session_counts_in_the_hour_in_which_it_began(relations: Relations) -> None:
    [hour] = relations["per_hour"]
    assert (hour["hour"], hour["sessions"], hour["pages"], hour["bounced"]) == (at("10:00:00"), 2, 3, 1)
    assert hour["average_duration"] == timedelta(minutes=10)


def test_generated_logs_give_the_sessions_of_a_naive_loop(lab: Lab, name: str, view: View) -> None:
    several = 0
    for events, found in logs_and_rows(lab, name, view):
        rows = [tuple(row.values()) for row in found]
        assert rows == sorted(naive_sessions(events))
        several += any(pages > 1 for _, _, _, _, pages, _, _ in rows)
    assert several > 10, "the logs hold too few sessions of several pages"


def naive_sessions(events: list[Row]) -> list[tuple[Any, ...]]:
    of_visitor: dict[tuple[str, datetime], list[Row]] = defaultdict(list)
    for event in sorted(events, key=lambda e: (e["event_time"], e["partition"], e["offset"])):
        of_visitor[event["visitor_id"], _day(event["event_time"])].append(event)
    found = []
    for key, requests in of_visitor.items():
        begins = [n for n, each in enumerate(requests) if n == 0 or _gap(requests[n - 1], each) > GAP]
        for begin, end in zip(begins, [*begins[1:], len(requests)], strict=True):
            first, *_, last = *requests[begin : begin + 1], *requests[begin:end]
            times = first["event_time"], last["event_time"]
            found.append((*key, *times, end - begin, PLACES[first["url"]][1], PLACES[last["url"]][1]))
    return found


def _gap(one: Row, other: Row) -> timedelta:
    gap: timedelta = other["event_time"] - one["event_time"]
    return gap
