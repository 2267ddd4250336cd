"""Clicks on search results, in any order of arrival and within an hour."""

from collections import Counter, defaultdict
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from random import Random
from typing import Any

from tests.beds.lab import CASES, Lab
from tests.laws.events import START, Record
from tests.views.examples import Relations, Row, Rows, Sent, at, example, examples, sent, ticked
from tests.views.generated import timed_logs_and_relations
from truelog import View

HOUR = timedelta(hours=1)


def searched(time: str = "10:00:00", results: tuple[str, ...] = ("/a", "/b"), **fields: Any) -> Sent:
    defaults = {"event_id": "s1", "visitor_id": "ann", "query": "lamp", "results": results}
    return sent("search", occurred_at=at(time), **defaults | fields)


def clicked(time: str = "10:00:30", url: str = "/a", search_id: str = "s1", logged: str = "10:00:40") -> Sent:
    click = sent("click", occurred_at=at(time), visitor_id="ann", search_id=search_id, url=url)
    return replace(click, appended_at=at(logged))


def result(url: str, clicked_at: str | None) -> Row:
    """A result of the default search, and when a click on it that was logged at the default time counts."""
    times = {"clicked_at": clicked_at and at(clicked_at), "logged_at": clicked_at and at("10:00:40")}
    return {"search_id": "s1", "asked_at": at("10:00:00"), "url": url, "counts_until": at("11:00:00"), **times}


def outcome(url: str, what: str, time: str) -> Row:
    return {"search_id": "s1", "url": url, "outcome": what, "at": at(time)}


@example([searched(), clicked("10:00:30", "/b"), clicked("10:00:20", "/a")])
def test_a_search_and_its_clicks_are_one_row(rows: Rows) -> None:
    assert rows == [
        {
            "search_id": "s1",
            "asked_at": at("10:00:00"),
            "results": ["/a", "/b"],
            "clicked_at": [at("10:00:20"), at("10:00:30")],
            "clicked": ["/a", "/b"],
            "appended_at": [at("10:00:40"), at("10:00:40")],
        }
    ]


@example([clicked()])
def test_a_click_without_its_search_waits_for_it(rows: Rows, relations: Relations) -> None:
    click = {"clicked_at": [at("10:00:30")], "clicked": ["/a"], "appended_at": [at("10:00:40")]}
    assert rows == [{"search_id": "s1", "asked_at": None, "results": None} | click]
    assert relations["results"] == []


@example([clicked(), searched()])
def test_a_search_that_is_logged_after_its_click_is_matched(relations: Relations) -> None:
    assert relations["results"] == [result("/a", "10:00:30"), result("/b", None)]


@examples(
    {
        "an hour later": ([searched(), clicked("11:00:00")], "11:00:00"),
        "more than an hour later": ([searched(), clicked("11:00:01")], None),
        "an hour earlier": ([searched(), clicked("09:00:00")], "09:00:00"),
        "more than an hour earlier": ([searched(), clicked("08:59:59")], None),
    }
)
def test_a_click_counts_within_an_hour(relations: Relations, expected: str | None) -> None:
    [found, _] = relations["results"]
    assert found == result("/a", expected)


@example([clicked("08:00:00"), clicked("12:00:00"), searched(), clicked("10:59:00"), clicked("10:01:00")])
def test_a_click_that_does_not_count_does_not_hide_a_click_that_does(relations: Relations) -> None:
    assert relations["results"][0] == result("/a", "10:01:00")


@example([searched(), clicked(url="/c"), clicked(search_id="s2")])
def test_a_click_on_a_url_that_was_not_shown_does_not_count(relations: Relations) -> None:
    assert relations["results"] == [result("/a", None), result("/b", None)]


@example([searched(results=("/a", "/a")), clicked(), clicked()])
def test_a_result_that_a_search_shows_twice_is_one_row(relations: Relations) -> None:
    assert relations["results"] == [result("/a", "10:00:30")]


@example([searched(results=())])
def test_a_search_without_results_has_no_rows(relations: Relations) -> None:
    assert relations["results"] == []


