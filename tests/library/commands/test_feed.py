"""The command log as a feed: its rows, and new numbers after a restore."""

import uuid
from collections.abc import Callable

import pytest

from tests.library.commands.decisions import Shop, claim
from truelog.commands.claims import CLAIM
from truelog.commands.feed import CommandFeed, begin_again
from truelog.relay.place import Place
from truelog.storage.database import Connection
from truelog.support.errors import Fenced, ServiceDown


def test_events_get_new_numbers_beyond_the_place_unless_they_are_in_the_log(connection: Connection) -> None:
    shop, name = Shop(connection), uuid.uuid4().hex[:12]
    shop.decide(claim("ann", f"{name}_a"))
    shop.publish()
    shop.read()
    shop.decide(claim("ann", f"{name}_b"), claim("ann", f"{name}_c"))
    before, waiting = shop.feed.beginning(), shop.feed.next_rows(shop.published + 1)
    place = Place(waiting[-1].number + 100, "of a lost row", before.id)
    begin_again(connection, before.id, place, unread())
    after = shop.feed.beginning()
    renumbered = [row for row in shop.feed.next_rows(after.number) if row.id in {each.id for each in waiting}]
    assert (after.id != before.id, after.number) == (True, place.number + 1)
    assert [row.id for row in renumbered] == [row.id for row in waiting]
    [decided] = shop.decide(claim("ann", f"{name}_d"))
    last = shop.feed.next_rows(after.number)[-1]
    assert shop.feed.id_of(last.number) == decided.answer["events"][0]["event_id"]


def unread(*missing: str) -> Callable[[list[str]], dict[str, str]]:
    return lambda events: {event: f"{event} is behind." for event in missing if event in events}


def test_events_of_states_that_are_not_confirmed_get_no_new_numbers(connection: Connection) -> None:
    """They may be in the log already, so another number would publish them a second time."""
    shop, name = Shop(connection), uuid.uuid4().hex[:12]
    shop.decide(claim("ann", name))
    before, waiting = shop.feed.beginning(), shop.feed.next_rows(shop.published + 1)
    with pytest.raises(ServiceDown, match=r"events of claim may be in the log already, .* claim is behind\."):
        begin_again(connection, before.id, None, unread(CLAIM))
    assert (shop.feed.beginning(), shop.feed.next_rows(shop.published + 1)) == (before, waiting)
    assert waiting
    begin_again(connection, before.id, None, unread("cart_event"))  # no event of this type waits
    assert shop.feed.beginning() != before


def test_a_second_service_gives_no_new_numbers_to_events_that_the_first_has_published(connection: Connection) -> None:
    """Both have seen that the database has another history, and the states contain none of the events yet."""
    shop, name = Shop(connection), uuid.uuid4().hex[:12]
    shop.decide(claim("ann", name))
    feeds = CommandFeed(connection), CommandFeed(connection)
    place = Place(feeds[0].next_rows(shop.published + 1)[-1].number + 100, "of a lost row", "")
    for each in feeds:
        each.beginning()
    begin_again(connection, feeds[0].begun, place, unread())
    shop.publish()
    after = shop.feed.beginning()
    with pytest.raises(Fenced, match="another service `commands` has given new numbers"):
        begin_again(connection, feeds[1].begun, place, unread())
    assert shop.feed.beginning() == after
    assert not shop.feed.next_rows(shop.published + 1)


def test_numbers_have_no_holes(connection: Connection) -> None:
    shop, name = Shop(connection), f"n{uuid.uuid4().hex[:12]}"
    shop.decide(claim("ann", name), claim("bob", name), claim("ann", f"{name}_b"))
    shop.decide(claim("bob", name))
    shop.decide(claim("ann", f"{name}_c"))
    assert [row.number for row in shop.feed.next_rows(shop.published + 1)] == [shop.published + n for n in (1, 2, 3)]
