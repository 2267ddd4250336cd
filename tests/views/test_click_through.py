"""Clicks on search results, in any order of arrival and within an hour."""

from collections import defaultdict
from datetime import datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

from tests.laws.lab import CASES, Lab
from tests.views.conftest import Query, Run
from tests.views.generated import logs_and_relations
from tests.views.ways import Row, Sent, at, sent
from truelog import View

HOUR = timedelta(hours=1)


def searched(time: str = "10:00:00", results: tuple[str, ...] = ("/a", "/b"), **fields: Any) -> Sent:
    defaults = {"event_id": "s1", "visitor_id": "ann", "query": "lamp", "results": results}
    return sent("search", occurred_at=at(time), **defaults | fields)


def clicked(time: str = "10:00:30", url: str = "/a", search_id: str = "s1") -> Sent:
    return sent("click", occurred_at=at(time), visitor_id="ann", search_id=search_id, url=url)


def result(url: str, clicked_at: str | None, asked_at: str = "10:00:00", search_id: str = "s1") -> Row:
    searched_at, click = at(asked_at), clicked_at and at(clicked_at)
    until = searched_at + HOUR
    return {"search_id": search_id, "asked_at": searched_at, "url": url, "counts_until": until, "clicked_at": click}


def test_a_search_and_its_clicks_are_one_row(run: Run) -> None:
    assert run([searched(), clicked("10:00:30", "/b"), clicked("10:00:20", "/a")]) == [
        {
            "search_id": "s1",
            "asked_at": at("10:00:00"),
            "results": ["/a", "/b"],
            "clicked_at": [at("10:00:20"), at("10:00:30")],
            "clicked": ["/a", "/b"],
        }
    ]


def test_a_click_without_its_search_waits_for_it(run: Run, query: Query) -> None:
    click, search = {"clicked_at": [at("10:00:30")], "clicked": ["/a"]}, {"asked_at": None, "results": None}
    assert run([clicked()]) == [{"search_id": "s1"} | search | click]
    assert query("results", [clicked()]) == []


def test_a_search_that_is_logged_after_its_click_is_matched(query: Query) -> None:
    assert query("results", [clicked(), searched()]) == [result("/a", "10:00:30"), result("/b", None)]


def test_a_click_counts_within_an_hour(query: Query) -> None:
    for time, counts in {"11:00:00": True, "11:00:01": False, "09:00:00": True, "08:59:59": False}.items():
        [found, _] = query("results", [searched(), clicked(time)])
        assert found == result("/a", time if counts else None)


def test_a_click_that_does_not_count_does_not_hide_a_click_that_does(query: Query) -> None:
    events = [clicked("08:00:00"), clicked("12:00:00"), searched(), clicked("10:59:00"), clicked("10:01:00")]
    assert query("results", events)[0] == result("/a", "10:01:00")


def test_a_click_on_a_url_that_was_not_shown_does_not_count(query: Query) -> None:
    events = [searched(), clicked(url="/c"), clicked(search_id="s2")]
    assert query("results", events) == [result("/a", None), result("/b", None)]


def test_a_result_that_a_search_shows_twice_is_one_row(query: Query) -> None:
    assert query("results", [searched(results=("/a", "/a")), clicked(), clicked()]) == [result("/a", "10:00:30")]


def test_a_search_without_results_has_no_rows(query: Query) -> None:
    assert query("results", [searched(results=())]) == []


def test_the_rate_is_per_url_and_hour_of_the_search(query: Query) -> None:
    events = [
        searched("10:00:00"),
        searched("10:59:59", event_id="s2"),
        searched("10:30:00", results=("/a",), event_id="s3"),
        searched("11:00:00", results=("/b",), event_id="s4"),
        clicked("11:10:00", search_id="s2"),
        clicked("11:10:00", "/b", "s4"),
    ]
    assert [tuple(row.values()) for row in query("rates", events)] == [
        (at("10:00:00"), "/a", 3, 1, round_4(1, 3)),
        (at("10:00:00"), "/b", 2, 0, round_4(0, 2)),
        (at("11:00:00"), "/b", 1, 1, round_4(1, 1)),
    ]


def test_results_that_were_never_clicked(query: Query) -> None:
    row = {"search_id": "s1", "asked_at": at("10:00:00"), "url": "/b", "counts_until": at("11:00:00")}
    assert query("never_clicked", [searched(), clicked(), clicked("12:00:00", "/b")]) == [row]


def test_generated_logs_give_the_rows_of_a_naive_loop(lab: Lab, name: str, view: View) -> None:
    with_click = no_click = 0
    for events, found in logs_and_relations(lab, name, view):
        results = naive_results(events)
        assert found["results"] == results
        assert found["never_clicked"] == [without_click(row) for row in results if row["clicked_at"] is None]
        assert found["rates"] == rates(results)
        assert {row["search_id"] for row in found[None]} == {search_of(event) for event in events}
        with_click += sum(row["clicked_at"] is not None for row in results)
        no_click += sum(row["clicked_at"] is None for row in results)
    assert with_click > CASES / 4, "too few clicks in the logs match a result"
    assert no_click > CASES


def naive_results(events: list[Row]) -> list[Row]:
    """For the latest search with each id: each of its URLs once, with the first click that counts."""
    searches = [event for event in events if event["topic"] == "search"]
    latest = {e["event_id"]: e for e in sorted(searches, key=lambda e: (e["event_time"], e["partition"], e["offset"]))}
    rows = []
    for search_id, search in latest.items():
        for url in set(search["results"]):
            times = [e["event_time"] for e in events if is_click(e, search_id, url)]
            counting = [time for time in times if abs(time - search["event_time"]) <= HOUR]
            row = {"search_id": search_id, "asked_at": search["event_time"], "url": url}
            rows.append(row | {"counts_until": row["asked_at"] + HOUR, "clicked_at": min(counting, default=None)})
    return sorted(rows, key=lambda row: (row["search_id"].encode(), row["asked_at"], row["url"].encode()))


def is_click(event: Row, search_id: str, url: str) -> bool:
    return event["topic"] == "click" and (event["search_id"], event["url"]) == (search_id, url)


def search_of(event: Row) -> str:
    return str(event["search_id"] if event["topic"] == "click" else event["event_id"])


def without_click(row: Row) -> Row:
    return {column: value for column, value in row.items() if column != "clicked_at"}


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
