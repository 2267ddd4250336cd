"""Laws between views that state the same fact: on the same generated logs, they give the same numbers.

The logs have every verb, values at their bounds, and invalid records.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from datetime import date

from tests.beds.lab import Lab, cases
from tests.laws.events import Record
from tests.views.examples import Relations, Row
from tests.views.generated import good_events, minute_of, once
from tests.views.ways import Reader
from truelog import View
from truelog.views import catalogue

LOGS = 60
NAMED_LIKERS = "SELECT target_id, person_id FROM {likes}"


def found_in(lab: Lab, logs: list[list[Record]], name: str, view: View) -> list[Relations]:
    """What the view gives for each log."""
    lab.rebuild_all(name, view, logs)
    return [Reader(lab, name, view)(case) for case in range(len(logs))]


def test_law_the_views_of_requests_count_the_same_requests(lab: Lab) -> None:
    logs = cases(lab.types, ("page_view",), number=LOGS, longest=40, bad=True)
    names = ("page_views", "request_rates", "sessions")
    # Rows that have expired would not count.
    found = {name: found_in(lab, logs, name, replace(catalogue.load_view(name), keep=None)) for name in names}
    requests = 0
    for case, log in enumerate(logs):
        rows = {name: found[name][case][None] for name in names}
        per_minute = Counter(minute_of(event) for event in good_events(lab, "page_view", log))
        assert summed(rows["page_views"], "minute", "views") == per_minute
        panes = [{"minute": row["pane"].replace(second=0), **row} for row in rows["request_rates"]]
        assert summed(panes, "minute", "requests") == per_minute
        # `sessions` counts an event that was sent again once, unless its copies are of different days.
        in_sessions = len(once(good_events(lab, "page_view", log), visitor_and_day))
        assert sum(row["pages"] for row in rows["sessions"]) == in_sessions
        assert sum(row["pages"] for row in found["sessions"][case]["visits"]) == in_sessions
        assert len(found["sessions"][case]["steps"]) == in_sessions
        requests += per_minute.total()
    assert requests > 5 * LOGS, "the logs hold too few requests"


def visitor_and_day(event: Row) -> tuple[str, date]:
    return event["visitor_id"], event["event_time"].date()


def summed(rows: list[Row], key: str, column: str) -> Counter[object]:
    totals: Counter[object] = Counter()
    for row in rows:
        totals[row[key]] += row[column]
    return totals


def test_law_a_cart_and_also_bought_agree_about_what_was_bought(lab: Lab) -> None:
    """What is in a cart at its check-out was bought. `also_bought` says that later events still count there.

    Both count an event that was sent again once.
    """
    drawn = cases(lab.types, ("cart_event",), number=3 * LOGS, shortest=20, longest=40, partitions=1, bad=True)
    logs = [list(until_checkouts(lab, log)) for log in drawn]
    carts = found_in(lab, logs, "cart", catalogue.load_view("cart"))
    bought = found_in(lab, logs, "also_bought", replace(catalogue.load_view("also_bought"), batch_only=False))
    products = 0
    for log, in_carts, pairs in zip(logs, carts, bought, strict=True):
        events = once(good_events(lab, "cart_event", log), lambda each: each["cart_id"])
        customer = {each["cart_id"]: each["visitor_id"] for each in events if each["verb"] == "checked_out"}
        customers = defaultdict[str, set[str]](set)
        for row in in_carts[None]:
            if row["checked_out_at"] is not None:
                customers[row["product"]].add(customer[row["cart_id"]])
        counted = {row["product"]: row["customers"] for row in pairs[None] if row["product"] == row["also"]}
        assert counted == {product: len(some) for product, some in customers.items()}
        products += len(counted)
    assert products > LOGS / 2, "the logs hold too few products that were bought"


def until_checkouts(lab: Lab, log: list[Record]) -> Iterator[Record]:
    """The log with empty records in place of the events of carts that are checked out already.

    So are events with the id of another cart's event: for `also_bought`, they would be copies.
    """
    cart_at = {each["offset"]: each for each in good_events(lab, "cart_event", log)}
    checked_out, cart_of = set[str](), dict[str, str]()
    for offset, record in enumerate(log):
        event = cart_at.get(offset)
        if event and cart_of.setdefault(event["event_id"], event["cart_id"]) != event["cart_id"]:
            yield replace(record, value=b"")
            continue
        yield replace(record, value=b"") if event and event["cart_id"] in checked_out else record
        if event and event["verb"] == "checked_out":
            checked_out.add(event["cart_id"])


def test_law_a_post_has_as_many_likes_as_people_who_like_it(lab: Lab) -> None:
    view = catalogue.load_view("post")
    view = replace(view, present={**view.present, "likers": NAMED_LIKERS})
    logs = cases(lab.types, view.reads, number=LOGS, bad=True)
    likes = 0
    for found in found_in(lab, logs, "post", view):
        likers = Counter(row["target_id"] for row in found["likers"])
        assert {row["post_id"]: row["likes"] for row in found[None]} == {
            row["post_id"]: likers[row["post_id"]] for row in found[None]
        }
        assert all(row["likes"] == likers[row["comment_id"]] for row in found["top_comments"])
        assert {row["post_id"] for row in found["summary"]} == {row["post_id"] for row in found[None]}
        likes += sum(row["likes"] for row in found[None])
    assert likes > 3, "the logs hold too few likes of posts"
