"""A tick service that starts during an outage waits for PostgreSQL and Kafka."""

import threading
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from truelog.control import event_registry
from truelog.log import topics
from truelog.schema.names import TICKS
from truelog.services.ticks import service
from truelog.support.errors import BadInput, ServiceDown
from truelog.support.settings import Settings


class Outages:
    """Raises these errors, one at each call, and then answers."""

    def __init__(self, *errors: Exception) -> None:
        self.left = list(errors)

    def ask(self, answer: Any) -> Callable[..., Any]:
        def asked(*_: object) -> Any:
            if self.left:
                raise self.left.pop(0)
            return answer

        return asked


@pytest.fixture
def begin(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> Callable[..., Any]:
    def begun(*errors: Exception, stopped: threading.Event | None = None) -> Any:
        outages = Outages(*errors)
        monkeypatch.setattr(service, "_RETRY_SECONDS", 0.0)
        monkeypatch.setattr(event_registry, "event_types", outages.ask({TICKS: "the type"}))
        monkeypatch.setattr(topics, "require_log_append_time", outages.ask(None))
        monkeypatch.setattr(service, "newest_tick", outages.ask(None))
        monkeypatch.setattr(service, "ClockGuard", lambda *_: "the guard")
        return service._begin(settings, stopped or threading.Event())

    return begun


def test_a_start_waits_for_postgresql_and_for_kafka(begin: Callable[..., Any]) -> None:
    down = psycopg.OperationalError("down"), ServiceDown("kafka"), psycopg.OperationalError("starting")
    assert begin(*down) == ("the type", "the guard")


def test_a_start_that_is_stopped_ends(begin: Callable[..., Any]) -> None:
    stopped = threading.Event()
    stopped.set()
    assert begin(stopped=stopped) is None


def test_an_error_that_is_no_outage_ends_the_start(begin: Callable[..., Any]) -> None:
    with pytest.raises(BadInput):
        begin(BadInput("the topic has another kind of time"))
