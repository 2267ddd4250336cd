"""The collector: events in over HTTP."""

import json
import sys
from http.client import HTTPConnection, HTTPException

from runtime.service import Service
from truelog.errors import NotSetUp, ServiceDown
from truelog.settings import Settings


def configure(settings: Settings) -> None:
    if not settings.collector_port:
        raise NotSetUp(f"no port for the collector in the settings of {settings.home}: `truelog up` chooses one")


def command(_: Settings) -> list[str]:
    return [sys.executable, "-m", "truelog.collector"]


def ready(settings: Settings) -> None:
    """It answers, and Kafka answers it."""
    connection = HTTPConnection(settings.collector_host, settings.collector_port, timeout=3)
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


def address(settings: Settings) -> str:
    return f"{settings.collector_host}:{settings.collector_port}"


SERVICE = Service(
    name="collector",
    configure=configure,
    command=command,
    ready=ready,
    address=address,
    after=("postgresql", "kafka"),
)
