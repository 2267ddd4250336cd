"""A collector client, a reader of the collector's topics, and additional collectors with other settings."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from http.client import HTTPConnection
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from runtime import ports
from runtime.services import SERVICES
from tests.deadline import deadline, until
from truelog.log import topics
from truelog.support.setting_groups.services import Address
from truelog.support.settings import Settings

JSON, NDJSON = "application/json", "application/x-ndjson"


def page_view(number: int = 0, **fields: object) -> dict[str, object]:
    now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    named = {"type": "page_view", "event_id": f"e{number}", "occurred_at": now}
    return {**named, "visitor_id": f"v{number % 50}", "url": f"https://shop.example/{number}", **fields}


def payment(number: int, verb: str, country: str) -> dict[str, object]:
    """A payment of one customer, later than those with smaller numbers."""
    named = page_view(number, event_id=f"p{number}", type="payment")
    about = {"customer_id": "carl", "order_id": "o1", "verb": verb, "country": country, "amount": number}
    return {name: named[name] for name in ("type", "event_id", "occurred_at")} | about


@dataclass(frozen=True)
class Response:
    """The response to a request."""

    status: int
    headers: Mapping[str, str]
    body: dict[str, Any]


def require_refused(response: Response, status: int, reason: str) -> None:
    """The status says that the request is refused, and the body says what is wrong with it."""
    assert (response.status, reason in response.body["error"]) == (status, True), response


@dataclass
class Client:
    """A sender with a key; each request uses a new connection."""

    settings: Settings
    key: str

    def post(self, body: object, content_type: str = JSON, **headers: str) -> Response:
        """Send bytes unchanged, anything else as JSON."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        sent_headers = {"Authorization": f"Bearer {self.key}", "Content-Type": content_type}
        sent_headers |= {name.replace("_", "-"): value for name, value in headers.items()}
        return self.request("POST", "/events", data, sent_headers)

    def request(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> Response:
        connection = self.connection()
        try:
            connection.request(method, path, body, headers)
            return read_response(connection)
        finally:
            connection.close()

    def connection(self) -> HTTPConnection:
        address = self.settings.address("collector")
        return HTTPConnection(address.host, address.port, timeout=deadline(40))

    @contextmanager
    def slow(self, body: bytes) -> Iterator[HTTPConnection]:
        """A request whose body has been sent except for the last byte."""
        connection = self.connection()
        connection.putrequest("POST", "/events")
        connection.putheader("Authorization", f"Bearer {self.key}")
        connection.putheader("Content-Type", JSON)
        connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body[:-1])
        try:
            yield connection
        finally:
            connection.close()


def read_response(connection: HTTPConnection) -> Response:
    response = connection.getresponse()
    return Response(response.status, dict(response.getheaders()), json.loads(response.read() or b"{}"))


@contextmanager
def another(
    settings: Settings, module: str | None = None, **changes: object
) -> Iterator[tuple[Settings, "subprocess.Popen[bytes]"]]:
    """An additional collector with other settings, run by a module."""
    port = ports.free({"collector": ports.of_this_process()})["collector"]
    services = settings.services | {"collector": Address(port=port)}
    changed = settings.model_copy(update={"services": services, **changes})
    variables = {f"TRUELOG_{name.upper()}": str(value) for name, value in {"collector_port": port, **changes}.items()}
    environment = os.environ | {"TRUELOG_HOME": str(settings.home)} | variables
    process = subprocess.Popen(
        [sys.executable, "-m", module or "truelog.services.collector.service"],
        env=environment,
        stderr=subprocess.DEVNULL,
    )
    try:
        until(lambda: SERVICES["collector"].ready(changed), 30, "another collector")
        yield changed, process
    finally:
        process.terminate()
        process.wait(deadline(30))


def record(settings: Settings, coordinates: Mapping[str, Any]) -> tuple[bytes | None, bytes | None]:
    """The key and value of the record at the coordinates in a response."""
    topic, partition, offset = (coordinates[name] for name in ("topic", "partition", "offset"))
    return read(settings, topic, partition, offset, offset + 1)[offset]


def read_topic(settings: Settings, topic: str) -> dict[tuple[int, int], bytes | None]:
    """Every value in the topic, by partition and offset."""
    begins, ends = topics.earliest_offsets(settings, [topic]), topics.end_offsets(settings, [topic])
    found = {}
    for partition, end in ends.offsets[topic].items():
        for offset, (_, value) in read(settings, topic, partition, begins.at(topic, partition), end).items():
            found[partition, offset] = value
    return found


def read(
    settings: Settings, topic: str, partition: int, begin: int, end: int
) -> dict[int, tuple[bytes | None, bytes | None]]:
    """The records in [begin, end), by offset."""
    found: dict[int, tuple[bytes | None, bytes | None]] = {}
    consumer = Consumer({**settings.kafka(), "group.id": "reader", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, partition, begin)])
        while begin + len(found) < end:
            messages = consumer.consume(min(1000, end - begin - len(found)), timeout=deadline(10))
            assert messages, f"{topic}:{partition} ends before {end}"
            found |= {int(str(m.offset())): (m.key(), m.value()) for m in messages if m.error() is None}
    finally:
        consumer.close()
    return found
