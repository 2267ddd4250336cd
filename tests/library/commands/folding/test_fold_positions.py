"""Withdrawn states: their deletion beside decisions, and a reader that has not noticed yet."""

import uuid
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest

from tests.deadline import deadline, until
from tests.library.commands.decisions import COMMANDS, PARTITION, Shop, claim, request, statuses_of
from tests.library.commands.made_fold import make_fold
from truelog.commands.claims import CLAIM
from truelog.commands.decision import ACCEPTED
from truelog.commands.folding import fold_positions
from truelog.commands.folding.states import KeyName, lock_keys
from truelog.control import log_cuts
from truelog.control.command_states import withdraw
from truelog.log.leader_epochs import Cut
from truelog.storage.database import Connection, connect, read_value
from truelog.support.errors import PartitionsAdded, ServiceDown, Stale
from truelog.support.settings import Settings

CART, DELETE_PORTION = "cart_event", fold_positions._delete_portion


@pytest.fixture
def shop(connection: Connection) -> Shop:
    return Shop(connection)


def add_to_carts(shop: Shop, count: int) -> list[str]:
    carts = [uuid.uuid4().hex for _ in range(count)]
    fields: dict[str, Any] = {"visitor_id": "v", "product": "lamp", "quantity": 1}
    shop.decide(*(request("add_to_cart", cart_id=cart, **fields) for cart in carts))
    return carts


