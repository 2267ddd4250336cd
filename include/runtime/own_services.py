"""The supervisor's entries of Truelog's own services, made from their declarations."""

import json
import sys
from functools import partial
from http.client import HTTPConnection, HTTPException

from runtime.service import Service
from truelog.services import registry
from truelog.services.declaration import HEALTH, Check
from truelog.services.declaration import Service as Declaration
from truelog.support.errors import NotSetUp, ServiceDown
from truelog.support.settings import Settings


def entry(declared: Declaration) -> Service:
    """The entry of a declared service."""
    check = declared.check or _health_check(declared.name)
    return Service(
        name=declared.name,
        configure=partial(_require_port, declared),
        command=lambda _: [sys.executable, "-m", declared.module],
        ready=check.ready,
        address=check.address,
        after=declared.after,
    )


def _require_port(declared: Declaration, settings: Settings) -> None:
    """Raise NotSetUp if the service answers HTTP requests, and set-up has not chosen its port."""
    name = declared.name
    if declared.http and not settings.address(name).port:
        raise NotSetUp(f"no {name} port in the settings of {settings.home}: run `truelog up`, which chooses a port")


def _health_check(name: str) -> Check:
    def address(settings: Settings) -> str:
        at = settings.address(name)
        return f"{at.host}:{at.port}"

    return Check(partial(_require_healthy, name), address)


def _require_healthy(name: str, settings: Settings) -> None:
    """Raise ServiceDown unless the service and the services that it needs are healthy."""
    address = settings.address(name)
    connection = HTTPConnection(address.host, address.port, timeout=3)
    try:
        connection.request(HEALTH.method, HEALTH.path)
        response = connection.getresponse()
        health = json.load(response)
    except (OSError, HTTPException, ValueError) as error:
        raise ServiceDown(str(error)) from error
    finally:
        connection.close()
    if response.status != 200:
        raise ServiceDown(f"it reports {health}")


OWN = tuple(map(entry, registry.SERVICES))
