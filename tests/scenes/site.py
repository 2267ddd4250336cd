"""A site whose pages have the tracker, on an address of its own, and what of its visitors is in the log."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from tests.deadline import until
from tests.scenes.collector_client import read_topic
from truelog.services.collector.declaration import TRACKER
from truelog.services.collector.tracker import INTEGRITY
from truelog.storage import api_key
from truelog.storage.api_key import Page, Role
from truelog.storage.audit_trail import by_hand
from truelog.storage.database import connect
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings

TYPES = ("page_view", "like")


@dataclass
class Site:
    """The site. `attributes` are further attributes of the tracker's element."""

    settings: Settings
    origin: str
    key: str
    attributes: str = ""
    hanging: list[Any] = field(default_factory=list)

    @property
    def collector(self) -> str:
        address = self.settings.address("collector")
        return f"http://{address.host}:{address.port}"

    @property
    def policy(self) -> str:
        """The policy of docs/tracker.md."""
        return f"default-src 'self'; img-src data:; script-src {self.collector}; connect-src 'self' {self.collector}"

    def page(self) -> str:
        script = f'src="{self.collector}{TRACKER.path}" data-key="{self.key}" integrity="{INTEGRITY}"'
        head = f'<script async crossorigin="anonymous" {script} {self.attributes}></script>'
        return f'<!doctype html><html><head><title>Site</title><link rel="icon" href="data:,">{head}</head></html>'

    def logged(self, topic: str = "page_view", **wanted: object) -> list[dict[str, Any]]:
        """The events of the topic with these values, in the order in which they happened."""
        values = [json.loads(value) for value in read_topic(self.settings, topic).values() if value]
        found = [each for each in values if all(each.get(name) == value for name, value in wanted.items())]
        return sorted(found, key=lambda each: str(each["occurred_at"]))

    def expect(self, count: int, topic: str = "page_view", **wanted: object) -> list[dict[str, Any]]:
        """The same, when there are this many."""
        found: list[dict[str, Any]] = []

        def require() -> None:
            found[:] = self.logged(topic, **wanted)
            if len(found) < count:
                raise ServiceDown(f"{len(found)} events of {topic} with {wanted}")

        until(require, 30, f"{count} events")
        assert len(found) == count, found
        return found


@contextmanager
def serving(settings: Settings) -> Iterator[Site]:
    """Serve the site. A request of /hang is never answered until the site closes."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = site.page().encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Security-Policy", site.policy)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            site.hanging.append(self.path)
            self.rfile.read()  # until the browser closes the connection

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    origin = f"http://127.0.0.1:{server.server_port}"
    with connect(settings) as connection:
        key = api_key.add_key(connection, "site", Role.BROWSER, by_hand(), Page((origin,), TYPES))
    site = Site(settings, origin, key)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield site
    server.shutdown()
    thread.join()
    server.server_close()
