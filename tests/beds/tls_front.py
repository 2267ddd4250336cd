"""Puts TLS in front of a server that has none, such as the embedded PostgreSQL."""

import asyncio
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

SSL_REQUEST = bytes.fromhex("0000000804d2162f")  # what a client of PostgreSQL asks first
_LOOPBACK = "127.0.0.1"


@contextmanager
def tls_front(port: int, context: ssl.SSLContext, *, of_postgresql: bool = False) -> Iterator[int]:
    """The port at which the server of `port` is reached with TLS until the block ends."""
    front = _Front(port, context, of_postgresql)
    thread = threading.Thread(target=front.run, daemon=True)
    thread.start()
    front.listening.wait()
    try:
        yield front.port
    finally:
        front.end()
        thread.join()


class _Front:
    """An event loop of its own that passes bytes on."""

    def __init__(self, target: int, context: ssl.SSLContext, of_postgresql: bool) -> None:
        self._target, self._context, self._of_postgresql = target, context, of_postgresql
        self._loop, self._ended = asyncio.new_event_loop(), asyncio.Event()
        self.listening, self.port = threading.Event(), 0

    def run(self) -> None:
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)

    async def _serve(self) -> None:
        tls = None if self._of_postgresql else self._context
        server = await asyncio.start_server(self._accept, _LOOPBACK, 0, ssl=tls)
        self.port = server.sockets[0].getsockname()[1]
        self.listening.set()
        await self._ended.wait()
        server.close()
        for each in asyncio.all_tasks() - {asyncio.current_task()}:
            each.cancel()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, EOFError, asyncio.CancelledError):
            if self._of_postgresql:
                if await reader.readexactly(len(SSL_REQUEST)) != SSL_REQUEST:
                    raise ConnectionError("the client does not ask for TLS")
                writer.write(b"S")
                await writer.start_tls(self._context)
            other_reader, other_writer = await asyncio.open_connection(_LOOPBACK, self._target)
            await asyncio.gather(_pass_on(reader, other_writer), _pass_on(other_reader, writer))
        writer.close()


async def _pass_on(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await source.read(2**16):
            target.write(data)
            await target.drain()
    target.close()
