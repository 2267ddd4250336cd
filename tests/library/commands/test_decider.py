"""The decider: how many commands wait, whose sender is gone, and a fold that fails on one of them."""

from collections.abc import Iterator
from dataclasses import replace
from uuid import uuid4

import pytest

from tests.library.commands.decisions import COMMANDS, TYPES, claim, request
from truelog.commands import decider
from truelog.commands.catalogue import Catalogue
from truelog.commands.decider import Decider
from truelog.commands.decision import ACCEPTED
from truelog.commands.declaration import Fold
from truelog.commands.folding.fold_positions import make_fold
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
def alone() -> Decider:
    """A decider that needs no service, because it begins no session."""
    return Decider(Settings(), COMMANDS, lambda: TYPES)


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
    yield found
    found.stop()


def test_a_fold_that_fails_on_one_command_holds_up_no_other(ready: Decider) -> None:
    cart, name = uuid4().hex, f"n{uuid4().hex[:12]}"
    adding = request("add_to_cart", cart_id=cart, visitor_id="v", product="lamp", quantity=1, commands=BROKEN)
    before, failed, after = (ready.submit(each) for each in (claim("ann", name), adding, claim("ann", f"{name}b")))
    ready.work()
    assert [each.result(0).status for each in (before, after)] == [ACCEPTED, ACCEPTED]
    assert failed.result(0).status == 500
    assert failed.result(0).answer == {"error": "the fold of cart_event failed on an event: ZeroDivisionError"}
