"""Who may ask what: strangers, wrong keys, scoped tokens and other origins, on every route."""

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import httpx
import jwt
import pytest

from tests.library.services.api.asking import Asking, asking
from tests.library.services.api.shop_views import PAGES, PRODUCTS, at, count, reach
from truelog.services.api import questions
from truelog.services.api.application import create_app
from truelog.services.api.declaration import CHANGES, HTTP, OF_CATALOG
from truelog.services.declaration import HEALTH, Route
from truelog.storage.api_key import Role, add_key, revoke_key
from truelog.storage.database import Connection
from truelog.support.errors import NotSetUp
from truelog.support.settings import Settings

MINUTE = datetime(2026, 1, 1, tzinfo=UTC)
ROWS, BUSY = f"/views/{PAGES}/rows", f"/views/{PAGES}/relations/busy"
NAMES = {"view": PAGES, "relation": "busy", "address": "192.0.2.1", "namespace": "log", "table": "page_view"}
GUARDED = [route for route in HTTP.routes if route is not HEALTH]
SHOP = {"view": PAGES, "key": {"host": "shop.example"}}


@pytest.fixture(autouse=True, scope="module")
def _filled(deployed: Connection) -> None:
    count(deployed, [("shop.example", MINUTE, 101), ("wiki.example", MINUTE, 202)])
    reach(deployed, 1)


def path_of(route: Route) -> str:
    return route.path.format(**NAMES)


def token(api: Asking, **changes: Any) -> str:
    made = api.request("POST", "/tokens", json=SHOP | changes)
    assert made.status_code == 200, made.text
    assert made.headers["Cache-Control"] == "no-store"
    return str(made.json()["token"])


def forged(settings: Settings, secret: str | None = None, algorithm: str = "HS256", **claims: Any) -> str:
    now = int(time.time())
    right = {"iss": "truelog", "sub": "reader", "aud": PAGES, "rel": "", "scope": {"host": "shop.example"}}
    right |= {"jti": "of a test"}
    stated = {name: each for name, each in (right | {"iat": now, "exp": now + 60} | claims).items() if each is not None}
    return jwt.encode(stated, settings.api_token_secret.get_secret_value() if secret is None else secret, algorithm)


@pytest.mark.parametrize("route", GUARDED, ids=lambda route: f"{route.method} {route.path}")
def test_every_route_refuses_strangers_and_wrong_keys(api: Asking, postgresql: Settings, route: Route) -> None:
    producer, right = postgresql.producer_key.get_secret_value(), api.key
    form = "application/json" if route in OF_CATALOG else "application/problem+json"
    for wrong in ("", "reader", "reader.", right[:-1], right + "0", right.upper(), "nobody" + right[6:], "a.b.c"):
        refused = api.request(route.method, path_of(route), wrong, content=b"{" * 100_000)
        assert (refused.status_code, refused.headers["WWW-Authenticate"]) == (401, "Bearer")
        assert refused.headers["Content-Type"] == form
    basic = api.request(route.method, path_of(route), "", headers={"Authorization": f"Basic {right}"})
    assert basic.status_code == 401
    assert api.request(route.method, path_of(route), producer).status_code == 403
    admin = postgresql.admin_key.get_secret_value()
    assert api.request(route.method, path_of(route), admin).status_code not in (401, 403)


def test_health_needs_no_key(api: Asking) -> None:
    for method in ("GET", "HEAD"):
        assert api.request(method, "/health", "").status_code == 200


@pytest.mark.parametrize("route", HTTP.routes, ids=lambda route: f"{route.method} {route.path}")
def test_every_path_answers_the_methods_of_http(api: Asking, route: Route) -> None:
    allowed = "GET, HEAD, OPTIONS" if route.method == "GET" else "OPTIONS, POST"
    for method, status in {"OPTIONS": 204, "DELETE": 405, "PUT": 405}.items():
        answer = api.request(method, path_of(route), "")
        assert (answer.status_code, answer.headers["Allow"]) == (status, allowed)
    if route.method == "GET":
        got, head = (api.request(each, path_of(route)) for each in ("GET", "HEAD"))
        assert (head.status_code, head.headers.get("ETag")) == (got.status_code, got.headers.get("ETag"))


def test_other_paths_are_not_found(api: Asking) -> None:
    for path in ("/", "/docs", "/redoc", "/views/", "/views/a/b/c", "/metrics"):
        assert api.get(path).status_code == 404


def test_a_token_permits_its_rows_and_nothing_else(api: Asking) -> None:
    held = token(api)
    assert [each["views"] for each in api.get(ROWS, held).json()["rows"]] == [101]
    assert [each["views"] for each in api.get(ROWS, held, where="views>0", order="-views").json()["rows"]] == [101]
    for asked in ({"where": "host=wiki.example"}, {"key": ["wiki.example", MINUTE.isoformat()]}):
        assert api.get(ROWS, held, **asked).json()["rows"] == []
    for route in GUARDED:
        if route is not CHANGES and path_of(route) != ROWS:
            assert api.request(route.method, path_of(route), held, json=SHOP).status_code == 403
    assert api.get(f"/views/{PRODUCTS}/rows", held).status_code == 403
    relation = token(api, relation="busy")
    assert [each["views"] for each in api.get(BUSY, relation).json()["rows"]] == [101]
    assert api.get(ROWS, relation).status_code == 403


def test_the_cursor_of_another_scope_is_refused(api: Asking, deployed: Connection) -> None:
    cursor = api.get(ROWS, limit=1).json()["next"]
    assert api.get(ROWS, token(api), limit=1, cursor=cursor).status_code == 422


