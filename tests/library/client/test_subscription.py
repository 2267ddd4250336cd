"""A stream of events, without the network: its pieces, and the place of the next request."""

import itertools
import json
from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from truelog.client.exchange import Addresses
from truelog.client.subscription import Subscription, subscribing
from truelog.client.update import Change, Update

GIVEN, NEWER = "1.1.of-the-caller", "1.3.of-the-service"
PIECE = 1_460  # bytes, as a packet of a network has them


def subscription(**asked: Any) -> Subscription:
    return subscribing(Addresses(api="http://a"), "cart", asked, 30.0)


def event(name: str, identity: str, **data: Any) -> bytes:
    return f"event: {name}\nid: {identity}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n".encode()


def rows(identity: str, *products: str) -> bytes:
    found = [{"product": each} for each in products]
    return event("rows", identity, version=1, number=3, positions={}, key=["product"], rows=found)


def heartbeat(identity: str) -> bytes:
    return f":\nid: {identity}\n\n".encode()


def resync(identity: str) -> bytes:
    return event("resync", identity, reason="a test", number=None)


STREAM = (
    resync("")
    + rows("1.3.a", "p1", "p2 \u2028 \x85 \r \n", "ü" * 50)
    + heartbeat("1.4.b")
    + event("change", "1.5.c", number=5, positions={}, at="2026-01-01T00:00:00Z", changes=[])
)


def read(pieces: list[bytes]) -> tuple[list[Update], str | None]:
    """The updates of a stream, and the place after them."""
    found = subscription()
    return [update for piece in pieces for update in found.updates(piece)], found._place


@given(st.lists(st.integers(0, len(STREAM))))
def test_the_pieces_of_a_stream_do_not_matter(cuts: list[int]) -> None:
    pieces = [STREAM[begin:end] for begin, end in itertools.pairwise([0, *sorted(cuts), len(STREAM)])]
    updates, place = read([STREAM])
    assert [(each.is_whole, each.number, len(each.changes)) for each in updates] == [(True, 3, 3), (False, 5, 0)]
    assert read(pieces) == (updates, place)
    assert place == "1.5.c"


def test_a_decimal_in_a_key_keeps_its_digits() -> None:
    price, table = "0.12345678901234567890", dict[str, Mapping[str, Any]]()
    row = {"price": 1, "at": "ü"}
    told = event("rows", "1.1.a", version=1, number=1, positions={}, key=list(row), rows=[row])
    [first] = subscription().updates(told.replace(b'"price": 1', f'"price": {price}'.encode()))
    first.apply(table)
    [[key, shown]] = table.items()
    assert json.loads(key, parse_float=Decimal) == shown == {"price": Decimal(price), "at": "ü"}
    replace(first, is_whole=False, changes=(Change(first.changes[0].key, None),)).apply(table)
    assert table == {}


def test_each_byte_of_a_large_event_is_joined_once() -> None:
    stream = rows("1.3.a", *("x" * 10_000 for _ in range(100)))
    found, joined = subscription(), 0
    for at in range(0, len(stream), PIECE):
        held = found._rest
        list(found.updates(stream[at : at + PIECE]))
        joined += sum(map(len, held)) if found._rest is not held else 0  # a join makes a new list
    assert found._place == "1.3.a"
    assert len(stream) <= joined < len(stream) + 2 * PIECE


def test_the_place_of_the_caller_is_for_the_first_request() -> None:
    arguments = subscription(where=["product=p1"], last_event_id=GIVEN).arguments
    assert arguments["params"] == [("where", "product=p1"), ("last_event_id", GIVEN)]
    assert "Last-Event-ID" not in arguments["headers"]


@pytest.mark.parametrize(
    "identity", [NEWER, "resync", "yesterday", "a: b", "0", "2.18.6f1c0c5e-9a53-4a1e-8f0b-3f3c6a8b6d11"]
)
@pytest.mark.parametrize("told", [resync, rows, heartbeat])
def test_the_next_request_has_the_last_id_unchanged(told: Any, identity: str) -> None:
    """The service may have no place of this name. The place of the caller is not sent again."""
    found = subscription(where=["product=p1"], last_event_id=GIVEN)
    list(found.updates(rows("1.2.of-the-service") + told(identity)))
    for _ in range(2):
        assert found.arguments["headers"]["Last-Event-ID"] == identity
        assert found.arguments["params"] == [("where", "product=p1")]


def test_an_empty_id_ends_every_place() -> None:
    """The service answers a request without a place with all rows."""
    found = subscription(last_event_id=GIVEN)
    assert list(found.updates(resync(""))) == []
    assert "Last-Event-ID" not in found.arguments["headers"]
    assert found.arguments["params"] == []
