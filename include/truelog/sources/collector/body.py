"""Reads and decompresses a complete request body, within limits that no sender can exceed.

A gzipped body is decompressed as it arrives and never past the limit, so that a small body cannot grow without bound in
memory. All requests in progress share one capacity limit, and each key may hold only a part of the capacity. If a limit
is reached, the sender must retry.
"""

import asyncio
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from truelog.support.errors import RequestRefused

RETRY_SECONDS = 1
_SLICE_BYTES = 64 * 1024  # decompressed without a break for other requests


@dataclass
class _Usage:
    """The number of requests in progress, and the size of their bodies in bytes."""

    requests: int = 0
    size: int = 0


class CapacityLimit:
    """Limits the requests in progress and the size of their bodies, in all and for each key."""

    def __init__(self, requests: int, size: int, key_requests: int, key_size: int, holder: str = "key") -> None:
        """`holder` names in errors what the limits of a key are for."""
        self._holder = holder
        self._most, self._most_of_key = _Usage(requests, size), _Usage(key_requests, key_size)
        self._used, self._used_by = _Usage(), dict[str, _Usage]()

    @contextmanager
    def admit(self, key: str) -> Iterator["CapacityClaim"]:
        """Admit one request, and release its capacity when the request is finished.

        Raises:
            RequestRefused: 429, too many requests are in progress.
        """
        claim = CapacityClaim(self, key)
        self._take(key, _Usage(requests=1))
        try:
            yield claim
        finally:
            self._release(key, _Usage(1, claim.size))

    @property
    def size(self) -> int:
        """The size of the bodies in progress."""
        return self._used.size

    def acquire(self, key: str, size: int) -> None:
        """Raises 429 if the bodies in progress would exceed the limits."""
        self._take(key, _Usage(size=size))

    def _take(self, key: str, more: _Usage) -> None:
        used_by_key = self._used_by.get(key, _Usage())
        if not _fits(used_by_key, more, self._most_of_key):
            raise _full(f"this {self._holder} has too many requests in progress")
        if not _fits(self._used, more, self._most):
            raise _full("too many requests in progress")
        for used in (self._used, self._used_by.setdefault(key, used_by_key)):
            used.requests += more.requests
            used.size += more.size

    def _release(self, key: str, less: _Usage) -> None:
        for used in (self._used, self._used_by[key]):
            used.requests -= less.requests
            used.size -= less.size
        if not self._used_by[key].requests:
            del self._used_by[key]


class CapacityClaim:
    """The part of the capacity that one request holds."""

    def __init__(self, limit: CapacityLimit, key: str) -> None:
        self._limit = limit
        self._key = key
        self.size = 0

    def acquire(self, size: int) -> None:
        self._limit.acquire(self._key, size)
        self.size += size


def _fits(used: _Usage, more: _Usage, most: _Usage) -> bool:
    return used.requests + more.requests <= most.requests and used.size + more.size <= most.size


def _full(reason: str) -> RequestRefused:
    return RequestRefused(429, f"{reason}; retry later", retry_after=RETRY_SECONDS)


async def read_body(chunks: AsyncIterator[bytes], encoding: str, limit: int, claim: CapacityClaim) -> bytes:
    """The body's bytes. Raises 413 if the body has more than `limit` bytes, compressed or decompressed."""
    body, decoder, received = bytearray(), _decoder(encoding), 0
    async for chunk in chunks:
        received += len(chunk)
        for decoded in decoder.feed(chunk):
            # Compressed bytes count too: deflate has empty blocks, so the decompressed size alone limits nothing.
            if received > limit or len(body) + len(decoded) > limit:
                raise too_large(limit)
            claim.acquire(len(decoded))
            body += decoded
            await asyncio.sleep(0)
    decoder.end()
    return bytes(body)


def too_large(limit: int) -> RequestRefused:
    return RequestRefused(413, f"a body may have at most {limit} bytes, decompressed; send fewer events at a time")


class _Plain:
    """An uncompressed body."""

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        yield chunk

    def end(self) -> None:
        """An uncompressed body may end anywhere."""


class _Gzip:
    """A body of one complete gzip member."""

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(wbits=31)

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Decompress in slices, so that the caller can stop at its limit and let other requests run."""
        while True:
            try:
                decoded = self._stream.decompress(chunk, _SLICE_BYTES)
            except zlib.error as error:
                raise RequestRefused(400, f"the body is not gzip: {error}") from None
            if self._stream.unused_data:
                raise RequestRefused(400, "the body continues after its gzip member; send one gzip member")
            yield decoded
            chunk = self._stream.unconsumed_tail
            if not chunk and len(decoded) < _SLICE_BYTES:
                return

    def end(self) -> None:
        if not self._stream.eof:
            raise RequestRefused(400, "the body's gzip member is incomplete")


def _decoder(encoding: str) -> _Plain | _Gzip:
    if encoding in ("", "identity"):
        return _Plain()
    if encoding in ("gzip", "x-gzip"):
        return _Gzip()
    raise RequestRefused(415, "Content-Encoding: send gzip, or none")
