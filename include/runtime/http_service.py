"""Truelog's own HTTP services. Each service has its address in the settings and needs no key for health checks."""

import json
import sys
from http.client import HTTPConnection, HTTPException

from runtime.service import Service
from truelog.support.errors import NotSetUp, ServiceDown
from truelog.support.settings import Settings


def http_service(name: str, module: str, *, after: tuple[str, ...]) -> Service:
    """The service that `python -m module` runs. The `<name>_host` and `<name>_port` settings contain its address."""

    def host_and_port(settings: Settings) -> tuple[str, int]:
        return getattr(settings, f"{name}_host"), getattr(settings, f"{name}_port")

    def configure(settings: Settings) -> None:
        if not host_and_port(settings)[1]:
            raise NotSetUp(f"no {name} port in the settings of {settings.home}: run `truelog up`, which chooses a port")

    def command(_: Settings) -> list[str]:
        return [sys.executable, "-m", module]

    def ready(settings: Settings) -> None:
        _require_healthy(*host_and_port(settings))

    def address(settings: Settings) -> str:
        host, port = host_and_port(settings)
        return f"{host}:{port}"

    return Service(name=name, configure=configure, command=command, ready=ready, address=address, after=after)


def _require_healthy(host: str, port: int) -> None:
    """Raise ServiceDown unless the service and the services that it needs are healthy."""
    connection = HTTPConnection(host, port, timeout=3)
    try:
        connection.request("GET", "/health")
        response = connection.getresponse()
        health = json.load(response)
    except (OSError, HTTPException, ValueError) as error:
        raise ServiceDown(str(error)) from error
    finally:
        connection.close()
    if response.status != 200:
        raise ServiceDown(f"it reports {health}")
