"""Rules about the rows of a view: what is refused, and what is notified on a real database and a real receiver."""

import re
from datetime import timedelta
from typing import Any

import pytest

from tests.builders.notifications import (
    make_rules_again,
    pass_time,
    retire_rule,
    set_row_rule,
    set_rule,
    without_its_file,
)
from tests.library.listener import Listener
from tests.library.notifications.found_rows import FoundRows, cart, found_rows, run
from tests.library.notifications.rounds import deliver, look
from truelog.lag import notification_lag
from truelog.notifications import delivery, history, intake, notifier
from truelog.notifications.rules import rule as rules_of_all_kinds
from truelog.notifications.rules.declaration import check
from truelog.notifications.rules.row import RowRule
from truelog.patterns.expression import UNKNOWN
from truelog.storage.database import Connection
from truelog.support.errors import BadInput
from truelog.support.settings import PROJECT, Settings
from truelog.views import catalogue

MINUTE = timedelta(minutes=1)
COLUMNS = {"cart_id": "text", "product": "text", "quantity": "number"}
RULE = {
    "kind": "row",
    "subject": "cart",
    "channel": "ops",
    "condition": "quantity > 10",
    "template": "$cart_id has $quantity",
}


def said(listener: Listener) -> list[tuple[str, str]]:
    return [(each["says"], each["text"]) for each in listener.taken]


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"condition": None}, "condition: a rule about a row needs it"),
        ({"window_seconds": 60}, "window_seconds: a rule about a row has none"),
        ({"condition": "colour = 'red'"}, "condition: cart has no column colour for rules; it has cart_id, product"),
        ({"condition": "quantity > 'many'"}, "condition: .* have different types"),
        ({"condition": "quantity"}, "condition: the expression is a number, but a boolean is needed"),
        ({"condition": "product RLIKE '(a+)+'"}, "condition: .* is not allowed"),
        ({"condition": "(" * 5_000}, "condition: the expression has 5,000 characters"),
        ({"condition": "quantity > prev(quantity)"}, "condition: name columns of the row alone"),
        ({"condition": "sum(row.quantity) > 1"}, "condition: .* totals are allowed only"),
        ({"until": "quantity <"}, "until: not valid SQL"),
        ({"group_by": "colour"}, "cart has no column colour; it has cart_id, product, quantity"),
        ({"template": "$colour"}, "cart has no column colour"),
        ({"kind": "hit", "window_seconds": 60}, "condition: a rule about a hit has none"),
    ],
)
def test_a_bad_rule_is_refused(changed: dict[str, Any], reason: str) -> None:
    assert check(RULE, "many", COLUMNS).fits(cart("a", 11))
    with pytest.raises(BadInput, match=reason):
        check(RULE | changed, "many", COLUMNS)


def test_the_thresholds_in_the_documents_fit_views_that_publish() -> None:
    page = (PROJECT / "docs" / "notifications.md").read_text()
    shown = re.findall(r'^\| `(\w+)` \| `--when "(.*?)"(?: --until "(.*?)")?` \|', page, re.MULTILINE)
    assert {view for view, *_ in shown} == {"cart", "price_moves", "sensor_alerts"}
    for name, condition, until in shown:
        view = catalogue.load_view(name, PROJECT / "spark_apps" / "views")
        assert view.publish
        changed = {"subject": name, "condition": condition, "until": until or None, "template": f"${view.key[0]}"}
        check(RULE | changed, "example", dict.fromkeys(view.columns, UNKNOWN))


def test_what_goes_wrong_in_a_condition_fits_no_row() -> None:
    for condition in ("colour = 'red'", "product > 1", "quantity / 0 > 1", "NULL"):
        assert not check(RULE | {"condition": condition}, "many").fits(cart("a", 11))
    loose = check(RULE | {"condition": "quantity > 10.5 AND product LIKE 'la%'"}, "many")
    assert (loose.fits(cart("a", 11)), loose.fits(cart("a", 10)), loose.fits(None)) == (True, False, False)
    assert loose.text(cart("a", 11)) == "a has 11"
    assert check(RULE | {"template": "$colour"}, "many").text(cart("a", 11)) == "$colour"


