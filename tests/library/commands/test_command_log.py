"""The command log on PostgreSQL: concurrent decisions, deaths, repeated requests, and the state a decision sees."""

import json
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.deadline import deadline
from tests.dying import dying_at
from tests.library.commands.barrier import CLIENTS, POINTS, concurrently, held_at, last_number, require_one_winner
from tests.library.commands.decisions import (
    COMMANDS,
    FOLDED,
    PARTITION,
    REGISTER,
    TYPES,
    Shop,
    claim,
    release,
    request,
    statuses_of,
)
from tests.library.commands.made_fold import make_fold
from truelog.commands import catalogue, history
from truelog.commands.catalogue import Catalogue
from truelog.commands.claims import CLAIM
from truelog.commands.command_log import FoldChanged, Stored, decide_all
from truelog.commands.decision import ACCEPTED, CONFLICT, REFUSED
from truelog.commands.declaration import Fold, State
from truelog.commands.events import payloads
from truelog.commands.folding import states
from truelog.commands.folding.states import FoldFailed, KeyName
from truelog.storage.database import Connection, connect
from truelog.support.errors import BadDeclaration
from truelog.support.settings import Settings


@pytest.fixture
def shop(connection: Connection) -> Shop:
    return Shop(connection)


def new_name() -> str:
    return f"n{uuid.uuid4().hex[:12]}"


# --- concurrent decisions ---------------------------------------------------------------------------------


