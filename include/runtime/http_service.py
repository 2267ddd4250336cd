"""Our own HTTP services: each has its place in the settings, and answers without a key whether it is well."""

import json
import sys
from http.client import HTTPConnection, HTTPException

from runtime.service import Service
from truelog.support.errors import NotSetUp, ServiceDown
from truelog.support.settings import Settings


def http_service(name: str, module: str, *, after: tuple[str, ...]) -> Service:
    """The service `python -m module`, whose host and port the settings have under its name."""

    def place(settings: Settings) -> tuple[str, int]:
        return getattr(settings, f"{name}_host"), getattr(settings, f"{name}_port")

    def configure(settings: Settings) -> None:
        if not place(settings)[1]:
            raise NotSetUp(f"no port for {name} in the settings of {settings.home}: `truelog up` chooses one")

    def command(_: Settings) -> list[str]:
        return [sys.executable, "-m", module]

    def ready(settings: Settings) -> None:
        _require_well(*place(settings))

    def address(settings: Settings) -> str:
        host, port = place(settings)
        return f"{host}:{port}"

    return Service(name=name, configure=configure, command=command, ready=ready, address=address, after=after)


def _require_well(host: str, port: int) -> None:
    """It answers, and says that those behind it answer."""
    connection = HTTPConnection(host, port, timeout=3)
    try:
        connection.request("GET", "/health")
        answer = connection.getresponse()
        health = json.load(answer)
    except (OSError, HTTPException, ValueError) as error:
        raise ServiceDown(str(error)) from error
    finally:
        connection.close()
    if answer.status != 200:
        raise ServiceDown(f"it says {health}")