def test_what_judges_rows_changes_the_hash_of_a_declaration() -> None:
    rules = [check(RULE, "many"), check(RULE, "more"), check(RULE | {"subject": "order"}, "many")]
    rules += [check(RULE | {name: "product"}, "many") for name in ("condition", "until")]
    rules += [check(RULE | {"for_seconds": 1}, "many")]
    assert all(isinstance(each, RowRule) for each in rules)
    assert len({each.declared for each in rules}) == len(rules)
    for same in ({"until": None}, {"channel": "other"}, {"group_by": "product"}, {"template": "a"}):
        assert check(RULE | same, "many").declared == rules[0].declared


def test_an_incident_lasts_until_its_last_row_leaves(told: Settings, carts: FoundRows, listener: Listener) -> None:
    """Between the two conditions, a row stays what it was. A group is one incident."""
    set_row_rule(carts.connection, "many", "quantity > 10", until="quantity < 5", group_by="product")
    look(carts.connection)
    carts.change(cart("a", 11), cart("b", 7))
    carts.change(cart("b", 12))
    deliver(told, carts.connection)
    carts.change(cart("a", 7))
    carts.change(removed=(cart("b", 12),))
    deliver(told, carts.connection)
    assert said(listener) == [("opened", "a 11")]
    carts.change(cart("a", 4))
    deliver(told, carts.connection)
    opened, resolved = listener.taken
    assert (resolved["says"], resolved["text"]) == ("resolved", "Resolved: a 11")
    assert resolved["incident"] == opened["incident"]
    assert (opened["kind"], opened["subject"], opened["group"]) == ("row", "cart", {"product": "lamp"})
    carts.change(cart("a", 12))
    deliver(told, carts.connection)
    assert listener.taken[2]["incident"] != opened["incident"]


def test_a_sensor_that_is_in_range_again_resolves_its_alert(
    told: Settings, quiet: Connection, listener: Listener
) -> None:
    with found_rows(quiet, "sensor_alerts") as alerts:
        fits, until = "readings >= 3 AND is_last", "NOT is_last"
        set_row_rule(quiet, "broken", fits, until=until, template="$sensor_id $readings", view="sensor_alerts")
        look(quiet)
        for readings, is_last in ((2, True), (3, True), (4, True), (4, False)):
            alerts.change(run(readings, is_last=is_last))
            look(quiet)
        deliver(told, quiet)
    assert said(listener) == [("opened", "s1 3"), ("resolved", "Resolved: s1 3")]


def test_a_row_that_fits_for_too_short_a_time_causes_none(told: Settings, carts: FoundRows, listener: Listener) -> None:
    set_row_rule(carts.connection, "many", "quantity > 10", for_seconds=300)
    look(carts.connection)
    carts.change(cart("a", 11), cart("b", 11))
    pass_time(carts.connection, 4 * MINUTE)
    deliver(told, carts.connection)
    carts.change(cart("a", 9), cart("b", 12))
    pass_time(carts.connection, MINUTE)
    deliver(told, carts.connection)
    assert said(listener) == [("opened", "b 12")]


@pytest.mark.parametrize("portion", [1, 1_000])
def test_a_problem_that_came_and_went_while_the_notifier_was_away_is_listed_and_not_sent(
    told: Settings, carts: FoundRows, listener: Listener, monkeypatch: pytest.MonkeyPatch, portion: int
) -> None:
    """A delivery between the portions finds nothing that is due."""
    monkeypatch.setattr(intake, "_PORTION", portion)
    set_row_rule(carts.connection, "many", "quantity > 10", for_seconds=300)
    look(carts.connection)
    carts.change(cart("a", 11))
    carts.change(cart("b", 11))
    pass_time(carts.connection, 6 * MINUTE)
    carts.change(cart("c", 1))
    carts.change(cart("a", 9))
    while notifier.look(told, carts.connection):
        delivery.deliver_next(told, carts.connection, "ops")
    deliver(told, carts.connection)
    assert said(listener) == [("opened", "b 11")]
    listed = {(each["text"], each["says"], each["outcome"]) for each in history.deliveries(carts.connection, "many", 9)}
    assert listed == {
        ("a 11", "opened", "over"),
        ("a 11", "resolved", "over"),
        ("b 11", "opened", "delivered"),
    }


