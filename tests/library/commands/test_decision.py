"""Decisions without services: laws of the cart, and how a decision uses versions and claims."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import create_model

from tests.library.commands.decisions import COMMANDS, TYPES, request
from truelog.commands import claims
from truelog.commands.catalogue import Catalogue
from truelog.commands.claims import CLAIM
from truelog.commands.decision import ACCEPTED, CONFLICT, REFUSED, Outcome, decide, key_names
from truelog.commands.declaration import Command, NewEvent, Refused
from truelog.commands.events import to_log
from truelog.commands.folding.states import KeyName, KeyState, States
from truelog.commands.request import CommandRequest, InvalidCommandError
from truelog.support.errors import BadDeclaration
from truelog.support.setting_groups.services import MOST_EVENT_BYTES

NOW = datetime(2026, 11, 25, 10, tzinfo=UTC)
CART: dict[str, Any] = {"cart_id": "c1", "visitor_id": "v1"}
PRODUCTS = st.sampled_from(["lamp", "chair"])
QUANTITIES = st.integers(-1, 3)
CART_COMMANDS = st.one_of(
    st.builds(lambda p, q: request("add_to_cart", **CART, product=p, quantity=q), PRODUCTS, QUANTITIES),
    st.builds(lambda p, q: request("change_quantity", **CART, product=p, quantity=q), PRODUCTS, QUANTITIES),
    st.builds(lambda p: request("remove_from_cart", **CART, product=p), PRODUCTS),
    st.just(request("check_out_cart", **CART)),
)


def none_of(*requests: CommandRequest) -> States:
    """The states of keys without events."""
    names = {name for each in requests for name in key_names(each)}
    return States(TYPES, COMMANDS.folds, {name: KeyState({}, 0) for name in names})


class NaiveCart:
    """A cart as a shop assistant keeps it: the result of each command, said in another way than in the declarations."""

    def __init__(self) -> None:
        self.products: dict[str, int] = {}
        self.is_open = True

    def accepts(self, command: CommandRequest) -> bool:
        fields = command.fields.model_dump()
        product, quantity = fields.get("product", ""), fields.get("quantity", 1)
        if not self.is_open or quantity < 1:
            return False
        if command.name == "add_to_cart":
            self.products[product] = self.products.get(product, 0) + quantity
        elif command.name == "check_out_cart":
            self.is_open = not self.products
            return not self.is_open
        elif product not in self.products:
            return False
        elif command.name == "change_quantity":
            self.products[product] = quantity
        else:
            del self.products[product]
        return True


@given(st.lists(CART_COMMANDS, max_size=12))
def test_a_cart_accepts_what_a_naive_cart_accepts(commands: list[CommandRequest]) -> None:
    states, naive, accepted = none_of(request("check_out_cart", **CART)), NaiveCart(), 0
    for command in commands:
        before = states[KeyName("cart_event", "c1")]
        outcome = decide(TYPES, states, command, NOW)
        after = states[KeyName("cart_event", "c1")]
        assert (outcome.status == ACCEPTED) == naive.accepts(command)
        accepted += len(outcome.events)
        assert (after == before) == (outcome.status == REFUSED)
        assert outcome.answer["version"] == after.version == accepted
        assert after.state.get("products", {}) == naive.products
        assert after.state.get("checked_out", False) != naive.is_open


REFUSALS: dict[str, tuple[str, dict[str, Any], str]] = {
    "quantity below 1": ("add_to_cart", {"product": "lamp", "quantity": 0}, "at least 1"),
    "remove what is not there": ("remove_from_cart", {"product": "lamp"}, "lamp is not in the cart"),
    "change what is not there": ("change_quantity", {"product": "lamp", "quantity": 1}, "lamp is not in the cart"),
    "check out an empty cart": ("check_out_cart", {}, "the cart is empty"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_a_refusal_has_a_reason(case: str) -> None:
    name, fields, reason = REFUSALS[case]
    command = request(name, **CART, **fields)
    outcome = decide(TYPES, none_of(command), command, NOW)
    assert (outcome.status, outcome.answer["version"], outcome.events) == (REFUSED, 0, ())
    assert reason in outcome.answer["refused"]


def test_a_conflict_has_the_current_version() -> None:
    command = request("add_to_cart", **CART, product="lamp", quantity=1, expected_version=0)
    states = none_of(command)
    assert decide(TYPES, states, command, NOW).status == ACCEPTED
    again = decide(TYPES, states, command, NOW)
    assert (again.status, again.answer["version"], again.events) == (CONFLICT, 1, ())


def _registering(decision: object) -> Catalogue:
    """A command that opens a cart, and claims a name and an address for it."""
    carts = COMMANDS.commands["check_out_cart"]
    made = Command(
        carts.fields,
        carts.fold,
        carts.key,
        lambda *_: decision,  # type: ignore[arg-type]
        claims=lambda fields: (f"username:{fields.visitor_id}", "email:a@example.org"),
    )
    return Catalogue({"register": made})


ADDED = NewEvent("cart_event", {**CART, "verb": "added", "product": "lamp", "quantity": 1})


def _register(decision: object, visitor: str, cart: str) -> CommandRequest:
    return request("register", commands=_registering(decision), cart_id=cart, visitor_id=visitor)


def test_claims_of_several_names_are_all_granted_or_none() -> None:
    first, second = _register([ADDED], "ann", "c1"), _register([ADDED], "bob", "c2")
    states = none_of(first, second)
    granted = decide(TYPES, states, first, NOW)
    assert [each.event for each in granted.events] == ["cart_event", CLAIM, CLAIM]
    refused = decide(TYPES, states, second, NOW)
    assert (refused.status, refused.answer["refused"]) == (REFUSED, "email:a@example.org: taken")
    assert states[KeyName(CLAIM, "username:bob")] == KeyState({}, 0)
    assert decide(TYPES, states, first, NOW).answer["version"] == 2  # a holder's claims are already granted


@pytest.mark.parametrize(("holder_type", "status"), [("cart_event", ACCEPTED), ("search", REFUSED), (None, ACCEPTED)])
def test_a_name_belongs_to_the_key_of_one_event_type(holder_type: str | None, status: int) -> None:
    """Two event types may have the same keys. A claim of an earlier release belongs to this key of every type."""
    command = _register([ADDED], "ann", "c1")
    states, name = none_of(command), "username:ann"
    states.add([to_log(TYPES, claims.claimed(name, "c1", holder_type), NOW)])
    assert decide(TYPES, states, command, NOW).status == status
    states.add([to_log(TYPES, claims.released(name, "c1"), NOW)])
    assert decide(TYPES, states, command, NOW).status == ACCEPTED
    expected = {"holder": "c1", "holder_type": "cart_event"}
    assert states[KeyName(CLAIM, name)].state == expected


def test_a_refusing_decision_claims_nothing() -> None:
    command = _register(Refused("no"), "ann", "c1")
    states = none_of(command)
    assert decide(TYPES, states, command, NOW) == Outcome(REFUSED, {"refused": "no", "version": 0})
    assert states[KeyName(CLAIM, "username:ann")] == KeyState({}, 0)


def test_a_command_with_an_event_that_kafka_would_refuse_is_refused() -> None:
    """An event type of your own may have a text of any length. In the log, each of these letters has six bytes."""
    carts = TYPES["cart_event"]
    unlimited = create_model("unlimited", __base__=carts.model, product=(str | None, None))
    types = {**TYPES, "cart_event": replace(carts, model=unlimited)}
    large = NewEvent("cart_event", {**ADDED.payload, "product": "é" * (MOST_EVENT_BYTES // 6)})
    command = _register([ADDED, large], "ann", "c1")
    states = none_of(command)
    outcome = decide(types, states, command, NOW)
    assert (outcome.status, outcome.events) == (REFUSED, ())
    assert "more than 700,000 bytes" in outcome.answer["refused"]
    assert states[KeyName("cart_event", "c1")] == KeyState({}, 0)


BAD = {
    "no event": ([], "without an event"),
    "another key": ([NewEvent("cart_event", {**ADDED.payload, "cart_id": "c9"})], "neither its key"),
    "an invalid event": ([NewEvent("cart_event", {**ADDED.payload, "quantity": -1})], "cart_event: quantity"),
    "an unknown type": ([NewEvent("surprise", {})], "surprise is not an event type"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_decision_changes_nothing(case: str) -> None:
    decision, reason = BAD[case]
    command = _register(decision, "ann", "c1")
    states = none_of(command)
    with pytest.raises(BadDeclaration, match=reason):
        decide(TYPES, states, command, NOW)
    assert states[KeyName("cart_event", "c1")] == KeyState({}, 0)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"no", "body"),
        (b"[]", "body"),
        (b'{"cart_id": "c", "cart_id": "d", "visitor_id": "v"}', "body"),
        (b'{"cart_id": "a\\u0000", "visitor_id": "v"}', "body"),
        (b'{"cart_id": "a\\\\\\u0000", "visitor_id": "v"}', "body"),
        (b'{"cart_id": 1, "visitor_id": "v"}', "cart_id"),
        (b'{"cart_id": "c", "visitor_id": "v", "more": 1}', "more"),
        (b'{"cart_id": "c", "visitor_id": "v", "expected_version": -1}', "expected_version"),
        (b'{"cart_id": "c", "visitor_id": "v", "expected_version": true}', "expected_version"),
    ],
)
def test_an_invalid_body_is_refused_with_its_field(body: bytes, field: str) -> None:
    from truelog.commands.request import Sender, parse

    with pytest.raises(InvalidCommandError) as invalid:
        parse(COMMANDS, "check_out_cart", body, Sender("shop"))
    assert invalid.value.field == field


def test_a_text_may_have_a_backslash_before_u0000() -> None:
    """These six characters are not the character U+0000."""
    assert request("check_out_cart", cart_id="a\\u0000", visitor_id="v").key == "a\\u0000"
