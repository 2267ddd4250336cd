"""The reader of the folds: a second reader, and copies of accepted events."""

import json
import uuid
from copy import deepcopy

import pytest

from tests.library.commands.decisions import Shop, claim, statuses_of
from truelog.commands import history
from truelog.commands.claims import CLAIM
from truelog.commands.decision import ACCEPTED, REFUSED
from truelog.storage.database import Connection
from truelog.support.errors import Stale


@pytest.fixture
def shop(connection: Connection) -> Shop:
    return Shop(connection)


def new_name() -> str:
    return f"n{uuid.uuid4().hex[:12]}"


def test_a_second_reader_is_refused(shop: Shop) -> None:
    name, before = new_name(), deepcopy(shop.readings)
    shop.decide(claim("ann", name))
    shop.publish()
    shop.read()
    shop.readings = before
    with pytest.raises(Stale, match="another reader"):
        shop.read()
    [decided] = shop.decide(claim("bob", name))
    assert (decided.status, decided.answer["version"]) == (REFUSED, 1)


def test_an_event_with_the_id_of_an_accepted_event_is_not_that_event(shop: Shop) -> None:
    """A producer that repeats the id does not make an accepted event count as published."""
    name = new_name()
    shop.decide(claim("ann", name))
    [row] = [each for each in shop.feed.next_rows(shop.published + 1) if each.topic == CLAIM]
    shop.bypass(CLAIM, **json.loads(row.value or b"") | {"holder": "eve"})
    shop.read()
    [decided] = history.latest(shop.connection, 1, key=f"username:{name}")
    assert not decided.is_in_log
    shop.publish()
    shop.read()
    [decided] = history.latest(shop.connection, 1, key=f"username:{name}")
    assert (decided.is_in_log, decided.said) == (True, "log")
    assert statuses_of(shop.decide(claim("bob", name))) == [REFUSED]


def test_a_record_that_is_no_valid_event_changes_no_state(shop: Shop) -> None:
    name = new_name()
    shop.bypass(CLAIM, name=f"username:{name}", verb=5, holder="eve")
    shop.topics[CLAIM] += [b"\xff", rb'{"event_id": "\ud800"}', rb'{"event_id": "\u0000"}', b'{"event_id": 5}', b"[]"]
    shop.read()
    assert statuses_of(shop.decide(claim("ann", name))) == [ACCEPTED]
