"""A door in front of PostgreSQL: while it is closed, each connection to it ends at once, and it counts them."""

import socket
import socketserver
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Thread

from truelog.support.settings import Settings


class Door(socketserver.ThreadingTCPServer):
    """Counts the connections that it has refused, and calls `ended` after each of them."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, settings: Settings, ended: Callable[["Door"], None]) -> None:
        super().__init__(("127.0.0.1", 0), _Way)
        self.behind = (settings.database_host, settings.database_port)
        self.port = int(self.server_address[1])
        self.is_open, self.looks, self.ended = False, 0, ended
        self.through = set[socket.socket]()

    def close(self) -> None:
        """Let no connection through from now on, and end the open ones."""
        self.is_open = False
        for each in list(self.through):
            with suppress(OSError):  # its client has left
                each.shutdown(socket.SHUT_RDWR)


class _Way(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        door = self.server
        assert isinstance(door, Door)
        if door.is_open:
            with socket.create_connection(door.behind) as server:
                door.through.add(server)
                back = Thread(target=_carry, args=(server, self.request), daemon=True)
                back.start()
                _carry(self.request, server)
                back.join()
                door.through.remove(server)
        else:
            door.looks += 1
            door.ended(door)


def _carry(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(65_536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        return  # a side has gone


@contextmanager
def closed_door(settings: Settings, ended: Callable[[Door], None] = lambda _: None) -> Iterator[Door]:
    """A closed door. Set `is_open` to let connections through."""
    with Door(settings, ended) as door:
        Thread(target=door.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield door
        finally:
            door.shutdown()
