"""Matches: what rules find, in batch, as a stream, and shuffled."""

import json
import re
from datetime import timedelta
from typing import Any

from rules.sources import SOURCES
from tests.library.patterns.public_examples import EXAMPLES, PublicExample
from tests.views.examples import Rows, Sent, at, example, sent
from truelog.patterns import files
from truelog.support.settings import PROJECT


def rule(name: str, pattern: str, begins: str = "{}", **fields: Any) -> Sent:
    """A rule over the prices of a symbol. Steps that `steps` does not name fit every price."""
    steps = {each: {"on": "price"} for each in "abc" if each in pattern} | fields.pop("steps", {})
    definition = {"rule": name, "by": "symbol", "pattern": pattern, "within": "1 minute", "steps": steps} | fields
    return sent("rule", rule=name, verb="set", definition=json.dumps(definition), begins=begins)


def price(time: str, value: int, symbol: str = "AAA") -> Sent:
    return sent("price", symbol=symbol, price=value, occurred_at=at(time))


def where(condition: str) -> dict[str, str]:
    return {"on": "price", "where": condition}


FALL = rule("fall", "a b+", steps={"b": where("price < prev(price)")}, show={"low": "b.price", "falls": "count(b)"})


@example([FALL, price("10:00:00", 90), price("10:00:01", 80), price("10:00:02", 70), price("10:00:03", 80)])
def test_a_fall_is_a_match_with_its_events_and_columns(rows: Rows) -> None:
    [row] = [row for row in rows if row["rule"] == "fall"]
    assert (row["entity_id"], row["entity"], row["outcome"]) == ("AAA", "symbol", "found")
    assert (row["first_time"], row["last_time"]) == (at("10:00:00"), at("10:00:02"))
    assert json.loads(row["shown"]) == {"low": 70, "falls": 2}
    assert [event["step"] for event in json.loads(row["events"])] == ["a", "b", "b"]


def shipped(name: str) -> Sent:
    """The record of a rule that comes with the platform."""
    declared = files.read((PROJECT / "include" / "rules" / f"{name}.rule").read_text(), SOURCES)
    return sent("rule", rule=name, verb="set", definition=declared.model_dump_json(), begins="{}")


def paid(time: str, verb: str, country: str, order: str = "o1") -> Sent:
    fields = {"customer_id": "c1", "order_id": order, "verb": verb, "country": country, "amount": 5}
    return sent("payment", occurred_at=at(time), **fields)


def measured(time: str, value: float, sensor: str = "s1") -> Sent:
    fields = {"sensor_id": sensor, "machine_id": "m1", "measured": value, "lowest": 0.0, "highest": 80.0}
    return sent("reading", occurred_at=at(time), **fields)


def of_rule(rows: Rows, rule: str) -> list[tuple[Any, ...]]:
    return [(row["entity_id"], row["outcome"], json.loads(row["shown"])) for row in rows if row["rule"] == rule]


FAILED = [paid(f"10:00:0{second}", "failed", "DE") for second in range(5)]


@example([shipped("payments_from_another_country"), *FAILED, paid("10:09:00", "succeeded", "FR")])
def test_failed_payments_and_a_success_from_another_country(rows: Rows) -> None:
    found = {"failures": 5, "from_country": "DE", "to_country": "FR", "amount": 5}
    assert of_rule(rows, "payments_from_another_country") == [("c1", "found", found)]


@example([shipped("payments_from_another_country"), *FAILED[1:], paid("10:00:06", "succeeded", "FR")])
def test_four_failed_payments_are_too_few(rows: Rows) -> None:
    assert of_rule(rows, "payments_from_another_country") == []


SHIPPED = sent("shipment", order_id="o2", verb="shipped", occurred_at=at("11:00:00"))


