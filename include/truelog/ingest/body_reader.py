"""The body of a request, whole and unpacked, within bounds that no sender can talk the collector out of.

A body may come gzipped. It is unpacked while it arrives and never past the limit, so that a small body cannot become
a large one in memory. All requests under way share one room; who finds it full is asked to come again.
"""

import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

from truelog.support.errors import RequestRefused

RETRY_SECONDS = 1


class CapacityLimit:
    """What the collector holds at once: so many requests, so many bytes of their bodies."""

    def __init__(self, requests: int, size: int) -> None:
        self._requests = requests
        self._bytes = size

    @contextmanager
    def visit(self) -> Iterator["CapacityLease"]:
        if self._requests < 1:
            raise _full()
        self._requests -= 1
        visit = CapacityLease(self)
        try:
            yield visit
        finally:
            self._requests += 1
            self._bytes += visit.taken

    def take(self, size: int) -> None:
        if self._bytes < size:
            raise _full()
        self._bytes -= size


class CapacityLease:
    """One request's part of the room."""

    def __init__(self, room: CapacityLimit) -> None:
        self._room = room
        self.taken = 0

    def take(self, size: int) -> None:
        self._room.take(size)
        self.taken += size


def _full() -> RequestRefused:
    return RequestRefused(429, "too much is under way; send it again in a while", retry_after=RETRY_SECONDS)


async def read_body(chunks: AsyncIterator[bytes], encoding: str, limit: int, visit: CapacityLease) -> bytes:
    """The body's bytes; 413 where there are more than `limit`, packed or unpacked."""
    body, unpack, came = bytearray(), _unpacker(encoding), 0
    async for chunk in chunks:
        came += len(chunk)
        # Packed bytes count as well: deflate has blocks that hold nothing.
        piece = unpack.feed(chunk, limit - len(body))
        if came > limit or len(body) + len(piece) > limit:
            raise too_large(limit)
        visit.take(len(piece))
        body += piece
    unpack.end()
    return bytes(body)


def too_large(limit: int) -> RequestRefused:
    return RequestRefused(413, f"a body holds at most {limit} bytes, unpacked; send fewer events at a time")


class _Plain:
    """A body as it is."""

    def feed(self, chunk: bytes, _: int) -> bytes:
        return chunk

    def end(self) -> None:
        """It ends where it ends."""


class _Gzip:
    """A gzipped body: one member, whole."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(wbits=31)

    def feed(self, chunk: bytes, left: int) -> bytes:
        """At most one byte more than may come: enough to know that it is too much."""
        try:
            piece = self._stream.decompress(chunk, left + 1)
        except zlib.error as error:
            raise RequestRefused(400, f"the body is no gzip: {error}") from None
        if self._stream.unused_data:
            raise RequestRefused(400, "the body goes on after its gzip ends; send one gzip member")
        return piece

    def end(self) -> None:
        if not self._stream.eof:
            raise RequestRefused(400, "the body's gzip is cut short")


def _unpacker(encoding: str) -> _Plain | _Gzip:
    if encoding in ("", "identity"):
        return _Plain()
    if encoding in ("gzip", "x-gzip"):
        return _Gzip()
    raise RequestRefused(415, "Content-Encoding: send gzip, or none")
