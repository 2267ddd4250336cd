"""The OpenAPI document: the answers with examples, the problems, and how a client says who it is."""

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel, ConfigDict
from starlette.responses import StreamingResponse

from truelog.services.api.changes.stream import MEDIA_TYPE as EVENTS
from truelog.services.api.iceberg.refusal import is_of_catalog
from truelog.services.api.problem import MEDIA_TYPE

ABOUT = """Answers questions about views. Each answer says its version, layer, positions and age.

Send `Authorization: Bearer KEY` with the key of a reader."""

_HEAD: dict[str, Any] = {
    "view": "page_views",
    "version": 1,
    "layer": "stream",
    "positions": {"page_view": {"0": 1204, "1": 1187}},
    "clock": None,
    "as_of": "2026-01-01T10:00:03.25Z",
    "age": 1.042,
    "reason": "",
}
_COLUMNS = [{"name": "host", "type": "text", "meaning": "host name of the page's URL"}]
_ROW = {"minute": "2026-01-01T10:00:00+00:00", "host": "shop.example", "views": 17}
_PROBLEMS = {
    401: "The API key or the scoped token is not valid.",
    403: "The key or the token does not permit the request.",
    404: "There is no such view or relation.",
    408: "The body took too long to arrive.",
    409: "The view is behind the position token (`behind`), has changed since the page before (`moved`), has another "
    "version (`other-version`), does not publish its changes (`not-published`), or cannot be rebuilt as of the time "
    "(`no-past`); or the position token is of a dead letter (`dead-letter`).",
    410: "A topic of the position token was deleted and created again (`recreated`).",
    413: "The body is too large.",
    414: "The query is too long.",
    422: "A parameter is not valid.",
    429: "Too many requests of this key or token are in progress, or too many questions about the past wait. Retry "
    "after `Retry-After` seconds.",
    503: "PostgreSQL does not answer, the view is being replaced, the statement needs too long (`slow`), or a rebuild "
    "as of the time has failed (`no-past`).",
}
_PROBLEMS_OF_CATALOG = {
    400: "A parameter is not valid.",
    401: "The API key is not valid.",
    403: "The key is not that of an archivist.",
    404: "There is no such namespace or table.",
    414: "The query is too long.",
    429: "Too many requests of this key are in progress. Retry after `Retry-After` seconds.",
    503: "PostgreSQL or the object store does not answer, or the archive is held back after a restore.",
}
# The answer of the HTTP server itself, before the application.
_UNREADABLE = {"description": "The request is not HTTP, or its head has over 64 KB.", "content": {"text/plain": {}}}


# An event of a stream. Its data is JSON.
_EVENT: dict[str, Any] = {
    "type": "object",
    "required": ["event", "id", "data"],
    "properties": {
        "event": {"enum": ["rows", "change", "resync"]},
        "id": {"type": "string"},
        "data": {"type": "string", "contentMediaType": "application/json"},
    },
}
_CHANGE = {
    "event": "change",
    "id": "2.18.6f1c0c5e-9a53-4a1e-8f0b-3f3c6a8b6d11",
    "data": '{"number":18,"positions":{"tweet":{"0":7}},"at":"2026-01-01T10:00:03.25Z",'
    '"changes":[{"key":{"reader_id":"p7"},"row":null}]}',
}
# The answer to a subscriber. Its events are `rows`, `change` and `resync`.
STREAM: dict[str, Any] = {
    "response_class": StreamingResponse,
    "response_model": None,
    "responses": {
        200: {
            "description": "Server-sent events: `rows` with all rows, `change` with the changes of a transaction, and "
            "`resync` if the client must forget its rows. The id of `rows` or `change` is the client's place.",
            "content": {EVENTS: {"schema": _EVENT, "example": _CHANGE}},
        }
    },
}


# The answer to a client of the catalog. Iceberg's REST protocol describes the bodies.
OF_ICEBERG: dict[str, Any] = {
    "response_model": None,
    "responses": {
        200: {
            "description": "As Iceberg's REST protocol describes it.",
            "content": {"application/json": {"schema": {"type": "object"}}},
        }
    },
}


class Head(BaseModel):
    """What every answer says: which version and which layer served it, at which positions of the log, how old it is.

    `clock` is the log's clock, if the view depends on it. Every record that reached the log before `as_of` is counted.
    `reason` says what is wrong with the view, if anything.
    """

    view: str
    version: int
    layer: str
    positions: dict[str, dict[str, int]]
    clock: str | None
    as_of: str | None
    age: float | None
    reason: str


