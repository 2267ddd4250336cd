"""Whether a service that answers HTTP is healthy, as the service itself reports it."""

import json
from http.client import HTTPConnection, HTTPException

from truelog.services.declaration import HEALTH
from truelog.support.errors import ServiceDown
from truelog.support.settings import Settings


def require_healthy(name: str, settings: Settings, *, seconds: float = 3.0) -> None:
    """Return if the service and the services that it needs are healthy. Each step of the request has this time limit.

    Raises:
        ServiceDown: the service did not answer, or it reports a problem. The message has the reason.
    """
    address = settings.address(name)
    if not address.port:
        raise ServiceDown(f"no {name} port in the settings: run `truelog up`, which chooses a port")
    connection = HTTPConnection(address.host, address.port, timeout=seconds)
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
