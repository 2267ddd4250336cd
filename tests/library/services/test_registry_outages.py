"""Each service that starts while PostgreSQL is down waits for it, ends if it is stopped, and serves when it is back.

Neither Kafka nor S3 answers either.
"""

import os
import signal
from importlib import import_module
from typing import Any

import pytest
import uvicorn

from tests.library.registered import registered
from tests.library.services.door import Door, closed_door
from truelog.services import registry
from truelog.services.declaration import Service
from truelog.support.settings import Settings

LOOKS = 4  # of a start, while PostgreSQL is down; libpq may look twice in a try


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("truelog.support.wait.OUTAGE_PAUSE", 0.05)


def start(monkeypatch: pytest.MonkeyPatch, door: Door, service: Service) -> None:
    """Run the service in this process, with PostgreSQL behind the door, until it ends."""
    monkeypatch.setenv("TRUELOG_DATABASE_HOST", "127.0.0.1")
    monkeypatch.setenv("TRUELOG_DATABASE_PORT", str(door.port))
    monkeypatch.setenv("TRUELOG_KAFKA_BOOTSTRAP", "127.0.0.1:1")
    monkeypatch.setenv("TRUELOG_S3_ENDPOINT", "http://127.0.0.1:1")
    import_module(service.module).main()


@pytest.mark.parametrize("service", registry.SERVICES, ids=lambda each: each.name)
def test_a_service_waits_for_postgresql_until_it_is_stopped(
    postgresql: Settings, monkeypatch: pytest.MonkeyPatch, service: Service
) -> None:
    def stop(door: Door) -> None:
        if door.looks == LOOKS:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(uvicorn, "run", None)  # nothing is served
    with closed_door(postgresql, stop) as door:
        start(monkeypatch, door, service)
        assert door.looks >= LOOKS


@pytest.mark.parametrize("service", [each for each in registry.SERVICES if each.http], ids=lambda each: each.name)
def test_a_service_serves_when_postgresql_is_back(
    postgresql: Settings, monkeypatch: pytest.MonkeyPatch, service: Service
) -> None:
    def let_in(door: Door) -> None:
        door.is_open = door.looks >= LOOKS

    served: list[Any] = []
    monkeypatch.setattr(uvicorn, "run", lambda application, **_: served.append(application))
    with registered(postgresql, "a topic"), closed_door(postgresql, let_in) as door:
        start(monkeypatch, door, service)
    assert served
    assert door.looks >= LOOKS
