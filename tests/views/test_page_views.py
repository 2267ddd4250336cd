"""Page views: views and bytes per minute, host, page and browser."""

from typing import Any

from tests.beds.lab import CASES, Lab
from tests.views.examples import Relations, Row, Rows, Sent, at, example, examples, sent
from tests.views.generated import PLACES, logs_and_rows, minute_of
from truelog import View

SHOP = "https://shop.example/shoes"


def viewed(time: str = "10:00:00", url: str = SHOP, **fields: Any) -> Sent:
    return sent("page_view", occurred_at=at(time), visitor_id="ann", url=url, **fields)


def cell(time: str = "10:00:00", host: str | None = "shop.example", page: str | None = "/shoes", **columns: Any) -> Row:
    return {"minute": at(time), "host": host, "page": page, "browser": None, "views": 1, "bytes": None} | columns


@example([])
def test_no_events_give_no_rows(rows: Rows) -> None:
    assert rows == []


@example([viewed("10:00:00", bytes=100), viewed("10:00:30", bytes=20), viewed("10:00:59", bytes=3)])
def test_views_of_a_minute_are_counted(rows: Rows) -> None:
    assert rows == [cell("10:00:00", views=3, bytes=123)]


@example(
    [
        viewed("10:00:59"),
        viewed("10:01:00"),
        viewed("10:00:00", "https://blog.example/shoes"),
        viewed("10:00:00", "https://shop.example/hats"),
        viewed("10:00:00", browser="Firefox"),
    ]
)
def test_each_minute_host_page_and_browser_has_its_own_row(rows: Rows) -> None:
    assert rows == [
        cell("10:00:00", "blog.example"),
        cell("10:00:00", page="/hats"),
        cell("10:00:00", browser="Firefox"),
        cell("10:00:00"),
        cell("10:01:00"),
    ]


@example([viewed(url=url) for url in (SHOP, f"{SHOP}?size=42", f"{SHOP}#top", "http://ann@shop.example:8080/shoes")])
def test_a_page_is_the_path_of_its_url(rows: Rows) -> None:
    assert rows == [cell(views=4)]


@example([viewed(url=url) for url in ("http://[bad", "mailto:ann@shop.example", "a b", "C:\\N")])
def test_text_that_is_no_url_has_no_host_and_no_page(rows: Rows) -> None:
    assert rows == [cell(host=None, page=None, views=4)]


@example([viewed(url="/shoes?size=42"), viewed(url="/shoes")])
def test_a_url_without_a_host_may_have_a_page(rows: Rows) -> None:
    assert rows == [cell(host=None, views=2)]


@example([viewed(url="http://h/%zz"), viewed(url="http://h/%zz?a")])
def test_a_path_that_is_not_escaped_correctly_is_kept(rows: Rows) -> None:
    assert rows == [cell(host="h", page="/%zz", views=2)]


@examples(
    {
        "one of three is known": ([viewed(), viewed(bytes=7), viewed()], cell(views=3, bytes=7)),
        "none is known": ([viewed(), viewed()], cell(views=2, bytes=None)),
        "zero is known": ([viewed(bytes=0)], cell(bytes=0)),
    }
)
def test_unknown_bytes_add_nothing_to_known_ones(rows: Rows, expected: Row) -> None:
    assert rows == [expected]


@example([viewed("10:00:00", sent_at=at("10:00:10"), received_at=at("11:00:10"))])
def test_a_wrong_device_clock_is_corrected(rows: Rows) -> None:
    """The phone's clock is an hour slow. The phone sent the event ten seconds after the view, which was at eleven."""
    assert rows == [cell("11:00:00")]


MALFORMED = [Sent("page_view", value) for value in (b"", b"not json", b"[]", b'{"url": "x"}')]


@example([*MALFORMED, viewed(), viewed(bytes=-1)])
def test_an_invalid_event_counts_nowhere(rows: Rows) -> None:
    assert rows == [cell()]


COUNTS = {"/Z": 2, "/a": 2, "/\u00e9": 2, "/top": 3} | {f"/{n}": 1 for n in range(8)}
BUSY = [viewed(f"10:{n:02}:00", f"https://h/{p[1:]}", browser=f"b{n}") for p, m in COUNTS.items() for n in range(m)]


@example([*BUSY, viewed("11:00:00", "a b")])
def test_the_busiest_pages_of_an_hour_come_first_and_ties_are_in_binary_order(relations: Relations) -> None:
    places = ["/top", "/Z", "/a", "/\u00e9", *(f"/{n}" for n in range(6))]
    assert relations["busiest"] == [
        *(
            {"hour": at("10:00:00"), "place": n, "host": "h", "page": p, "views": COUNTS[p]}
            for n, p in enumerate(places, 1)
        ),
        {"hour": at("11:00:00"), "place": 1, "host": None, "page": None, "views": 1},
    ]


Cells = dict[tuple[Any, ...], tuple[int, int | None]]


def naive_cells(events: list[Row]) -> Cells:
    cells: Cells = {}
    for event in events:
        key = (minute_of(event), *PLACES[event["url"]], event["browser"])
        views, total = cells.get(key, (0, None))
        known = [size for size in (total, event["bytes"]) if size is not None]
        cells[key] = (views + 1, sum(known) if known else None)
    return cells


def test_generated_logs_give_the_rows_of_a_naive_dictionary(lab: Lab, name: str, view: View) -> None:
    cells = 0
    for events, found in logs_and_rows(lab, name, view):
        assert {tuple(r[k] for k in view.key): (r["views"], r["bytes"]) for r in found} == naive_cells(events)
        cells += len(found)
    assert cells > CASES, "the logs hold too few events"
