"""The ASGI application: the declared routes in FastAPI, who may ask them, and the problems in place of errors.

FastAPI writes the OpenAPI document from the parameters of each question. Unlike the other services, which use Starlette
alone, the API has parameters that clients must know.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import psycopg
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from psycopg_pool import PoolTimeout, TooManyRequests
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import JSONResponse

from truelog import __version__
from truelog.erasure import hold
from truelog.services import web
from truelog.services.api import documents, problem
from truelog.services.api.access import authorize
from truelog.services.api.answer_counts import AnswerCounts
from truelog.services.api.declaration import (
    ABOUT_ROWS,
    CATALOG_CONFIGURATION,
    CATALOG_NAMESPACE,
    CATALOG_NAMESPACES,
    CATALOG_TABLE,
    CATALOG_TABLES,
    CHANGES,
    HTTP,
    OF_CATALOG,
    OPENAPI,
    RATE_LIMIT,
    RELATION,
    ROWS,
    SEARCH,
    TOKENS,
    VIEW,
    VIEWS,
)
from truelog.services.api.iceberg import refusal
from truelog.services.api.iceberg.catalog import ArchiveCatalog
from truelog.services.api.problem import Kind, Problem
from truelog.services.api.questions import Questions, TokenRequest
from truelog.services.api.rows.answer import HEADER
from truelog.services.api.rows.reads import HELD_SECONDS
from truelog.services.api.scoped_token import TokenSigner
from truelog.services.api.shares import Shares
from truelog.services.declaration import HEALTH, Route
from truelog.storage.api_key import KeyRing
from truelog.support.errors import BadInput, RequestRefused
from truelog.support.settings import Settings

_LONGEST_QUERY = 16_384  # bytes
_BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": TokenRequest.model_json_schema()}},
    }
}

# What a restored or migrated database lacks at first. The API's statements are its own, so no client causes these.
_INCOMPLETE = (
    psycopg.errors.InsufficientPrivilege,
    psycopg.errors.InvalidSchemaName,
    psycopg.errors.UndefinedColumn,
    psycopg.errors.UndefinedTable,
)

log = logging.getLogger(__name__)


def create_app(settings: Settings) -> FastAPI:
    """The ASGI application, once PostgreSQL has answered with the keys."""
    keys = KeyRing(settings)
    signer = TokenSigner(settings, keys)
    keys.load()  # first: if the database is down, the start is tried again
    questions = Questions(settings, signer)
    counts = AnswerCounts(settings)
    capacity = Shares(settings.api_requests, max(1, settings.api_requests // 2), settings.api_token_requests)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with web.up_to_date(keys), questions.work():
            with counts.kept():
                yield

    app = FastAPI(
        title="Truelog", version=__version__, description=documents.ABOUT,
        openapi_url=None, docs_url=None, redoc_url=None, redirect_slashes=False, lifespan=lifespan,
    )  # fmt: skip
    app.state.questions = questions
    for route, handler, about in _handlers(app, questions, ArchiveCatalog(settings)):
        limited = _route_class(route, keys, signer, capacity, counts)
        app.router.add_api_route(route.path, handler, methods=[route.method], route_class_override=limited, **about)
        if route.method == "GET":
            app.router.add_api_route(
                route.path, handler, methods=["HEAD"], route_class_override=limited, include_in_schema=False
            )
    _add_problems(app, questions)
    app.add_middleware(
        CORSMiddleware,
        allow_origins=[each.strip() for each in settings.api_origins.split(",") if each],
        allow_methods=["GET", "POST"],
        allow_headers=["Authorization", "If-None-Match", "Content-Type", "Last-Event-ID"],
        expose_headers=["ETag", "Retry-After", HEADER],
        max_age=600,
    )
    return app


def _handlers(
    app: FastAPI, questions: Questions, catalog: ArchiveCatalog
) -> list[tuple[Route, Callable[..., Any], dict[str, Any]]]:
    """The answer to each declared route, and what the OpenAPI document says about it."""

    async def openapi() -> Response:
        """This document."""
        return JSONResponse(documents.completed(app))

    known: dict[int, dict[str, Any]] = {
        202: {"model": documents.PastWaits, "description": "The rows as of the time are not rebuilt yet."},
        304: {"description": "The rows are those of `If-None-Match`. The header `Truelog-Answer` is as of now."},
    }
    handlers: dict[Route, tuple[Callable[..., Any], dict[str, Any]]] = {
        VIEWS: (questions.views, _returns(documents.Views)),
        VIEW: (questions.view, _returns(documents.View)),
        ROWS: (questions.rows, _returns(documents.RowPage, known)),
        RELATION: (questions.relation, _returns(documents.RowPage, known)),
        CHANGES: (questions.changes, documents.STREAM),
        TOKENS: (questions.token, _returns(documents.ScopedToken) | {"openapi_extra": _BODY}),
        RATE_LIMIT: (questions.rate_limit, _returns(documents.RateLimit)),
        SEARCH: (questions.search, _returns(documents.RowPage)),
        OPENAPI: (openapi, {}),
        HEALTH: (questions.health, _returns(documents.Health)),
        CATALOG_CONFIGURATION: (catalog.configuration, documents.OF_ICEBERG),
        CATALOG_NAMESPACES: (catalog.namespaces, documents.OF_ICEBERG),
        CATALOG_NAMESPACE: (catalog.namespace, documents.OF_ICEBERG),
        CATALOG_TABLES: (catalog.tables, documents.OF_ICEBERG),
        CATALOG_TABLE: (catalog.table, documents.OF_ICEBERG),
    }
    return [(route, *handlers[route]) for route in HTTP.routes]


def _returns(model: type, others: dict[int, dict[str, Any]] | None = None) -> dict[str, Any]:
    return {"responses": {200: {"model": model}, **(others or {})}, "response_model": None}


def _route_class(
    route: Route, keys: KeyRing, signer: TokenSigner, capacity: Shares, counts: AnswerCounts
) -> type[APIRoute]:
    """A route that asks who is there before it looks at anything else of the request."""

    class Guarded(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            answer, parameters = super().get_route_handler(), _parameters(self)

            async def guarded(request: Request) -> Response:
                if route.role is None:
                    return await answer(request)
                request.state.asker = authorize(request, route, keys, signer)
                request.state.is_permitted = partial(_is_permitted, request, route, keys, signer)
                if len(request.url.query) > _LONGEST_QUERY:
                    raise RequestRefused(414, f"the query may have at most {_LONGEST_QUERY} bytes")
                if route not in OF_CATALOG:  # its clients also send parameters that only other catalogs know
                    _require_known(request, parameters)
                with capacity.admit(request.state.asker):
                    answered = await answer(request)
                if route in ABOUT_ROWS:
                    counts.add(request.path_params["view"], request.state.asker.name)
                return answered

            return guarded

    return Guarded


def _parameters(route: APIRoute) -> list[str]:
    """The names of the parameters of a route, which one model declares."""
    declared = [each.field_info.annotation for each in route.dependant.query_params]
    models = [each for each in declared if isinstance(each, type) and issubclass(each, BaseModel)]
    return [name for model in models for name in model.model_fields]


def _require_known(request: Request, parameters: Sequence[str]) -> None:
    """Refuse an unknown parameter, and name the cure. The usual mistake is a condition without `where`."""
    unknown = next((each for each in request.query_params if each not in parameters), None)
    if unknown is None:
        return
    cure = f"; a condition on a column is where={unknown}=VALUE" if "where" in parameters else ""
    known = f"the parameters are {', '.join(parameters)}" if parameters else "this path has no parameters"
    raise RequestRefused(422, f"{unknown}: there is no such parameter{cure}; {known}")


def _is_permitted(request: Request, route: Route, keys: KeyRing, signer: TokenSigner) -> bool:
    """Whether the sender of a request may still ask the route, for an answer that does not end."""
    try:
        authorize(request, route, keys, signer)
    except RequestRefused:
        return False
    return True


def _add_problems(app: FastAPI, questions: Questions) -> None:
    """Turn each error into a problem, or into an error of the catalog."""

    async def refused(request: Request, error: Exception) -> Response:
        return _refused(request, error if isinstance(error, RequestRefused) else RequestRefused(422, str(error)))

    async def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)  # noqa: S101
        wrong = (f"{'.'.join(map(str, each['loc'][1:]))}: {each['msg']}" for each in error.errors())
        return _refused(request, RequestRefused(422, "; ".join(wrong)))

    async def unknown(request: Request, error: Exception) -> Response:
        return _unknown(request, error)

    async def database(request: Request, error: Exception) -> Response:
        reason = _of_database(error)
        if isinstance(error, _INCOMPLETE):
            log.error("the database lacks what the API reads", exc_info=error)
        elif reason.status == 503 and not isinstance(reason, Problem):
            log.warning("PostgreSQL did not answer: %s", error)
            await questions.reconnect()
        return _refused(request, reason)

    async def defect(request: Request, error: Exception) -> Response:
        return _refused(request, RequestRefused(500, "the API has a defect, which its log describes"))

    handlers: dict[type[Exception], Callable[[Request, Exception], Awaitable[Response]]] = {
        RequestRefused: refused,
        BadInput: refused,
        RequestValidationError: invalid,
        HTTPException: unknown,
        psycopg.Error: database,
        Exception: defect,
    }
    for kind, handler in handlers.items():
        app.add_exception_handler(kind, handler)


def _refused(request: Request, reason: RequestRefused, headers: Mapping[str, str] | None = None) -> Response:
    """The answer to a refused request, in the form that its client knows."""
    form = refusal.response if refusal.is_of_catalog(request.url.path) else problem.response
    return form(reason, headers)


def _unknown(request: Request, error: Exception) -> Response:
    """The answer to a path or a method that does not exist. OPTIONS asks which methods a path has."""
    assert isinstance(error, HTTPException)  # noqa: S101
    if error.status_code != 405:
        return _refused(request, RequestRefused(error.status_code, "there is no such path; see /openapi.json"))
    allowed = {route.method for route in HTTP.routes if web.matches(route, request)}
    allowed |= {"OPTIONS"} | ({"HEAD"} if "GET" in allowed else set())
    headers = {"Allow": ", ".join(sorted(allowed))}
    if request.method == "OPTIONS":
        return Response(status_code=204, headers=headers)
    return _refused(request, RequestRefused(405, f"the path has {headers['Allow']}"), headers)


def _of_database(error: Exception) -> RequestRefused:
    if isinstance(error, TooManyRequests | PoolTimeout):
        return Problem(503, "too many requests wait for PostgreSQL; retry later", retry_after=1)
    if isinstance(error, psycopg.Error) and (held := hold.refusal(error)):
        return RequestRefused(503, held, retry_after=HELD_SECONDS)
    if isinstance(error, psycopg.errors.QueryCanceled):
        reason = "the statement needs too long; name a key, ask for fewer rows, or order by the key"
        return Problem(503, reason, Kind.SLOW)
    if isinstance(error, psycopg.DataError | psycopg.errors.UndefinedFunction):
        return RequestRefused(422, str(error).splitlines()[0])
    if isinstance(error, psycopg.OperationalError):
        return RequestRefused(503, "PostgreSQL does not answer; retry later", retry_after=1)
    if isinstance(error, _INCOMPLETE):
        reason = "the database lacks what the API reads, as while it is restored; retry later"
        return RequestRefused(503, reason, retry_after=HELD_SECONDS)
    raise error
