"""The asynchronous client. Its methods are those of `Client`."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import Any, Self

import httpx

from truelog.client import exchange
from truelog.client.exchange import UNANSWERED, Addresses, Ask, Event, Retries
from truelog.client.page import Page
from truelog.client.receipt import Receipt
from truelog.client.subscription import subscribing
from truelog.client.update import Update


class AsyncClient:
    """Sends events and reads views. The tasks of one event loop may share a client."""

    def __init__(
        self,
        *,
        collector: str = "",
        producer_key: str = "",
        api: str = "",
        reader_key: str = "",
        seconds: float = 30.0,
    ) -> None:
        """`seconds` is how long a request is repeated while a service does not answer or is too busy."""
        self._at = Addresses(collector.rstrip("/"), producer_key, api.rstrip("/"), reader_key)
        self._seconds = seconds
        self._http = httpx.AsyncClient(timeout=seconds, follow_redirects=False, limits=exchange.LIMITS)

    async def send(self, *events: Event, traceparent: str = "") -> Receipt:
        """As `Client.send`."""
        return exchange.receipt(await self._ask(exchange.sending(self._at, events, traceparent)))

    async def rows(self, view: str, relation: str = "", **asked: Any) -> Page:
        """As `Client.rows`."""
        return exchange.page(await self._ask(exchange.reading(self._at, view, relation, asked)))

    async def walk(self, view: str, **asked: Any) -> AsyncIterator[Mapping[str, Any]]:
        """As `Client.walk`."""
        page = await self.rows(view, **asked)
        while True:
            for row in page.rows:
                yield row
            if not page.next:
                return
            page = await self.rows(view, **asked | {"cursor": page.next})

    async def subscribe(self, view: str, **asked: Any) -> AsyncIterator[Update]:
        """As `Client.subscribe`."""
        subscription = subscribing(self._at, view, asked, self._seconds)
        while True:
            try:
                async with self._http.stream(**subscription.arguments) as answer:
                    pause = subscription.pause_after(answer)
                    if pause is None:
                        await _read_refusal(answer)
                        async for data in answer.aiter_bytes():
                            for update in subscription.updates(data):
                                yield update
                        pause = subscription.pause_after_end()
            except UNANSWERED as error:
                pause = subscription.pause_after(error)
            await asyncio.sleep(pause or 0.0)

    async def scoped_token(self, view: str, key: Mapping[str, str], relation: str = "", seconds: int = 300) -> str:
        """As `Client.scoped_token`."""
        asked = exchange.exchanging(self._at, view, relation, key, seconds)
        return str(exchange.answered(await self._ask(asked))["token"])

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def _ask(self, ask: Ask) -> httpx.Response:
        retries = Retries(self._seconds)
        while True:
            outcome = await self._attempt(ask)
            pause = retries.pause_after(outcome)
            if pause is None:
                assert isinstance(outcome, httpx.Response)  # noqa: S101
                return outcome
            await asyncio.sleep(pause)

    async def _attempt(self, ask: Ask) -> httpx.Response | httpx.TransportError:
        try:
            return await self._http.request(**ask.arguments)
        except UNANSWERED as error:
            return error


async def _read_refusal(answer: httpx.Response) -> None:
    """Raise the refusal of a stream."""
    if answer.status_code != 200:
        await answer.aread()
        exchange.answered(answer)
