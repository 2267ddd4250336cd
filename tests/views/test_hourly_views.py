"""Page views per hour: the same views and bytes as those of the minutes, and each visitor once."""

from collections import Counter, defaultdict
from datetime import datetime
from typing import Any

from tests.beds.lab import CASES, Lab
from tests.views.examples import Row, Rows, Sent, at, example, sent
from tests.views.generated import PLACES, logs_and_rows
from truelog import View
from truelog.views.catalogue import load_view


def viewed(visitor: str, time: str = "10:00:00", url: str = "https://shop.example/shoes", **fields: Any) -> Sent:
    return sent("page_view", occurred_at=at(time), visitor_id=visitor, url=url, **fields)


def cell(hour: str = "10:00:00", **columns: Any) -> Row:
    unknown = {"browser": None, "bytes": None}
    return {"hour": at(hour), "host": "shop.example", "views": 1, "visitors": 1} | unknown | columns


@example(
    [
        viewed("ann", bytes=10),
        viewed("ann", "10:59:59", "https://shop.example/hats"),
        viewed("bob", "10:30:00", bytes=5),
        viewed("bob", browser="Firefox"),
        viewed("bob", "11:00:00"),
    ]
)
def test_a_visitor_counts_once_per_hour_host_and_browser(rows: Rows) -> None:
    assert rows == [
        cell(browser="Firefox"),
        cell(views=3, visitors=2, bytes=15),
        cell("11:00:00"),
    ]


def test_the_hours_add_up_the_cells_of_page_views() -> None:
    """The page *Analytics* takes figures of `page_views` from these rows."""
    hourly, minutes = load_view("hourly_views"), load_view("page_views")
    assert hourly.hourly_of == "page_views"
    assert hourly.reads == minutes.reads
    assert set(hourly.key[1:]) < set(minutes.key[1:])
    assert hourly.measures.items() >= minutes.measures.items()
    assert (hourly.keep, hourly.dedupe, hourly.allowed_lateness) == (
        minutes.keep,
        minutes.dedupe,
        minutes.allowed_lateness,
    )


def test_generated_logs_give_the_rows_of_a_naive_dictionary(lab: Lab, name: str, view: View) -> None:
    """Small numbers of visitors are counted exactly."""
    cells = 0
    for events, found in logs_and_rows(lab, name, view):
        views, visitors, sizes = Counter[Any](), defaultdict[Any, set[str]](set), defaultdict[Any, list[int]](list)
        for event in events:
            key = hour_of(event), PLACES[event["url"]][0], event["browser"]
            views[key] += 1
            visitors[key].add(event["visitor_id"])
            sizes[key] += [] if event["bytes"] is None else [event["bytes"]]
        expected = {key: (views[key], sum(sizes[key]) if sizes[key] else None, len(visitors[key])) for key in views}
        assert {tuple(r[k] for k in view.key): (r["views"], r["bytes"], r["visitors"]) for r in found} == expected
        cells += len(found)
    assert cells > CASES, "the logs hold too few events"


def hour_of(event: Row) -> datetime:
    hour: datetime = event["event_time"].replace(minute=0, second=0, microsecond=0)
    return hour
