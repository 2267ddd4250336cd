"""How services answer requests: each declared route, its role, and requests that no route answers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
from pydantic import SecretStr
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from truelog.services import web
from truelog.services.declaration import HEALTH, METRICS, Http, Route
from truelog.storage.api_key import Role
from truelog.support.errors import RequestRefused
from truelog.support.settings import Settings

THINGS = Route("POST", "/things", Role.PRODUCER)


@asynccontextmanager
async def work() -> AsyncIterator[None]:
    yield


async def accept(request: Request) -> Response:
    return JSONResponse({"from": request.state.key.name})


async def refuse(_: Request) -> Response:
    raise RequestRefused(429, "too many", retry_after=3)


async def health(_: Request) -> Response:
    return JSONResponse({})


def ask(settings: Settings, method: str, path: str, key: SecretStr | None = None) -> httpx.Response:
    """The answer of a service with a route for each case."""
    routes = (THINGS, METRICS, HEALTH)
    app = web.create_app(
        settings, Http("Things", 1, routes), dict(zip(routes, (accept, refuse, health), strict=True)), work
    )

    async def answer() -> httpx.Response:
        async with app.router.lifespan_context(app), httpx.AsyncClient(transport=httpx.ASGITransport(app)) as client:
            headers = {"Authorization": f"Bearer {key.get_secret_value()}"} if key else {}
            return await client.request(method, f"http://service{path}", headers=headers)

    return asyncio.run(answer())


def test_a_route_needs_a_key_of_its_role(postgresql: Settings) -> None:
    good, wrong = (ask(postgresql, "POST", "/things", k) for k in (postgresql.producer_key, postgresql.reader_key))
    assert (good.status_code, good.json()) == (200, {"from": "producer"})
    assert wrong.status_code == 403
    assert wrong.json() == {"error": "the role reader may not do this; use a key with the role producer"}
    unknown = ask(postgresql, "POST", "/things")
    assert (unknown.status_code, unknown.headers["WWW-Authenticate"]) == (401, "Bearer")
    assert unknown.json() == {"error": "no such key; send Authorization: Bearer KEY"}


def test_a_route_without_a_role_needs_no_key(postgresql: Settings) -> None:
    assert [ask(postgresql, method, "/health").status_code for method in ("GET", "HEAD")] == [200, 200]


def test_a_refusal_says_when_to_retry(postgresql: Settings) -> None:
    refused = ask(postgresql, "GET", "/metrics", postgresql.admin_key)
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "3")
    assert refused.json() == {"error": "too many"}


def test_other_requests_get_no_answer_and_no_redirect(postgresql: Settings) -> None:
    answers = [ask(postgresql, "GET", path) for path in ("/x", "/health/", "/docs", "/openapi.json")]
    assert [(each.status_code, each.json()) for each in answers] == [(404, {"detail": "Not Found"})] * 4
    wrong = ask(postgresql, "GET", "/things")
    assert (wrong.status_code, wrong.headers["Allow"], wrong.json()) == (
        405,
        "OPTIONS, POST",
        {"detail": "Method Not Allowed"},
    )


def test_a_declared_route_without_a_handler_is_refused(postgresql: Settings) -> None:
    with pytest.raises(KeyError):
        web.create_app(postgresql, Http("Things", 1, (HEALTH,)), {}, work)
