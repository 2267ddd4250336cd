"""A stranger: another user of the machine, without credentials, who tries every port and every file.

As a program, it reads `{"uid": …, "files": […], "ports": […]}` and prints the files and sockets that it could open, and
what each port answered to each request. Only root can become another user; otherwise, the modes of the files decide.
"""

import encodings.idna  # noqa: F401  the stranger may not be able to read Python's modules
import json
import os
import socket
import stat
import struct
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

UID = 54321  # no process has this user; PostgreSQL runs as `nobody`
_PATHS = ("/", "/metrics", "/health", "/api/v2/dags", "/api/v2/config", "/execution/variables/x", "/log/", "/docs")
_CONNECT_SECONDS, _SILENCE_SECONDS = 5, 1
_MOST = 1_000_000  # bytes of an answer


def attempt(files: Iterable[Path], ports: Iterable[int]) -> Any:
    """What a stranger finds, as a process of another user."""
    given = {"uid": UID, "files": [str(each) for each in files], "ports": sorted(ports)}
    ended = subprocess.run(
        [sys.executable, "-I", "-S", __file__],
        input=json.dumps(given),
        cwd="/",
        env={},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


def _get(path: str, host: str = "localhost") -> bytes:
    return f"GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n".encode()


def _message(kind: int, body: bytes) -> bytes:
    """A message of Spark's protocol."""
    return struct.pack(">qB", 9 + len(body), kind) + body


def _text(value: str) -> bytes:
    return struct.pack(">i", len(value)) + value.encode()


def _requests() -> dict[str, bytes]:
    block = b"\x00" + _text("app") + _text("driver") + struct.pack(">i", 1) + _text("broadcast_0_piece0")
    startup = struct.pack(">i", 196608) + b"user\x00truelog\x00database\x00truelog\x00\x00"
    metadata = struct.pack(">hhih", 3, 1, 1, -1) + struct.pack(">i", -1)
    return {
        **{f"GET {path}": _get(path) for path in _PATHS},
        "list objects": _get("/truelog?list-type=2"),
        "post events": b"POST /events HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}",
        "kafka metadata": struct.pack(">i", len(metadata)) + metadata,
        "postgresql startup": struct.pack(">i", len(startup) + 4) + startup,
        "spark block": _message(3, struct.pack(">qi", 1, len(block)) + block),
        "spark object": _message(3, struct.pack(">qi", 1, 20) + b"\x00" * 20),
        "py4j callback": b"c\np0\ncall\ne\n",
        "py4j gateway": b"c\nt\ngetGateway\ne\n",
    }


def _answer(port: int, request: bytes) -> str | None:
    """What a port answers before it closes the connection or falls silent. None if the port is closed."""
    try:
        connection = socket.create_connection(("127.0.0.1", port), _CONNECT_SECONDS)
    except OSError:
        return None
    answer = b""
    with suppress(OSError), connection:
        connection.settimeout(_SILENCE_SECONDS)
        connection.sendall(request)
        while len(answer) < _MOST and (more := connection.recv(65536)):
            answer += more
    return answer.decode("latin-1")


def _opens(path: str) -> bool:
    """Whether this process can list a folder, open a file for reading or writing, or connect to a socket."""
    try:
        mode = os.lstat(path).st_mode
        if stat.S_ISDIR(mode):
            os.listdir(path)
        elif stat.S_ISSOCK(mode):
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(path)
        elif not os.access(path, os.R_OK) and not os.access(path, os.W_OK):
            return False
    except OSError:
        return False
    return True


def _is_open(path: str) -> bool:
    """Whether the modes of the path let others open it."""
    with suppress(OSError):
        folders = all(parent.stat().st_mode & stat.S_IXOTH for parent in Path(path).parents)
        return folders and bool(os.lstat(path).st_mode & (stat.S_IROTH | stat.S_IWOTH))
    return False


def _main() -> None:
    given = json.load(sys.stdin)
    opens = _is_open
    if os.geteuid() == 0:
        opens = _opens
        os.setgroups([])
        os.setresgid(given["uid"], given["uid"], given["uid"])
        os.setresuid(given["uid"], given["uid"], given["uid"])
    tries = [(port, name, request) for port in given["ports"] for name, request in _requests().items()]
    with ThreadPoolExecutor(32) as pool:
        answers = list(pool.map(lambda each: [each[0], each[1], _answer(each[0], each[2])], tries))
    json.dump({"files": [path for path in given["files"] if opens(path)], "answers": answers}, sys.stdout)


if __name__ == "__main__":
    _main()
