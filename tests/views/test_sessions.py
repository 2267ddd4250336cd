"""Sessions: visits with gaps of at most 30 minutes, however late and in whichever order their requests arrive."""

from collections import Counter, defaultdict
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from tests.beds.lab import Lab
from tests.views.examples import Relations, Row, Rows, Sent, at, example, examples, sent
from tests.views.generated import PLACES, logs_and_relations, once
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


OVER_MIDNIGHT = [viewed("23:59:00", "/a"), viewed("23:59:59", "/b"), viewed(AFTER_MIDNIGHT, "/c")]


@example(OVER_MIDNIGHT)
def test_the_rows_have_the_part_of_a_session_in_each_day(rows: Rows) -> None:
    assert rows == [session("23:59:00", "23:59:59", "/a", "/b"), session(AFTER_MIDNIGHT, AFTER_MIDNIGHT, "/c")]


def after(hours: float, page: str) -> Sent:
    return viewed(at("00:00:00") + timedelta(hours=hours), page)


@examples(
    {
        "over midnight": (OVER_MIDNIGHT, [("/a", "/c", 3)]),
        "over two midnights": ([after(n / 2, f"/{n}") for n in range(99)], [("/0", "/98", 99)]),
        "with the longest gap at midnight": ([after(23.75, "/a"), after(24.25, "/b")], [("/a", "/b", 2)]),
        "not after a longer gap": ([after(23.75, "/a"), after(24.26, "/b")], [("/a", "/a", 1), ("/b", "/b", 1)]),
        "not over a day without requests": ([after(23.9, "/a"), after(48, "/b")], [("/a", "/a", 1), ("/b", "/b", 1)]),
    }
)
def test_no_visit_is_cut_at_midnight(relations: Relations, expected: list[tuple[str, str, int]]) -> None:
    visits = sorted(relations["visits"], key=lambda row: row["started_at"])
    assert [(row["entry"], row["exit"], row["pages"]) for row in visits] == expected


@example(OVER_MIDNIGHT)
def test_what_is_said_of_sessions_is_said_of_whole_sessions(relations: Relations) -> None:
    [hour] = relations["per_hour"]
    assert (hour["sessions"], hour["pages"], hour["average_duration"]) == (1, 3, timedelta(seconds=61))
    assert [(row["step"], row["page"]) for row in relations["steps"]] == [(1, "/a"), (2, "/b"), (3, "/c")]


AGAIN = viewed("10:00:00", "/a")


@example([AGAIN, viewed("10:01:00", "/b"), AGAIN])
def test_a_request_that_was_sent_again_counts_once(relations: Relations) -> None:
    assert relations[None] == [session("10:00:00", "10:01:00", "/a", "/b")]
    assert [row["page"] for row in relations["steps"]] == ["/a", "/b"]


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
    """The logs have requests of one visitor before and after midnight, and many copies."""
    several = over_midnight = 0
    for events, found in logs_and_relations(lab, name, view):
        distinct = once(events, _visitor_and_day)
        rows = [tuple(row.values()) for row in found[None]]
        assert rows == sorted(naive_sessions(distinct, _visitor_and_day))
        visits = [tuple(row.values()) for row in found["visits"]]
        assert sorted(visits) == sorted(naive_sessions(distinct, lambda each: (each["visitor_id"],)))
        assert Counter(row["started_at"] for row in found["steps"]) == Counter(
            start for _, start, _, pages, _, _ in visits for _ in range(pages)
        )
        several += any(pages > 1 for _, _, _, _, pages, _, _ in rows)
        over_midnight += any(_day(start) != _day(end) for _, start, end, *_ in visits)
    assert several > 10, "the logs hold too few sessions of several pages"
    assert over_midnight > 10, "the logs hold too few sessions over midnight"


def _visitor_and_day(event: Row) -> tuple[str, datetime]:
    return event["visitor_id"], _day(event["event_time"])


def naive_sessions(events: list[Row], group: Callable[[Row], tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    of_visitor: dict[Any, list[Row]] = defaultdict(list)
    for event in sorted(events, key=lambda e: (e["event_time"], e["partition"], e["offset"])):
        of_visitor[group(event)].append(event)
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
