"""A stranger: another user of the machine, who has no credentials. Runs alone, without this checkout.

Reads `{"files": […], "ports": […]}` from standard input and prints which files it could read and what ports said.
"""

import json
import os
import socket
import struct
import sys
from contextlib import suppress


def message(kind: int, body: bytes) -> bytes:
    return struct.pack(">qB", 9 + len(body), kind) + body


def text(value: str) -> bytes:
    return struct.pack(">i", len(value)) + value.encode()


def kafka(api: int, version: int, body: bytes) -> bytes:
    request = struct.pack(">hhih", api, version, 1, -1) + body
    return struct.pack(">i", len(request)) + request


BLOCK = b"\x00" + text("app") + text("driver") + struct.pack(">i", 1) + text("broadcast_0_piece0")
STARTUP = struct.pack(">i", 196608) + b"user\x00truelog\x00database\x00truelog\x00\x00"
PROBES = {
    "http": b"GET /metrics HTTP/1.0\r\n\r\n",
    "root": b"GET / HTTP/1.0\r\n\r\n",
    "s3": b"GET /truelog?list-type=2 HTTP/1.0\r\nHost: truelog\r\n\r\n",
    "events": b"POST /events HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}",
    "kafka": kafka(3, 1, struct.pack(">i", -1)),
    "postgresql": struct.pack(">i", len(STARTUP) + 4) + STARTUP,
    "spark block": message(3, struct.pack(">qi", 1, len(BLOCK)) + BLOCK),
    "spark object": message(3, struct.pack(">qi", 1, 20) + b"\x00" * 20),
    "py4j": b"c\np0\ncall\ne\n",
    "py4j gateway": b"c\nt\ngetGateway\ne\n",
}


def say(port: int, words: bytes) -> str:
    said = b""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 2) as connection:
        connection.settimeout(0.5)
        connection.sendall(words)
        while len(said) < 1_000_000 and (more := connection.recv(65536)):
            said += more
    return said.decode("latin-1")


def readable(path: str) -> bool:
    try:
        if os.path.isdir(path):
            os.listdir(path)
        else:
            with open(path, "rb"):
                pass
    except OSError:
        return False
    return True


given = json.load(sys.stdin)
answer = {"uid": os.getuid(), "files": [path for path in given["files"] if readable(path)]}
answer["ports"] = {port: {name: say(port, words) for name, words in PROBES.items()} for port in given["ports"]}
json.dump(answer, sys.stdout)
