"""Lag: the poller that sees how far behind each reader of the log is, with its metrics over HTTP."""

import sys

from runtime import health
from runtime.service import Service
from truelog.errors import NotSetUp
from truelog.settings import Settings


def configure(settings: Settings) -> None:
    if not settings.lag_port:
        raise NotSetUp(f"no port for the poller in the settings of {settings.home}: `truelog up` chooses one")


def command(_: Settings) -> list[str]:
    return [sys.executable, "-m", "truelog.lag_service"]


def ready(settings: Settings) -> None:
    """It sees everything that it looks at."""
    health.require(settings.lag_host, settings.lag_port)


def address(settings: Settings) -> str:
    return f"{settings.lag_host}:{settings.lag_port}"


SERVICE = Service(
    name="lag",
    configure=configure,
    command=command,
    ready=ready,
    address=address,
    after=("postgresql", "kafka", "s3"),
)
