"""Requests of pages of other origins: who may send them, and what their browser must know (CORS).

The key of a page is in the address (`?key=`). A request with an `Authorization` header would need a preflight, which is
impossible when a page is being closed. The page may read each answer, also a refusal: otherwise it could not tell a
refusal from a lost connection.
"""

from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response

from truelog.storage.api_key import ApiKey, KeyRing
from truelog.support.errors import RequestRefused

_PREFLIGHT_SECONDS = 86_400
Handler = Callable[[Request], Awaitable[Response]]
Refuse = Callable[[Request, Exception], Awaitable[Response]]


def endpoint(method: str, handler: Handler, keys: KeyRing, refuse: Refuse) -> Handler:
    """Answers the requests of pages, and their preflights."""

    async def answer(request: Request) -> Response:
        try:
            request.state.key = _key(request, keys)
            response = _preflight(method) if request.method == "OPTIONS" else await handler(request)
        except RequestRefused as refused:
            response = await refuse(request, refused)
        response.headers["Access-Control-Allow-Origin"] = _origin(request) or "null"
        response.headers["Vary"] = "Origin"
        return response

    return answer


def _key(request: Request, keys: KeyRing) -> ApiKey:
    return keys.authorize_page(request.query_params.get("key", ""), _origin(request))


def _origin(request: Request) -> str:
    return request.headers.get("origin", "")


def _preflight(method: str) -> Response:
    headers = {
        "Access-Control-Allow-Methods": method,
        "Access-Control-Allow-Headers": "Content-Type",
        "Access-Control-Max-Age": str(_PREFLIGHT_SECONDS),
    }
    return Response(status_code=204, headers=headers)
