"""The back end of a small shop on Truelog: a model to copy.

The browser sends page views, searches and likes itself, with the tracker and a key that may only do that. It also reads
views itself, with scoped tokens. This back end holds the API keys, and so decides who may read and change what:

- it knows the visitor by a signed cookie, and gives only tokens for the visitor's own rows and for public ones;
- it sends what must be true (carts, tweets) for the visitor, and never believes a name in a request.

    SHOP_COLLECTOR=… SHOP_API=… SHOP_WRITES=… SHOP_READS=… SHOP_PAGES=… SHOP_PORT=18090 python examples/shop/server.py
"""

import hashlib
import hmac
import json
import os
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from truelog.client.async_client import AsyncClient

HERE = Path(__file__).parent
PRODUCTS = json.loads((HERE / "products.json").read_text())
COMMANDS = {"add_to_cart", "change_quantity", "remove_from_cart", "check_out_cart"}
PUBLISHED = {"cart", "home_timeline"}  # the views whose files say `publish=True`
FILES = {"shop.js": "text/javascript", "shop.css": "text/css", "products.json": "application/json"}
COLLECTOR, API = os.environ["SHOP_COLLECTOR"], os.environ["SHOP_API"]
WRITES, PAGES = os.environ["SHOP_WRITES"], os.environ["SHOP_PAGES"]
TRACKER = f"{COLLECTOR}/truelog.4.js"
# The visitor's browser runs only these scripts, and talks only to these services.
POLICY = f"default-src 'self'; img-src data:; script-src 'self' {COLLECTOR}; connect-src 'self' {COLLECTOR} {API}"

truelog = AsyncClient(collector=COLLECTOR, api=API, producer_key=WRITES, reader_key=os.environ["SHOP_READS"])
commands = httpx.AsyncClient(base_url=f"{COLLECTOR}/commands/", headers={"Authorization": f"Bearer {WRITES}"})


@asynccontextmanager
async def open_shop(_: Starlette) -> AsyncIterator[None]:
    """Each product is a post, so that visitors can like it. What was sent at an earlier start changes nothing."""
    posts = [{"type": "post", "post_id": each["id"], "text": each["name"]} for each in PRODUCTS]
    welcome = {"type": "tweet", "tweet_id": "welcome", "text": "Welcome to the shop"}
    await truelog.send(*({**each, "author_id": "shop", "verb": "posted"} for each in [*posts, welcome]))
    yield
    await truelog.close()
    await commands.aclose()


def signed(name: str) -> str:
    """The cookie of a visitor. The name alone is in public events, so the cookie is signed."""
    return f"{name}.{hmac.new(WRITES.encode(), name.encode(), hashlib.sha256).hexdigest()}"


def visitor(request: Request) -> str:
    """The visitor's name; empty if the cookie is missing or is not ours."""
    cookie = request.cookies.get("visitor", "")
    name = cookie.partition(".")[0]
    return name if hmac.compare_digest(cookie.encode(), signed(name).encode()) else ""


async def page(request: Request) -> Response:
    """The one page. A new visitor gets a cookie, and follows the shop and the own tweets."""
    text = (HERE / "page.html").read_text().replace("{tracker}", TRACKER).replace("{key}", PAGES).replace("{api}", API)
    response = HTMLResponse(text, headers={"Content-Security-Policy": POLICY})
    if not visitor(request):
        name = f"v{uuid.uuid4().hex[:12]}"
        follow = {"type": "follow", "follower_id": name, "verb": "followed"}
        await truelog.send(*({**follow, "followee_id": each} for each in ("shop", name)))
        response.set_cookie("visitor", signed(name), httponly=True, samesite="strict", max_age=31_536_000)
    return response


async def token(request: Request) -> Response:
    """Tokens with which the browser may read some rows for five minutes, and follow their changes if there are any.

    The cookie says whose rows. The timeline's texts are in a relation, and changes are those of the view itself.
    """
    name = request.path_params["name"]
    asked: dict[str, tuple[str, dict[str, str], str]] = {
        "cart": ("cart", {"cart_id": visitor(request)}, ""),
        "timeline": ("home_timeline", {"reader_id": visitor(request)}, "newest"),
        **{each["id"]: ("post", {"post_id": each["id"]}, "") for each in PRODUCTS},
    }
    if name not in asked or not visitor(request):
        return JSONResponse({"error": "no such rows"}, 404)
    view, key, relation = asked[name]
    path = f"/views/{view}/relations/{relation}" if relation else f"/views/{view}/rows"
    granted: dict[str, Any] = {"path": path, "token": await truelog.scoped_token(view, key, relation)}
    if view in PUBLISHED:
        granted["changes"] = {"path": f"/views/{view}/changes", "token": await truelog.scoped_token(view, key)}
    return JSONResponse(granted)


async def command(request: Request) -> Response:
    """A command on the visitor's own cart. The answer of Truelog says whether it is accepted, or why not."""
    name, fields = request.path_params["name"], await _body(request)
    if name not in COMMANDS or not visitor(request):
        return JSONResponse({"error": "no such command"}, 404)
    own = {"cart_id": visitor(request), "visitor_id": visitor(request)}
    repeat = {"Idempotency-Key": request.headers.get("idempotency-key") or uuid.uuid4().hex}
    answer = await commands.post(name, json=fields | own, headers=repeat)
    return Response(answer.content, answer.status_code, media_type="application/json")


async def tweet(request: Request) -> Response:
    """A tweet of the visitor. With the position token of the answer, a read contains it."""
    text = str((await _body(request)).get("text", ""))[:280]
    made = {
        "type": "tweet",
        "tweet_id": uuid.uuid4().hex,
        "author_id": visitor(request),
        "verb": "posted",
        "text": text,
    }
    if not visitor(request) or not text:
        return JSONResponse({"error": "say something"}, 422)
    return JSONResponse({"token": (await truelog.send(made)).token})


async def _body(request: Request) -> dict[str, Any]:
    """The JSON of a request of this page: other sites cannot send this type without asking."""
    found = await request.json() if request.headers.get("content-type") == "application/json" else {}
    return found if isinstance(found, dict) else {}


async def file(request: Request) -> Response:
    name = request.path_params["name"]
    return FileResponse(HERE / name, media_type=FILES[name]) if name in FILES else Response(status_code=404)


ROUTES = [
    Route("/", page),
    Route("/products/{id}", page),
    Route("/files/{name}", file),
    Route("/tokens/{name}", token, methods=["POST"]),
    Route("/commands/{name}", command, methods=["POST"]),
    Route("/tweets", tweet, methods=["POST"]),
]
app = Starlette(routes=ROUTES, lifespan=open_shop)

if __name__ == "__main__":
    uvicorn.run(app, port=int(os.environ["SHOP_PORT"]), access_log=False)
