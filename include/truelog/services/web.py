"""How a service answers HTTP requests: its declared routes, the API keys for them, and one form of errors.

A refused request gets `{"error": reason}`. A request for an unknown route gets Starlette's reason as `detail`.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route as WebRoute
from starlette.routing import compile_path

from truelog.services import page_access
from truelog.services.declaration import Http, Route
from truelog.storage.api_key import RELOAD_SECONDS, KeyRing, Role
from truelog.support.background import Background, running
from truelog.support.errors import RequestRefused
from truelog.support.settings import Settings

Handler = Callable[[Request], Awaitable[Response]]
_STOP_SECONDS = 1.0  # an unfinished reload of the keys may be lost


def create_app(
    settings: Settings,
    declared: Http,
    handlers: Mapping[Route, Handler],
    work: Callable[[], AbstractAsyncContextManager[None]],
) -> Starlette:
    """The ASGI application with the declared routes, once PostgreSQL has answered with the keys.

    `work` surrounds the time in which it serves.

    The handler of a route with a role finds the sender's key in `request.state.key`.
    """
    keys = KeyRing(settings)
    keys.load()

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with up_to_date(keys), work():
            yield

    app = Starlette(
        routes=[_web_route(route, handlers[route], keys) for route in declared.routes],
        exception_handlers={RequestRefused: _refused, HTTPException: _unknown},
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False  # the redirect's address would come from the request's Host header
    return app


@asynccontextmanager
async def up_to_date(keys: KeyRing) -> AsyncIterator[None]:
    """Load the keys again every few seconds during the block."""
    with running([Background("keys", keys.reload, RELOAD_SECONDS)], _STOP_SECONDS):
        yield


def _web_route(route: Route, handler: Handler, keys: KeyRing) -> WebRoute:
    if route.role is Role.BROWSER:
        endpoint = page_access.endpoint(route.method, handler, keys, _refused)
        return WebRoute(route.path, endpoint, methods=[route.method, "OPTIONS"])

    async def answer(request: Request) -> Response:
        if route.role is not None:
            request.state.key = keys.authorize(request.headers.get("authorization", ""), route.role)
        return await handler(request)

    return WebRoute(route.path, answer, methods=[route.method])


def matches(route: Route, request: Request) -> bool:
    """Whether a request has the path of a route."""
    return compile_path(route.path)[0].fullmatch(request.url.path) is not None


async def _refused(_: Request, error: Exception) -> Response:
    refused = error if isinstance(error, RequestRefused) else RequestRefused(500, str(error))
    headers = {} if refused.retry_after is None else {"Retry-After": str(refused.retry_after)}
    if refused.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse({"error": str(refused)}, refused.status, headers)


async def _unknown(request: Request, error: Exception) -> Response:
    """The response to a path or a method that does not exist. OPTIONS asks which methods a path has."""
    unknown = error if isinstance(error, HTTPException) else HTTPException(500)
    headers = dict(unknown.headers or {})
    if unknown.status_code == 405:
        headers["Allow"] = ", ".join(sorted({*headers.get("Allow", "").split(", "), "OPTIONS"} - {""}))
        if request.method == "OPTIONS":
            return Response(status_code=204, headers=headers)
    return JSONResponse({"detail": unknown.detail}, unknown.status_code, headers)
