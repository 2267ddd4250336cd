"""No log of a service, and none of its clients, has a key, a token or a password.

The collector, the API and the relay run as processes. They refuse requests, and lose their connections to PostgreSQL.
"""

import logging
from http.client import HTTPConnection
from typing import Any

import psycopg
import pytest
from pydantic import SecretStr

import runtime
from tests.deadline import deadline, until
from tests.library.relay.published import Published, publishing
from truelog.client.client import Client
from truelog.client.errors import NotPermitted, Unavailable
from truelog.client.output_table import OutputTable
from truelog.storage.database import connect
from truelog.support.errors import ServiceDown
from truelog.support.settings import KafkaUser, Settings

SERVICES = ("collector", "api", "relay")
EVENT = {"type": "page_view", "visitor_id": "v1", "url": "https://shop.example/"}
_END = """
SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> ALL(%s)
"""


def log_of(settings: Settings, service: str) -> str:
    return (settings.home / "logs" / f"{service}.log").read_text()


def secrets(settings: Settings) -> dict[str, str]:
    """The secrets of the settings by name. An API key begins with its name, which is not secret."""
    found = {name: value.get_secret_value() for name, value in settings if isinstance(value, SecretStr)}
    return {name: secret.rpartition(".")[2] for name, secret in found.items() if secret}


def client(settings: Settings, **keys: str) -> Client:
    collector, api = (settings.address(name) for name in ("collector", "api"))
    held = {"producer_key": settings.producer_key, "reader_key": settings.reader_key}
    known: dict[str, Any] = {name: key.get_secret_value() for name, key in held.items()} | keys
    return Client(collector=f"http://{collector.host}:{collector.port}", api=f"http://{api.host}:{api.port}", **known)


def be_refused(settings: Settings, view: Published, token: str) -> None:
    """Ask with credentials that are not valid, and in ways that they do not permit."""
    name, wrong = view.compiled.name, settings.producer_key.get_secret_value() + "x"
    with client(settings, producer_key=wrong, reader_key=token) as asked:
        with pytest.raises(NotPermitted):
            asked.send(EVENT)
        with pytest.raises(NotPermitted):
            asked.rows("another_view")
    address, statuses = settings.address("api"), list[int]()
    for path, credential in (("rows", token), ("changes", f"{token}x"), ("changes", wrong)):
        connection = HTTPConnection(address.host, address.port, timeout=deadline(30))
        connection.request("GET", f"/views/{name}/{path}?token={credential}")
        statuses.append(connection.getresponse().status)
        connection.close()
    assert statuses == [401, 401, 401]


def lose_connections(settings: Settings, view: Published) -> None:
    """End all connections to the database, and wait until the services have noticed it."""
    own = [view.connection.info.backend_pid]
    superuser = {"user": "postgres", "password": settings.postgres_password.get_secret_value()}
    with psycopg.connect(**settings.database() | superuser, autocommit=True) as connection:
        ended = connection.execute(_END, ([*own, connection.info.backend_pid],)).fetchall()
    assert ended

    def require_noticed() -> None:
        if "PostgreSQL does not answer" not in log_of(settings, "relay"):
            raise ServiceDown("the relay has not noticed it")

    until(require_noticed, 30, "a lost connection")


def test_no_log_has_a_key_a_token_or_a_password(
    platform: Settings, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = logging.getLogger("httpx")  # which an earlier test may have made quiet
    monkeypatch.setattr(library, "disabled", False)
    monkeypatch.setattr(library, "propagate", True)
    runtime.up(platform, SERVICES, tethered=True)
    with connect(platform, autocommit=True) as connection, publishing(platform, connection) as view:
        view.change({"p1": "1"})
        loud = caplog.at_level(logging.DEBUG, logger=library.name)
        with caplog.at_level(logging.DEBUG), loud, client(platform) as asked:
            token = asked.scoped_token(view.compiled.name, {"product": "p1"})
            asked.send(EVENT)
            be_refused(platform, view, token)
            lose_connections(platform, view)
            view.change({"p1": "2"})
            until(lambda: require_answered(asked, view), 60, "the API, whose connections were ended too")
            updates = asked.subscribe(view.compiled.name)
            assert next(updates).number == 2
            updates.close()
            until(lambda: require_read(view), 60, "the row in the topic")
    logs = {service: log_of(platform, service) for service in SERVICES} | {"client": caplog.text}
    assert "HTTP Request: POST" in logs["client"]
    held = secrets(platform) | {"scoped token": token}
    assert {"reader_key", "producer_key", "kafka_relay_password", "api_token_secret"} <= held.keys()
    assert [(log, name) for log, text in logs.items() for name, secret in held.items() if secret in text] == []


def require_answered(asked: Client, view: Published) -> None:
    """Raise ServiceDown unless the API answers with the row."""
    try:
        rows = asked.rows(view.compiled.name).rows
    except Unavailable as error:
        raise ServiceDown(str(error)) from error
    if [row["amount"] for row in rows] != [2]:
        raise ServiceDown(f"the API answers with {rows}")


def require_read(view: Published) -> None:
    """Raise ServiceDown unless a reader of the topic has the row."""
    with OutputTable(view.topic, view.settings.kafka(KafkaUser.READER), deadline(30)) as table:
        if [row["amount"] for row in table.rows.values()] != [2]:
            raise ServiceDown(f"the topic has {table.rows}")
