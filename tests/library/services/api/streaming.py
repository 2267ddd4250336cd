"""A client of live push, and the API as a server within the test's process."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import msgspec
import uvicorn
from fastapi import FastAPI

from tests.deadline import deadline
from truelog.services import http_server
from truelog.services.api.application import create_app
from truelog.services.api.changes.subscriptions import Subscriptions
from truelog.support.settings import Settings

SLOW = 20.0


@dataclass
class Served:
    """The API at a port."""

    settings: Settings
    app: FastAPI
    server: uvicorn.Server
    thread: threading.Thread

    @property
    def url(self) -> str:
        port = self.server.servers[0].sockets[0].getsockname()[1]
        return f"http://127.0.0.1:{port}"

    @property
    def subscriptions(self) -> Subscriptions:
        found: Subscriptions = self.app.state.questions.subscriptions
        return found

    @property
    def subscribers(self) -> int:
        return sum(len(tail.subscribers) for tail in self.subscriptions._tails.values())

    @contextmanager
    def following(self, view: str, after: str = "", credential: str | None = None, **asked: Any) -> Iterator["Stream"]:
        """The stream of a view."""
        key = self.settings.reader_key.get_secret_value() if credential is None else credential
        headers = ({"Authorization": f"Bearer {key}"} if key else {}) | ({"Last-Event-ID": after} if after else {})
        path = f"{self.url}/views/{view}/changes"
        with (
            closing(httpx.Client(timeout=deadline(SLOW))) as client,
            client.stream("GET", path, headers=headers, params=asked) as answer,
        ):
            yield Stream(answer)

    def refused(self, view: str, credential: str | None = None, **asked: Any) -> httpx.Response:
        """The answer to a request that must be refused."""
        with self.following(view, credential=credential, **asked) as stream:
            stream.answer.read()
            assert stream.answer.status_code >= 400
            return stream.answer


@dataclass
class Told:
    """An event as the client gets it."""

    name: str
    id: str
    data: Any


@dataclass
class Stream:
    """The events of an answer, and the table that they lead to."""

    answer: httpx.Response
    rows: dict[str, str] = field(default_factory=dict)
    numbers: list[int] = field(default_factory=list)
    place: str = ""
    _lines: Iterator[str] | None = None

    def next(self) -> Told | None:
        """The next event, and its effect on the table. None at the end. Heartbeats only move the place."""
        self._lines = self._lines or self.answer.iter_lines()
        fields: dict[str, str] = {}
        for line in self._lines:
            if line and not line.startswith(":"):
                name, _, value = line.partition(": ")
                fields[name.removesuffix(":")] = value
            if not line:
                self.place = fields.get("id", self.place)
                if "data" in fields:
                    return self._apply(Told(fields["event"], fields.get("id", ""), _exact(fields["data"])))
                fields = {}
        return None

    def _apply(self, told: Told) -> Told:
        if told.name == "rows":
            key = told.data["key"]
            rows = [(msgspec.json.decode(row, type=dict[str, msgspec.Raw]), row) for row in told.data["rows"]]
            self.rows = {_text({each: row[each] for each in key}): bytes(raw).decode() for row, raw in rows}
            self.numbers.append(int(told.data["number"]))
        if told.name == "change":
            for each in told.data["changes"]:
                self.rows.pop(bytes(each["key"]).decode(), None)
                if bytes(each["row"]) != b"null":
                    self.rows[bytes(each["key"]).decode()] = bytes(each["row"]).decode()
            self.numbers.append(int(told.data["number"]))
        return told

    def read_to(self, number: int) -> None:
        """Read until the table is at this number."""
        while not self.numbers or self.numbers[-1] < number:
            told = self.next()
            assert told is not None, "the stream has ended"


def _exact(data: str) -> dict[str, Any]:
    """The members of an event. Keys and rows stay as text, so that numbers keep their digits."""
    found: dict[str, Any] = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    lists = {"rows": list[msgspec.Raw], "changes": list[dict[str, msgspec.Raw]]}
    types = {name: lists.get(name, Any) for name in found}
    return {name: msgspec.json.decode(bytes(value), type=types[name]) for name, value in found.items()}


def _text(row: dict[str, msgspec.Raw]) -> str:
    return msgspec.json.encode(row).decode()


@contextmanager
def serving(settings: Settings, take_seconds: float = http_server.TAKE_SECONDS, **changes: object) -> Iterator[Served]:
    """The API at a port until the end of the block, with the protocol of the service."""
    app = create_app(settings.model_copy(update=changes))
    protocol = http_server.limited_protocol(deadline(10), take_seconds)
    config = uvicorn.Config(app, port=0, http=protocol, log_config=None, timeout_graceful_shutdown=5)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()))
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            threading.Event().wait(0.02)
        yield Served(settings, app, server, thread)
    finally:
        server.should_exit = True
        thread.join()
