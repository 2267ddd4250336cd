"""A request of a signed-in user to the pages."""

import json
from http.client import HTTPConnection, HTTPResponse

from runtime.airflow_client import Airflow
from tests.deadline import deadline

PREFIX = "/truelog"


def fetch(client: Airflow, method: str, path: str, body: object = None, **headers: str) -> HTTPResponse:
    """The response to a request. A path without a leading slash is relative to our pages."""
    connection = HTTPConnection("127.0.0.1", client.settings.airflow_port, timeout=deadline(60))
    signed = {"Authorization": f"Bearer {client.token}"} if client.token else {}
    sent = None if body is None else json.dumps(body)
    typed = {"Content-Type": "application/json"} if sent else {}
    connection.request(method, path if path.startswith("/") else f"{PREFIX}/{path}", sent, signed | typed | headers)
    return connection.getresponse()
