"""A collector whose event loop also measures how long its other work keeps it from a heartbeat.

`GET /stalls` returns the largest gap since the previous call, in seconds: by the clock, and in the loop's own CPU time,
which other processes on the machine do not affect.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse

from truelog.services.collector.service import create_app
from truelog.services.http_server import run_server
from truelog.support.settings import Settings

_BEAT_SECONDS = 0.005


class Heartbeat:
    """A task on the event loop that remembers the largest gaps between its steps."""

    def __init__(self) -> None:
        self.largest = {"clock": 0.0, "cpu": 0.0}

    async def beat(self) -> None:
        clock, cpu = time.monotonic(), time.thread_time()
        while True:
            await asyncio.sleep(_BEAT_SECONDS)
            before, (clock, cpu) = (clock, cpu), (time.monotonic(), time.thread_time())
            self.largest["clock"] = max(self.largest["clock"], clock - before[0] - _BEAT_SECONDS)
            self.largest["cpu"] = max(self.largest["cpu"], cpu - before[1])

    async def read(self, _: Request) -> JSONResponse:
        largest, self.largest = self.largest, {"clock": 0.0, "cpu": 0.0}
        return JSONResponse(largest)


def main() -> None:
    settings = Settings()
    run_server(partial(measured_app, settings, Heartbeat()), settings.address("collector"), grace=5)


def measured_app(settings: Settings, heartbeat: Heartbeat) -> Starlette:
    app = create_app(settings)
    app.add_route("/stalls", heartbeat.read)
    running = app.router.lifespan_context

    @asynccontextmanager
    async def measured(started: Starlette) -> AsyncIterator[None]:
        async with running(started):
            task = asyncio.create_task(heartbeat.beat())
            yield
            task.cancel()

    app.router.lifespan_context = measured
    return app


if __name__ == "__main__":
    main()
