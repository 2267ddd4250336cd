"""A stranger: another user of the machine, without credentials, who tries every port and every file.

As a program, it reads `{"uid": …, "files": […], "ports": […], "silence": …}`. It prints the files and sockets that it
could open, and what each port answered to each request. Only root can become another user; otherwise, the modes of the
files decide.
"""

import encodings.idna  # noqa: F401  the stranger may not be able to read Python's modules
import json
import os
import selectors
import socket
import stat
import struct
import subprocess
import sys
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

UID = 54321  # no process has this user; PostgreSQL runs as `nobody`
_PATHS = ("/", "/metrics", "/health", "/api/v2/dags", "/api/v2/config", "/execution/variables/x", "/log/", "/docs")
_MOST = 1_000_000  # bytes of an answer


def attempt(files: Iterable[Path], ports: Iterable[int], silence: float) -> Any:
    """What a stranger finds, as a process of another user, who leaves after so many seconds of silence."""
    given = {"uid": UID, "files": [str(each) for each in files], "ports": sorted(ports), "silence": silence}
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


def _ask(tries: Iterable[tuple[int, str, bytes]], silence: float) -> list[tuple[int, str, str | None]]:
    """What each port answers to each request, sent at the same time. None if the port is closed.

    The end is when each port has closed its connections, or when no port has sent anything for so many seconds: a busy
    machine, which delays all answers, also prolongs the wait.
    """
    answers: dict[tuple[int, str], bytes | None] = {}
    with ExitStack() as opened, selectors.DefaultSelector() as waiting:
        for port, name, request in tries:
            answers[port, name] = None
            with suppress(OSError):
                connection = opened.enter_context(socket.create_connection(("127.0.0.1", port)))
                answers[port, name] = b""
                connection.sendall(request)
                waiting.register(connection, selectors.EVENT_READ, (port, name))
        while waiting.get_map() and (ready := waiting.select(silence)):
            for key, _ in ready:
                if more := _received(key.fileobj):
                    answers[key.data] = (answers[key.data] or b"") + more
                if not more or len(answers[key.data] or b"") >= _MOST:
                    waiting.unregister(key.fileobj)
    return [(*each, None if answer is None else answer.decode("latin-1")) for each, answer in answers.items()]


def _received(connection: Any) -> bytes:
    with suppress(OSError):
        received: bytes = connection.recv(65536)
        return received
    return b""


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
    answers = _ask(tries, given["silence"])
    json.dump({"files": [path for path in given["files"] if opens(path)], "answers": answers}, sys.stdout)


if __name__ == "__main__":
    _main()
