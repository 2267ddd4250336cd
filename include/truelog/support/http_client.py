"""JSON requests to third-party HTTP servers, with a time limit.

An address may contain a secret, so no error message or log contains the address.
"""

import asyncio
import json
import os
import ssl
from contextlib import aclosing
from functools import lru_cache
from typing import Any

import httpx

from truelog.support.errors import NoticeRefused, NotSetUp, ReceiverDown

_EXCERPT = 200  # bytes of a response that an error quotes
_REJECTED = (400, 413, 422)  # the server will never accept this message; an operator can fix every other cause
_JSON = {"Content-Type": "application/json"}


def post_json(url: str, body: Any, headers: dict[str, str], seconds: float) -> None:
    """POST `body` as JSON, like `post_text`."""
    post_text(url, json.dumps(body), headers, seconds)


def post_text(url: str, body: str, headers: dict[str, str], seconds: float) -> None:
    """POST a JSON text and return once the server has accepted it.

    The request and its response may take at most `seconds`. The limit does not cover name resolution. Redirects are not
    followed. Proxy settings in the environment are ignored.

    Raises:
        NotSetUp: the address is not a valid HTTP or HTTPS address.
        ReceiverDown: the server did not answer in time, failed, or denied access.
        NoticeRefused: the server rejected the message as invalid.
    """
    address = _address(url)
    try:
        request = httpx.Request("POST", address, content=body, headers=_JSON | headers)
        status, excerpt = asyncio.run(_send(request, seconds))
    except TimeoutError:
        raise ReceiverDown(f"it did not answer within {seconds:g} s") from None
    except (httpx.NetworkError, OSError) as error:
        raise ReceiverDown(f"it did not answer: {type(error).__name__}: {error}") from None
    except httpx.RemoteProtocolError:
        raise ReceiverDown("it closed the connection, or did not answer in HTTP") from None
    except (httpx.TransportError, ValueError) as error:  # these errors quote their input, which may be a secret
        raise ReceiverDown(f"its address or its credential is not valid in HTTP: {type(error).__name__}") from None
    if status in _REJECTED:
        raise NoticeRefused(f"{status}: {excerpt}")
    if not 200 <= status < 300:
        raise ReceiverDown(f"it answered {status}: {excerpt}")


def authorities() -> ssl.SSLContext:
    """Trusts the system's certificate authorities, because an organisation may have added its own authority.

    Loading them takes about 20 ms of CPU time, so they are kept until their file is another one or changes.
    """
    file = ssl.get_default_verify_paths().cafile
    return _load_authorities(file, os.stat(file).st_mtime_ns if file else 0)


@lru_cache(maxsize=1)
def _load_authorities(_file: str | None, _changed: int) -> ssl.SSLContext:
    return ssl.create_default_context()


def _address(url: str) -> httpx.URL:
    try:
        address = httpx.URL(url)
    except (httpx.InvalidURL, ValueError):
        address = httpx.URL()
    if address.scheme not in ("http", "https") or not address.host:
        raise NotSetUp("the address of a receiver is not an http or https address; see docs/alerts.md") from None
    return address


async def _send(request: httpx.Request, seconds: float) -> tuple[int, str]:
    """The status and the beginning of the response.

    An httpx client would log the address, so this function uses the transport alone.
    """
    async with asyncio.timeout(seconds), httpx.AsyncHTTPTransport(verify=authorities()) as transport:
        response = await transport.handle_async_request(request)
        body = b""
        async with aclosing(response):
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) >= _EXCERPT:
                    break
        return response.status_code, body[:_EXCERPT].decode(errors="replace")
