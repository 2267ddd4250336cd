"""The decider: how many commands wait, whose sender is gone, and a fold that fails on one of them."""

import socket
from collections.abc import Iterator
from dataclasses import replace
from uuid import uuid4

import pytest

from tests.deadline import deadline, until
from tests.library.commands.decisions import COMMANDS, TYPES, claim, request, require_accepted
from tests.library.commands.made_fold import make_fold
from truelog.commands import decider
from truelog.commands.catalogue import Catalogue
from truelog.commands.decider import Decider
from truelog.commands.decision import ACCEPTED
from truelog.commands.declaration import Fold
from truelog.control.command_states import withdraw
from truelog.log import topics
from truelog.storage.database import connect
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings

FAILING = Fold("cart_event", lambda *_: {"quantity": 1 // 0})
BROKEN = Catalogue(
    {
        name: replace(each, fold=FAILING) if each.fold.event == "cart_event" else each
        for name, each in COMMANDS.commands.items()
    }
)


@pytest.fixture
def alone(postgresql: Settings) -> Decider:
    """A decider that needs no service, because it begins no session."""
    return Decider(postgresql, COMMANDS, lambda: TYPES)


def test_a_command_beyond_the_most_that_wait_is_refused(alone: Decider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decider, "_MOST_WAITING", 3)
    waiting = [alone.submit(claim("ann")) for _ in range(3)]
    with pytest.raises(ServiceDown, match="3 commands wait for a decision already"):
        alone.submit(claim("ann"))
    assert not any(each.done() for each in waiting)


def test_a_command_that_was_cancelled_is_not_decided(alone: Decider) -> None:
    cancelled = alone.submit(claim("ann"))
    assert cancelled.cancel()
    alone.work()  # a session would need a service


@pytest.fixture
def ready(platform: Settings) -> Iterator[Decider]:
    """A decider with a fold that fails. All states contain the log."""
    ends = topics.end_offsets(platform, BROKEN.folds)
    with connect(platform, autocommit=True) as connection:
        for event, code in BROKEN.codes.items():
            make_fold(connection, event, code, ends.ids[event], dict(ends.offsets[event]))
    found = Decider(platform, BROKEN, lambda: TYPES)
    until(lambda: require_accepted(found, claim("ann", new_name())), 30, "confirmed states")
    yield found
    found.stop()


def new_name() -> str:
    return f"n{uuid4().hex[:12]}"


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """A server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def test_an_outage_of_kafka_holds_up_no_decision_on_confirmed_states(
    ready: Decider, platform: Settings, silent: socket.socket
) -> None:
    """Kafka is asked about the carts, whose states are withdrawn, for seconds. Claims are decided meanwhile."""
    assert ready._session is not None
    confirmation = ready._session._confirmation
    confirmation._settings = platform.model_copy(update={"kafka_bootstrap": f"127.0.0.1:{silent.getsockname()[1]}"})
    ends = topics.end_offsets(platform, ["cart_event"])
    with connect(platform, autocommit=True) as connection:
        withdraw(connection, ["cart_event"])
        code, first = BROKEN.codes["cart_event"], dict(ends.offsets["cart_event"])
        make_fold(connection, "cart_event", code, ends.ids["cart_event"], first)
    adding = request("add_to_cart", cart_id="c", visitor_id="v", product="lamp", quantity=1, commands=BROKEN)
    for is_asking in (False, True):
        if is_asking:
            silent.settimeout(deadline(30))
            asked, _ = silent.accept()
        before = dict(confirmation._answers)
        refused, accepted = ready.submit(adding), ready.submit(claim("ann", new_name()))
        ready.work()
        with pytest.raises(ServiceDown, match="The states of cart_event are being made again"):
            refused.result(0)
        assert accepted.result(0).status == ACCEPTED
    assert confirmation._answers == before  # Kafka has not answered yet
    asked.close()


def test_a_fold_that_fails_on_one_command_holds_up_no_other(ready: Decider) -> None:
    cart, name = uuid4().hex, f"n{uuid4().hex[:12]}"
    adding = request("add_to_cart", cart_id=cart, visitor_id="v", product="lamp", quantity=1, commands=BROKEN)
    before, failed, after = (ready.submit(each) for each in (claim("ann", name), adding, claim("ann", f"{name}b")))
    ready.work()
    assert [each.result(0).status for each in (before, after)] == [ACCEPTED, ACCEPTED]
    assert failed.result(0).status == 500
    assert failed.result(0).answer == {"error": "the fold of cart_event failed on an event: ZeroDivisionError"}