def test_what_is_not_over_is_sent_once_all_changes_are_read(
    told: Settings, carts: FoundRows, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "_PORTION", 1)
    set_row_rule(carts.connection, "many", "quantity > 10")
    look(carts.connection)
    carts.change(cart("a", 11))
    carts.change(cart("a", 12))
    assert notifier.look(told, carts.connection)
    assert not delivery.deliver_next(told, carts.connection, "ops")
    assert not notification_lag.undelivered(carts.connection)
    deliver(told, carts.connection)
    carts.change(cart("a", 13))
    carts.change(cart("a", 9))
    deliver(told, carts.connection)
    assert said(listener) == [("opened", "a 11"), ("resolved", "Resolved: a 11")]


@pytest.mark.parametrize("method", ["fits", "text"])
def test_a_defect_of_a_rule_on_one_row_stops_nothing_else(
    told: Settings,
    carts: FoundRows,
    listener: Listener,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    *,
    method: str,
) -> None:
    fail_on_a(monkeypatch, method)
    set_row_rule(carts.connection, "bad", "quantity > 10", template="bad $cart_id")
    set_row_rule(carts.connection, "good", "quantity > 10", template="good $cart_id")
    look(carts.connection)
    carts.change(cart("a", 11), cart("b", 11))
    carts.change(cart("a", 12))
    deliver(told, carts.connection)
    assert sorted(text for _, text in said(listener)) == ["bad b", "good a", "good b"]
    assert caplog.text.count("the notification rule bad fails on a row") == 1


def test_a_row_whose_group_is_too_long_stops_nothing_else(
    told: Settings, carts: FoundRows, listener: Listener, caplog: pytest.LogCaptureFixture
) -> None:
    set_row_rule(carts.connection, "grouped", "quantity > 10", group_by="product")
    look(carts.connection)
    carts.change(cart("a", 11, product="é" * 1_000), cart("b", 11))
    deliver(told, carts.connection)
    assert said(listener) == [("opened", "b 11")]
    assert "the values of product have over 2,000 bytes" in caplog.text


