"""The collector: events in over HTTP."""

import sys

from runtime import health
from runtime.service import Service
from truelog.errors import NotSetUp
from truelog.settings import Settings


def configure(settings: Settings) -> None:
    if not settings.collector_port:
        raise NotSetUp(f"no port for the collector in the settings of {settings.home}: `truelog up` chooses one")


def command(_: Settings) -> list[str]:
    return [sys.executable, "-m", "truelog.collector"]


def ready(settings: Settings) -> None:
    """It answers, and Kafka answers it."""
    health.require(settings.collector_host, settings.collector_port)


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
