"""A client of Spark's ports that knows the protocol but not the secret."""

import socket
import struct
from contextlib import suppress
from typing import Any

import psutil
from pyspark.sql import SparkSession

from tests.deadline import deadline
from tests.scenes.exposure import listening_addresses

_SECONDS = 10
_CHUNK_REQUEST, _CHUNK, _CALL, _RETURN = 0, 1, 3, 4  # types of messages
_OPEN_BLOCKS = 0
_HEADER = ">qB"  # length and type of a message
_BEFORE_BODY = 21  # bytes of a message before its body


def listening_ports(spark: SparkSession) -> dict[int, psutil.Process]:
    """The TCP ports on which this process, Spark's JVM and the Python workers listen."""
    gateway: Any = spark.sparkContext._gateway
    java = psutil.Process(gateway.proc.pid)
    return {
        port: each
        for each in [psutil.Process(), java, *java.children(recursive=True)]
        for _, port in listening_addresses(each)
    }


def exchange(port: int, request: bytes) -> bytes:
    """The bytes that a port sends in response to a request before it closes the connection."""
    with socket.create_connection(("127.0.0.1", port), deadline(_SECONDS)) as connection:
        return _exchange(connection, request)


def call(body: bytes) -> bytes:
    """The message of a remote call."""
    return _message(_CALL, struct.pack(">qi", 1, len(body)) + body)


def stolen_block(port: int, application: str, block: str) -> bytes:
    """The content of a block, fetched as an executor fetches it; empty if the port does not return the block."""
    body = bytes([_OPEN_BLOCKS]) + b"".join(map(_text, (application, "driver"))) + struct.pack(">i", 1) + _text(block)
    with socket.create_connection(("127.0.0.1", port), deadline(_SECONDS)) as connection:
        opened = _exchange(connection, call(body))
        if opened[8:9] != bytes([_RETURN]):
            return b""
        [stream] = struct.unpack_from(">q", opened, _BEFORE_BODY + 1)
        chunk = _exchange(connection, _message(_CHUNK_REQUEST, struct.pack(">qi", stream, 0)))
        return chunk[_BEFORE_BODY:] if chunk[8:9] == bytes([_CHUNK]) else b""


def _exchange(connection: socket.socket, request: bytes) -> bytes:
    """The first message in response to a request, or all bytes if they are not a message.

    A silent port fails the test. Servers that read lines have a line, and Spark's servers ignore the additional byte.
    """
    received = b""
    with suppress(ConnectionError):
        connection.sendall(request + b"\n")
        while not _is_complete(received) and (more := connection.recv(1 << 16)):
            received += more
    return received


def _is_complete(received: bytes) -> bool:
    return len(received) >= 9 and len(received) >= struct.unpack_from(">q", received)[0]


def _message(kind: int, body: bytes) -> bytes:
    return struct.pack(_HEADER, 9 + len(body), kind) + body


def _text(text: str) -> bytes:
    return struct.pack(">i", len(text)) + text.encode()
