"""What both clients do without the network."""

import asyncio

import pytest

from truelog.client.async_client import AsyncClient
from truelog.client.client import Client
from truelog.client.errors import NoToken


def test_a_read_that_should_wait_without_a_token_is_refused() -> None:
    """Its rows could lack the events, and the caller would not know."""
    with Client(api="http://127.0.0.1:1", seconds=1) as client:
        with pytest.raises(NoToken, match="leave at_least out"):
            client.rows("carts", at_least=None)
        with pytest.raises(NoToken):
            next(client.walk("carts", at_least=None))

    async def ask() -> None:
        async with AsyncClient(api="http://127.0.0.1:1", seconds=1) as client:
            await client.rows("carts", at_least=None)

    with pytest.raises(NoToken):
        asyncio.run(ask())
