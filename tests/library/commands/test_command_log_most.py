"""A command that allows a number of keys: no interleaving gives a state to more of them."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.builders.commands import forget_commands
from tests.library.commands.barrier import concurrently, held_at
from tests.library.commands.decisions import COMMANDS, Shop, claim, release
from truelog.commands.decision import ACCEPTED, REFUSED
from truelog.commands.folding import states
from truelog.commands.request import CommandRequest
from truelog.storage.api_key import Role
from truelog.storage.database import Connection
from truelog.support.settings import Settings

MOST, CLIENTS = 3, 8
POINTS = ("command.locked", "command.read", "command.written")


def shop_for(connection: Connection, most: int = MOST) -> Shop:
    """A shop in which so many usernames are claimed at a time."""
    forget_commands(connection)
    claiming = replace(COMMANDS.commands["claim_username"], most=most)
    return Shop(connection, replace(COMMANDS, commands={**COMMANDS.commands, "claim_username": claiming}))


def claimed(shop: Shop, name: str) -> CommandRequest:
    return replace(claim("ann", name), command=shop.commands.commands["claim_username"])


def at_once(settings: Settings, shop: Shop, point: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many of some claimants get a name, if each claims another name and all meet at a point."""
    with held_at(settings, point, monkeypatch, clients=CLIENTS):
        decided = concurrently(settings, shop, [claimed(shop, f"n{number}") for number in range(CLIENTS)])
    assert {each.status for each in decided} == {ACCEPTED, REFUSED}
    return sum(each.status == ACCEPTED for each in decided)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["claim", "claim", "release", "read"]), st.sampled_from("abcde")), max_size=20
    )
)
def test_a_further_key_is_refused_exactly_while_so_many_are_in_use(
    connection: Connection, steps: list[tuple[str, str]]
) -> None:
    """A released name is in use until the release is read in the log."""
    shop, held, in_use = shop_for(connection), set[str](), set[str]()
    for step, name in steps:
        if step == "claim":
            [decided] = shop.decide(claimed(shop, name))
            accepted = name not in held and len(in_use) < MOST
            assert (decided.status == ACCEPTED) is accepted, decided
            if name not in held and not accepted:
                assert (
                    decided.answer["refused"] == "claim: 3 are in force, and claim_username allows 3; retire one first"
                )
            if accepted:
                held.add(name)
                in_use.add(name)
        elif step == "release":
            shop.decide(release("ann", name))
            held.discard(name)
        else:
            shop.publish()
            shop.read()
            in_use = set(held)


@pytest.mark.parametrize("point", POINTS)
def test_claimants_at_the_same_time_get_no_more_keys(
    postgresql: Settings, connection: Connection, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert at_once(postgresql, shop_for(connection), point, monkeypatch) == MOST


def test_without_the_lock_the_same_test_finds_too_many_keys(
    postgresql: Settings, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted defect: each session counts, and others go on meanwhile."""
    shop = shop_for(connection, CLIENTS - 1)
    shop.decide(*(claimed(shop, f"m{number}") for number in range(CLIENTS - 1 - MOST)))
    monkeypatch.setattr(states, "lock_count", lambda *_: None)
    with held_at(postgresql, "command.read", monkeypatch, clients=CLIENTS):
        decided = concurrently(postgresql, shop, [claimed(shop, f"n{number}") for number in range(CLIENTS)])
    assert sum(each.status == ACCEPTED for each in decided) > MOST


def test_commands_of_one_transaction_get_no_more_keys(connection: Connection) -> None:
    shop = shop_for(connection)
    decided = shop.decide(*(claimed(shop, name) for name in "abcabd"))
    assert [each.status for each in decided] == [ACCEPTED, ACCEPTED, ACCEPTED, REFUSED, REFUSED, REFUSED]
    assert "already has" in decided[4].answer["refused"]
    assert "retire one first" in decided[5].answer["refused"]


def test_only_editors_change_what_judges_events_and_its_number_has_a_limit() -> None:
    """Whatever adds a rule, a search or a notification rule needs the right to do so, and so does its end."""
    changing = {name for name, each in COMMANDS.commands.items() if each.role is Role.EDITOR}
    assert changing == {f"{verb}_{what}" for verb in ("set", "retire") for what in ("rule", "search", "notification")}
    most = {name: each.most for name, each in COMMANDS.commands.items() if each.most is not None}
    assert most.keys() == {"set_rule", "set_search", "set_notification"}