@pytest.mark.parametrize("point", POINTS)
def test_one_of_many_claimants_wins_wherever_they_meet(
    postgresql: Settings, shop: Shop, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with held_at(postgresql, point, monkeypatch):
        require_one_winner(postgresql, shop, new_name())


def test_without_the_lock_the_same_test_finds_several_winners(
    postgresql: Settings, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted defect: the rows of the keys are made, but not locked."""
    name = new_name()
    with shop.connection.transaction():
        states.lock_keys(shop.connection, [KeyName(CLAIM, f"username:{name}")])  # makes the row
    monkeypatch.setattr(states, "lock_keys", lambda *_: None)
    with (
        held_at(postgresql, "command.read", monkeypatch),
        pytest.raises(AssertionError, match="clients have the same name"),
    ):
        require_one_winner(postgresql, shop, name)


def test_overlapping_claims_do_not_deadlock(postgresql: Settings, shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [new_name() for _ in range(3)]
    pairs = [[names[n % 3], names[(n + 1) % 3]] for n in range(CLIENTS)]
    generations = shop.generations

    def decide(number: int) -> list[Stored]:
        with connect(postgresql, autocommit=True) as connection:
            commands = [claim(f"p{number}", name) for name in pairs[number]]
            return decide_all(connection, COMMANDS, TYPES, generations, commands)

    with held_at(postgresql, "command.made", monkeypatch), ThreadPoolExecutor(CLIENTS) as pool:
        decided = [each for batch in pool.map(decide, range(CLIENTS), timeout=deadline(60)) for each in batch]
    assert sum(each.status == ACCEPTED for each in decided) == len(names)


def test_two_claims_of_one_command_are_granted_together_or_not_at_all(
    postgresql: Settings, shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each command claims two of three names, in any order, so the first one takes a name from all others."""
    (tmp_path / "register.py").write_text(REGISTER)
    shop.commands = catalogue.load(tmp_path)
    names, before = [new_name() for _ in range(3)], last_number(shop)
    commands = [
        request("register", commands=shop.commands, cart_id=new_name(), names=f"{names[n % 3]} {names[(n + 1) % 3]}")
        for n in range(CLIENTS)
    ]
    with held_at(postgresql, "command.made", monkeypatch):
        decided = concurrently(postgresql, shop, commands)
    [winner] = [command for command, each in zip(commands, decided, strict=True) if each.status == ACCEPTED]
    assert last_number(shop) == before + 3  # an event of the cart, and two claims
    keys = [KeyName(CLAIM, f"username:{name}") for name in names]
    with shop.connection.transaction():
        found = states.current(shop.connection, TYPES, shop.commands.folds, keys)
    holders = {key.key: found[key].state.get("holder") for key in keys}
    assert holders == {key.key: winner.key if key.key in winner.claims else None for key in keys}


# --- deaths -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", [*POINTS, "command.committed"])
def test_a_decision_that_dies_is_stored_whole_or_not_at_all(
    shop: Shop, point: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever repeats the request gets the only decision."""
    name, before, is_stored = new_name(), last_number(shop), point == "command.committed"
    asked = claim("ann", name, new_name())
    with dying_at(point, tmp_path, monkeypatch):
        shop.decide(asked)
    assert len(history.latest(shop.connection, 10, key=f"username:{name}")) == is_stored
    assert last_number(shop) == before + is_stored
    [decided] = shop.decide(asked)
    assert (decided.status, decided.answer["version"], last_number(shop)) == (ACCEPTED, 1, before + 1)
    assert len(history.latest(shop.connection, 10, key=f"username:{name}")) == 1


# --- repeated requests ------------------------------------------------------------------------------------


def test_the_same_request_has_the_same_decision(shop: Shop) -> None:
    name, key = new_name(), new_name()
    first, second = shop.decide(claim("ann", name, key), claim("ann", name, key))
    [again] = shop.decide(claim("ann", name, key))
    assert first == second == again
    assert first.status == ACCEPTED


def test_a_refusal_stays_a_refusal(shop: Shop) -> None:
    name, key = new_name(), new_name()
    shop.decide(claim("ann", name))
    [refused] = shop.decide(claim("bob", name, key))
    shop.decide(release("ann", name))
    assert shop.decide(claim("bob", name, key)) == [refused]
    assert statuses_of([refused, *shop.decide(claim("bob", name))]) == [REFUSED, ACCEPTED]


def test_a_right_expected_version_does_not_repeat_a_decision(shop: Shop) -> None:
    cart, key = new_name(), new_name()
    fields: dict[str, Any] = {"cart_id": cart, "visitor_id": "v", "product": "lamp", "quantity": 1}
    [first] = shop.decide(request("add_to_cart", key, **fields, expected_version=0))
    assert shop.decide(request("add_to_cart", key, **fields, expected_version=0)) == [first]
    [conflict] = shop.decide(request("add_to_cart", **fields, expected_version=0))
    assert (conflict.status, conflict.answer["version"]) == (CONFLICT, 1)


def test_an_idempotency_key_belongs_to_one_body_of_one_sender(shop: Shop) -> None:
    name, other, key = new_name(), new_name(), new_name()
    shop.decide(claim("ann", name, key))
    assert statuses_of(shop.decide(claim("ann", other, key))) == [422]
    assert shop.decide(claim("ann", other))[0].status == ACCEPTED
    foreign = request("claim_username", key, sender="another", username=new_name(), person_id="ann")
    assert statuses_of(shop.decide(foreign)) == [ACCEPTED]


@pytest.mark.parametrize("point", POINTS)
def test_two_bodies_with_one_idempotency_key_at_the_same_time(
    postgresql: Settings, shop: Shop, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They lock different keys, so both may find no record. One of them is stored."""
    key = new_name()
    with held_at(postgresql, point, monkeypatch, clients=2):
        decided = concurrently(postgresql, shop, [claim("ann", new_name(), key), claim("bob", new_name(), key)])
    assert sorted(statuses_of(decided)) == [ACCEPTED, 422]


# --- the state that a decision sees -----------------------------------------------------------------------


def test_a_decision_sees_what_is_accepted_and_what_bypassed_commands(shop: Shop) -> None:
    cart = new_name()
    fields: dict[str, Any] = {"cart_id": cart, "visitor_id": "v"}
    shop.bypass("cart_event", **fields, verb="added", product="chair", quantity=1)
    removal = request("remove_from_cart", **fields, product="chair")
    assert statuses_of(shop.decide(removal)) == [REFUSED]  # the reader has not seen it
    shop.decide(request("add_to_cart", **fields, product="lamp", quantity=1))
    shop.read()
    assert statuses_of(shop.decide(removal, request("remove_from_cart", **fields, product="lamp"))) == [ACCEPTED] * 2
    shop.publish()
    shop.read()
    [last] = shop.decide(request("check_out_cart", **fields))
    assert (last.answer["refused"], last.answer["version"]) == ("the cart is empty", 4)


def bad(*_: object) -> State:
    raise BadDeclaration("a defect")


def test_an_event_on_which_its_fold_fails_is_not_accepted(shop: Shop) -> None:
    """The reader of the log would fail on it for ever. No other command is answered as if it had failed."""
    cart = new_name()
    failing = replace(COMMANDS.commands["add_to_cart"], fold=Fold("cart_event", bad))
    shop.commands = Catalogue({"add_to_cart": failing})
    adding = request("add_to_cart", cart_id=cart, visitor_id="v", product="lamp", quantity=1, commands=shop.commands)
    for later in ((), (adding,)):
        with pytest.raises(FoldFailed, match="the fold of cart_event failed on an event: BadDeclaration"):
            shop.decide(adding, *later)
    assert history.latest(shop.connection, 10, key=cart) == []


def test_states_that_are_made_again_end_the_sessions(shop: Shop) -> None:
    generations, name = shop.generations, new_name()
    make_fold(shop.connection, CLAIM, COMMANDS.codes[CLAIM], uuid.uuid4().hex, {PARTITION: 0})
    with pytest.raises(FoldChanged):
        decide_all(shop.connection, COMMANDS, TYPES, generations, [claim("ann", name)])
    assert history.latest(shop.connection, 10, key=f"username:{name}") == []


PEOPLE, NAMES = st.sampled_from(["p1", "p2", "p3"]), st.sampled_from(["a", "b"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("claim"), PEOPLE, NAMES),
        st.tuples(st.just("release"), PEOPLE, NAMES),
        st.tuples(st.just("add"), st.sampled_from(["lamp", "chair"]), NAMES),
        st.tuples(st.just("remove"), st.sampled_from(["lamp", "chair"]), NAMES),
        st.tuples(st.just("bypass"), st.sampled_from(["added", "removed", "bad"]), NAMES),
        st.tuples(st.just("publish"), st.integers(1, 3), st.none()),
        st.tuples(st.just("read"), st.integers(1, 3), st.none()),
    ),
    max_size=25,
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(steps=STEPS)
def test_the_state_is_that_of_the_log_and_of_what_is_accepted(connection: Connection, steps: list[tuple]) -> None:  # type: ignore[type-arg]
    """After every step, the state of each key is what a loop over the log and the accepted events computes.

    At the end, the log alone gives the same states, and each claim in it has had an effect.
    """
    shop, suffix = Shop(connection), new_name()
    keys = [
        *(KeyName("cart_event", n + suffix) for n in "ab"),
        *(KeyName(CLAIM, f"username:{n}{suffix}") for n in "ab"),
    ]
    with connection.transaction():
        states.lock_keys(connection, keys)
    for step in steps:
        _take(shop, suffix, *step)
        require_state(shop, keys)
    shop.publish()
    require_state(shop, keys)
    shop.read()
    require_state(shop, keys)
    assert states.read_pending(connection, keys) == []
    held: dict[str, str] = {}
    for each in map(json.loads, shop.topics[CLAIM]):
        if each["verb"] == "claimed":
            assert held.setdefault(each["name"], each["holder"]) == each["holder"], "a name was granted twice"
        else:
            assert held.pop(each["name"]) == each["holder"], "a name was released by another"


def _take(shop: Shop, suffix: str, step: str, what: object, name: str | None) -> None:
    cart: dict[str, Any] = {"cart_id": f"{name}{suffix}", "visitor_id": "v"}
    if step == "claim":
        shop.decide(claim(str(what), f"{name}{suffix}"))
    elif step == "release":
        shop.decide(release(str(what), f"{name}{suffix}"))
    elif step == "add":
        shop.decide(request("add_to_cart", **cart, product=what, quantity=1))
    elif step == "remove":
        shop.decide(request("remove_from_cart", **cart, product=what))
    elif step == "bypass":
        fields: dict[str, Any] = {"verb": 5} if what == "bad" else {"verb": what, "product": "lamp", "quantity": 2}
        shop.bypass("cart_event", **cart, **fields)
    else:
        assert isinstance(what, int)
        (shop.publish if step == "publish" else shop.read)(what)


def require_state(shop: Shop, keys: list[KeyName]) -> None:
    """Compare the states with those of a loop over the records that were read, and over the events that are pending."""
    with shop.connection.transaction():
        found = states.current(shop.connection, TYPES, COMMANDS.folds, keys)
    pending = states.read_pending(shop.connection, keys)
    read = {name: shop.topics[name][: shop.readings[name].offsets[PARTITION]] for name in FOLDED}
    for name in keys:
        logged = [json.loads(value) for value in read[name.event]]
        key_field = TYPES[name.event].topic.key
        own = [each for each in logged if each[key_field] == name.key and isinstance(each["verb"], str)]
        assert not {each["event_id"] for each in own} & {each.event_id for each in pending}
        own_pending = [each for each in pending if KeyName(each.event, each.key) == name]
        fields = [{"product": None, "quantity": None, **each} for each in own] + payloads(TYPES, own_pending)
        naive: State = reduce(COMMANDS.folds[name.event].apply, fields, {})
        assert (found[name].state, found[name].version) == (naive, len(fields))