def test_an_incident_ends_if_its_changed_rule_fails_on_its_row(
    told: Settings, carts: FoundRows, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_row_rule(carts.connection, "bad", "quantity > 10")
    look(carts.connection)
    carts.change(cart("a", 11))
    deliver(told, carts.connection)
    fail_on_a(monkeypatch, "fits")
    set_row_rule(carts.connection, "bad", "quantity > 9")
    deliver(told, carts.connection)
    assert said(listener) == [("opened", "a 11"), ("ended", "Ended: a 11")]


def fail_on_a(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    """Give this method of the rule `bad` a defect: it fails on the cart `a`."""
    real = getattr(RowRule, method)

    def failing(rule: RowRule, row: dict[str, Any] | None) -> Any:
        if rule.name == "bad" and row is not None and row["cart_id"] == "a":
            raise MemoryError
        return real(rule, row)

    monkeypatch.setattr(RowRule, method, failing)
    monkeypatch.setattr(rules_of_all_kinds, "_LOGGED", set())


def set_both(carts: FoundRows) -> None:
    set_row_rule(carts.connection, "many", "quantity > 10")
    set_row_rule(carts.connection, "long", "quantity > 10", for_seconds=300, template="long")


def test_a_changed_rule_retracts_nothing_that_stands(told: Settings, carts: FoundRows, listener: Listener) -> None:
    """A row that no longer fits is over. Rules that are read again from the log change nothing."""
    set_both(carts)
    look(carts.connection)
    carts.change(cart("a", 11), cart("b", 11))
    deliver(told, carts.connection)
    make_rules_again(carts.connection)
    deliver(told, carts.connection)
    set_both(carts)
    deliver(told, carts.connection)
    assert said(listener) == [("opened", "a 11"), ("opened", "b 11")]
    carts.change(cart("a", 15))
    deliver(told, carts.connection)
    set_row_rule(carts.connection, "many", "quantity > 12", template="other")
    set_row_rule(carts.connection, "long", "quantity > 14", for_seconds=600, template="long")
    deliver(told, carts.connection)
    assert said(listener)[2:] == [("resolved", "Resolved: b 11")]
    pass_time(carts.connection, 6 * MINUTE)
    deliver(told, carts.connection)
    assert len(said(listener)) == 3
    pass_time(carts.connection, 5 * MINUTE)
    deliver(told, carts.connection)
    carts.change(cart("a", 12))
    deliver(told, carts.connection)
    assert said(listener)[3:] == [("opened", "long"), ("resolved", "Resolved: long"), ("resolved", "Resolved: a 11")]


@pytest.mark.parametrize("gone", ["retired", "of another view", "of hits"])
def test_an_incident_ends_if_no_rule_watches_its_rows_any_more(
    told: Settings, carts: FoundRows, listener: Listener, gone: str
) -> None:
    """A row that has not fitted for long enough is forgotten."""
    set_both(carts)
    look(carts.connection)
    carts.change(cart("a", 11))
    deliver(told, carts.connection)
    retire_rule(carts.connection, "long")
    if gone == "retired":
        retire_rule(carts.connection, "many")
    elif gone == "of another view":
        set_row_rule(carts.connection, "many", "quantity > 10", view="order")
    else:
        make_rules_again(carts.connection)
        set_rule(carts.connection, "many", "hit", "outages")
        set_rule(carts.connection, "other", "hit", "outages")
        set_rule(carts.connection, "another", "hit", "outages")
        set_rule(carts.connection, "third", "hit", "outages")
    pass_time(carts.connection, 6 * MINUTE)
    deliver(told, carts.connection)
    assert said(listener) == [("opened", "a 11"), ("ended", "Ended: a 11")]
    set_both(carts)
    deliver(told, carts.connection)
    assert len(said(listener)) == 2


def test_an_output_that_begins_again_ends_the_incidents_of_its_view(
    told: Settings, carts: FoundRows, listener: Listener
) -> None:
    set_row_rule(carts.connection, "many", "quantity > 10")
    look(carts.connection)
    carts.change(cart("a", 11))
    deliver(told, carts.connection)
    FoundRows(carts.connection, "cart", publish=False)
    with found_rows(carts.connection, "cart"):
        deliver(told, carts.connection)
    assert said(listener) == [("opened", "a 11"), ("ended", "Ended: a 11")]


def test_a_view_that_publishes_no_more_ends_its_incidents(told: Settings, carts: FoundRows, listener: Listener) -> None:
    """When it publishes again, what has ended stays so, and new rows open other incidents."""
    set_row_rule(carts.connection, "many", "quantity > 10")
    look(carts.connection)
    carts.change(cart("a", 11))
    deliver(told, carts.connection)
    FoundRows(carts.connection, "cart", publish=False)
    deliver(told, carts.connection)
    assert said(listener) == [("opened", "a 11"), ("ended", "Ended: a 11")]
    with found_rows(carts.connection, "cart") as again:
        deliver(told, carts.connection)
        again.change(cart("a", 9), cart("b", 12))
        deliver(told, carts.connection)
    assert said(listener)[2:] == [("opened", "b 12")]


def test_a_removed_view_ends_its_incidents(told: Settings, carts: FoundRows, listener: Listener) -> None:
    set_row_rule(carts.connection, "many", "quantity > 10")
    look(carts.connection)
    carts.change(cart("a", 11))
    deliver(told, carts.connection)
    with without_its_file(carts.connection, "cart"):
        deliver(told, carts.connection)
    assert said(listener) == [("opened", "a 11"), ("ended", "Ended: a 11")]


def test_a_rule_that_no_row_can_fit_says_why(carts: FoundRows) -> None:
    """An application may send a rule that was never compared with the view."""

    def trouble() -> str | None:
        return history.named(carts.connection, "many").trouble

    set_row_rule(carts.connection, "many", "quantity > 10", until="quantity < 5", for_seconds=60, group_by="product")
    assert trouble() is None
    set_row_rule(carts.connection, "many", "quantity > 10", group_by="colour")
    assert trouble() == "cart has no column colour; it has cart_id, product, quantity"
    set_row_rule(carts.connection, "many", "colour = 'red'")
    assert str(trouble()).startswith("condition: cart has no column colour")
    set_row_rule(carts.connection, "many", "quantity > 10", view="nothing", template="a")
    assert str(trouble()).startswith("there is no view nothing")
    set_row_rule(carts.connection, "many", "quantity > 10")
    FoundRows(carts.connection, "cart", publish=False)
    assert str(trouble()).startswith("cart does not publish its changes")
