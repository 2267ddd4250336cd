"""A client of a schema registry, with the few requests of its REST API that the platform needs.

The records need no request: they are decoded with kept schemas. Only commands ask the registry.
"""

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx

from truelog.schema.frames.kept_schema import AVRO, JSON, KeptSchema
from truelog.support.errors import BadInput, NotSetUp, ServiceDown
from truelog.support.http_client import authorities
from truelog.support.settings import Settings

_MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"
_MOST_BYTES = 4 * 2**20  # of an answer
_EXCERPT = 300  # characters of an answer that an error quotes


class Unanswered(BadInput):
    """The registry has refused a request. `status` is HTTP's."""

    def __init__(self, reason: str, status: int) -> None:
        super().__init__(reason)
        self.status = status


@dataclass(frozen=True)
class SchemaRegistryClient:
    """The registry of the settings. Each request has a connection of its own."""

    settings: Settings

    def schema(self, number: int) -> KeptSchema:
        """The schema with this number.

        Raises:
            BadInput: the registry has no such schema, or its kind is neither Avro nor JSON Schema.
        """
        return _kept(number, self._ask("GET", f"schemas/ids/{number}"))

    def schemas_of(self, subject: str) -> list[KeptSchema]:
        """All versions of a subject, oldest first; none if the registry has no such subject."""
        path = f"subjects/{quote(subject, safe='')}/versions"
        try:
            versions = self._ask("GET", path)
        except Unanswered as refused:
            if refused.status == httpx.codes.NOT_FOUND:
                return []
            raise
        found = [self._ask("GET", f"{path}/{int(version)}") for version in versions]
        return [_kept(int(each["id"]), each) for each in found]

    def register(self, subject: str, schema: Mapping[str, Any]) -> KeptSchema:
        """Register a JSON Schema under a subject. A schema that the subject has already keeps its number.

        Raises:
            BadInput: the registry refuses the schema, such as for a change that is not compatible.
        """
        text = json.dumps(schema, sort_keys=True)
        body = {"schemaType": JSON, "schema": text}
        found = self._ask("POST", f"subjects/{quote(subject, safe='')}/versions", body)
        return self.schema(int(found["id"]))

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        """The answer to a request.

        Raises:
            NotSetUp: there is no valid address.
            ServiceDown: the registry does not answer, or not in JSON.
            BadInput: it refuses the request.
        """
        status, content = self._send(self._request(method, path, body))
        if status >= httpx.codes.INTERNAL_SERVER_ERROR:
            raise ServiceDown(f"the schema registry answered {status}: {content[:_EXCERPT]}")
        if status != httpx.codes.OK:
            raise Unanswered(f"the schema registry answered {status}: {content[:_EXCERPT]}", status)
        try:
            return json.loads(content)
        except ValueError:
            raise ServiceDown("the schema registry answered with something that is not JSON") from None

    def _request(self, method: str, path: str, body: Any) -> httpx.Request:
        try:
            address = httpx.URL(f"{self.settings.schema_registry_url.rstrip('/')}/{path}")
        except (httpx.InvalidURL, ValueError):
            address = httpx.URL()
        if address.scheme not in ("http", "https") or not address.host or address.userinfo:
            raise NotSetUp(
                "TRUELOG_SCHEMA_REGISTRY_URL must be an http or https address without a user; see "
                "docs/schema-registry.md"
            )
        headers = {"Accept": _MEDIA_TYPE, "Accept-Encoding": "identity"} | self._credentials()
        content = None if body is None else json.dumps(body).encode()
        if content is not None:
            headers["Content-Type"] = _MEDIA_TYPE
        limits = {"timeout": httpx.Timeout(self.settings.schema_registry_seconds).as_dict()}
        return httpx.Request(method, address, headers=headers, content=content, extensions=limits)

    def _credentials(self) -> dict[str, str]:
        user, password = self.settings.schema_registry_user, self.settings.schema_registry_password.get_secret_value()
        if not user:
            return {}
        return {"Authorization": f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"}

    def _send(self, request: httpx.Request) -> tuple[int, str]:
        """The status and the text of the answer. An httpx client would log the address, so the transport is used."""
        try:
            with httpx.HTTPTransport(verify=authorities()) as transport:
                response, content = transport.handle_request(request), b""
                for chunk in response.iter_raw():
                    content += chunk
                    if len(content) > _MOST_BYTES:
                        raise ServiceDown(f"the schema registry answered with more than {_MOST_BYTES:,} bytes")
                response.close()
        except (httpx.TransportError, OSError) as error:
            raise ServiceDown(f"the schema registry does not answer: {type(error).__name__}") from None
        return response.status_code, content.decode(errors="replace")


def _kept(number: int, answer: Mapping[str, Any]) -> KeptSchema:
    kind = answer.get("schemaType", AVRO)  # absent for Avro
    if kind not in (AVRO, JSON):
        raise BadInput(f"schema {number} has the kind {kind}; only {AVRO} and {JSON} can be kept")
    if kind == AVRO and answer.get("references"):
        raise BadInput(f"schema {number} refers to other schemas; register it with their types inside")
    return KeptSchema(number, kind, str(answer["schema"]))
