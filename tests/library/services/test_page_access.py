"""Requests of pages: the key in the address, the page's origin, and the headers for the browser."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from truelog.services import web
from truelog.services.declaration import HEALTH, Http, Route
from truelog.storage import api_key
from truelog.storage.api_key import Page, Role
from truelog.storage.audit_trail import by_hand
from truelog.storage.database import connect
from truelog.support.settings import Settings

THINGS, ORDERS = Route("POST", "/things", Role.BROWSER), Route("POST", "/orders", Role.PRODUCER)
SHOP, STRANGER = "https://shop.example", "https://stranger.example"


@pytest.fixture(scope="module")
def key(postgresql: Settings) -> str:
    with connect(postgresql) as connection:
        return api_key.add_key(connection, "page", Role.BROWSER, by_hand(), Page((SHOP,), ("page_view",)))


@asynccontextmanager
async def work() -> AsyncIterator[None]:
    yield


async def accept(request: Request) -> Response:
    key = request.state.key
    return JSONResponse({"from": key.name, "types": key.page and key.page.event_types})


def ask(settings: Settings, method: str, path: str, **headers: str) -> httpx.Response:
    routes = (THINGS, ORDERS, HEALTH)
    app = web.create_app(settings, Http("Things", 1, routes), dict.fromkeys(routes, accept), work)

    async def answer() -> httpx.Response:
        async with app.router.lifespan_context(app), httpx.AsyncClient(transport=httpx.ASGITransport(app)) as client:
            return await client.request(method, f"http://service{path}", headers=headers)

    return asyncio.run(answer())


def test_a_page_of_the_origin_is_served(postgresql: Settings, key: str) -> None:
    answer = ask(postgresql, "POST", f"/things?key={key}", Origin=SHOP)
    assert (answer.status_code, answer.json()) == (200, {"from": "page", "types": ["page_view"]})
    assert (answer.headers["Access-Control-Allow-Origin"], answer.headers["Vary"]) == (SHOP, "Origin")
    assert "Access-Control-Allow-Credentials" not in answer.headers


@pytest.mark.parametrize("origin", [STRANGER, "null", f"{SHOP}.evil", f"{SHOP}:8443", ""])
def test_a_page_of_another_origin_is_refused_and_may_read_why(postgresql: Settings, key: str, origin: str) -> None:
    for method in ("POST", "OPTIONS"):
        answer = ask(postgresql, method, f"/things?key={key}", Origin=origin)
        assert (answer.status_code, answer.json()) == (403, {"error": f"the key is for pages of {SHOP}"})
        assert answer.headers["Access-Control-Allow-Origin"] == (origin or "null")


def test_only_keys_of_browsers_open_the_route_and_they_open_no_other(postgresql: Settings, key: str) -> None:
    for other in ("", "page.x", *(k.get_secret_value() for k in (postgresql.producer_key, postgresql.admin_key))):
        assert ask(postgresql, "POST", f"/things?key={other}", Origin=SHOP).status_code == 401
    for path in ("/orders", f"/orders?key={key}"):
        assert ask(postgresql, "POST", path, Origin=SHOP, Authorization=f"Bearer {key}").status_code == 403


def test_a_preflight_is_answered(postgresql: Settings, key: str) -> None:
    answer = ask(postgresql, "OPTIONS", f"/things?key={key}", Origin=SHOP)
    assert answer.status_code == 204
    assert answer.headers["Access-Control-Allow-Origin"] == SHOP
    assert answer.headers["Access-Control-Allow-Methods"] == "POST"
    assert answer.headers["Access-Control-Allow-Headers"] == "Content-Type"
