"""What a page asks for, as JSON, with the time at which it was read."""

import json
from collections.abc import Mapping
from dataclasses import fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from fastapi import Response
from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python

from truelog.storage import exact_json

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


class Answer(Response):
    """FastAPI would copy each value several times, and an answer about a large platform has thousands of rows."""

    media_type = "application/json"

    def __init__(self, **found: object) -> None:
        super().__init__(_json({"as_of": datetime.now(UTC), **found}))


def refusal(detail: object, status: int) -> Response:
    """The reason for which a request is refused."""
    return Response(json.dumps({"detail": detail}), status, media_type=Answer.media_type)


def _json(found: dict[str, object]) -> bytes:
    try:
        return to_json(found, inf_nan_mode="null", timedelta_mode="float")
    except PydanticSerializationError:  # a producer's text has half a character, which only an escape can carry
        return json.dumps(to_jsonable_python(found, inf_nan_mode="null", timedelta_mode="float")).encode()


def parts(found: "DataclassInstance") -> dict[str, Any]:
    """The fields by name, as an answer takes them. `asdict` would copy everything inside them."""
    return {each.name: getattr(found, each.name) for each in fields(found)}


def row_texts(row: Mapping[str, Any] | None) -> dict[str, str | None] | None:
    """A row with each value as text, because browsers round numbers of more than 53 bits. NULL stays None."""
    return None if row is None else {name: None if it is None else exact_json.text(it) for name, it in row.items()}
