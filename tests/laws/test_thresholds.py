"""Law: the notifications of a row rule follow from the steps of its view and their times alone.

It does not matter how many steps each look of the notifier reads, or when the notifier dies.
"""

from collections import defaultdict
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.builders.notifications import no_notifications, pass_time, set_row_rule
from tests.dying import dying_at
from tests.laws.naive_thresholds import NaiveThreshold, Rows, Threshold
from tests.library.notifications.found_rows import FoundRows, cart, found_rows
from tests.library.notifications.rounds import look
from truelog.lag import notification_lag
from truelog.notifications import history
from truelog.storage.database import Connection

MINUTE = timedelta(minutes=1)
RULES = st.builds(
    Threshold,
    above=st.just(10),
    until=st.sampled_from([None, 5]),
    minutes=st.sampled_from([0, 2, 5]),
    by_product=st.booleans(),
)
CARTS = "abc"
ROWS = st.sampled_from([None, *((product, number) for product in ("lamp", "chair") for number in (1, 7, 11, 12, 13))])
STEPS = st.builds(
    lambda rows, changed: {cart: row for cart, row, changes in zip(CARTS, rows, changed, strict=True) if changes},
    st.tuples(*[ROWS] * len(CARTS)),
    st.tuples(*[st.booleans()] * len(CARTS)),
)
LOOKS = st.sampled_from(["none", "dies", "looks"])
LOGS = st.lists(st.tuples(STEPS, st.sampled_from([0, 1, 3]), LOOKS), min_size=12, max_size=12)
REPLACED = [({"b": ("lamp", 11)}, 0, "none"), ({"a": ("lamp", 12), "b": None}, 0, "none")]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(rule=Threshold(10, None, 0, by_product=True), log=REPLACED)
@given(rule=RULES, log=LOGS)
def test_notifications_of_rows_follow_from_the_steps(
    connection: Connection,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rule: Threshold,
    log: list[tuple[Rows, int, str]],
) -> None:
    no_notifications(connection)
    with found_rows(connection, "cart") as view:
        set_row_rule(
            connection,
            "many",
            f"quantity > {rule.above}",
            until=None if rule.until is None else f"quantity < {rule.until}",
            for_seconds=60 * rule.minutes or None,
            group_by="product" if rule.by_product else None,
            template="$product $cart_id $quantity",
        )
        look(connection)
        naive, minute = NaiveThreshold(rule), 0
        for rows, minutes, then in log:
            change(view, rows)
            naive.step(minute, rows)
            minute += minutes
            pass_time(connection, minutes * MINUTE)
            if then == "dies" and notification_lag.unread(connection):
                with dying_at("notifier.taken_in", tmp_path, monkeypatch):
                    look(connection)
            elif then == "looks":
                look(connection)
        look(connection)
        naive.join(minute)
        assert said(connection, rule) == naive.said
    no_notifications(connection)


def change(view: FoundRows, rows: Rows) -> None:
    """Change rows of the view in one step."""
    removed = tuple(cart(key, 0) for key, row in rows.items() if row is None)
    view.change(*(cart(key, row[1], row[0]) for key, row in rows.items() if row is not None), removed=removed)


def said(connection: Connection, rule: Threshold) -> dict[str, list[tuple[str, str]]]:
    """What each notification says, and its text, by group."""
    found = defaultdict[str, list[tuple[str, str]]](list)
    for each in reversed(history.deliveries(connection, "many", 1_000)):
        product, cart_id, _ = each["text"].split()
        found[product if rule.by_product else cart_id].append((each["says"], each["text"]))
    return found
