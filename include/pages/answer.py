"""What a page asks for, as JSON, with the time at which it was read."""

from dataclasses import fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from fastapi import Response
from pydantic_core import to_json

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


class Answer(Response):
    """FastAPI would copy each value several times, and an answer about a large platform has thousands of rows."""

    media_type = "application/json"

    def __init__(self, **found: object) -> None:
        everything = {"as_of": datetime.now(UTC), **found}
        super().__init__(to_json(everything, inf_nan_mode="null", timedelta_mode="float"))


def parts(found: "DataclassInstance") -> dict[str, Any]:
    """The fields by name, as an answer takes them. `asdict` would copy everything inside them."""
    return {each.name: getattr(found, each.name) for each in fields(found)}
