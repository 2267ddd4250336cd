"""Bodies of requests: their limits, compression, and the capacity that all requests share."""

import asyncio
import gzip
from collections.abc import AsyncIterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.library.posted import (
    REPEATABLE,
)
from truelog.sources.collector.body import CapacityLimit, read_body
from truelog.support.errors import RequestRefused


def body(sent: bytes, encoding: str = "", limit: int = 1000, chunk: int = 7) -> bytes:
    async def chunks() -> AsyncIterator[bytes]:
        for start in range(0, len(sent), chunk):
            yield sent[start : start + chunk]

    with CapacityLimit(1, 10**6, 1, 10**6).admit("key") as claim:
        return asyncio.run(read_body(chunks(), encoding, limit, claim))


def status(*args: object) -> int:
    with pytest.raises(RequestRefused) as raised:
        body(*args)  # type: ignore[arg-type]
    return raised.value.status


@settings(REPEATABLE, max_examples=50)
@given(st.binary(max_size=1000), st.integers(1, 1000))
def test_a_gzipped_body_gives_the_same_bytes(sent: bytes, chunk: int) -> None:
    assert body(gzip.compress(sent), "gzip", 2000, chunk) == body(sent) == sent


def test_bodies_that_are_too_large_are_rejected() -> None:
    assert body(b"x" * 1000) == b"x" * 1000
    assert status(b"x" * 1001) == 413
    assert status(gzip.compress(b"x" * 1001), "gzip") == 413
    empty_blocks = b"\x00\x00\x00\xff\xff" * 300  # deflate blocks without data
    assert status(gzip.compress(b"")[:10] + empty_blocks, "gzip") == 413


def test_a_decompression_bomb_is_never_decompressed() -> None:
    bomb = gzip.compress(b"\x00" * 50_000_000)
    capacity = CapacityLimit(1, 2_000, 1, 2_000)

    async def chunks() -> AsyncIterator[bytes]:
        yield bomb

    with capacity.admit("key") as claim, pytest.raises(RequestRefused) as raised:
        asyncio.run(read_body(chunks(), "gzip", 1000, claim))
    assert raised.value.status == 413
    assert claim.size <= 1000


def test_a_compressed_body_is_decompressed_in_slices() -> None:
    """Other requests run between two slices. A slice takes less than a millisecond."""
    bomb, steps = gzip.compress(b" " * 4_000_000), 0

    async def read() -> bytes:
        async def chunks() -> AsyncIterator[bytes]:
            yield bomb

        async def count() -> None:
            nonlocal steps
            while True:
                steps += 1
                await asyncio.sleep(0)

        others = asyncio.create_task(count())
        with CapacityLimit(1, 10**7, 1, 10**7).admit("key") as claim:
            body = await read_body(chunks(), "gzip", 4_000_000, claim)
        others.cancel()
        return body

    assert len(asyncio.run(read())) == 4_000_000
    assert steps > 40


def test_invalid_encodings_are_rejected() -> None:
    compressed = gzip.compress(b"some text")
    assert status(b"no gzip", "gzip") == 400
    assert status(compressed[:-1], "gzip") == 400
    assert status(compressed + b"x", "gzip") == 400
    assert status(compressed + compressed, "gzip", 1000, 1000) == 400
    assert status(b"x", "br") == 415


def test_requests_beyond_the_capacity_are_rejected_until_others_end() -> None:
    capacity = CapacityLimit(requests=2, size=10, key_requests=2, key_size=10)
    with capacity.admit("a") as first, capacity.admit("b") as second:
        first.acquire(6)
        with pytest.raises(RequestRefused) as raised:
            second.acquire(5)
        assert (raised.value.status, raised.value.retry_after) == (429, 1)
        second.acquire(4)
        with pytest.raises(RequestRefused), capacity.admit("c"):
            pass
    with capacity.admit("c") as third:
        third.acquire(10)


def refused(status: int, reason: str) -> "pytest.RaisesExc[RequestRefused]":
    return pytest.raises(RequestRefused, match=reason, check=lambda error: error.status == status)


def test_one_key_cannot_hold_all_of_the_capacity() -> None:
    capacity = CapacityLimit(requests=4, size=100, key_requests=2, key_size=60)
    with capacity.admit("slow") as first, capacity.admit("slow") as second:
        with refused(429, "this key has too many"), capacity.admit("slow"):
            pass
        first.acquire(50)
        with refused(429, "this key has too many"):
            second.acquire(11)
        with capacity.admit("other") as third:
            third.acquire(50)
            with refused(429, "too many requests in progress"):
                third.acquire(1)
    with capacity.admit("slow") as again:
        again.acquire(60)
