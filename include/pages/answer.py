"""What a page asks for, as JSON, with the time at which it was read."""

import html
import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from fastapi import Request, Response
from fastapi.responses import HTMLResponse
from pydantic_core import to_json, to_jsonable_python

from truelog.storage import exact_json

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


_TITLES = {403: "Not permitted", 404: "Not found"}
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>{title} · Truelog</title>
<link rel="stylesheet" href="{root}/static/pages.css">
</head>
<body><main><h1>{title}</h1><p>{why}.</p><p><a href="{root}/flow">Flow</a> leads to the other pages.</p></main></body>
</html>
"""
_DEEPEST = 100  # levels of nesting
_TOO_DEEP = f"(nested in more than {_DEEPEST} levels)"


class Answer(Response):
    """FastAPI would copy each value several times, and an answer about a large platform has thousands of rows."""

    media_type = "application/json"

    def __init__(self, **found: object) -> None:
        super().__init__(_json({"as_of": datetime.now(UTC), **found}))


def refusal(detail: object, status: int) -> Response:
    """The reason for which a request is refused."""
    return Response(json.dumps({"detail": detail}), status, media_type=Answer.media_type)


def declined(request: Request, detail: object, status: int) -> Response:
    """The reason for which a request is refused: as a page, if a browser opened the address, or else as JSON."""
    if request.method != "GET" or "text/html" not in request.headers.get("accept", ""):
        return refusal(detail, status)
    why = html.escape(str(detail).rstrip(".")).encode("utf-8", "backslashreplace").decode()
    root = html.escape(request.scope.get("root_path", ""))
    return HTMLResponse(_PAGE.format(title=_TITLES.get(status, "Refused"), why=why, root=root), status)


def _json(found: dict[str, object]) -> bytes:
    try:
        return to_json(found, inf_nan_mode="null", timedelta_mode="float")
    except ValueError:  # half a character, which only an escape can carry, other bytes than UTF-8, or deep nesting
        return json.dumps(_carried(found)).encode()


def _carried(value: Any, depth: int = 0) -> Any:
    """The value as JSON data, without what JSON cannot carry. This is slow, and few answers need it."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if is_dataclass(value) and not isinstance(value, type):
        value = parts(value)
    if not isinstance(value, Mapping | list | tuple | set | frozenset):
        return to_jsonable_python(value, inf_nan_mode="null", timedelta_mode="float")
    if depth == _DEEPEST:
        return _TOO_DEEP
    if isinstance(value, Mapping):
        return {str(_carried(key, depth + 1)): _carried(each, depth + 1) for key, each in value.items()}
    return [_carried(each, depth + 1) for each in value]


def parts(found: "DataclassInstance") -> dict[str, Any]:
    """The fields by name, as an answer takes them. `asdict` would copy everything inside them."""
    return {each.name: getattr(found, each.name) for each in fields(found)}


def row_texts(row: Mapping[str, Any] | None) -> dict[str, str | None] | None:
    """A row with each value as text, because browsers round numbers of more than 53 bits. NULL stays None."""
    return None if row is None else {name: None if it is None else exact_json.text(it) for name, it in row.items()}
