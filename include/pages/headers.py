"""Security headers, which limit what a browser may do with a response. Pages run only scripts from our own files."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Callable[[], Awaitable[Any]], Send], Awaitable[None]]

# For all of Airflow's responses. Airflow sends no such headers, so any site could frame it and trick users into clicks.
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
    """Adds headers to every response of an application, unless the application has already set them."""

    def __init__(self, app: App, headers: dict[str, str]) -> None:
        self.app = app
        self.headers = {name.encode(): value.encode() for name, value in headers.items()}

    async def __call__(self, scope: Scope, receive: Callable[[], Awaitable[Any]], send: Send) -> None:
        async def send_with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                existing = list(message.get("headers", ()))
                names = {name.lower() for name, _ in existing}
                message["headers"] = [*existing, *((n, v) for n, v in self.headers.items() if n not in names)]
            await send(message)

        await self.app(scope, receive, send_with_headers)
