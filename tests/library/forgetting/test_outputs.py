"""The outbox forgets the keys and rows of a person as soon as they are published. Readers of the topic miss nothing."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from uuid import uuid4

import pytest

from tests.builders.notifications import (
    forget_place,
    notifier_is_at,
    notifier_is_at_the_end,
    the_notifier_has_read,
)
from tests.deadline import until
from tests.library.forgetting.byte_search import places_with
from tests.library.forgetting.relayed import relayed
from tests.library.relay.published import Published, declared, deployed
from truelog.erasure.erasure import Erasure
from truelog.erasure.ledger import Entry, Step
from truelog.forgetting import outputs
from truelog.forgetting.outputs import forget_published
from truelog.forgetting.receipt import receipt_of
from truelog.log.positions import Positions
from truelog.relay.place import read_places
from truelog.storage.database import Connection
from truelog.support.errors import NotForgotten, ServiceDown
from truelog.support.settings import Settings
from truelog.tables import deploy

PERSON = "xanthippe-4711"


@pytest.fixture
def view(platform: Settings, connection: Connection) -> Iterator[Published]:
    made = deployed(platform, connection)
    yield made
    deploy.deploy_table(connection, declared(made.compiled.name, publish=False))


@pytest.mark.parametrize("others", [{}, {"p1": "1"}])
def test_nothing_is_left_in_the_outbox(platform: Settings, view: Published, others: dict[str, str]) -> None:
    view.change({PERSON: "7", **others})
    view.change({}, PERSON)
    assert places_with(platform, view.connection, [PERSON], ()) == ["truelog.outbox"]
    with relayed(platform):
        forget_published(platform, view.connection, [view.compiled])
        forget_published(platform, view.connection, [view.compiled])
        assert places_with(platform, view.connection, [PERSON], ()) == []
        view.change({"p2": "2"})
        forget_published(platform, view.connection, [view.compiled])  # waits for the relay
    view.require_read()
    assert len(view.rows()) == len(others) + 1


@pytest.mark.parametrize("others", [{}, {"p1": "1"}])
def test_without_a_relay_nothing_leaves_the_outbox(
    platform: Settings, view: Published, others: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outputs, "_RELAY_SECONDS", 0.1)
    view.change({PERSON: "7", **others})
    view.change({}, PERSON)
    for _ in range(2):
        with pytest.raises(NotForgotten, match="Start the services `relay`"):
            forget_published(platform, view.connection, [view.compiled])
    with relayed(platform):
        monkeypatch.undo()
        forget_published(platform, view.connection, [view.compiled])
    view.require_read()
    assert places_with(platform, view.connection, [PERSON], ()) == []


@pytest.mark.parametrize("others", [{}, {"p1": "1"}])
def test_the_row_that_is_published_once_more_is_no_news_to_the_notifier(
    platform: Settings, view: Published, others: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The notifier goes on behind it, once it has read what was before. Until then, nothing is published once more."""
    name = view.compiled.name
    view.change({PERSON: "7", **others})
    view.change({}, PERSON)
    end = view.number()
    try:
        with relayed(platform):
            the_notifier_has_read(view.connection, name, end - 1)
            with monkeypatch.context() as impatient:
                impatient.setattr(outputs, "_RELAY_SECONDS", 2.0)
                with pytest.raises(NotForgotten, match="the notifier has not read them"):
                    forget_published(platform, view.connection, [view.compiled])
            assert view.number() == end
            forget_place(view.connection, name)
            the_notifier_has_read(view.connection, name, end)
            forget_published(platform, view.connection, [view.compiled])
        assert view.number() == end + len(others)
        assert notifier_is_at_the_end(view.connection, name)
    finally:
        forget_place(view.connection, name)


def test_nothing_leaves_the_outbox_before_the_notifier_has_read_it(
    platform: Settings, view: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = view.compiled.name, view.compiled.view.version
    notifier_is_at(view.connection, *version, 0)
    view.change({PERSON: "7", "p1": "1"})
    view.change({}, PERSON)
    try:
        with relayed(platform):
            with monkeypatch.context() as impatient:
                impatient.setattr(outputs, "_RELAY_SECONDS", 2.0)
                with pytest.raises(NotForgotten, match="the notifier has not read them"):
                    forget_published(platform, view.connection, [view.compiled])
            assert places_with(platform, view.connection, [PERSON], ()) == ["truelog.outbox"]
            notifier_is_at(view.connection, *version, 1_000_000)
            forget_published(platform, view.connection, [view.compiled])
        assert places_with(platform, view.connection, [PERSON], ()) == []
    finally:
        forget_place(view.connection, view.compiled.name)


def test_what_is_published_meanwhile_waits_for_the_notifier(
    platform: Settings, view: Published, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The relay sends two more changes after the erasure has passed, and the notifier has read neither."""
    connection, version = view.connection, (view.compiled.name, view.compiled.view.version)
    notified = list[int]()

    def until_and_change(step: Callable[[], None], seconds: float, name: str) -> None:
        until(step, seconds, name)
        if notified:
            return
        notified.append(view.number())
        notifier_is_at(connection, *version, notified[0])
        for amount in "12":
            view.change({"p1": amount})
        until(partial(require_published, platform, view, notified[0] + 2), 30, "the relay")

    monkeypatch.setattr(outputs, "until", until_and_change)
    view.change({PERSON: "7", "p2": "1"})
    view.change({}, PERSON)
    try:
        with relayed(platform):
            forget_published(platform, connection, [view.compiled])
    finally:
        forget_place(connection, view.compiled.name)
    steps = connection.execute("SELECT last FROM truelog.output_step WHERE (view, version) = (%s, %s)", version)
    assert {number for (number,) in steps.fetchall()} >= {notified[0] + 1, notified[0] + 2}
    assert places_with(platform, connection, [PERSON], ()) == []


def require_published(settings: Settings, view: Published, number: int) -> None:
    place = read_places(settings).get(view.topic)
    if place is None or place.number < number:
        raise ServiceDown(f"{number} is not published")


def test_the_receipt_names_the_outputs_that_no_view_writes(platform: Settings, view: Published) -> None:
    now, erasure = datetime.now(UTC), Erasure(uuid4(), frozenset(), {}, Positions())
    entry = Entry(erasure, Step.PROVED, now, now, {})
    view.change({PERSON: "7"})
    with relayed(platform):
        forget_published(platform, view.connection, [view.compiled])
    assert view.topic not in receipt_of(platform, entry).unwritten
    deploy.deploy_table(view.connection, declared(view.compiled.name, publish=False))
    receipt = receipt_of(platform, entry)
    assert view.topic in receipt.as_dict()["unwritten_outputs"]
    assert any(view.topic in line and "Delete the topic" in line for line in receipt.rest)
