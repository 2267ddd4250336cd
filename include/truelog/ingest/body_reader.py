"""Reads and decompresses a complete request body, within limits that no sender can exceed.

A gzipped body is decompressed as it arrives and never past the limit, so that a small body cannot grow without bound in
memory. All requests in progress share one capacity limit. If this limit is reached, the sender must retry.
"""

import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

from truelog.support.errors import RequestRefused

RETRY_SECONDS = 1


class CapacityLimit:
    """The collector's remaining capacity: the numbers of requests and of body bytes that it can still accept."""

    def __init__(self, requests: int, size: int) -> None:
        self._requests = requests
        self._bytes = size

    @contextmanager
    def admit(self) -> Iterator["CapacityClaim"]:
        """Admit one request, and release its capacity when the request is finished.

        Raises:
            RequestRefused: 429, too many requests are in progress.
        """
        if self._requests < 1:
            raise _full()
        self._requests -= 1
        lease = CapacityClaim(self)
        try:
            yield lease
        finally:
            self._requests += 1
            self._bytes += lease.size

    def acquire(self, size: int) -> None:
        if self._bytes < size:
            raise _full()
        self._bytes -= size


class CapacityClaim:
    """The part of the capacity that one request holds."""

    def __init__(self, limit: CapacityLimit) -> None:
        self._limit = limit
        self.size = 0

    def acquire(self, size: int) -> None:
        self._limit.acquire(size)
        self.size += size


def _full() -> RequestRefused:
    return RequestRefused(429, "too many requests in progress; retry later", retry_after=RETRY_SECONDS)


async def read_body(chunks: AsyncIterator[bytes], encoding: str, limit: int, lease: CapacityClaim) -> bytes:
    """The body's bytes. Raises 413 if the body has more than `limit` bytes, compressed or decompressed."""
    body, decoder, received = bytearray(), _decoder(encoding), 0
    async for chunk in chunks:
        received += len(chunk)
        decoded = decoder.feed(chunk, limit - len(body))
        # Compressed bytes count too: deflate has empty blocks, so the decompressed size alone limits nothing.
        if received > limit or len(body) + len(decoded) > limit:
            raise too_large(limit)
        lease.acquire(len(decoded))
        body += decoded
    decoder.end()
    return bytes(body)


def too_large(limit: int) -> RequestRefused:
    return RequestRefused(413, f"a body may have at most {limit} bytes, decompressed; send fewer events at a time")


class _Plain:
    """An uncompressed body."""

    def feed(self, chunk: bytes, _: int) -> bytes:
        return chunk

    def end(self) -> None:
        """An uncompressed body may end anywhere."""


class _Gzip:
    """A body of one complete gzip member."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(wbits=31)

    def feed(self, chunk: bytes, left: int) -> bytes:
        """Decompress at most one byte more than allowed, which is enough to detect an excess."""
        try:
            decoded = self._stream.decompress(chunk, left + 1)
        except zlib.error as error:
            raise RequestRefused(400, f"the body is not gzip: {error}") from None
        if self._stream.unused_data:
            raise RequestRefused(400, "the body continues after its gzip member; send one gzip member")
        return decoded

    def end(self) -> None:
        if not self._stream.eof:
            raise RequestRefused(400, "the body's gzip member is incomplete")


def _decoder(encoding: str) -> _Plain | _Gzip:
    if encoding in ("", "identity"):
        return _Plain()
    if encoding in ("gzip", "x-gzip"):
        return _Gzip()
    raise RequestRefused(415, "Content-Encoding: send gzip, or none")
