"""A process that starts during an outage waits for its services, as long as it may, and until it is stopped."""

import itertools
import logging
from threading import Event

import psycopg
import pytest

from truelog.support.errors import BadInput, ServiceDown
from truelog.support.wait import outlast


class Outage:
    """Raises these errors, one at each call, and then answers."""

    def __init__(self, *errors: Exception) -> None:
        self.left = list(errors)

    def __call__(self) -> str:
        if self.left:
            raise self.left.pop(0)
        return "the answer"


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("truelog.support.wait.OUTAGE_PAUSE", 0.0)


def test_a_start_waits_for_each_service_and_says_each_reason_once(caplog: pytest.LogCaptureFixture) -> None:
    down = psycopg.OperationalError("down\nin two lines"), ServiceDown("Kafka"), psycopg.OperationalError("starting")
    with caplog.at_level(logging.WARNING):
        prepared = list[str]()
        outage = Outage(down[0], down[0], *down[1:])
        assert outlast(outage, Event(), meanwhile=lambda: prepared.append("once")) == "the answer"
    assert prepared == ["once"]
    said = [each.removeprefix("a start waits for its services after ") for each in caplog.messages]
    assert said == ["OperationalError: down", "ServiceDown: Kafka", "OperationalError: starting"]


def test_a_reason_that_lasts_is_said_again_at_growing_intervals(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be a wrong password, which no time cures."""
    clock = itertools.count()
    monkeypatch.setattr("truelog.support.wait.time.monotonic", lambda: float(next(clock)))
    outlast(Outage(*[ServiceDown("a wrong password")] * 50), Event(), seconds=1000.0)
    assert 3 <= len(caplog.messages) <= 6
    assert {*caplog.messages} == {"a start waits for its services after ServiceDown: a wrong password"}


def test_a_start_waits_as_long_as_it_may_and_for_outages_alone() -> None:
    with pytest.raises(ServiceDown):
        outlast(Outage(ServiceDown("Kafka")), Event(), seconds=-1.0)
    with pytest.raises(ServiceDown):
        outlast(Outage(ServiceDown("Kafka")), Event(), (psycopg.OperationalError,))
    with pytest.raises(BadInput):
        outlast(Outage(BadInput("a wrong file")), Event())


def test_a_start_that_is_stopped_ends_with_the_outage() -> None:
    stop, outage = Event(), Outage(*[ServiceDown("Kafka")] * 3)

    def work() -> str:
        if len(outage.left) == 2:
            stop.set()
        return outage()

    with pytest.raises(ServiceDown):
        outlast(work, stop)
    assert len(outage.left) == 1
