"""The HTTP server of a service."""

import asyncio
import fcntl
import gc
import termios
from array import array
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from truelog.support.service_main import configure_logging, stoppable
from truelog.support.setting_groups.services import Address
from truelog.support.wait import outlast

TAKE_SECONDS = 30.0  # in which a client must take something of what is in the buffer of its connection

AT_SHUTDOWN = "truelog.at_shutdown"  # in the scope of a request: what ends an answer that would not end by itself


def run_server(
    create: Callable[[], Any], address: Address, *, grace: int, header_seconds: float = 10.0, proxies: str = ""
) -> None:
    """Serve an application until SIGTERM, then give the requests in progress `grace` seconds to finish.

    `create` makes the application. If it needs a service that does not answer, the start waits for that service.

    A connection is closed if the headers of a request take longer than `header_seconds` to arrive, or if a client takes
    nothing of an answer for longer than `TAKE_SECONDS`. Logs go to standard
    error. Requests are not logged. If a peer is one of the `proxies` (addresses and networks, separated by commas), its
    client is the rightmost entry of `X-Forwarded-For` that is not a proxy.
    """
    configure_logging()
    with stoppable() as stopped:
        application = outlast(create, stopped)
    if stopped.is_set():
        return
    gc.collect()
    gc.freeze()  # or all requests would wait for each full garbage collection, which inspects all modules in 40 ms
    uvicorn.run(
        application,
        host=address.host,
        port=address.port,
        http=limited_protocol(header_seconds),
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=bool(proxies),  # by default, Uvicorn would trust every process on this machine
        forwarded_allow_ips=proxies,
        timeout_graceful_shutdown=grace,
    )


class _Protocol(HttpToolsProtocol):
    """Uvicorn's protocol with time limits for headers and for takers of answers, which Uvicorn lacks."""

    header_seconds: float
    take_seconds: float
    _limit: asyncio.TimerHandle | None = None
    _frozen: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_limit()

    def data_received(self, data: bytes) -> None:
        # No request is in progress, so these bytes belong to headers, or to a body that was already refused.
        if self._limit is None and (self.cycle is None or self.cycle.response_complete):
            self._start_limit()
        super().data_received(data)

    def on_headers_complete(self) -> None:
        self._stop_limit()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_limit()
        self._stop_frozen()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._start_frozen()

    def resume_writing(self) -> None:
        self._stop_frozen()
        super().resume_writing()

    def shutdown(self) -> None:
        super().shutdown()
        if self.cycle is not None and not self.cycle.response_complete:
            scope: Any = self.scope
            scope.get(AT_SHUTDOWN, _nothing)()

    def _start_limit(self) -> None:
        self._limit = self.loop.call_later(self.header_seconds, self.transport.close)

    def _stop_limit(self) -> None:
        if self._limit is not None:
            self._limit.cancel()
            self._limit = None

    def _start_frozen(self) -> None:
        self._frozen = self.loop.call_later(self.take_seconds, self._end_frozen, self._waiting())

    def _end_frozen(self, waiting: int) -> None:
        """End a client that has taken nothing since so many bytes were waiting. A slow one may go on."""
        if self._waiting() < waiting:
            self._start_frozen()
        else:
            self.transport.abort()

    def _waiting(self) -> int:
        """How many bytes the client has not taken.

        The kernel's buffer counts too. It may have megabytes, and takes more only when a third of it is free.
        """
        in_kernel = array("i", [0])
        with suppress(OSError):  # not on Linux
            fcntl.ioctl(self.transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, in_kernel)
        return self.transport.get_write_buffer_size() + in_kernel[0]

    def _stop_frozen(self) -> None:
        if self._frozen is not None:
            self._frozen.cancel()
            self._frozen = None


def limited_protocol(header_seconds: float, take_seconds: float = TAKE_SECONDS) -> type[asyncio.Protocol]:
    """The protocol with these limits."""
    limits = {"header_seconds": header_seconds, "take_seconds": take_seconds}
    return type("LimitedProtocol", (_Protocol,), limits)


def _nothing() -> None:
    """What ends an answer that ends by itself."""
