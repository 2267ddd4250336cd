"""The policy and the block of each address: the last event in the order of the log counts."""

from typing import Any

from tests.beds.lab import CASES, Lab
from tests.views.examples import Row, Rows, Sent, at, example, examples, sent
from tests.views.generated import logs_and_rows, without_copies
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


@example([policy(), policy(address="all", requests=1_000, window=3_600), policy(requests=20)], in_order=True)
def test_the_last_policy_of_each_address_counts(rows: Rows) -> None:
    assert rows == [
        limits(max_requests=20, window_seconds=60),
        limits("all", max_requests=1_000, window_seconds=3_600),
    ]


@example([policy(occurred_at=at("10:04:00")), policy(requests=20, occurred_at=at("10:00:00"))], in_order=True)
def test_a_wrong_clock_cannot_make_a_decision_permanent(rows: Rows) -> None:
    assert rows[0]["max_requests"] == 20


@example([policy(), policy("removed", None, None)], in_order=True)
def test_a_removed_policy_is_no_policy(rows: Rows) -> None:
    assert rows == [limits()]


@example([policy(), policy(requests=None), policy(window=None), policy(window=15), policy("sett")], in_order=True)
def test_an_incomplete_policy_changes_nothing(rows: Rows) -> None:
    assert rows == [limits(max_requests=50, window_seconds=60)]


UNTIL_NOON = block(time="10:05:00", until=at("12:00:00"), reason="scraping")
BLOCKED = limits(
    max_requests=50,
    window_seconds=60,
    blocked_at=at("10:05:00"),
    blocked_until=at("12:00:00"),
    reason="scraping",
)


@examples(
    {
        "blocked": ([policy(), block(), UNTIL_NOON], BLOCKED),
        "unblocked": ([UNTIL_NOON, block("unblocked", "10:06:00"), block("forgiven")], limits()),
    },
    in_order=True,
)
def test_an_address_is_blocked_until_it_is_unblocked(rows: Rows, expected: Row) -> None:
    assert rows == [expected]


def test_generated_logs_give_the_limits_of_a_naive_loop(lab: Lab, name: str, view: View) -> None:
    shown = 0
    for events, rows in logs_and_rows(lab, name, view):
        expected = naive_limits([*without_copies(view, events)])
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
