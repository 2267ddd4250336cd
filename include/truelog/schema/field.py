"""Field: one column of an event type, derived from its declaration.

A declaration may use six types and four bounds, which the vectorised decoder, Spark, Iceberg and PostgreSQL all
represent identically. A text field may list its allowed values: `verb: Literal["added", "removed"]`. Anything else is
rejected when the file is loaded, not when the first record arrives.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import pyarrow as pa
from annotated_types import Ge, Le, MaxLen, MinLen
from pydantic import BaseModel
from pydantic import Field as Declared
from pydantic.fields import FieldInfo

from truelog.schema.names import COORDINATES
from truelog.support.errors import BadDeclaration

INSTANT = pa.timestamp("us", tz="UTC")
TYPES: Mapping[Any, pa.DataType] = {
    str: pa.string(),
    int: pa.int64(),
    bool: pa.bool_(),
    float: pa.float64(),
    datetime: INSTANT,
    list[str]: pa.list_(pa.string()),
}
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1

_TYPES: Mapping[str, Any] = {"list[str]" if each == list[str] else each.__name__: each for each in TYPES}
_BOUNDS = {"least": "ge", "most": "le", "shortest": "min_length", "longest": "max_length"}

COLUMN_NAME = re.compile(r"[a-z][a-z0-9_]*")
# Columns that the platform adds to an event in a transform.
RESERVED = frozenset({"event_time", "invalid", *COORDINATES, "broker_time"})


@dataclass(frozen=True)
class Field:
    """One column: its name and type, whether an event must have it, and its bounds or its allowed values."""

    name: str
    python_type: Any
    required: bool
    least: float | None = None
    most: float | None = None
    shortest: int | None = None
    longest: int | None = None
    values: tuple[str, ...] = ()  # the allowed values; empty if the declaration does not list them
    description: str = ""

    def as_data(self) -> dict[str, Any]:
        """The field as JSON data, without its description."""
        bounds = {name: getattr(self, name) for name in _BOUNDS}
        given = {name: bound for name, bound in bounds.items() if bound is not None}
        values = {"values": list(self.values)} if self.values else {}
        return {"name": self.name, "type": self.type_name, "required": self.required, **given, **values}

    @property
    def arrow_type(self) -> pa.DataType:
        return TYPES[self.python_type]

    @property
    def type_name(self) -> str:
        return "list[str]" if self.python_type == list[str] else str(self.python_type.__name__)


def fields_of(model: type[BaseModel]) -> tuple[Field, ...]:
    """The model's fields in declaration order. Raises BadDeclaration for an unsupported field."""
    return tuple(_field(f"{model.__name__}.{name}", name, info) for name, info in model.model_fields.items())


def _field(where: str, name: str, info: FieldInfo) -> Field:
    _require_plain_name(where, name, info)
    python_type, values, optional = _type(where, info.annotation)
    if not info.is_required() and not (optional and info.get_default(call_default_factory=False) is None):
        raise BadDeclaration(f"{where}: a default other than None would invent data; use `| None = None`.")
    if info.is_required() and optional:
        raise BadDeclaration(f"{where}: may be None but has no default; use `| None = None`.")
    bounds = _bounds(where, python_type, info.metadata)
    if values and bounds:
        raise BadDeclaration(f"{where}: the allowed values are listed, so bounds are of no use; leave the bounds out.")
    return Field(name, python_type, info.is_required(), **bounds, values=values, description=info.description or "")


def _require_plain_name(where: str, name: str, info: FieldInfo) -> None:
    if not COLUMN_NAME.fullmatch(name):
        raise BadDeclaration(f"{where}: a field is a column; use a name in lower case: a-z, 0-9 and _.")
    if name in RESERVED:
        raise BadDeclaration(f"{where}: an event has a column of this name in a transform; choose another name.")
    if info.alias or info.validation_alias or info.serialization_alias:
        raise BadDeclaration(f"{where}: aliases are not supported, because a field has one name; rename the field.")


def _type(where: str, annotation: Any) -> tuple[Any, tuple[str, ...], bool]:
    """The declared type without `| None`, its allowed values, and whether the declaration had `| None`."""
    parts: tuple[Any, ...] = (annotation,)
    if get_origin(annotation) in (Union, UnionType):
        parts = get_args(annotation)
    optional = NoneType in parts
    types = [part for part in parts if part is not NoneType]
    if len(types) == 1 and types[0] in TYPES:
        return types[0], (), optional
    if len(types) == 1 and get_origin(types[0]) is Literal:
        return str, _values(where, get_args(types[0])), optional
    raise BadDeclaration(
        f"{where}: Arrow, Spark, Iceberg and PostgreSQL do not represent the type {annotation} identically; "
        "use str, int, bool, float, datetime or list[str], with `| None = None` if the field is optional."
    )


def _values(where: str, declared: tuple[Any, ...]) -> tuple[str, ...]:
    # The decoder changes U+0000 to U+2400, and control characters look alike in messages.
    if all(isinstance(each, str) and each and each.isprintable() and "\u2400" not in each for each in declared):
        return tuple(dict.fromkeys(declared))
    raise BadDeclaration(f"{where}: allowed values are printable texts, not {declared}.")


def _bounds(where: str, python_type: Any, metadata: list[Any]) -> dict[str, Any]:
    bounds: dict[str, Any] = {}
    for bound in metadata:
        if isinstance(bound, Ge) and python_type in (int, float):
            bounds["least"] = _limit(where, python_type, bound.ge)
        elif isinstance(bound, Le) and python_type in (int, float):
            bounds["most"] = _limit(where, python_type, bound.le)
        elif isinstance(bound, MinLen) and python_type in (str, list[str]):
            bounds["shortest"] = bound.min_length
        elif isinstance(bound, MaxLen) and python_type in (str, list[str]):
            bounds["longest"] = bound.max_length
        else:
            raise BadDeclaration(
                f"{where}: {bound} cannot be checked by column; numbers take `ge` and `le`, "
                "text and lists take `min_length` and `max_length`."
            )
    return bounds


def _limit(where: str, python_type: Any, limit: Any) -> Any:
    if python_type is int and not (type(limit) is int and INT64_MIN <= limit <= INT64_MAX):
        raise BadDeclaration(f"{where}: the bound {limit} of an integer field must be a 64-bit integer.")
    return limit


def annotations(fields: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The type and the declaration of each field of a model, by name, from the data of the fields."""
    found: dict[str, Any] = {}
    for each in fields:
        python_type = Literal[tuple(each["values"])] if "values" in each else _TYPES[each["type"]]
        bounds = {argument: each[bound] for bound, argument in _BOUNDS.items() if bound in each}
        if each["required"]:
            found[each["name"]] = (python_type, Declared(**bounds))
        else:
            found[each["name"]] = (python_type | None, Declared(default=None, **bounds))
    return found
