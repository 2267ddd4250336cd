"""The states of keys during a transaction: events that are folded together, and a fold that fails."""

from collections.abc import Mapping
from datetime import UTC, datetime

import pytest

from tests.library.commands.decisions import TYPES
from truelog.commands.declaration import Fold, NewEvent, Payload, State
from truelog.commands.events import LogEvent, to_log
from truelog.commands.folding.states import FoldFailed, KeyName, KeyState, States

FIRST, SECOND = KeyName("cart_event", "c1"), KeyName("cart_event", "c2")
EMPTY = {name: KeyState({}, 0) for name in (FIRST, SECOND)}


def added(cart: KeyName, product: str) -> LogEvent:
    payload = {"cart_id": cart.key, "visitor_id": "v", "verb": "added", "product": product, "quantity": 1}
    return to_log(TYPES, NewEvent(cart.event, payload), datetime(2026, 11, 25, 10, tzinfo=UTC))


def counting(broken: set[str]) -> Mapping[str, Fold]:
    """The number of each product's events. It fails on broken products."""

    def apply(state: State, event: Payload) -> State:
        if event["product"] in broken:
            raise KeyError(event["product"])
        return {**state, event["product"]: state.get(event["product"], 0) + 1}

    return {"cart_event": Fold("cart_event", apply)}


def test_a_state_has_all_events_of_its_key() -> None:
    states = States(TYPES, counting(set()), EMPTY)
    states.add([added(FIRST, "lamp"), added(SECOND, "chair")])
    states.add([added(FIRST, "lamp")])
    assert (states.version(FIRST), states[FIRST], states[SECOND]) == (
        2,
        KeyState({"lamp": 2}, 2),
        KeyState({"chair": 1}, 1),
    )


def test_a_fold_that_fails_changes_no_state() -> None:
    """Neither the events before the broken one nor those of other keys count twice afterwards."""
    broken = {"chair"}
    states = States(TYPES, counting(broken), EMPTY)
    states.add([added(FIRST, "lamp"), added(SECOND, "lamp"), added(FIRST, "chair")])
    for name in (FIRST, SECOND):
        with pytest.raises(FoldFailed, match="the fold of cart_event failed on an event: KeyError"):
            _ = states[name]
    broken.clear()
    assert (states[FIRST], states[SECOND]) == (KeyState({"lamp": 1, "chair": 1}, 2), KeyState({"lamp": 1}, 1))
