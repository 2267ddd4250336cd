"""Where visitors come from: the host of the referrer, and the language."""

from collections import Counter, defaultdict
from typing import Any

from tests.beds.lab import CASES, Lab
from tests.views.examples import Row, Rows, Sent, at, example, sent
from tests.views.generated import PLACES, logs_and_rows
from truelog import View

HOSTS = {
    "https://news.example/today?id=7#top": "news.example",
    "https://News.EXAMPLE": "news.example",
    "http://ann:secret@news.example:8080/": "news.example",
    "android-app://com.example.reader/": "com.example.reader",
    "//news.example/": None,
    "news.example": None,
    "javascript:alert(1)//news.example": None,
    "data:text/html,<script>alert(1)</script>": None,
    "http://[::1]/": None,
    "http:///path": None,
    "https://news.example\\@evil.example/": "news.example",
    "": None,
    "https://a b/": None,
    f"https://{'a' * 63}.example/{'x' * 8_000}": f"{'a' * 63}.example",
}

GENERATED = {url: host for url, (host, _) in PLACES.items()}


def viewed(visitor: str = "ann", time: str = "10:00:00", **fields: Any) -> Sent:
    url = {"url": "https://shop.example/shoes"}
    return sent("page_view", occurred_at=at(time), visitor_id=visitor, **url | fields)


def cell(referrer: str | None = None, language: str | None = None, **columns: Any) -> Row:
    key = {"hour": at("10:00:00"), "host": "shop.example", "referrer_host": referrer, "language": language}
    return key | {"views": 1, "visitors": 1} | columns


@example(
    [
        viewed(),
        viewed("bob", "10:59:59"),
        viewed(referrer="https://news.example/a", language="de"),
        viewed(referrer="https://news.example/b", language="de"),
        viewed(referrer="https://news.example/b", language="en-US"),
        viewed(time="11:00:00"),
    ]
)
def test_views_and_visitors_are_counted_by_referrer_and_language(rows: Rows) -> None:
    assert rows == [
        cell("news.example", "de", views=2),
        cell("news.example", "en-US"),
        cell(views=2, visitors=2),
        cell(hour=at("11:00:00")),
    ]


@example([viewed(referrer=each) for each in HOSTS])
def test_a_referrer_is_the_host_of_its_url(rows: Rows) -> None:
    """Any other text has none, whatever it contains."""
    counted = Counter(HOSTS.values())
    assert {row["referrer_host"]: row["views"] for row in rows} == counted


def test_generated_logs_give_the_rows_of_a_naive_dictionary(lab: Lab, name: str, view: View) -> None:
    """Small numbers of visitors are counted exactly."""
    cells = 0
    for events, found in logs_and_rows(lab, name, view):
        visitors = defaultdict[Any, list[str]](list)
        for event in events:
            hour = event["event_time"].replace(minute=0, second=0, microsecond=0)
            host, referrer = (None if url is None else GENERATED[url] for url in (event["url"], event["referrer"]))
            visitors[hour, host, referrer, event["language"]].append(event["visitor_id"])
        expected = {key: (len(each), len(set(each))) for key, each in visitors.items()}
        assert {tuple(row[k] for k in view.key): (row["views"], row["visitors"]) for row in found} == expected
        cells += len(found)
    assert cells > CASES, "the logs hold too few events"