@example(
    [
        searched("10:00:00"),
        searched("10:59:59", event_id="s2"),
        searched("10:30:00", results=("/a",), event_id="s3"),
        searched("11:00:00", results=("/b",), event_id="s4"),
        clicked("11:10:00", search_id="s2"),
        clicked("11:10:00", "/b", "s4"),
    ]
)
def test_the_rate_is_per_url_and_hour_of_the_search(relations: Relations) -> None:
    assert [tuple(row.values()) for row in relations["rates"]] == [
        (at("10:00:00"), "/a", 3, 1, round_4(1, 3)),
        (at("10:00:00"), "/b", 2, 0, round_4(0, 2)),
        (at("11:00:00"), "/b", 1, 1, round_4(1, 1)),
    ]


@example([searched(), clicked(logged="10:02:00"), clicked(logged="10:01:00"), clicked(logged="10:03:00")])
def test_a_click_that_is_sent_twice_is_one_click(rows: Rows) -> None:
    [row] = rows
    assert (row["clicked_at"], row["clicked"], row["appended_at"]) == ([at("10:00:30")], ["/a"], [at("10:01:00")])


UNCLICKED = [outcome("/a", "unclicked", "11:00:00"), outcome("/b", "unclicked", "11:00:00")]


@examples(
    {
        "no tick": ([searched()], []),
        "before the end": ([searched(), ticked("10:59:59")], []),
        "at the end": ([searched(), ticked("11:00:00")], UNCLICKED),
        "long after the end": ([searched(), ticked("13:00:00"), ticked("12:00:00")], UNCLICKED),
    }
)
def test_a_result_is_unclicked_when_the_log_s_clock_reaches_the_end_of_its_hour(
    relations: Relations, expected: Rows
) -> None:
    assert relations["outcomes"] == expected


CLICKED, NEXT_UNCLICKED = outcome("/a", "clicked", "10:00:40"), outcome("/b", "unclicked", "11:00:00")
LAST_CLICK = clicked("11:00:00", logged="11:00:00")


@examples(
    {
        "before the end": ([searched(), clicked()], [CLICKED]),
        "after the end": ([searched(), clicked(), ticked("12:00:00")], [CLICKED, NEXT_UNCLICKED]),
        "clicked at the end": (
            [searched(results=("/a",)), LAST_CLICK, ticked("12:00:00")],
            [outcome("/a", "clicked", "11:00:00")],
        ),
    }
)
def test_a_click_that_is_logged_in_time_counts_at_once(relations: Relations, expected: Rows) -> None:
    assert relations["outcomes"] == expected


LOGGED_LATE = [searched(results=("/a",)), clicked("10:30:00", logged="11:30:00")]
CORRECTED = [outcome("/a", "corrected", "11:30:00"), outcome("/a", "unclicked", "11:00:00")]


@examples(
    {
        "before the end": ([*LOGGED_LATE, ticked("10:59:00")], []),
        "after the end": ([*LOGGED_LATE, ticked("11:30:00")], CORRECTED),
        "sent twice": ([*LOGGED_LATE, clicked("10:30:00", logged="11:40:00"), ticked("12:00:00")], CORRECTED),
    }
)
def test_a_click_that_is_logged_later_corrects_the_outcome(relations: Relations, expected: Rows) -> None:
    assert relations["outcomes"] == expected


@example(
    [
        searched(results=("/a",)),
        clicked("11:00:01", logged="11:00:00"),
        clicked(url="/b"),
        ticked("12:00:00"),
    ]
)
def test_a_click_that_does_not_count_changes_no_outcome(relations: Relations) -> None:
    assert relations["outcomes"] == [outcome("/a", "unclicked", "11:00:00")]


LATE_SEARCH = replace(searched(results=("/a",)), appended_at=at("12:00:00"))


@examples(
    {
        "unclicked": ([LATE_SEARCH, ticked("12:00:00")], [outcome("/a", "unclicked", "11:00:00")]),
        "clicked": ([clicked(), LATE_SEARCH, ticked("12:00:00")], [outcome("/a", "clicked", "10:00:40")]),
    }
)
def test_a_search_that_is_logged_after_its_hour_has_the_same_outcomes(relations: Relations, expected: Rows) -> None:
    assert relations["outcomes"] == expected


