"""The spans of what the API pushes: those of sampled transactions, however late the relay finds their traces."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from tests.builders.outputs import store_trace
from tests.library.listener import Listener, listening
from tests.library.relay.published import Published
from tests.library.relay.received import received, wait_for
from tests.library.services.api.streaming import Served, Stream, serving
from truelog.services.api.changes import push_spans
from truelog.storage.database import Connection
from truelog.support.settings import Settings

MERGE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.fixture(scope="module")
def receiver() -> Iterator[Listener]:
    with listening() as listener:
        yield listener


@pytest.fixture
def traced(postgresql: Settings, receiver: Listener, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """An API with a receiver of spans."""
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "50")
    with serving(postgresql, spans_endpoint=receiver.url) as served:
        yield served


def change(view: Published, told: Stream, number: int) -> None:
    """The transaction that ends with this row, which the subscriber gets."""
    view.change({"p1": str(number)})
    told.read_to(number)


def test_only_a_sampled_transaction_has_a_span(
    traced: Served, receiver: Listener, view: Published, connection: Connection
) -> None:
    name = view.compiled.name
    with traced.following(name) as told, traced.following(name) as other:
        told.next()
        other.next()
        change(view, told, 1)
        change(view, told, 2)
        store_trace(connection, name, 2, MERGE)
        push = wait_for(receiver, f"push {name}")[f"push {name}"]
    assert (push.trace, push.parent, push.begin <= push.end) == (MERGE[3:35], MERGE[36:52], True)
    assert push.attributes["truelog.number"] == 2
    assert push.attributes["truelog.subscribers"] == 2


def test_the_end_of_the_service_sends_what_is_left(
    postgresql: Settings, receiver: Listener, view: Published, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(push_spans, "_LOOK_SECONDS", 600.0)
    name = view.compiled.name
    with serving(postgresql, spans_endpoint=receiver.url) as served, served.following(name) as told:
        told.next()
        change(view, told, 1)
        change(view, told, 2)
        store_trace(connection, name, 2, MERGE)
    assert [each.name for each in received(receiver)].count(f"push {name}") == 1


def test_what_nobody_samples_is_forgotten(traced: Served, view: Published, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push_spans, "_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(push_spans, "_KEPT", timedelta(0))
    with traced.following(view.compiled.name) as told:
        told.next()
        change(view, told, 1)
        change(view, told, 2)
        assert len(traced.subscriptions._pushed._waiting) <= 1


def test_without_a_receiver_nothing_is_remembered(api: Served, view: Published) -> None:
    with api.following(view.compiled.name) as told:
        told.next()
        change(view, told, 1)
        assert not api.subscriptions._pushed._waiting
