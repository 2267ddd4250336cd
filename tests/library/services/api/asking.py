"""A client of the API within the test's process. The requests are real ones of HTTP, without a socket."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx
from fastapi import FastAPI

from truelog.services.api.application import create_app
from truelog.services.api.questions import Questions
from truelog.support.settings import Settings

NONE: Mapping[str, str] = {}
_Result = TypeVar("_Result")


@dataclass
class Asking:
    """Asks as the holder of a credential, the reader's key by default."""

    loop: asyncio.Runner
    client: httpx.AsyncClient
    app: FastAPI
    key: str

    @property
    def questions(self) -> Questions:
        """What answers the routes."""
        questions: Questions = self.app.state.questions
        return questions

    def get(self, path: str, credential: Any = None, headers: Any = NONE, **asked: Any) -> httpx.Response:
        return self.run(self.ask("GET", path, credential, headers, params=asked))

    def request(self, method: str, path: str, credential: str | None = None, **more: Any) -> httpx.Response:
        return self.run(self.ask(method, path, credential, more.pop("headers", {}), **more))

    async def ask(
        self, method: str, path: str, credential: str | None = None, headers: Mapping[str, str] = NONE, **more: Any
    ) -> httpx.Response:
        held = self.key if credential is None else credential
        authorization = {"Authorization": f"Bearer {held}"} if held else {}
        return await self.client.request(method, path, headers={**authorization, **headers}, **more)

    def run(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        return self.loop.run(work)


@contextmanager
def asking(settings: Settings, **changes: object) -> Iterator[Asking]:
    """The API with these settings, until the end of the block."""
    app = create_app(settings.model_copy(update=changes))

    @asynccontextmanager
    async def served() -> AsyncIterator[httpx.AsyncClient]:
        transport = httpx.ASGITransport(app, raise_app_exceptions=True)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://api") as client,
        ):
            yield client

    with asyncio.Runner() as loop:
        serving = served()
        client = loop.run(serving.__aenter__())
        try:
            yield Asking(loop, client, app, settings.reader_key.get_secret_value())
        finally:
            loop.run(serving.__aexit__(None, None, None))
