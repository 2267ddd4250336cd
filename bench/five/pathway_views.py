"""The five views in Pathway: JSON from Kafka, a snapshot of each view in PostgreSQL.

Runs in the `.venv-bench` environment until it is ended. Each function follows the definition of the view in
`spark_apps/views/`. Times are whole milliseconds until they are written.
"""

import json
import logging
import sys
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

import pathway as pw

POPULAR = 10_000  # more followers make an author popular

_AUTOCOMMIT_MS = 200
_SNAPSHOT_MS = 5_000
_FIELDS = {
    "page_view": ("url", "ip", "browser", "bytes"),
    "search": ("results",),
    "click": ("search_id", "url"),
    "cart_event": ("cart_id", "verb", "product", "quantity"),
    "follow": ("follower_id", "followee_id", "verb"),
    "tweet": ("tweet_id", "author_id", "verb"),
}
_OPTIONAL = {"sent_at": str, "ip": str, "browser": str, "product": str, "bytes": int, "quantity": int}
_KEYS = {
    "page_views": ("minute", "host", "page", "browser"),
    "request_rates": ("pane", "ip"),
    "cart": ("cart_id", "product"),
    "click_through": ("search_id",),
    "home_timeline": ("reader_id", "tweeted_at", "tweet_id"),
}

CartEvent = tuple[int, int, str, str | None, int | None, str]  # offset, time, verb, product, quantity, id
CartRow = tuple[str, int, int, int | None]  # product, quantity, time of the last change, time of the check-out


def read(kafka: dict[str, str], topic: str) -> pw.Table:
    """The events of a topic, with their times and offsets."""
    columns = {
        name: pw.column_definition(dtype=str) for name in ("event_id", "occurred_at", "sent_at", *_FIELDS[topic])
    }
    for name in columns.keys() & _OPTIONAL.keys():
        columns[name] = pw.column_definition(dtype=_OPTIONAL[name] | None, default_value=None)
    if topic == "search":
        columns["results"] = pw.column_definition(dtype=pw.Json)
    return timed(
        pw.io.kafka.read(
            kafka,
            topic,
            schema=pw.schema_builder(columns, name=topic),
            format="json",
            with_metadata=True,
            autocommit_duration_ms=_AUTOCOMMIT_MS,
            name=topic,
        )
    )


def timed(events: pw.Table) -> pw.Table:
    """Events with their times. As in Truelog, the time when the device sent the event corrects its clock."""
    return events.with_columns(
        at=pw.apply_with_type(event_time, int, pw.this.occurred_at, pw.this.sent_at, pw.this._metadata),
        log_offset=pw.this._metadata["offset"].as_int(unwrap=True),
    )


def event_time(occurred_at: str, sent_at: str | None, metadata: pw.Json) -> int:
    happened = milliseconds(occurred_at)
    return happened if sent_at is None else happened + metadata["timestamp_millis"].as_int() - milliseconds(sent_at)


def milliseconds(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1_000)