def test_generated_logs_give_the_rows_of_a_naive_loop(lab: Lab, name: str, view: View) -> None:
    with_click, outcomes = 0, Counter[str]()
    for events, clock, found in timed_logs_and_relations(lab, name, view, timed):
        results = naive_results(events)
        assert found["results"] == results
        assert found["rates"] == rates(results)
        assert found["outcomes"] == naive_outcomes(results, clock)
        assert {row["search_id"] for row in found[None]} == {search_of(event) for event in events}
        with_click += sum(row["clicked_at"] is not None for row in results)
        outcomes.update(row["outcome"] for row in found["outcomes"])
    assert with_click > CASES / 4, "too few clicks in the logs match a result"
    assert min(outcomes[each] for each in ("clicked", "unclicked", "corrected")) > 10, outcomes


def timed(case: int, log: list[Record]) -> tuple[list[Record], datetime | None]:
    """Broker times around the deadlines of the searches, which are an hour or two after `START`, and a clock."""
    random = Random(case)
    seconds = sorted(random.randrange(-600, 20_000) for _ in log)
    records = [replace(record, second=second) for record, second in zip(log, seconds, strict=True)]
    return records, random.choice((None, *(START + timedelta(minutes=m) for m in (60, 90, 120, 180, 240, 300))))


def naive_outcomes(results: list[Row], clock: datetime | None) -> list[Row]:
    """What is known of each result when the clock of the log has this time."""
    rows = []
    for row in results:
        deadline, logged_at = row["counts_until"], row["logged_at"]
        is_over, is_late = clock is not None and clock >= deadline, logged_at is not None and logged_at > deadline
        if logged_at is not None and not is_late:
            rows.append((row, "clicked", logged_at))
        elif is_over:
            rows.append((row, "unclicked", deadline))
            rows += [(row, "corrected", logged_at)] if is_late else []
    made = [{"search_id": row["search_id"], "url": row["url"], "outcome": what, "at": time} for row, what, time in rows]
    return sorted(made, key=lambda row: (row["search_id"].encode(), row["url"].encode(), row["outcome"]))


def naive_results(events: list[Row]) -> list[Row]:
    """For the latest search with each id: each of its URLs once, with the first click that counts."""
    searches = [event for event in events if event["topic"] == "search"]
    latest = {e["event_id"]: e for e in sorted(searches, key=lambda e: (e["event_time"], e["partition"], e["offset"]))}
    rows = []
    for search_id, search in latest.items():
        for url in set(search["results"]):
            asked_at = search["event_time"]
            clicks = [e for e in events if is_click(e, search_id, url) and abs(e["event_time"] - asked_at) <= HOUR]
            row = {"search_id": search_id, "asked_at": asked_at, "url": url, "counts_until": asked_at + HOUR}
            row["clicked_at"] = min((click["event_time"] for click in clicks), default=None)
            rows.append(row | {"logged_at": min((click["broker_time"] for click in clicks), default=None)})
    return sorted(rows, key=lambda row: (row["search_id"].encode(), row["asked_at"], row["url"].encode()))


def is_click(event: Row, search_id: str, url: str) -> bool:
    return event["topic"] == "click" and (event["search_id"], event["url"]) == (search_id, url)


def search_of(event: Row) -> str:
    return str(event["search_id"] if event["topic"] == "click" else event["event_id"])


def round_4(clicks: int, shown: int) -> Decimal:
    return (Decimal(clicks) / shown).quantize(Decimal("0.0001"), ROUND_HALF_UP)


def rates(results: list[Row]) -> list[Row]:
    shown: dict[tuple[datetime, str], list[Row]] = defaultdict(list)
    for row in results:
        shown[row["asked_at"].replace(minute=0, second=0, microsecond=0), row["url"]].append(row)
    rows = []
    for (hour, url), each in shown.items():
        clicks = sum(row["clicked_at"] is not None for row in each)
        row = {"hour": hour, "url": url, "shown": len(each), "clicked": clicks, "rate": round_4(clicks, len(each))}
        rows.append(row)
    return sorted(rows, key=lambda row: (row["hour"], row["url"].encode()))