@example(
    [
        shipped("paid_not_shipped"),
        paid("10:00:00", "succeeded", "DE"),
        paid("10:00:01", "succeeded", "DE", "o2"),
        SHIPPED,
    ]
)
def test_an_order_that_is_not_shipped(rows: Rows) -> None:
    assert of_rule(rows, "paid_not_shipped") == [("o1", "found", {"amount": 5})]
    [row] = [row for row in rows if row["rule"] == "paid_not_shipped"]
    assert row["settled_after"] == at("10:00:00") + timedelta(days=1, minutes=1)


STOPPED = sent("machine_state", machine_id="m1", verb="stopped", occurred_at=at("10:01:00"))
OUTSIDE = [measured("10:00:00", 90), measured("10:00:01", 50, "s2"), measured("10:00:02", 95), measured("10:00:03", -4)]


@example([shipped("out_of_range_then_stop"), *OUTSIDE, STOPPED])
def test_three_readings_out_of_range_and_a_stop(rows: Rows) -> None:
    found = {"sensor_id": "s1", "first_measured": 90.0, "last_measured": -4.0}
    assert of_rule(rows, "out_of_range_then_stop") == [("m1", "found", found)]


@example(
    [
        shipped("fall_after_rise"),
        price("10:00:00", 90),
        price("10:00:01", 100),
        price("10:00:30", 96),
        price("10:01:01", 95),
    ]
)
def test_a_price_that_falls_by_a_twentieth_after_a_rise(rows: Rows) -> None:
    assert of_rule(rows, "fall_after_rise") == [("AAA", "found", {"top": 100, "low": 95})]


OVER_THE_END = [price("10:39:20", 90), price("10:39:50", 100), price("10:40:10", 90), price("10:40:11", 80)]


@example([shipped("fall_after_rise"), *OVER_THE_END])
def test_a_match_that_goes_on_in_the_next_span_is_found_once(rows: Rows) -> None:
    """The spans of a symbol begin every 40 minutes."""
    assert of_rule(rows, "fall_after_rise") == [("AAA", "found", {"top": 100, "low": 90})]
    [row] = [row for row in rows if row["rule"] == "fall_after_rise"]
    assert row["span_end"] == at("10:40:00")


def public(one: PublicExample, name: str) -> list[Sent]:
    """The rule and the events of a public example, whose values are readings of a sensor."""
    document = {
        "rule": name,
        "by": "sensor",
        "pattern": one.pattern,
        "within": "1 hour" if one.within == "1 day" else one.within,
        "after": one.after,
        "steps": {step: {"on": "reading", "where": of_reading(where)} for step, where in one.where.items()},
        "show": {column: of_reading(expression) for column, expression in one.shown.items()},
    }
    values = [
        measured(second(number, one), -1 if value is None else value, name)  # a reading has a value
        for number, value in enumerate(one.values, 1)
    ]
    return [sent("rule", rule=name, verb="set", definition=json.dumps(document), begins="{}"), *values]


def of_reading(expression: str) -> str:
    return expression.replace("value", "measured")


def second(number: int, one: PublicExample) -> str:
    """The time of the value with this number."""
    return str(timedelta(hours=10, seconds=number * one.every))


PUBLIC = {f"public_{number}": one for number, one in enumerate(EXAMPLES)}


@example([each for name, one in PUBLIC.items() for each in public(one, name)])
def test_public_examples(rows: Rows) -> None:
    """All of them are in one log. Each rule also judges the sensors of the others, which are not compared."""
    for name, one in PUBLIC.items():
        found = [row for row in rows if (row["rule"], row["entity_id"]) == (name, name)]
        in_order = sorted(found, key=lambda row: row["first_time"])
        matches = [each.split() for each in one.expected.split(" | ") if each]
        steps = [[event.lstrip("0123456789") for event in each] for each in matches]
        assert [[event["step"] for event in json.loads(row["events"])] for row in in_order] == steps, one
        ends = [tuple(at(second(int(re.findall("[0-9]+", each[n])[0]), one)) for n in (0, -1)) for each in matches]
        assert [(row["first_time"], row["last_time"]) for row in in_order] == ends, one
        assert [json.loads(row["shown"]) for row in in_order][: len(one.shows)] == list(one.shows), one
