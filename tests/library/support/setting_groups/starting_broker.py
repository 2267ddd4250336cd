"""A broker as clients see it while it starts: it answers, but may know of no broker in the cluster, not even of itself.

A real broker answers so for moments that no test can choose. This one only says which brokers and topics there are.
"""

import socket
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

TOPIC = "page_view"

_METADATA, _VERSIONS = 3, 18  # keys of requests
_UNSUPPORTED, _NO_LEADER = 35, 5  # codes of errors
_HOST = b"127.0.0.1"


class StartingBroker:
    """Serves until the end of the block. `known` has the ids of the cluster's brokers, all at this address.

    If `ends_connections` is true, each answer about the cluster is a connection's last.
    """

    def __init__(self) -> None:
        self.known: Sequence[int] = [1]
        self.ends_connections = False
        self._socket = socket.create_server((_HOST.decode(), 0))
        self._port = self._socket.getsockname()[1]
        self._connections: list[socket.socket] = []

    @property
    def address(self) -> str:
        return f"{_HOST.decode()}:{self._port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._socket.close()
        self.disconnect()

    def disconnect(self) -> None:
        """End all connections, as a broker that is killed."""
        while self._connections:
            _end(self._connections.pop())

    def _accept(self) -> None:
        with suppress(OSError):  # the socket is closed
            while True:
                connection, _ = self._socket.accept()
                self._connections.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError):
            for key, version, number in _requests(connection):
                answer = self._metadata() if key == _METADATA else _versions(version)
                connection.sendall(struct.pack(">ii", len(answer) + 4, number) + answer)
                if key == _METADATA and self.ends_connections:
                    break
        _end(connection)

    def _metadata(self) -> bytes:
        """The answer of version 2: the brokers, the cluster, the controller, and one topic with one partition."""
        leader = self.known[0] if self.known else -1
        brokers = b"".join(
            struct.pack(">i", each) + _text(_HOST) + struct.pack(">ih", self._port, -1) for each in self.known
        )
        partition = struct.pack(">hiiiiii", 0 if self.known else _NO_LEADER, 0, leader, 1, 1, 1, 1)
        topic = struct.pack(">h", 0) + _text(TOPIC.encode()) + b"\0" + struct.pack(">i", 1) + partition
        return struct.pack(">i", len(self.known)) + brokers + _text(b"cluster") + struct.pack(">ii", leader, 1) + topic


def _requests(connection: socket.socket) -> Iterator[tuple[int, int, int]]:
    """The key, the version and the number of each request."""
    with connection.makefile("rb") as sent:
        while length := sent.read(4):
            yield struct.unpack(">hhi", sent.read(*struct.unpack(">i", length))[:8])


def _versions(version: int) -> bytes:
    """The answer of version 0, which says that there are no other versions than these."""
    code = _UNSUPPORTED if version else 0
    return struct.pack(">hihhhhhh", code, 2, _VERSIONS, 0, 0, _METADATA, 0, 2)


def _text(value: bytes) -> bytes:
    return struct.pack(">h", len(value)) + value


def _end(connection: socket.socket) -> None:
    with suppress(OSError):  # it has ended already
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