class Column(BaseModel):
    name: str
    type: str
    meaning: str | None


class Relation(BaseModel):
    key: list[str]
    columns: list[Column]


class Views(BaseModel):
    model_config = ConfigDict(json_schema_extra={"example": {"views": [_HEAD]}})
    views: list[Head]


class View(Head):
    model_config = ConfigDict(
        json_schema_extra={"example": _HEAD | {"key": ["host"], "columns": _COLUMNS, "relations": {}}}
    )
    key: list[str]
    columns: list[Column]
    relations: dict[str, Relation]


class RowPage(Head):
    """`more` says whether more rows match. `next` is the cursor of the next page, if the relation has a key.

    With `as_of`, relations without a key have cursors too.
    """

    model_config = ConfigDict(json_schema_extra={"example": _HEAD | {"rows": [_ROW], "more": False, "next": None}})
    rows: list[dict[str, Any]]
    more: bool
    next: str | None


class PastWaits(BaseModel):
    """The rows as of the time are not rebuilt yet. `state` is `waiting` or `rebuilding`, for so many seconds by now."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "view": "page_views",
                "past": "2026-01-01T10:00:00Z",
                "state": "rebuilding",
                "seconds": 12.5,
                "detail": "a job rebuilds the rows; ask the same again after `Retry-After` seconds",
            }
        }
    )
    view: str
    past: str
    state: str
    seconds: float
    detail: str


class RateLimit(BaseModel):
    """The decision is advisory: it counts the requests that have reached the views."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "address": "192.0.2.1",
                "at": "2026-01-01T10:00:03Z",
                "allowed": True,
                "why": "policy",
                "reason": None,
                "count": 3,
                "limit": 100,
                "window_seconds": 3600,
                "resets_at": "2026-01-01T10:00:03Z",
                "advisory": True,
                "views": [_HEAD | {"view": "request_rates"}],
            }
        }
    )
    address: str
    at: str
    allowed: bool
    why: str
    reason: str | None
    count: int
    limit: int
    window_seconds: int
    resets_at: str | None
    advisory: bool
    views: list[Head]


class ScopedToken(BaseModel):
    model_config = ConfigDict(
        json_schema_extra={"example": {"token": "eyJhbGciOi…", "expires_at": "2026-01-01T10:05:00Z"}}
    )
    token: str
    expires_at: str


class Health(BaseModel):
    postgresql: bool


class ProblemDocument(BaseModel):
    """RFC 9457. Some kinds have more members."""

    model_config = ConfigDict(extra="allow")
    type: str
    title: str
    status: int
    detail: str


class CatalogErrorBody(BaseModel):
    message: str
    type: str
    code: int


class CatalogError(BaseModel):
    """The form of Iceberg's REST protocol."""

    error: CatalogErrorBody


def completed(app: FastAPI) -> dict[str, Any]:
    """The document of FastAPI with every operation's problems, and with the credentials."""
    document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas["Problem"] = ProblemDocument.model_json_schema()
    schemas["CatalogErrorBody"] = CatalogErrorBody.model_json_schema()
    schemas["CatalogError"] = CatalogError.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas["CatalogError"].pop("$defs")
    components["securitySchemes"] = {
        "key": {"type": "http", "scheme": "bearer", "description": "An API key of a reader, or a scoped token."}
    }
    for path, operations in document["paths"].items():
        for operation in operations.values():
            operation["responses"].pop("422", None)  # FastAPI's own
            operation["responses"] |= _refusals(path)
            operation["security"] = [] if path == "/health" else [{"key": []}]
    return document


def _refusals(path: str) -> dict[str, Any]:
    """The refusals of a path, by status."""
    if is_of_catalog(path):
        content: dict[str, Any] = {"application/json": {"schema": {"$ref": "#/components/schemas/CatalogError"}}}
        problems = _PROBLEMS_OF_CATALOG
    else:
        content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
        problems = {503: _PROBLEMS[503]} if path == "/health" else _PROBLEMS
    answers: dict[str, Any] = {str(each): {"description": text, "content": content} for each, text in problems.items()}
    known = answers.get("400", {"content": {}})
    return answers | {"400": _UNREADABLE | {"content": _UNREADABLE["content"] | known["content"]}}
