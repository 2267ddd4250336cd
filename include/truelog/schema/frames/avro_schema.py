"""Avro schemas that can be kept: no value of such a schema can exhaust a process that reads it.

A reader allocates memory for each element of an array and needs stack for each level. So each value must take at least
one byte, and no type may contain itself.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import fastavro
from fastavro.schema import SchemaParseException

from truelog.support.errors import BadDeclaration

MOST_CHARACTERS = 100_000  # of any kept schema: each process has a copy of it
MOST_DIGITS = 1_000  # of a decimal
OWN_DECIMAL = "truelog-decimal"  # fastavro rounds a decimal that has too many digits; our reader refuses it
_MOST_LEVELS = 32
_RECORDS = frozenset({"record", "error"})  # fastavro reads an error as a record
_UNREADABLE = (ValueError, TypeError, KeyError, AttributeError, RecursionError, SchemaParseException)


def require_readable(text: str) -> None:
    """Require that values of this schema can be read safely.

    Raises:
        BadDeclaration: the message says what is wrong.
    """
    try:
        schema = parsed(text)
    except _UNREADABLE as error:
        raise BadDeclaration(f"it is not a valid Avro schema: {type(error).__name__}") from None
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise BadDeclaration("an event is a record, and it describes another type")
    _Examined().levels(schema, in_union=False)


@lru_cache(maxsize=1_024)
def parsed(text: str) -> Any:
    """The schema as fastavro reads it, parsed once in each process."""
    return fastavro.parse_schema(_with_own_decimals(json.loads(text)))


def _with_own_decimals(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_with_own_decimals(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {
        name: _with_own_decimals(value) if name in ("type", "items", "values", "fields") else value
        for name, value in schema.items()
    }
    return found | {"logicalType": OWN_DECIMAL} if found.get("logicalType") == "decimal" else found


@dataclass(frozen=True)
class _Examined:
    """The named types that were examined already, with their levels; None while a type is examined."""

    named: dict[str, int | None] = field(default_factory=dict)

    def levels(self, schema: Any, *, in_union: bool) -> int:
        """The number of levels of a type. Raises BadDeclaration if a value cannot be read safely."""
        if isinstance(schema, list):
            return max((self.levels(each, in_union=True) for each in schema), default=0)
        kind = schema["type"] if isinstance(schema, dict) else schema
        if not isinstance(kind, str):
            return self.levels(kind, in_union=in_union)
        if not isinstance(schema, dict) and kind in self.named:
            return self._known(kind)
        if kind == "null" and not in_union:
            raise BadDeclaration("it has the type null outside a union")
        if not isinstance(schema, dict):
            return 0
        _require_bounded(schema)
        return self._of_parts(schema)

    def _known(self, name: str) -> int:
        found = self.named[name]
        if found is None:
            raise BadDeclaration(f"the type {name} contains itself")
        return found

    def _of_parts(self, schema: Mapping[str, Any]) -> int:
        name = schema.get("name")
        if name is not None:
            self.named[name] = None
        found = max((self.levels(each, in_union=False) for each in _parts(schema)), default=-1) + 1
        if found > _MOST_LEVELS:
            raise BadDeclaration(f"it has more than {_MOST_LEVELS} levels")
        if name is not None:
            self.named[name] = found
        return found


def _parts(schema: Mapping[str, Any]) -> Iterator[Any]:
    yield from (each["type"] for each in schema.get("fields", ()))
    yield from (schema[name] for name in ("items", "values") if name in schema)


def _require_bounded(schema: Mapping[str, Any]) -> None:
    if schema["type"] in _RECORDS and not schema["fields"]:
        raise BadDeclaration("it has a record without fields")
    if schema["type"] == "fixed" and schema["size"] < 1:
        raise BadDeclaration("it has a fixed type of size 0")
    if schema.get("logicalType") == OWN_DECIMAL and not 0 < schema.get("precision", 0) <= MOST_DIGITS:
        raise BadDeclaration(f"it has a decimal without a precision from 1 to {MOST_DIGITS:,}")
    if schema.get("logicalType") == OWN_DECIMAL and not 0 <= schema.get("scale", 0) <= schema["precision"]:
        raise BadDeclaration("it has a decimal whose scale is not between 0 and its precision")
