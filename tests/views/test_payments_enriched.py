"""Payments with the customer as they were then: a late change corrects the payments after it."""

from typing import Any

from tests.beds.lab import Lab
from tests.builders.changes import change
from tests.views.examples import Relations, Row, Rows, Sent, at, example, sent
from tests.views.generated import logs_and_rows
from truelog import View


def paid(event_id: str, time: str, verb: str = "succeeded", amount: int = 100) -> Sent:
    fields = {"customer_id": "1", "order_id": f"o{event_id}", "verb": verb, "country": "NO", "amount": amount}
    return sent("payment", event_id=event_id, occurred_at=at(time), **fields)


def lived(city: str, time: str, lsn: int, operation: str = "updated") -> Sent:
    return Sent("customers", change(operation, {"id": 1, "name": "Ann", "city": city}, lsn=lsn, at=at(time)))


def cities(rows: Rows) -> list[tuple[str, int, str | None]]:
    return [(row["event_id"], row["customer_version"], row["city"]) for row in rows]


MOVED = [lived("Oslo", "10:00:00", 5, "read"), lived("Bergen", "11:00:00", 7)]


@example([paid("1", "09:00:00"), *MOVED, paid("2", "10:30:00"), paid("3", "11:30:00")])
def test_a_payment_has_the_city_of_its_time(rows: Rows) -> None:
    assert cities(rows) == [("1", 0, None), ("2", 1, "Oslo"), ("3", 2, "Bergen")]


@example([paid("1", "10:30:00"), paid("2", "11:00:00"), paid("3", "11:30:00"), *MOVED])
def test_a_change_that_is_captured_late_corrects_the_payments_after_it(rows: Rows) -> None:
    assert cities(rows) == [("1", 1, "Oslo"), ("2", 2, "Bergen"), ("3", 2, "Bergen")]


@example([*MOVED, MOVED[1], paid("1", "11:30:00"), paid("1", "11:30:00")])
def test_an_event_that_was_sent_twice_counts_once(rows: Rows) -> None:
    assert cities(rows) == [("1", 2, "Bergen")]


@example([*MOVED, lived("Bergen", "12:00:00", 9, "deleted"), paid("1", "12:30:00")])
def test_a_deleted_customer_has_no_city(rows: Rows) -> None:
    assert [(row["customer_version"], row["name"], row["city"]) for row in rows] == [(3, None, None)]


@example([*MOVED, paid("1", "10:30:00"), paid("2", "10:31:00", "failed"), paid("3", "10:32:00", amount=5)])
def test_a_city_has_its_payments_and_failures(relations: Relations) -> None:
    assert relations["per_city"] == [{"city": "Oslo", "country": "NO", "payments": 2, "failures": 1, "amount": 105}]


def test_generated_logs_give_the_cities_of_a_naive_loop(lab: Lab, name: str, view: View) -> None:
    with_city = 0
    for events, found in logs_and_rows(lab, name, view):
        rows = {(row["customer_id"], row["event_id"]): (row["customer_version"], row["city"]) for row in found}
        assert rows == naive_cities(events)
        with_city += sum(city is not None for _, city in rows.values())
    assert with_city > 3, "the logs have too few payments of customers with a city"


def naive_cities(events: list[Row]) -> dict[tuple[str, str], tuple[int, str | None]]:
    order = ("event_time", "topic", "partition", "offset")
    versions: dict[str, int] = {}
    present: dict[str, str | None] = {}
    found: dict[Any, tuple[int, str | None]] = {}
    seen = set[tuple[str, str, str]]()
    for event in sorted(events, key=lambda each: tuple(each[column] for column in order)):
        is_change = event["topic"] == "customers"
        if is_change and event["id"] is None:
            continue
        customer = str(event["id"]) if is_change else event["customer_id"]
        identity = event["topic"], customer, event["event_id"]
        if identity in seen:
            continue
        seen.add(identity)
        if is_change:
            versions[customer] = versions.get(customer, 0) + 1
            present[customer] = None if event["source_operation"] == "deleted" else event["city"]
        else:
            found[customer, event["event_id"]] = (versions.get(customer, 0), present.get(customer))
    return found
