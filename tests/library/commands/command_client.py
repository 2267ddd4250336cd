"""A sender of commands, and the processes that decide and publish them."""

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from itertools import cycle
from pathlib import Path
from typing import Any

from runtime import ports
from runtime.own_services import entry
from tests.deadline import deadline, until
from tests.library.commands import collector_process
from tests.scenes.applications import Application, start
from truelog.services.collector import declaration as collector_declaration
from truelog.services.collector import service as collector
from truelog.services.commands import declaration as commands_declaration
from truelog.services.commands import service as commands
from truelog.support.errors import ServiceDown
from truelog.support.setting_groups.services import Address
from truelog.support.settings import Settings

CART: dict[str, Any] = {"visitor_id": "v1", "product": "lamp"}


def new_name() -> str:
    return f"n{uuid.uuid4().hex[:12]}"


@dataclass(frozen=True)
class Answer:
    """The answer to a command."""

    status: int
    body: bytes
    retry_after: str | None = None

    @property
    def json(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found


@dataclass(frozen=True)
class CommandClient:
    """A producer, which sends commands to the collector of these settings."""

    settings: Settings

    def send(self, command: str, key: str | None = None, **fields: object) -> Answer:
        return self.request("POST", f"/commands/{command}", json.dumps(fields).encode(), key)

    def request(self, method: str, path: str, body: bytes | None = None, key: str | None = None) -> Answer:
        address = self.settings.address("collector")
        connection = HTTPConnection(address.host, address.port, timeout=deadline(40))
        headers = {"Authorization": f"Bearer {self.settings.producer_key.get_secret_value()}"}
        headers |= {"Content-Type": "application/json"} | ({"Idempotency-Key": key} if key else {})
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return Answer(response.status, response.read(), response.headers["Retry-After"])
        finally:
            connection.close()


@dataclass(frozen=True)
class Collector(CommandClient):
    """A collector process, and a producer that sends commands to it."""

    process: Application


def start_collector(
    settings: Settings, fault: str | None = None, folder: str | None = None, **environment: str
) -> Collector:
    """Start a collector with the commands of the platform, or with those of a folder."""
    port = ports.free({"collector": ports.of_this_process()})["collector"]
    changed = settings.model_copy(update={"services": settings.services | {"collector": Address(port=port)}})
    given = {"TRUELOG_COLLECTOR_PORT": str(port), "TRUELOG_COLLECTOR_COMMAND_SECONDS": "30", **environment}
    program = (collector.__file__,) if folder is None else (collector_process.__file__, folder)
    process = start(settings, *map(str, program), fault=fault, **given)
    until(lambda: entry(collector_declaration.SERVICE).ready(changed), 60, "a collector")
    return Collector(changed, process)


def start_commands(settings: Settings, fault: str | None = None) -> Application:
    process = start(settings, str(Path(commands.__file__)), fault=fault)
    until(lambda: entry(commands_declaration.SERVICE).ready(settings), 60, "the commands service")
    return process


def send_until_answered(collectors: Sequence[CommandClient], command: str, key: str, **fields: object) -> Answer:
    """Send the command again and again, to each collector in turn, until it is decided."""
    turns, answers = cycle(collectors), list[Answer]()

    def send() -> None:
        try:
            answers.append(next(turns).send(command, key, **fields))
        except (OSError, HTTPException) as error:
            raise ServiceDown(str(error)) from error
        if answers[-1].status == 503:
            raise ServiceDown(answers[-1].json["error"])

    until(send, 120, f"an answer to {command}")
    return answers[-1]


def ready(collector: Collector) -> Collector:
    """The collector, as soon as it decides commands."""
    cart = {"cart_id": new_name(), "visitor_id": "v1"}
    assert send_until_answered([collector], "check_out_cart", new_name(), **cart).status == 409
    free: dict[str, Any] = {"username": new_name(), "person_id": "p1"}
    assert send_until_answered([collector], "release_username", new_name(), **free).status == 409
    return collector
