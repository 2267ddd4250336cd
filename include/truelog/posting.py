"""Posting to somebody else's HTTP server: bounded in time, without redirects, and silent about the address.

An address may hold a secret, so no error and no log names it.
"""

import json
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import urlsplit

from truelog.errors import NoticeRefused, NotSetUp, ReceiverDown

_SAID = 200  # characters of an answer that are kept
_NEVER = (400, 413, 422)  # this very message will not be taken; whatever else is wrong may be mended


def post(url: str, body: Any, headers: dict[str, str], seconds: float) -> None:
    """Done once it was taken; an answer is waited for that long.

    Raises:
        ReceiverDown: it did not answer in time, or said that it cannot, or that we may not.
        NoticeRefused: it says that the message is no good.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise NotSetUp("an address of a receiver is no http or https address; see docs/alerts.md")
    connect = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    connection = connect(parts.hostname, parts.port, timeout=seconds)
    try:
        path = f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"} | headers)
        answer = connection.getresponse()
        said = answer.read(_SAID).decode(errors="replace")
    except (OSError, HTTPException) as error:
        raise ReceiverDown(f"it did not answer: {type(error).__name__}: {error}") from error
    finally:
        connection.close()
    if answer.status in _NEVER:
        raise NoticeRefused(f"{answer.status}: {said}")
    if not 200 <= answer.status < 300:
        raise ReceiverDown(f"it answered {answer.status}: {said}")
