"""An HTTP receiver of alerts for tests, which can accept, fail, reject, hang or not listen at all."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.deadline import deadline
from truelog.storage import exact_json

TAKES, FAILS, REFUSES, HANGS = "takes", "fails", "refuses", "hangs"
_STATUS = {TAKES: 202, FAILS: 503, REFUSES: 400}


class Listener:
    """Records accepted messages with their paths, headers and times. `mood` sets how it treats the next requests."""

    def __init__(self) -> None:
        self.mood = TAKES
        self.taken: list[Any] = []
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.times: list[float] = []
        self.asked: list[str] = []  # the paths of all requests, accepted or not
        self._let_go = threading.Event()
        self._server = self._serve(0)
        self.port = self._server.server_address[1]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def away(self) -> None:
        """Stop listening and end the requests that are hanging."""
        self._let_go.set()
        self._server.shutdown()
        self._server.server_close()

    def back(self) -> None:
        self.mood = TAKES
        self._let_go.clear()
        self._server = self._serve(self.port)

    def _serve(self, port: int) -> ThreadingHTTPServer:
        server = ThreadingHTTPServer(("127.0.0.1", port), _handler(self._answer))
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return server

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        body = request.rfile.read(int(request.headers.get("Content-Length", 0)))
        self.asked.append(request.path)
        if self.mood == HANGS:
            self._let_go.wait(deadline(60))
            return
        if self.mood == TAKES:
            self.taken.append(_read(request, body))
            self.paths.append(request.path)
            self.headers.append(dict(request.headers))
            self.times.append(time.time())
        request.send_response(_STATUS[self.mood])
        request.end_headers()


def _read(request: BaseHTTPRequestHandler, body: bytes) -> Any:
    return exact_json.read(body) if request.headers["Content-Type"] == "application/json" else body


def _handler(answer: Callable[[BaseHTTPRequestHandler], None]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            answer(self)

        def log_message(self, *_: object) -> None:
            """Suppress the log on standard error."""

    return Handler


@contextmanager
def listening() -> Iterator[Listener]:
    listener = Listener()
    yield listener
    listener.away()
