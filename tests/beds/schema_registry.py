"""A schema registry over HTTP, as far as Confluent's client and Truelog's ask it, and the serializers of producers.

The product does not exist as a package, so tests with this stub do not test it. The client and the serializers are
Confluent's own: they register the schemas and write the frames.
"""

import base64
import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

USER, PASSWORD = "platform", "not-a-secret"
_BASIC = f"Basic {base64.b64encode(f'{USER}:{PASSWORD}'.encode()).decode()}"
_VERSIONS = re.compile(r"/subjects/([^/]+)/versions(?:/(\d+|latest))?")
_ID = re.compile(r"/schemas/ids/(\d+)")

Answer = tuple[int, Any]


@dataclass
class StubRegistry:
    """Schemas by number and the numbers of each subject. `frozen` names subjects that take no further schema."""

    schemas: list[dict[str, Any]] = field(default_factory=list)
    subjects: dict[str, list[int]] = field(default_factory=dict)
    frozen: set[str] = field(default_factory=set)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """The settings of a platform that uses this registry."""
        return {
            "TRUELOG_SCHEMA_REGISTRY_URL": self.url,
            "TRUELOG_SCHEMA_REGISTRY_USER": USER,
            "TRUELOG_SCHEMA_REGISTRY_PASSWORD": PASSWORD,
        }

    def client(self) -> SchemaRegistryClient:
        return SchemaRegistryClient({"url": self.url, "basic.auth.user.info": f"{USER}:{PASSWORD}"})

    def avro(self, topic: str, schema: Mapping[str, Any], value: Any) -> bytes:
        """The framed record that a producer's serializer writes."""
        return self._framed(AvroSerializer(self.client(), json.dumps(schema)), topic, value)

    def latest_json(self, topic: str, value: Any) -> bytes:
        """The same of a producer that uses the newest schema of the topic's subject, whatever it is."""
        latest = {"auto.register.schemas": False, "use.latest.version": True}
        return self._framed(JSONSerializer(None, self.client(), conf=latest), topic, value)

    def add(self, subject: str, body: Mapping[str, Any]) -> int:
        """Register a schema; the same text has the same number everywhere."""
        if body not in self.schemas:
            self.schemas.append(dict(body))
        number = self.schemas.index(dict(body)) + 1
        known = self.subjects.setdefault(subject, [])
        if number not in known:
            known.append(number)
        return number

    def answer(self, method: str, path: str, body: Any) -> Answer:
        if found := _ID.fullmatch(path):
            number = int(found[1])
            is_known = 0 < number <= len(self.schemas)
            return (200, self.schemas[number - 1]) if is_known else (404, {"error_code": 40403, "message": "unknown"})
        found = _VERSIONS.fullmatch(path)
        subject = unquote(found[1]) if found else ""
        if method == "POST" and found:
            if subject in self.frozen:
                return 409, {"error_code": 409, "message": "the schema is incompatible with an earlier one"}
            return 200, {"id": self.add(subject, body)}
        if found is None or subject not in self.subjects:
            return 404, {"error_code": 40401, "message": "unknown"}
        numbers = self.subjects[subject]
        if found[2] is None:
            return 200, [*range(1, len(numbers) + 1)]
        version = len(numbers) if found[2] == "latest" else int(found[2])
        number = numbers[version - 1]
        return 200, {"subject": subject, "id": number, "version": version, **self.schemas[number - 1]}

    @staticmethod
    def _framed(serializer: Any, topic: str, value: Any) -> bytes:
        framed: bytes = serializer(value, SerializationContext(topic, MessageField.VALUE))
        return framed


@contextmanager
def serving(registry: StubRegistry) -> Iterator[StubRegistry]:
    """The registry listens on a free port until the end of the block."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(registry))
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    registry.port = server.server_address[1]
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()


def _handler(registry: StubRegistry) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._reply(None)

        def do_POST(self) -> None:
            self._reply(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def _reply(self, body: Any) -> None:
            allowed = self.headers.get("Authorization") == _BASIC
            path = urlsplit(self.path).path
            status, found = registry.answer(self.command, path, body) if allowed else (401, {"message": "who?"})
            content = json.dumps(found).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    return Handler
