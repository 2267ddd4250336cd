"""Headers: what a browser may do with an answer; no page runs a line that is not in a file of ours."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Callable[[], Awaitable[Any]], Send], Awaitable[None]]

# Of all of Airflow: it sends none of its own, and any site could put it into a frame and have buttons clicked there.
EVERYWHERE = {
    "x-frame-options": "SAMEORIGIN",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
}
OURS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'",
    "cache-control": "no-store",
}


class Headers:
    """Adds headers to every answer of an application that has not set them itself."""

    def __init__(self, app: App, headers: dict[str, str]) -> None:
        self.app = app
        self.headers = {name.encode(): value.encode() for name, value in headers.items()}

    async def __call__(self, scope: Scope, receive: Callable[[], Awaitable[Any]], send: Send) -> None:
        async def sending(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                there = list(message.get("headers", ()))
                named = {name.lower() for name, _ in there}
                message["headers"] = [*there, *((n, v) for n, v in self.headers.items() if n not in named)]
            await send(message)

        await self.app(scope, receive, sending)
