"""Redirects the addresses that pages had until release 0.1, so that bookmarks and earlier notifications still work.

Each page had an entry of its own: `/plugin/truelog-lag`, and `/plugin/truelog-views/truelog/view?name=…` for details.
"""

import re
from collections.abc import Awaitable, Callable
from typing import Any

from pages.headers import App, Scope, Send

_FORMER = re.compile(r"/plugin/truelog-(?P<page>[a-z]+)(?:/truelog/(?P<inner>[a-z-]+))?/?")


class FormerAddresses:
    """Redirects a former address to the page's address below `plugin`."""

    def __init__(self, app: App, plugin: str) -> None:
        self.app, self.plugin = app, plugin

    async def __call__(self, scope: Scope, receive: Callable[[], Awaitable[Any]], send: Send) -> None:
        former = _FORMER.fullmatch(scope.get("path", "")) if scope["type"] == "http" else None
        if former is None:
            await self.app(scope, receive, send)
            return
        query = scope.get("query_string", b"")
        page = f"{scope.get('root_path', '')}{self.plugin}/{former['inner'] or former['page']}"
        location = page.encode() + (b"?" + query if query else b"")
        await send({"type": "http.response.start", "status": 308, "headers": [(b"location", location)]})
        await send({"type": "http.response.body", "body": b""})
