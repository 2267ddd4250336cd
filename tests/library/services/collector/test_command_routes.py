"""The routes for commands: how long a request waits for its decision, and the event types that they know."""

import asyncio
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import uvicorn
from starlette.requests import Request

from tests.builders.event_types import an_event_type, no_event_types
from tests.deadline import deadline, until
from tests.library.commands.decisions import COMMANDS, TYPES, claim
from truelog.commands.command_log import Stored
from truelog.commands.decider import Decider
from truelog.commands.request import CommandRequest
from truelog.services import http_server
from truelog.services.collector import command_routes
from truelog.services.collector.command_routes import CommandRoutes, decision
from truelog.storage.database import connect
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings


@dataclass
class Undecided(Decider):
    """A decider that no thread works for, so its commands wait. It needs no service."""

    waiting: list["Future[Stored]"] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(Settings(), COMMANDS, lambda: TYPES)

    def submit(self, request: CommandRequest) -> "Future[Stored]":
        self.waiting.append(super().submit(request))
        return self.waiting[-1]


async def stays() -> bool:
    return False


def test_a_command_that_waits_too_long_is_not_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_routes, "_LONGEST_SECONDS", 0.1)
    monkeypatch.setattr(command_routes, "_LOOK_SECONDS", 0.05)
    decider = Undecided()
    with pytest.raises(ServiceDown, match="The command is not decided"):
        asyncio.run(decision(decider, claim("ann"), stays))
    assert [each.cancelled() for each in decider.waiting] == [True]


def test_a_decision_that_has_begun_is_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its result would be unknown to the sender otherwise."""
    monkeypatch.setattr(command_routes, "_LONGEST_SECONDS", 0.0)
    monkeypatch.setattr(command_routes, "_LOOK_SECONDS", 0.05)
    decider, decided = Undecided(), Stored(409, {})

    async def begun() -> Stored:
        answer = asyncio.create_task(decision(decider, claim("ann"), stays))
        await asyncio.sleep(0)
        [waiting] = decider.waiting
        assert waiting.set_running_or_notify_cancel()
        await asyncio.wait([answer], timeout=0.2)
        waiting.set_result(decided)
        return await answer

    assert asyncio.run(begun()) == decided


def test_a_command_whose_sender_is_gone_is_not_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_routes, "_LOOK_SECONDS", 0.05)
    decider = Undecided()

    async def application(scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope, receive, send)
        await request.body()
        await decision(decider, claim("ann"), request.is_disconnected)

    with serving(application) as port:
        with socket.create_connection(("127.0.0.1", port)) as sender:
            sender.sendall(b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 2\r\n\r\n{}")
            until(lambda: require(len(decider.waiting) == 1), 30, "a command that waits")
            assert not decider.waiting[0].cancelled()
        until(lambda: require(decider.waiting[0].cancelled()), 30, "a cancelled command")


def test_the_known_event_types_stay_while_none_is_registered(postgresql: Settings) -> None:
    """A database in the middle of a restore has an empty registry. The thread that loads the types must not end."""

    async def unread(_: Request, parse: Callable[[bytes], CommandRequest]) -> CommandRequest:
        return parse(b"")

    with connect(postgresql, autocommit=True) as connection:
        for each in TYPES.values():
            an_event_type(connection, each, uuid.uuid4().hex)
        routes = CommandRoutes(postgresql, unread)
        known = routes._types
        no_event_types(connection)
        routes._reload_types()
        assert (routes._types.keys(), routes._types) == (TYPES.keys(), known)
        an_event_type(connection, TYPES["click"], uuid.uuid4().hex)
        routes._reload_types()
        assert list(routes._types) == ["click"]


def require(condition: bool) -> None:
    if not condition:
        raise ServiceDown("not yet")


@contextmanager
def serving(application: Any) -> Iterator[int]:
    """Serve the application with the protocol of the services, at the port."""
    config = uvicorn.Config(
        application, port=0, http=http_server.limited_protocol(deadline(10)), log_config=None, lifespan="off"
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()))
    thread.start()
    try:
        until(lambda: require(server.started), 30, "the server")
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        thread.join()
