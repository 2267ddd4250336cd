"""The policy and the block of each address: the last event in the order of the log counts."""

from typing import Any

from tests.laws.lab import CASES, Lab
from tests.views.conftest import Run
from tests.views.generated import logs_and_rows
from tests.views.ways import Row, Sent, at, sent
from truelog import View

ADDRESS = "192.0.2.1"
NOTHING = {"max_requests": None, "window_seconds": None, "blocked_at": None, "blocked_until": None, "reason": None}


def policy(verb: str = "set", requests: int | None = 50, window: int | None = 60, **fields: Any) -> Sent:
    values = {"address": ADDRESS, "verb": verb, "max_requests": requests, "window_seconds": window}
    return sent("rate_policy", **values | fields)


def block(verb: str = "blocked", time: str = "10:00:00", **fields: Any) -> Sent:
    return sent("block", **{"address": ADDRESS, "verb": verb, "occurred_at": at(time)} | fields)


def limits(address: str = ADDRESS, **values: Any) -> Row:
    return {"address": address, **NOTHING, **values}


def test_the_last_policy_of_each_address_counts(in_order: Run) -> None:
    events = [policy(), policy(address="all", requests=1_000, window=3_600), policy(requests=20)]
    assert in_order(events) == [
        limits(max_requests=20, window_seconds=60),
        limits("all", max_requests=1_000, window_seconds=3_600),
    ]


def test_a_wrong_clock_cannot_make_a_decision_permanent(in_order: Run) -> None:
    later = policy(occurred_at=at("10:04:00"))
    assert in_order([later, policy(requests=20, occurred_at=at("10:00:00"))])[0]["max_requests"] == 20


def test_a_removed_policy_is_no_policy(in_order: Run) -> None:
    assert in_order([policy(), policy("removed", None, None)]) == [limits()]


def test_an_incomplete_policy_changes_nothing(in_order: Run) -> None:
    wrong = [policy(requests=None), policy(window=None), policy(window=15), policy("sett")]
    assert in_order([policy(), *wrong]) == [limits(max_requests=50, window_seconds=60)]


def test_an_address_is_blocked_until_it_is_unblocked(in_order: Run) -> None:
    until = block(time="10:05:00", until=at("12:00:00"), reason="scraping")
    assert in_order([policy(), block(), until]) == [
        limits(
            max_requests=50,
            window_seconds=60,
            blocked_at=at("10:05:00"),
            blocked_until=at("12:00:00"),
            reason="scraping",
        )
    ]
    assert in_order([until, block("unblocked", "10:06:00"), block("forgiven")]) == [limits()]


def test_generated_logs_give_the_limits_of_a_naive_loop(lab: Lab, name: str, view: View) -> None:
    shown = 0
    for events, rows in logs_and_rows(lab, name, view):
        expected = naive_limits(events)
        assert {row["address"]: row for row in rows} == {
            address: limits(address, **values) for address, values in expected.items()
        }
        shown += sum(any(row[column] is not None for column in NOTHING) for row in rows)
    assert shown > CASES, "the logs hold too few limits"


def naive_limits(events: list[Row]) -> dict[str, Row]:
    found: dict[str, Row] = {}
    for event in sorted(events, key=lambda each: (each["offset"], each["topic"], each["partition"])):
        verb, window, address = event["verb"], event.get("window_seconds"), event["address"]
        if verb == "set" and event["topic"] == "rate_policy" and event["max_requests"] and window and window % 10 == 0:
            values = {"max_requests": event["max_requests"], "window_seconds": window}
        elif verb == "removed" and event["topic"] == "rate_policy":
            values = {"max_requests": None, "window_seconds": None}
        elif verb == "blocked" and event["topic"] == "block":
            values = {"blocked_at": event["event_time"], "blocked_until": event["until"], "reason": event["reason"]}
        elif verb == "unblocked" and event["topic"] == "block":
            values = {"blocked_at": None, "blocked_until": None, "reason": None}
        else:
            continue
        found[address] = found.get(address, {}) | values
    return found