WRONG: dict[str, dict[str, Any]] = {
    "expired": {"iat": 1, "exp": int(time.time()) - 1},
    "of another secret": {"secret": "x" * 48},
    "without a signature": {"secret": "", "algorithm": "none"},
    "of another platform": {"iss": "elsewhere"},
    "without an end": {"exp": None},
    "without a scope": {"scope": None},
    "without an id": {"jti": None},
    "of an unknown key": {"sub": "nobody"},
    "of a producer": {"sub": "producer"},
    "not yet made": {"iat": int(time.time()) + 3_600},
}


@pytest.mark.parametrize("wrong", WRONG)
def test_other_tokens_are_refused(api: Asking, postgresql: Settings, wrong: str) -> None:
    assert api.get(ROWS, forged(postgresql)).status_code == 200
    refused = api.get(ROWS, forged(postgresql, **WRONG[wrong]))
    assert (refused.status_code, refused.headers["WWW-Authenticate"]) == (401, "Bearer")
    assert postgresql.api_token_secret.get_secret_value() not in refused.text


def test_a_token_of_a_process_whose_clock_is_ahead_is_valid(api: Asking, postgresql: Settings) -> None:
    """Its lifetime is not longer."""
    now = int(time.time())
    assert api.get(ROWS, forged(postgresql, iat=now + 3)).status_code == 200
    assert api.get(ROWS, forged(postgresql, exp=now - 1)).status_code == 401


def test_a_token_ends_with_the_key_that_made_it(postgresql: Settings, deployed: Connection) -> None:
    key = add_key(deployed, "shop", Role.READER, "a test")
    with asking(postgresql) as api:
        held = api.request("POST", "/tokens", key, json=SHOP).json()["token"]
        assert api.get(ROWS, held).status_code == 200
    revoke_key(deployed, "shop", "a test")
    with asking(postgresql) as api:
        assert api.get(ROWS, held).status_code == 401


def test_a_visitor_cannot_use_up_the_part_of_its_back_end(postgresql: Settings, deployed: Connection) -> None:
    """Its requests wait for events that do not come, and the requests of a second visitor are answered."""
    with asking(postgresql, api_requests=4, api_token_requests=1) as api:
        first, second = token(api), token(api)

        async def story() -> tuple[httpx.Response, list[httpx.Response]]:
            late = {"at_least": at(13).as_token(), "wait": 10}
            asked = {asyncio.create_task(api.ask("GET", ROWS, first, params=late)) for _ in range(6)}
            while sum(each.done() for each in asked) < 5 or not api.questions._reads._watch._waiting[PAGES, 1]:
                await asyncio.sleep(0)
            served = await api.ask("GET", ROWS, second)
            await asyncio.to_thread(reach, deployed, 13)
            return served, await asyncio.gather(*asked)

        served, answers = api.run(story())
        assert served.status_code == 200
        assert sorted(each.status_code for each in answers) == [200, *[429] * 5]
        refused = next(each for each in answers if each.status_code == 429)
        assert refused.json()["detail"] == "this scoped token has too many requests in progress; retry later"
        assert api.get(ROWS, first).status_code == 200


REQUESTS: dict[str, tuple[Any, int]] = {
    "unknown view": (SHOP | {"view": "nothing"}, 404),
    "unknown relation": (SHOP | {"relation": "nothing"}, 404),
    "no key": ({"view": PAGES, "key": {}}, 422),
    "a column that is not of the key": ({"view": PAGES, "key": {"views": "1"}}, 422),
    "too long": (SHOP | {"seconds": 901}, 422),
    "another member": (SHOP | {"admin": True}, 422),
    "a number": ({"view": PAGES, "key": {"host": 5}}, 422),
    "a list": ([SHOP], 422),
    "a lone surrogate": (b'{"view": "page_counts", "key": {"host": "\\ud800"}}', 422),
    "deep": (b"[" * 4_000, 422),
    "too large": (b" " * 5_000, 413),
    "no UTF-8": (b"\xff", 422),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_for_a_token_is_validated(api: Asking, name: str) -> None:
    body, status = REQUESTS[name]
    sent = {"content": body} if isinstance(body, bytes) else {"json": body}
    assert api.request("POST", "/tokens", **sent).status_code == status


def test_a_body_that_does_not_arrive_is_refused(api: Asking, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its sender would keep a request of its part in progress."""
    monkeypatch.setattr(questions, "_BODY_SECONDS", 0.05)

    async def slow() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.Event().wait()

    assert api.request("POST", "/tokens", content=slow()).status_code == 408


def test_origins_are_a_setting(api: Asking, postgresql: Settings) -> None:
    ask = {"Origin": "https://shop.example", "Access-Control-Request-Method": "GET"}
    ask |= {"Access-Control-Request-Headers": "authorization"}
    assert api.request("OPTIONS", ROWS, "", headers=ask).status_code == 400
    assert "access-control-allow-origin" not in api.get(ROWS, headers=ask).headers
    with asking(postgresql, api_origins="https://shop.example, https://www.shop.example") as open_api:
        allowed = open_api.request("OPTIONS", ROWS, "", headers=ask)
        assert (allowed.status_code, allowed.headers["access-control-allow-origin"]) == (200, "https://shop.example")
        foreign = ask | {"Origin": "https://evil.example"}
        assert open_api.request("OPTIONS", ROWS, "", headers=foreign).status_code == 400
        shown = open_api.get(ROWS, headers={"Origin": "https://shop.example"}).headers
        assert {"ETag", "Truelog-Answer"} <= {*shown["access-control-expose-headers"].split(", ")}
        assert "access-control-allow-credentials" not in shown


def test_the_service_does_not_start_without_its_secrets(postgresql: Settings) -> None:
    empty = type(postgresql.api_password)("")
    for name in ("api_password", "api_token_secret"):
        with pytest.raises(NotSetUp, match=name.upper()):
            create_app(postgresql.model_copy(update={name: empty}))