def test_the_deletion_of_states_waits_for_no_decision_and_holds_up_none(
    postgresql: Settings, shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A decision holds the lock of one of the carts, while others are made on claims."""
    monkeypatch.setattr(fold_positions, "_PORTION", 2)
    kept, *others = add_to_carts(shop, 7)
    name = f"n{uuid.uuid4().hex[:12]}"
    with (
        connect(postgresql, autocommit=True) as holder,
        connect(postgresql, autocommit=True) as reader,
        ThreadPoolExecutor(1) as pool,
    ):
        with holder.transaction():
            lock_keys(holder, [KeyName(CART, kept)])
            withdraw(shop.connection, [CART])
            made = pool.submit(make_fold, reader, CART, COMMANDS.codes[CART], shop.readings[CART].topic_id, {0: 0})
            until(lambda: require_deleted(shop, others), 30, "the deletion of the others")
            assert statuses_of(shop.decide(claim("ann", name))) == [ACCEPTED]
            assert not made.done()
        reading = made.result(deadline(30))
    assert reading.offsets == {PARTITION: 0}
    assert statuses_of(shop.decide(claim("bob", name))) == [409]
    require_deleted(shop, [kept])


def test_a_deletion_that_is_stopped_ends_after_its_portion(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fold does not begin before the rest is deleted."""
    monkeypatch.setattr(fold_positions, "_PORTION", 2)
    carts, stopped, query = add_to_carts(shop, 7), Event(), "SELECT count(*) FROM truelog.command_key WHERE event = %s"
    withdraw(shop.connection, [CART])
    before = read_value(shop.connection, query, (CART,))

    def delete_portion(connection: Connection, event: str) -> int:
        stopped.set()
        return DELETE_PORTION(connection, event)

    monkeypatch.setattr(fold_positions, "_delete_portion", delete_portion)
    for _ in range(2):  # the second one does nothing
        fold_positions.delete_withdrawn(shop.connection, CART, stopped)
    assert read_value(shop.connection, query, (CART,)) == before - 2
    origin = COMMANDS.codes[CART], shop.readings[CART].topic_id, {PARTITION: 0}
    assert fold_positions.begin_fold(shop.connection, CART, *origin) is None
    make_fold(shop.connection, CART, *origin)
    require_deleted(shop, carts)


def require_deleted(shop: Shop, carts: list[str]) -> None:
    query = "SELECT count(*) FROM truelog.command_key WHERE event = %s AND key = ANY(%s)"
    if count := read_value(shop.connection, query, (CART, carts)):
        raise ServiceDown(f"{count} are left")


def test_a_reader_from_before_the_withdrawal_is_refused_where_another_one_is_at_the_same_offset(shop: Shop) -> None:
    """Its event types may be of the former reading."""
    name = f"n{uuid.uuid4().hex[:12]}"
    shop.decide(claim("ann", name))
    shop.publish()
    before = shop.readings[CLAIM]
    withdraw(shop.connection, [CLAIM])
    after = make_fold(shop.connection, CLAIM, COMMANDS.codes[CLAIM], before.topic_id, {PARTITION: 0})
    assert after.offsets == before.offsets
    with pytest.raises(Stale):
        shop.read()
    shop.readings[CLAIM] = after
    shop.read()
    assert shop.decide(claim("bob", name))[0].answer["version"] == 1


def test_states_of_a_reader_that_went_on_are_deleted_before_a_fold_begins(shop: Shop) -> None:
    add_to_carts(shop, 1)
    shop.publish()
    shop.read()
    withdraw(shop.connection, [CART])
    reading = make_fold(shop.connection, CART, COMMANDS.codes[CART], uuid.uuid4().hex, {PARTITION: 0})
    assert read_value(shop.connection, "SELECT count(*) FROM truelog.command_key WHERE event = %s", (CART,)) == 0
    fold_positions.delete_withdrawn(shop.connection, CART, Event())  # by another reader, which comes late
    assert fold_positions.statuses(shop.connection)[CART].offsets == reading.offsets


def test_a_name_whose_claim_a_cut_has_lost_is_not_given_again(shop: Shop) -> None:
    """The claim was in the log, and the accepted cut begins with it. Records that the log still has count once."""
    names = [f"n{uuid.uuid4().hex[:12]}" for _ in range(2)]
    shop.decide(*(claim("ann", name) for name in names))
    shop.publish()
    shop.read()
    kept, _lost = shop.topics[CLAIM][-2:]
    before = shop.readings[CLAIM]
    end = before.offsets[PARTITION]
    log_cuts.record_cuts(shop.connection, [Cut(CLAIM, before.topic_id, PARTITION, 0, end - 2, 0)], "a test")
    [cut] = log_cuts.open_cuts(shop.connection)
    shop.topics[CLAIM] = [*shop.topics[CLAIM][:-2], kept]
    log_cuts.accept(shop.connection, cut, end - 2, "a test")
    shop.readings[CLAIM] = make_fold(shop.connection, CLAIM, COMMANDS.codes[CLAIM], before.topic_id, {PARTITION: 0})
    shop.read()
    assert statuses_of(shop.decide(*(claim("bob", name) for name in names))) == [409, 409]


def test_withdrawn_states_have_no_code_so_a_reader_of_an_earlier_release_deletes_them(shop: Shop) -> None:
    """It deletes states of other code, but not states without positions."""
    [cart] = add_to_carts(shop, 1)
    withdraw(shop.connection, [CART])
    query = "SELECT code FROM truelog.command_fold WHERE event = %s"
    assert read_value(shop.connection, query, (CART,)) == ""
    made = make_fold(shop.connection, CART, COMMANDS.codes[CART], shop.readings[CART].topic_id, {PARTITION: 0})
    assert (made.offsets, read_value(shop.connection, query, (CART,))) == ({PARTITION: 0}, COMMANDS.codes[CART])
    require_deleted(shop, [cart])


@pytest.mark.parametrize("code", [COMMANDS.codes[CART], "changed"])
def test_a_fold_does_not_go_on_when_its_topic_has_more_partitions(shop: Shop, code: str) -> None:
    """Later events of a key may be in another partition than the earlier ones, and be read before them."""
    before = shop.readings[CART]
    with pytest.raises(PartitionsAdded, match=r"partitions were added to cart_event \(1\)"):
        make_fold(shop.connection, CART, code, before.topic_id, {PARTITION: 0, 1: 0})
    again = make_fold(shop.connection, CART, COMMANDS.codes[CART], before.topic_id, {PARTITION: 0})
    assert (again.generation, again.offsets) == (before.generation, {PARTITION: 0})
