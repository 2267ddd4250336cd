"""Sketches of visitors: each has its stated error, compared with exact answers in plain Python."""

import json
import math
from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from random import Random
from typing import Any

from tests.beds.lab import CASES, Lab
from tests.laws.events import START, Record
from tests.views.examples import Relations, Row, Rows, Sent, at, example, sent
from tests.views.generated import PLACES, logs_and_relations
from tests.views.ways import Reader
from truelog import View
from truelog.support import timestamps
from truelog.traffic.zipf import Zipf

VIEWS, VISITORS, PAGES = 30_000, 20_000, 50
QUANTILES = (50, 95, 99)

Cells = dict[tuple[datetime, str | None], list[tuple[str, int | None]]]  # by day and page: visitors and waits


def viewed(visitor: str, url: str = "https://shop.example/shoes", time: str = "10:00:00", **fields: Any) -> Sent:
    return sent("page_view", visitor_id=visitor, url=url, occurred_at=at(time), **fields)


def counts(rows: list[Row]) -> list[tuple[str | None, int, int]]:
    return [(row["page"], row["views"], row["visitors"]) for row in rows]


def is_seen(lab: Lab, row: Row, visitors: Iterable[str]) -> list[bool]:
    """Whether each visitor was seen, as a reader asks."""
    query = "SELECT truelog.seen(%s::truelog.bloom, v) FROM unnest(%s::text[]) WITH ORDINALITY AS a(v, i) ORDER BY i"
    return [bool(seen) for (seen,) in lab.connection.execute(query, (row["seen"], list(visitors))).fetchall()]


@example([viewed("ann"), viewed("ann"), viewed("bob"), viewed("ann", "https://shop.example/hats", "23:59:59")])
def test_a_view_counts_for_its_page_and_for_the_whole_day(rows: Rows) -> None:
    assert counts(rows) == [
        ("shop.example/hats", 1, 1),
        ("shop.example/shoes", 3, 2),
        (None, 4, 2),
    ]


@example([viewed("ann", "no url"), viewed("ann", "https://shop.example")])
def test_a_view_without_a_page_counts_for_the_whole_day_only(rows: Rows) -> None:
    assert counts(rows) == [(None, 2, 1)]


@example([viewed("ann"), sent("page_view", visitor_id="bob", url="-", occurred_at="2026-02-28T23:59:59Z")])
def test_days_begin_at_midnight_utc(rows: Rows) -> None:
    assert [(row["day"].day, row["page"]) for row in rows] == [(28, None), (1, "shop.example/shoes"), (1, None)]


@example([viewed("ann", response_ms=ms) for ms in (30, 10, 20, 40, 60)])
def test_waits_are_quantiles(rows: Rows) -> None:
    assert {tuple(row[f"response_ms_p{q}"] for q in QUANTILES) for row in rows} == {(30, 60, 60)}


@example([viewed("ann"), viewed("bob", "https://shop.example/hats")])
def test_somebody_was_on_a_page_or_was_not(lab: Lab, rows: Rows) -> None:
    hats, shoes, day = rows
    for row, expected in ((hats, [False, True]), (shoes, [True, False]), (day, [True, True])):
        assert is_seen(lab, row, ("ann", "bob")) == expected
        assert is_seen(lab, row, ("eve", "")) == [False, False]


@example([viewed("ann", f"https://h/{n}") for n in range(12) for _ in range(max(1, 11 - n))])
def test_the_most_viewed_pages_of_a_day(relations: Relations) -> None:
    assert [(row["place"], row["page"]) for row in relations["top_pages"]] == [(n + 1, f"h/{n}") for n in range(10)]


def test_generated_logs_give_the_rows_of_a_naive_dictionary(lab: Lab, name: str, view: View) -> None:
    rows = 0
    for events, found in logs_and_relations(lab, name, view):
        views = ((day_of(event), PLACES[event["url"]], event) for event in events)
        assert_within_errors(lab, naive_cells(views), found)
        rows += len(found[None])
    assert rows > CASES, "the logs hold too few events"


def test_a_day_with_many_views_is_within_the_stated_errors(lab: Lab, name: str, view: View) -> None:
    """A few pages and a few visitors make most of the views, by Zipf's law. The stream has eight micro-batches."""
    random = Random(1)
    pages, visitors = (Zipf(tuple(f"{c}{n}" for n in range(most))) for c, most in (("p", PAGES), ("v", VISITORS)))
    events: list[Row] = [
        {"event_id": str(n), "visitor_id": visitors.draw(random), "response_ms": int(random.lognormvariate(4, 0.8))}
        | {"occurred_at": timestamps.to_text(START), "url": f"https://h/{pages.draw(random)}"}
        for n in range(VIEWS)
    ]
    log = [Record("page_view", n % 3, json.dumps(event).encode(), n * 8 // VIEWS) for n, event in enumerate(events)]
    lab.compare_all(name, view, [log])
    found = Reader(lab, name, view)(0, "_streamed")

    cells = naive_cells((START, ("h", event["url"].removeprefix("https://h")), event) for event in events)
    errors = assert_within_errors(lab, cells, found)
    assert len(errors) == PAGES + 1
    assert 0 < math.hypot(*errors) / len(errors) ** 0.5 < 0.02


def day_of(event: Row) -> datetime:
    day: datetime = event["event_time"].replace(hour=0, minute=0, second=0, microsecond=0)
    return day


def naive_cells(views: Iterable[tuple[datetime, tuple[str | None, str | None], Row]]) -> Cells:
    cells: Cells = defaultdict(list)
    for day, (host, page), event in views:
        for cell in {None, None if host is None or page is None else host + page}:
            cells[day, cell].append((event["visitor_id"], event["response_ms"]))
    return cells


def assert_within_errors(lab: Lab, cells: Cells, found: Relations) -> list[float]:
    """Compare each row with its exact cell, and return the relative errors of the numbers of visitors.

    The error of `visitors` is a standard error, so a single row is allowed four times as much.
    """
    assert {(row["day"], row["page"]) for row in found[None]} == set(cells)
    assert found["top_pages"] == naive_top_pages(found[None])
    errors = []
    for row in found[None]:
        views = cells[row["day"], row["page"]]
        visitors = {visitor for visitor, _ in views}
        assert row["views"] == len(views)
        errors.append(row["visitors"] / len(visitors) - 1)
        assert abs(errors[-1]) < 0.08
        assert_near(row, sorted(wait for _, wait in views if wait is not None))
        assert all(is_seen(lab, row, visitors))
        assert sum(is_seen(lab, row, (f"other {n}" for n in range(100)))) <= 1
    return errors


def assert_near(row: Row, waits: list[int]) -> None:
    for percent in QUANTILES:
        wait = row[f"response_ms_p{percent}"]
        if not waits:
            assert wait is None
        else:
            assert math.isclose(wait, waits[math.ceil(len(waits) * percent / 100) - 1], rel_tol=0.01)


def naive_top_pages(rows: list[Row]) -> list[Row]:
    """The rows of the relation, in the order of its columns."""
    by_day = defaultdict(list)
    for row in rows:
        if row["page"] is not None:
            by_day[row["day"]].append(row)
    return [
        {"day": day, "place": place} | {column: row[column] for column in ("page", "views", "visitors")}
        for day, pages in sorted(by_day.items())
        for place, row in enumerate(sorted(pages, key=lambda row: (-row["views"], row["page"].encode()))[:10], 1)
    ]
