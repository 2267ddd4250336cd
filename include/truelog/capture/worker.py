"""Kafka Connect's REST interface, which asks for a password."""

import json
from base64 import b64encode
from http.client import HTTPConnection, HTTPException
from typing import Any

from truelog.capture.connector import REST_USER
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings

_MISSING, _REFUSED = 404, 300
_SECONDS = 10
_CHANGE_SECONDS = 90  # as long as Connect itself works on a change: it first asks the captured database


def ask(settings: Settings, method: str, path: str, body: object = None) -> Any:
    """The answer to a request; None if Connect does not know what the path names.

    Raises:
        ServiceDown: Connect does not answer, or refuses the request.
    """
    password = settings.connect_password.get_secret_value()
    credential = b64encode(f"{REST_USER}:{password}".encode()).decode()
    headers = {"Authorization": f"Basic {credential}", "Content-Type": "application/json"}
    seconds = _SECONDS if method == "GET" else _CHANGE_SECONDS
    connection = HTTPConnection("127.0.0.1", settings.connect_port, timeout=seconds)
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        text = response.read()
    except (OSError, HTTPException) as error:
        raise ServiceDown(f"Kafka Connect: {error}") from error
    finally:
        connection.close()
    if response.status == _MISSING:
        return None
    if response.status >= _REFUSED:
        raise ServiceDown(f"Kafka Connect: {method} {path}: status {response.status}")
    return json.loads(text) if text else None


def apply(settings: Settings, configuration: dict[str, str]) -> None:
    """Let a connector run with this configuration. A connector that has it already goes on."""
    path = f"/connectors/{configuration['name']}/config"
    if ask(settings, "GET", path) != configuration:
        ask(settings, "PUT", path, configuration)


def failure(settings: Settings, name: str) -> str | None:
    """Why a connector does not run, in its own words; None if it runs."""
    found = ask(settings, "GET", f"/connectors/{name}/status")
    if found is None:
        return "Kafka Connect has no connector of this name"
    for part in (found["connector"], *found["tasks"]):
        if part["state"] != "RUNNING":
            return f"{part['state']} {_cause(part.get('trace', ''))}".strip()
    return None if found["tasks"] else "it has no task yet"


def _cause(trace: str) -> str:
    """The first cause in a Java trace, without its lines of code."""
    lines = [line for line in trace.splitlines() if not line.startswith("\t")]
    return lines[-1].removeprefix("Caused by: ") if lines else ""
