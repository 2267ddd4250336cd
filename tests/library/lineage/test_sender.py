"""A server that hangs, fails or is away holds nothing up, and what it misses is counted and logged once."""

import logging
import time
from collections.abc import Iterator
from functools import partial

import pytest

from tests.deadline import deadline, until
from tests.library.listener import FAILS, HANGS, REFUSES, TAKES, Listener, listening
from truelog.lineage import sender
from truelog.lineage.sender import Sender, sender_of
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings


@pytest.fixture
def listener() -> Iterator[Listener]:
    with listening() as made:
        yield made


def to(listener: Listener, **limits: int) -> Sender:
    return Sender(f"{listener.url}/", "a-key", deadline(5), **limits)


def require_flushed(made: Sender) -> None:
    assert made.flush(deadline(20))


def test_events_arrive_in_order_with_the_key(listener: Listener) -> None:
    made = to(listener)
    for number in range(20):
        made.send(partial(dict, number=number))
    require_flushed(made)
    assert listener.taken == [{"number": number} for number in range(20)]
    assert set(listener.paths) == {"/api/v1/lineage"}
    assert {each["Authorization"] for each in listener.headers} == {"Bearer a-key"}
    assert (made.sent, made.dropped) == (20, 0)


@pytest.mark.parametrize("mood", [FAILS, REFUSES])
def test_a_server_that_fails_costs_events_and_is_logged_once(
    listener: Listener, mood: str, caplog: pytest.LogCaptureFixture
) -> None:
    made, listener.mood = to(listener), mood
    for _ in range(5):
        made.send(dict)
    require_flushed(made)
    assert (made.sent, made.dropped) == (0, 5)
    [warning] = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert listener.url not in warning.getMessage(), "an address may contain a secret"

    listener.mood = TAKES
    with caplog.at_level(logging.INFO, "truelog.lineage"):
        made.send(dict)
        require_flushed(made)
    assert (made.sent, made.dropped) == (1, 5)
    assert "has dropped 5 so far" in caplog.records[-1].getMessage()


def test_no_server_holds_up_the_caller(listener: Listener) -> None:
    """The queue has room for ten events. The hanging server has one of them, and the others that come are dropped."""
    made, listener.mood = to(listener, room=10), HANGS
    made.send(dict)
    until(lambda: _require(listener.asked), 10, "the first request")
    began = time.monotonic()
    for _ in range(10_000):
        made.send(dict)
    assert made.dropped == 10_000 - 10
    assert not made.flush(0.05)
    assert time.monotonic() - began < deadline(2), "the server answers after minutes"
    listener.away()


def test_an_event_that_cannot_be_made_is_dropped_alone(listener: Listener) -> None:
    made = to(listener)
    made.send(lambda: {"number": 1 / 0})
    made.send(dict)
    require_flushed(made)
    assert (made.sent, made.dropped) == (1, 1)


def test_without_an_address_there_is_no_sender(settings: Settings, listener: Listener) -> None:
    assert sender_of(settings) is None
    sender.flush(settings)
    on = settings.model_copy(update={"openlineage_url": type(settings.api_token_secret)(listener.url)})
    assert sender_of(on) is sender_of(on)


def _require(so: object) -> None:
    if not so:
        raise ServiceDown("not yet")
