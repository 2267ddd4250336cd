"""The command log on PostgreSQL: concurrent decisions, repeated requests, and the state that a decision sees."""

import json
import threading
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.deadline import deadline, until
from tests.library.commands.decisions import (
    COMMANDS,
    FOLDED,
    PARTITION,
    TYPES,
    Shop,
    claim,
    release,
    request,
    statuses_of,
)
from truelog.commands import command_log, history
from truelog.commands.claims import CLAIM
from truelog.commands.command_log import FoldChanged, Stored, decide_all
from truelog.commands.decision import ACCEPTED, CONFLICT, REFUSED
from truelog.commands.declaration import State
from truelog.commands.events import payloads
from truelog.commands.folding import states
from truelog.commands.folding.fold_positions import make_fold
from truelog.commands.folding.states import KeyName
from truelog.commands.request import CommandRequest
from truelog.storage.database import Connection, connect, read_value
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings

CLIENTS = 16
POINTS = (
    "command.made",
    "command.locked",
    "command.confirmed",
    "command.remembered",
    "command.read",
    "command.numbered",
    "command.decided",
    "command.written",
)


@pytest.fixture
def shop(connection: Connection) -> Shop:
    return Shop(connection)


def new_name() -> str:
    return f"n{uuid.uuid4().hex[:12]}"


# --- concurrent decisions ---------------------------------------------------------------------------------


@dataclass
class Barrier:
    """Holds each client at a point until every client has ended, has arrived there, or waits for a lock."""

    connection: Connection
    clients: int
    arrived: int = 0
    ended: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def wait(self) -> None:
        with self.lock:
            self.arrived += 1
        until(self._require_full, 30, "each client at the barrier, at its end, or at a lock")
        with self.lock:
            self.arrived -= 1
            self.ended += 1  # past the barrier, where it no longer matters

    def _require_full(self) -> None:
        with self.lock:
            blocked = read_value(
                self.connection,
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()",
            )
            if self.arrived + self.ended + blocked < self.clients:
                raise ServiceDown(f"{self.arrived} clients have arrived, and {blocked} wait for a lock")


@contextmanager
def held_at(settings: Settings, point: str, monkeypatch: pytest.MonkeyPatch, clients: int = CLIENTS) -> Iterator[None]:
    with connect(settings, autocommit=True) as connection, monkeypatch.context() as patched:
        barrier, passed = Barrier(connection, clients), threading.local()

        def reach(reached: str) -> None:
            if reached == point and not getattr(passed, "once", False):
                passed.once = True
                barrier.wait()

        patched.setattr(command_log, "reach", reach)
        patched.setattr(states, "reach", reach)
        yield


def concurrently(settings: Settings, shop: Shop, commands: list[CommandRequest]) -> list[Stored]:
    """Each command is decided in a session of its own, all at the same time."""
    generations = shop.generations

    def decide(command: CommandRequest) -> Stored:
        with connect(settings, autocommit=True) as connection:
            [decided] = decide_all(connection, COMMANDS, TYPES, generations, [command])
            return decided

    with ThreadPoolExecutor(len(commands)) as pool:
        return list(pool.map(decide, commands, timeout=deadline(60)))


def require_one_winner(settings: Settings, shop: Shop, name: str) -> None:
    before = last_number(shop)
    decided = concurrently(settings, shop, [claim(f"p{n}", name) for n in range(CLIENTS)])
    won = [each for each in decided if each.status == ACCEPTED]
    assert len(won) == 1, f"{len(won)} clients have the same name"
    assert {each.answer["version"] for each in decided} == {1}
    assert last_number(shop) == before + 1, "a loser has drawn a number"


def last_number(shop: Shop) -> int:
    return max((row.number for row in shop.feed.next_rows(shop.published + 1)), default=shop.published)


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
