"""The HTTP server: a client may take a large answer slowly, and a client that takes nothing loses its connection."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import uvicorn

from tests.deadline import deadline, until
from truelog.services import http_server
from truelog.support.errors import ServiceDown

LARGE = 8 * 2**20  # bytes of an answer, more than the kernel's buffers have room for
PORTION = 16 * 2**10  # bytes that a slow client takes at once
TAKE = deadline(0.5)  # seconds in which a client must take something


async def application(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", str(LARGE).encode())]})
    await send({"type": "http.response.body", "body": b"x" * LARGE})


@pytest.fixture(scope="module", params=["asyncio", "uvloop"])
def server(request: pytest.FixtureRequest) -> Iterator[uvicorn.Server]:
    """A server with the protocol of the services, which run on uvloop where it is installed."""
    protocol = http_server.limited_protocol(deadline(10), TAKE)
    made = uvicorn.Server(
        uvicorn.Config(application, port=0, http=protocol, loop=request.param, log_config=None, lifespan="off")
    )
    thread = threading.Thread(target=made.run)
    thread.start()
    try:
        until(lambda: require(made.started), 30, "the server")
        yield made
    finally:
        made.should_exit = True
        thread.join()


@contextmanager
def asking(server: uvicorn.Server) -> Iterator[socket.socket]:
    """A client that has asked for the large answer, and has a small buffer."""
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**16)
        client.settimeout(deadline(30))
        client.connect(server.servers[0].sockets[0].getsockname())
        client.sendall(b"GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n")
        yield client


def require(condition: bool) -> None:
    if not condition:
        raise ServiceDown("not yet")


def taken(client: socket.socket, most: int) -> int:
    """How many bytes a client has read. Fewer than `most` if the connection has ended."""
    count = 0
    while count < most:
        try:
            data = client.recv(most - count)
        except ConnectionResetError:
            data = b""
        if not data:
            break
        count += len(data)
    return count


def test_a_client_that_takes_a_large_answer_slowly_gets_it_whole(server: uvicorn.Server) -> None:
    """For some time, it takes so little that the server's own buffer does not become smaller."""
    with asking(server) as client:
        count, began = 0, time.monotonic()
        while time.monotonic() < began + 4 * TAKE:
            count += taken(client, PORTION)
            threading.Event().wait(TAKE / 5)
        assert count + taken(client, 2 * LARGE) > LARGE  # with the headers


def test_a_client_that_takes_nothing_more_loses_its_connection(server: uvicorn.Server) -> None:
    with asking(server) as client:
        assert taken(client, PORTION) == PORTION
        until(lambda: require(not server.server_state.connections), 30, "the end of the connection")
        assert taken(client, LARGE) < LARGE - PORTION
