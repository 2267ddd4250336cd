"""The HTTP server of a service."""

import asyncio
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from truelog.support.service_main import configure_logging
from truelog.support.setting_groups.services import Address


def run_server(
    application: Any, address: Address, *, grace: int, header_seconds: float = 10.0, proxies: str = ""
) -> None:
    """Serve until SIGTERM, then give the requests in progress `grace` seconds to finish.

    A connection is closed if the headers of a request take longer than `header_seconds` to arrive. Logs go to standard
    error. Requests are not logged. If a peer is one of the `proxies` (addresses and networks, separated by commas), its
    client is the rightmost entry of `X-Forwarded-For` that is not a proxy.
    """
    configure_logging()
    uvicorn.run(
        application,
        host=address.host,
        port=address.port,
        http=_with_header_limit(header_seconds),
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=bool(proxies),  # by default, Uvicorn would trust every process on this machine
        forwarded_allow_ips=proxies,
        timeout_graceful_shutdown=grace,
    )


def _with_header_limit(seconds: float) -> type[asyncio.Protocol]:
    """Uvicorn's protocol with a time limit for headers, which Uvicorn lacks."""

    class Protocol(HttpToolsProtocol):
        _limit: asyncio.TimerHandle | None = None

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
            super().connection_lost(exc)

        def _start_limit(self) -> None:
            self._limit = self.loop.call_later(seconds, self.transport.close)

        def _stop_limit(self) -> None:
            if self._limit is not None:
                self._limit.cancel()
                self._limit = None

    return Protocol
