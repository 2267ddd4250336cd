"""Posting to somebody else's HTTP server: bounded in time, without redirects, and silent about the address.

An address may hold a secret, so no error and no log names it.
"""

import json
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import SplitResult, urlsplit

from truelog.support.errors import NoticeRefused, NotSetUp, ReceiverDown

_SAID = 200  # characters of an answer that are kept
_NEVER = (400, 413, 422)  # this very message will not be taken; whatever else is wrong may be mended


def post_json(url: str, body: Any, headers: dict[str, str], seconds: float) -> None:
    """Done once it was taken; an answer is waited for that long.

    Raises:
        NotSetUp: the address is none.
        ReceiverDown: it did not answer in time, or said that it cannot, or that we may not.
        NoticeRefused: it says that the message is no good.
    """
    parts, connection = _connection(url, seconds)
    try:
        path = f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"} | headers)
        answer = connection.getresponse()
        said = answer.read(_SAID).decode(errors="replace")
    except OSError as error:
        raise ReceiverDown(f"it did not answer: {type(error).__name__}: {error}") from error
    except (HTTPException, ValueError) as error:  # which quote what they were given, a secret among it
        raise ReceiverDown(
            f"this is no HTTP, by its address, its credential or its answer: {type(error).__name__}"
        ) from None
    finally:
        connection.close()
    if answer.status in _NEVER:
        raise NoticeRefused(f"{answer.status}: {said}")
    if not 200 <= answer.status < 300:
        raise ReceiverDown(f"it answered {answer.status}: {said}")


def _connection(url: str, seconds: float) -> tuple[SplitResult, HTTPConnection]:
    try:
        parts = urlsplit(url)
        connect = {"http": HTTPConnection, "https": HTTPSConnection}[parts.scheme if parts.hostname else ""]
        return parts, connect(str(parts.hostname), parts.port, timeout=seconds)
    except (KeyError, ValueError, HTTPException):
        raise NotSetUp("the address of a receiver is no http or https address; see docs/alerts.md") from None
