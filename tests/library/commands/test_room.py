"""The room for accepted events: commands are refused while too many of their events wait for the log."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.builders.commands import forget_commands
from tests.library.commands.decisions import Shop, claim
from truelog.commands import room
from truelog.commands.room import Room
from truelog.storage.database import Connection
from truelog.support.errors import NoRoom

MOST = 3


def has_room(checked: Room, connection: Connection) -> bool:
    try:
        checked.require(connection)
    except NoRoom:
        return False
    return True


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.sampled_from(["claim", "publish", "read"]), min_size=8, max_size=24))
def test_there_is_room_exactly_while_few_events_wait(
    connection: Connection, monkeypatch: pytest.MonkeyPatch, steps: list[str]
) -> None:
    """An event waits from its decision until it is read in the log, whenever it is published."""
    monkeypatch.setattr(room, "_LOOK_SECONDS", 0.0)
    forget_commands(connection)
    shop, checked, accepted, published, read = Shop(connection), Room(MOST), 0, 0, 0
    for step in steps:
        assert has_room(checked, connection) is (accepted - read < MOST)
        if step == "claim" and has_room(checked, connection):
            shop.decide(claim("ann", f"name{accepted}"))
            accepted += 1
        elif step == "publish":
            shop.publish()
            published = accepted
        elif step == "read":
            shop.read()
            read = published
        assert accepted - read <= MOST


def test_the_number_is_looked_up_at_intervals(connection: Connection) -> None:
    forget_commands(connection)
    shop, checked = Shop(connection), Room(1)
    checked.require(connection)
    shop.decide(claim("ann"))
    checked.require(connection)  # it does not look again so soon
    with pytest.raises(NoRoom, match=r"1 events of accepted commands wait for the log.*allows 1\. Is Kafka down"):
        Room(1).require(connection)