def page_views(page_view: pw.Table) -> pw.Table:
    cells = page_view.select(
        minute=(pw.this.at // 60_000 * 60_000).dt.from_timestamp("ms"),
        host=pw.apply_with_type(lambda url: urlsplit(url).hostname or "", str, pw.this.url),
        page=pw.apply_with_type(lambda url: urlsplit(url).path, str, pw.this.url),
        browser=pw.coalesce(pw.this.browser, ""),
        bytes=pw.coalesce(pw.this.bytes, 0),
    )
    key = (pw.this.minute, pw.this.host, pw.this.page, pw.this.browser)
    return cells.groupby(*key).reduce(*key, views=pw.reducers.count(), bytes=pw.reducers.sum(pw.this.bytes))


def request_rates(page_view: pw.Table) -> pw.Table:
    panes = page_view.select(
        pane=(pw.this.at // 10_000 * 10_000).dt.from_timestamp("ms"), ip=pw.coalesce(pw.this.ip, "")
    )
    return panes.groupby(pw.this.pane, pw.this.ip).reduce(pw.this.pane, pw.this.ip, requests=pw.reducers.count())


def cart(cart_event: pw.Table) -> pw.Table:
    """Each change of a cart folds all of its events again."""
    event = pw.make_tuple(
        pw.this.log_offset, pw.this.at, pw.this.verb, pw.this.product, pw.this.quantity, pw.this.event_id
    )
    carts = cart_event.groupby(pw.this.cart_id).reduce(pw.this.cart_id, events=pw.reducers.sorted_tuple(event))
    folded = carts.select(pw.this.cart_id, row=pw.apply_with_type(fold, list[CartRow], pw.this.events))
    rows = folded.flatten(pw.this.row)
    return rows.select(
        pw.this.cart_id,
        product=pw.this.row[0],
        quantity=pw.this.row[1],
        changed_at=pw.this.row[2].dt.from_timestamp("ms"),
        checked_out_at=pw.apply_with_type(instant, pw.DateTimeNaive | None, pw.this.row[3]),
    )


def instant(at: int | None) -> Any:
    return None if at is None else pw.DateTimeNaive(at, unit="ms")


def fold(events: tuple[CartEvent, ...]) -> list[CartRow]:
    """The rows of a cart, from its events in the order of their offsets."""
    seen, products = set[str](), dict[str, tuple[int, int]]()
    checked_out: int | None = None
    for _, at, verb, product, quantity, identity in events:
        if identity in seen or checked_out is not None:
            continue
        seen.add(identity)
        if verb == "checked_out":
            checked_out = at
        elif product is not None:
            before = products.get(product, (0, at)) if verb == "added" else (0, at)
            products[product] = before[0] + (0 if verb == "removed" else quantity or 0), max(before[1], at)
    return [(product, number, at, checked_out) for product, (number, at) in products.items() if number > 0]


def click_through(search: pw.Table, click: pw.Table) -> pw.Table:
    """The search or a click may come first."""
    asked = search.groupby(pw.this.event_id).reduce(
        search_id=pw.this.event_id,
        asked_at=pw.reducers.max(pw.this.at),
        results=pw.reducers.any(pw.apply_with_type(str, str, pw.this.results)),
    )
    each = click.select(pw.this.search_id, click=pw.apply_with_type("{} {}".format, str, pw.this.at, pw.this.url))
    clicked = each.groupby(pw.this.search_id, pw.this.click).reduce(pw.this.search_id, pw.this.click)
    clicks = clicked.groupby(pw.this.search_id).reduce(
        pw.this.search_id, clicked=pw.apply_with_type(" ".join, str, pw.reducers.sorted_tuple(pw.this.click))
    )
    return asked.join_outer(clicks, pw.left.search_id == pw.right.search_id).select(
        search_id=pw.unwrap(pw.coalesce(pw.left.search_id, pw.right.search_id)),
        asked_at=pw.apply_with_type(instant, pw.DateTimeNaive | None, pw.left.asked_at),
        results=pw.left.results,
        clicked=pw.right.clicked,
    )


def home_timeline(follow: pw.Table, tweet: pw.Table) -> pw.Table:
    follows = last(follow, "followed", "follower_id", "followee_id")
    tweets = last(tweet, "posted", "tweet_id", "author_id")
    posted = tweet.filter(pw.this.verb == "posted")
    # A tweet belongs to the author of the first event that posts it.
    first = posted.groupby(pw.this.tweet_id).reduce(
        pw.this.tweet_id, event=pw.reducers.min(pw.make_tuple(pw.this.log_offset, pw.this.author_id))
    )
    owners = first.select(pw.this.tweet_id, author_id=pw.this.event[1])
    owned = tweets.join(owners, pw.left.tweet_id == pw.right.tweet_id, pw.left.author_id == pw.right.author_id).select(
        pw.left.tweet_id, pw.left.author_id, tweeted_at=pw.left.at
    )
    authors = follows.groupby(pw.this.followee_id).reduce(pw.this.followee_id, followers=pw.reducers.count())
    popular = authors.filter(pw.this.followers > POPULAR)
    shown = owned.join_left(popular, pw.left.author_id == pw.right.followee_id).select(
        pw.left.tweet_id, pw.left.author_id, pw.left.tweeted_at, is_shown=pw.right.followee_id.is_none()
    )
    return (
        shown.filter(pw.this.is_shown)
        .join(follows, pw.left.author_id == pw.right.followee_id)
        .select(
            reader_id=pw.right.follower_id,
            tweeted_at=pw.left.tweeted_at.dt.from_timestamp("ms"),
            tweet_id=pw.left.tweet_id,
        )
    )


def last(events: pw.Table, verb: str, *key: str) -> pw.Table:
    """The keys whose last event by event time has this verb, with the time of this event."""
    columns = [events[name] for name in key]
    order = pw.make_tuple(events.at, events.log_offset, events.verb)
    known = events.groupby(*columns).reduce(*columns, last=pw.reducers.max(order))
    return known.filter(pw.this.last[2] == verb).select(*(pw.this[name] for name in key), at=pw.this.last[0])


def main() -> None:
    logging.disable(logging.INFO)  # it reports each batch of each output
    given = json.load(sys.stdin)
    events = {topic: read(given["kafka"], topic) for topic in _FIELDS}
    views = {
        "page_views": page_views(events["page_view"]),
        "request_rates": request_rates(events["page_view"]),
        "cart": cart(events["cart_event"]),
        "click_through": click_through(events["search"], events["click"]),
        "home_timeline": home_timeline(events["follow"], events["tweet"]),
    }
    for name, table in views.items():
        pw.io.postgres.write(
            table,
            given["database"],
            name,
            schema_name=given["schema"],
            output_table_type="snapshot",
            primary_key=[table[column] for column in _KEYS[name]],
            name=name,
        )
    state = pw.persistence.Backend.filesystem(given["state"])
    pw.run(
        monitoring_level=pw.MonitoringLevel.NONE,
        persistence_config=pw.persistence.Config(state, snapshot_interval_ms=_SNAPSHOT_MS),
    )


if __name__ == "__main__":
    main()
