"""The answer to a subscriber: server-sent events, with heartbeats, until one of both ends it."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from truelog.services.api.changes.place import Place
from truelog.services.api.changes.subscriber import Subscriber
from truelog.services.http_server import AT_SHUTDOWN

MEDIA_TYPE = "text/event-stream"
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}  # a proxy must pass each event on
HEARTBEAT_SECONDS = 15.0
_RETRY = b"retry: 1000\n\n"  # how many milliseconds a browser waits before it comes back


class ChangeStream(StreamingResponse):
    """The events of a subscriber. `claims` end with the answer, whichever side ends it."""

    media_type = MEDIA_TYPE

    def __init__(
        self,
        subscriber: Subscriber,
        place: Callable[[], Place | None],
        permitted: Callable[[], bool],
        claims: ExitStack,
    ) -> None:
        super().__init__(events(subscriber, place, permitted), headers=HEADERS)
        self._subscriber = subscriber
        self._claims = claims

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[AT_SHUTDOWN] = self._subscriber.end
        with self._claims:
            await super().__call__(scope, receive, send)


async def events(
    subscriber: Subscriber, place: Callable[[], Place | None], permitted: Callable[[], bool]
) -> AsyncIterator[bytes]:
    """The messages of a subscriber. A heartbeat moves the place of a client whose rows do not change.

    At least as often as a heartbeat is due, the credential is checked again.
    """
    yield _RETRY
    due = time.monotonic() + HEARTBEAT_SECONDS
    while (message := await subscriber.take(max(0.0, due - time.monotonic()))) is not None:
        if message:
            yield message
        if time.monotonic() < due:
            continue
        if not permitted():
            return
        if not message:
            yield _heartbeat(place())
        due = time.monotonic() + HEARTBEAT_SECONDS


def _heartbeat(place: Place | None) -> bytes:
    """A comment. With an id, it moves the place of the client, but has no event."""
    return b": heartbeat\n" + (f"id: {place.as_text()}\n\n" if place else "\n").encode()
