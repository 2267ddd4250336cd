"""The answer to a request that fails for a reason that no code expects: what to do, and where the reason is."""

import logging
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from pages.answer import refusal
from pages.headers import App, Scope, Send

log = logging.getLogger("truelog.pages")


class Failures:
    """Answers a request whose route raised an exception. The log has the exception under the number in the answer."""

    def __init__(self, app: App) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Callable[[], Awaitable[Any]], send: Send) -> None:
        begun = False

        async def watched(message: MutableMapping[str, Any]) -> None:
            nonlocal begun
            begun = begun or message["type"] == "http.response.start"
            await send(message)

        try:
            await self.app(scope, receive, watched)
        except Exception as error:
            if begun or scope["type"] != "http":
                raise
            number = secrets.token_hex(4)
            log.exception("request %s failed: %s %s", number, scope["method"], ascii(scope["path"]))
            await refusal(_way_out(error, number), 500)(scope, receive, send)


def _way_out(error: Exception, number: str) -> str:
    return (
        f"this request failed unexpectedly ({type(error).__name__}). Try another filter or a shorter time range. If it "
        f"fails again, tell an administrator the number {number}: the log of Airflow's API server has the reason "
        "under this number"
    )
