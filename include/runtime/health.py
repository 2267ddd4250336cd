"""The question that our own HTTP services answer without a key: are you well?"""

import json
from http.client import HTTPConnection, HTTPException

from truelog.errors import ServiceDown


def require(host: str, port: int) -> None:
    """It answers, and says that those behind it answer.

    Raises:
        ServiceDown: with what it says instead.
    """
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
